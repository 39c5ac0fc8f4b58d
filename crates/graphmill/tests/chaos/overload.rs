//! A server with more to do than it may: its memory stays what it was told, and who reads is served.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use graphmill_client::{ConnectOptions, Loader, Options, Remote, Seeding, Transport};
use graphmill_net::{Endpoint, FrameReader, FrameWriter};
use graphmill_sample::{Config, law};
use graphmill_wire::proto::sampling_service_client::SamplingServiceClient;
use graphmill_wire::proto::{
    self, AllNodes, OpenBackendRequest, OpenChannel, OpenChannelRequest, Role, open_channel, open_channel_request,
};
use graphmill_wire::{Header, Kind, Limits, Message};
use rustix::process::Signal;
use serde_json::Value;
use tonic::transport::Channel;

use crate::cluster::PATIENCE;
use crate::process::Footprint;
use crate::servers::Served;
use crate::support::Workplace;

const CHANNELS: usize = 200;
/// Batches that each of them asks for: 128 nodes with 1 KiB of features.
const ASKED: u64 = 100;
const BUDGET: u64 = 64 << 20;
/// What a connection and its channel take beside the budget: tables, tasks, what is read ahead.
const PER_CONNECTION: u64 = 64 << 10;

fn config() -> Config {
    Config { features: vec!["x".to_owned()], ..Config::neighbors(&[]) }
}

#[test]
fn two_hundred_channels_of_slow_readers_do_not_take_more_memory_than_the_budget() {
    let place = Workplace::new();
    place.succeed("generate uniform --nodes 13k --edges 13k --features 256 --out g");
    let (server, address) = Served::start(&place, "g --threads 2 --listen 127.0.0.1:0 --memory-budget 64MiB");
    let epoch = || {
        let options = ConnectOptions { transport: Transport::Socket, deadline: PATIENCE, ..ConnectOptions::default() };
        let remote = Remote::connect(&[address.parse().unwrap()], options).unwrap();
        let options = Options { batch_size: 128, ..Options::default() };
        let loader = Loader::remote(&remote, config(), Seeding::All, options).unwrap();
        assert_eq!(loader.epoch(0).map(Result::unwrap).count(), loader.len());
    };
    // What is made once is there: the dataset, and the memory of samplers.
    epoch();
    let before = Footprint::of(server.child.id()).resident;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint: Endpoint = address.parse().unwrap();
    let readers = runtime.block_on(async {
        let control = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
        let control = SamplingServiceClient::new(control.connect().await.unwrap());
        join_all((0..CHANNELS).map(|number| slow_reader(&endpoint, control.clone(), number))).await
    });
    let most = before + BUDGET + CHANNELS as u64 * PER_CONNECTION;
    let deadline = Instant::now() + PATIENCE;
    let (mut taken, mut peak) = (0, 0);
    // Until the budget keeps batches waiting, and is not taken any further.
    loop {
        let status: Value = serde_json::from_str(&place.succeed(&format!("status {address} --json"))).unwrap();
        let now = status[0]["memory_bytes"].as_u64().unwrap();
        peak = peak.max(Footprint::of(server.child.id()).resident);
        assert!(now <= BUDGET && peak <= most, "{now} of the budget, {peak} resident, {before} before");
        if status[0]["starved"].as_u64().unwrap() > 0 && now <= taken {
            break;
        }
        taken = now;
        assert!(Instant::now() < deadline, "{status:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(taken > BUDGET / 4, "{taken} of the budget was taken");
    epoch();
    peak = peak.max(Footprint::of(server.child.id()).resident);
    assert!(peak <= most, "{peak} resident, {before} before");
    drop(readers);
    server.stop(Signal::TERM);
}

/// Somebody who asks for much and reads nothing.
async fn slow_reader(
    endpoint: &Endpoint,
    mut control: SamplingServiceClient<Channel>,
    number: usize,
) -> (FrameReader, FrameWriter) {
    let client: Vec<u8> = [(number as u64).to_le_bytes(), [9; 8]].concat();
    let config = serde_json::to_string(&config()).unwrap();
    let request = OpenBackendRequest { run: String::new(), key: String::new(), config: config.clone() };
    let backend = control.open_backend(request).await.unwrap().into_inner().backend;
    let open = OpenChannel {
        backend,
        client: client.clone(),
        config,
        batch_size: 128,
        seeds: Some(open_channel::Seeds::All(AllNodes {})),
        max_credits: ASKED,
        ..OpenChannel::default()
    };
    let parts = [OpenChannelRequest { part: Some(open_channel_request::Part::Open(open)) }];
    let channel = control.open_channel(futures_util::stream::iter(parts)).await.unwrap().into_inner().channel;
    let stream = graphmill_net::connect_data(endpoint, None, PATIENCE).await.unwrap();
    let (mut reader, mut writer) = graphmill_net::split(stream, graphmill_wire::GREETING, Limits::CLIENT);
    let hello = Message::Hello(proto::Hello {
        oldest_wire: graphmill_wire::OLDEST.into(),
        newest_wire: graphmill_wire::VERSION.into(),
        law: law::VERSION,
        client,
        role: Role::Client.into(),
        ..proto::Hello::default()
    });
    writer.write(Header::new(Kind::Hello), &hello, &[]).await.unwrap();
    let answer = reader.next().await.unwrap().unwrap().message;
    assert!(matches!(answer, Message::Welcome(_)), "{answer:?}");
    let credit = Message::Credit(proto::Credit { g: (0..ASKED).collect() });
    writer.write(Header { channel, ..Header::new(Kind::Credit) }, &credit, &[]).await.unwrap();
    (reader, writer)
}
