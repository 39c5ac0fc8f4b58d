//! Channels: seeds in, batches out, one epoch at a time, until their client closes them.

use std::time::Duration;

use graphmill_sample::{Config, Expand, Ppr};
use graphmill_wire::proto::{
    self, CloseChannelRequest, DescribeChannelRequest, LeaveRequest, OpenChannel, OpenChannelRequest,
    StartEpochRequest, open_channel_request,
};
use graphmill_wire::{Kind, Message};
use tonic::Code;

use crate::memory::wide;
use crate::support::{
    Cluster, Control, NODES, Opening, Store, Wire, config, eventually, flat, json, open_backend, open_channel,
};

async fn start(control: &mut Control, channel: u64, epoch: u64) -> Result<u64, tonic::Status> {
    Ok(control.start_epoch(StartEpochRequest { channel, epoch, client: vec![1; 16] }).await?.into_inner().epoch)
}

async fn close(control: &mut Control, channel: u64) {
    control.close_channel(CloseChannelRequest { channel, client: vec![1; 16] }).await.unwrap();
}

#[test]
fn an_empty_input_has_no_batches_and_its_channel_closes() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening { nodes: 0, ..Opening::default() });
    let described = cluster.describe(0, channel);
    assert_eq!((described.seeds, described.total, described.buffered_bytes), (0, 0, 0));
    assert_eq!(described.state, "idle");
    let mut control = cluster.control(0);
    cluster.run(async {
        assert_eq!(start(&mut control, channel, 3).await.unwrap(), 3);
        close(&mut control, channel).await;
    });
    assert!(cluster.status(0).backends.is_empty());
    assert!(cluster.stop());
}

#[test]
fn an_epoch_only_ever_increases() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening::default());
    let mut control = cluster.control(0);
    cluster.run(async {
        for (asked, now) in [(2, 2), (2, 2), (1, 2), (5, 5), (0, 5)] {
            assert_eq!(start(&mut control, channel, asked).await.unwrap(), now, "epoch {asked}");
        }
    });
    // Many at once: whatever the order, the last word is the highest.
    let starting: Vec<_> = (0..16)
        .map(|epoch| {
            let mut control = cluster.control(0);
            cluster.spawn(async move { (epoch, start(&mut control, channel, epoch).await.unwrap()) })
        })
        .collect();
    for one in starting {
        let (asked, now) = cluster.run(one).unwrap();
        assert!(now >= asked.max(5), "asked for {asked}, told {now}");
    }
    assert_eq!(cluster.describe(0, channel).epoch, Some(15));
}

#[test]
fn starting_an_epoch_of_an_unknown_channel_is_an_error_and_of_a_closed_one_silent() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening::default());
    let mut control = cluster.control(0);
    cluster.run(async {
        let never = start(&mut control, channel + 1, 0).await.unwrap_err();
        assert_eq!(never.code(), Code::InvalidArgument);
        assert!(never.message().contains(&format!("never was a channel {}", channel + 1)), "{never}");
        let elsewhere = start(&mut control, 7, 0).await.unwrap_err();
        assert_eq!(elsewhere.code(), Code::Unavailable, "it may be of another incarnation: {elsewhere}");

        close(&mut control, channel).await;
        start(&mut control, channel, 0).await.unwrap();
        close(&mut control, channel).await;
        start(&mut control, channel, 1).await.unwrap();
        close(&mut control, channel + 9).await;
        let described = control.describe_channel(DescribeChannelRequest { channel }).await.unwrap_err();
        assert!(described.message().contains("closed"), "{described}");
    });
}

#[test]
fn closing_beats_a_racing_start_and_a_racing_credit() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    for _ in 0..20 {
        let channel = cluster.open(0, Opening::default());
        let racing: Vec<_> = (0..6)
            .map(|number| {
                let mut control = cluster.control(0);
                cluster.spawn(async move {
                    if number == 3 {
                        close(&mut control, channel).await;
                    } else {
                        start(&mut control, channel, number).await.expect("an epoch, or silence");
                    }
                })
            })
            .collect();
        let mut wire = cluster.wire(0, [1; 16]);
        cluster.run(async {
            wire.credit(channel, 4, &[0, 1, 2]).await;
            for one in racing {
                one.await.unwrap();
            }
        });
        assert_eq!(cluster.status(0).registered, 0);
    }
    eventually("backends are gone", || cluster.status(0).backends.is_empty());
    assert!(cluster.stop());
}

#[test]
fn a_credit_for_a_closed_channel_is_silent() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening::default());
    let (mut control, mut wire) = (cluster.control(0), cluster.wire(0, [1; 16]));
    cluster.run(async {
        wire.credit(channel, 0, &[0]).await;
        assert_eq!(wire.batch().await, (0, 0));
        close(&mut control, channel).await;
        wire.credit(channel, 0, &[1]).await;
        wire.ping().await;
        assert!(wire.until_pong().await.is_empty());
    });
}

#[test]
fn credits_are_answered_once_each_whatever_is_asked_twice() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening { max_credits: 64, ..Opening::default() });
    let mut wire = cluster.wire(0, [1; 16]);
    let total = NODES.div_ceil(8);
    let all: Vec<u64> = (0..total).collect();
    let mut met = cluster.run(async {
        // One frame is taken as a whole, so that none is answered before it is named again.
        wire.credit(channel, 0, &[&all[..], &all[..]].concat()).await;
        let mut met = Vec::new();
        for _ in 0..total {
            met.push(wire.batch().await);
        }
        wire.ping().await;
        assert!(wire.until_pong().await.is_empty(), "nothing that was not asked for");
        met
    });
    met.sort_unstable();
    assert_eq!(met, all.iter().map(|&g| (0, g)).collect::<Vec<_>>());
    let described = cluster.describe(0, channel);
    assert_eq!((described.submitted, described.completed, described.failed), (total, total, 0));
    eventually("all are taken", || cluster.describe(0, channel).buffered_batches == 0);
}

#[test]
fn a_batch_in_flight_is_delivered_after_the_epoch_was_started_again() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening::default());
    let (mut control, mut wire) = (cluster.control(0), cluster.wire(0, [1; 16]));
    cluster.run(async {
        wire.credit(channel, 2, &[3]).await;
        start(&mut control, channel, 2).await.unwrap();
        start(&mut control, channel, 0).await.unwrap();
        assert_eq!(wire.batch().await, (2, 3));
    });
}

#[test]
fn a_channel_needs_a_backend_a_client_and_seeds_that_were_announced() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut control = cluster.control(0);
    cluster.run(async {
        let backend = open_backend(&mut control, "", &config()).await.unwrap();
        let none = open_channel(&mut control, backend + 7, Opening::default()).await.unwrap_err();
        assert!(none.code() == Code::Unavailable && none.message().contains("open it again"), "{none}");
        let zero = open_channel(&mut control, backend, Opening { batch_size: 0, ..Opening::default() });
        assert!(zero.await.unwrap_err().message().contains("batch_size is 0"));
        let open = OpenChannel {
            backend,
            client: vec![1; 3],
            config: json(&config()),
            batch_size: 1,
            seeds: Some(proto::open_channel::Seeds::All(proto::AllNodes {})),
            ..OpenChannel::default()
        };
        let refused = async |control: &mut Control, open: OpenChannel| {
            let part = OpenChannelRequest { part: Some(open_channel_request::Part::Open(open)) };
            control.open_channel(tokio_stream::iter([part])).await.unwrap_err().message().to_owned()
        };
        assert!(refused(&mut control, open.clone()).await.contains("16 bytes"));
        let open = OpenChannel { client: vec![1; 16], ..open };
        let seeds = OpenChannel { seeds: None, ..open.clone() };
        assert!(refused(&mut control, seeds).await.contains("needs seeds"));
        let listed = proto::open_channel::Seeds::Nodes(proto::ListedNodes { count: 5 });
        let listed = OpenChannel { seeds: Some(listed), ..open.clone() };
        assert!(refused(&mut control, listed).await.contains("announced were 5"));
        let split = OpenChannel { seeds: Some(proto::open_channel::Seeds::Split("dev".to_owned())), ..open.clone() };
        assert!(refused(&mut control, split).await.contains("dev"));
        let edges = OpenChannel { seeds: Some(proto::open_channel::Seeds::Edges(proto::AllEdges {})), ..open };
        assert!(refused(&mut control, edges).await.contains("pairs"));
    });
    assert_eq!(cluster.status(0).registered, 0, "what failed left nothing");
}

#[test]
fn channel_numbers_are_never_used_again() {
    let store = Store::homogeneous(1);
    let mut cluster = Cluster::start(&store.path, 1);
    let mut met = std::collections::HashSet::new();
    for _ in 0..2 {
        for _ in 0..5 {
            let channel = cluster.open(0, Opening { nodes: 4, ..Opening::default() });
            assert!(met.insert(channel), "{channel}");
            let mut control = cluster.control(0);
            cluster.run(close(&mut control, channel));
        }
        cluster.stop_one(0);
        cluster.start_one(0);
    }
}

#[test]
fn leaving_closes_all_channels_of_a_client_and_none_of_others() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    for _ in 0..3 {
        cluster.open(0, Opening { client: [7; 16], ..Opening::default() });
    }
    let other = cluster.open(0, Opening::default());
    let mut control = cluster.control(0);
    let left = cluster.run(control.leave(LeaveRequest { client: vec![7; 16] })).unwrap().into_inner();
    assert_eq!(left.channels, 3);
    let channels = cluster.status(0).channels;
    assert_eq!(channels.iter().map(|channel| channel.channel).collect::<Vec<_>>(), [other]);
}

#[test]
fn what_a_client_asked_for_before_it_left_is_not_opened_afterwards() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut wire = cluster.wire(0, [7; 16]);
    let mut control = cluster.control(0);
    let backend = cluster.run(open_backend(&mut control, "", &config())).unwrap();
    cluster.run(control.leave(LeaveRequest { client: vec![7; 16] })).unwrap();
    let late = open_channel(&mut control, backend, Opening { client: [7; 16], ..Opening::default() });
    let refused = cluster.run(late).unwrap_err();
    assert!(refused.message().contains("taken leave"), "{refused}");
    cluster.run(async {
        wire.ping().await;
        assert!(wire.next().await.is_some());
    });
    let status = cluster.status(0);
    assert_eq!((status.channels.len(), status.clients), (0, 0));
    cluster.open(0, Opening::default());
}

#[test]
fn a_batch_that_takes_for_ever_ends_with_its_channel_and_with_its_server() {
    let store = Store::homogeneous(1);
    let mut cluster = Cluster::start(&store.path, 1);
    let endless = Ppr { alpha: 1e-3, eps: 1e-12, ..Ppr::default() };
    let config = Config { expand: Expand::Ppr(endless), ..Config::default() };
    // Minutes of rounds.
    let opening = Opening { config, batch_size: NODES, ..Opening::default() };
    let mut wire = cluster.wire(0, [1; 16]);
    let mut begin = || {
        let channel = cluster.open(0, opening.clone());
        cluster.run(wire.credit(channel, 0, &[0]));
        eventually("it is sampled", || cluster.describe(0, channel).running == 1);
        channel
    };
    let (closed, _left) = (begin(), begin());
    let mut control = cluster.control(0);
    cluster.run(close(&mut control, closed));
    // One of the two workers is free again.
    begin();
    let left = cluster.stop_one(0);
    assert_eq!((left.channels, left.batches), (2, 2));
}

#[test]
fn a_server_that_stops_with_channels_says_so_and_waits_for_nobody() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::start(&store.path, 2);
    let opening = Opening { config: flat(), batch_size: 4, ..Opening::default() };
    let (first, _second) = (cluster.open(0, opening.clone()), cluster.open(0, opening.clone()));
    let other = cluster.open(1, opening.clone());
    let mut wire = cluster.wire(0, [1; 16]);
    cluster.run(wire.credit(first, 0, &[0, 1, 2]));
    let left = cluster.stop_one(0);
    assert_eq!((left.channels, left.batches), (2, 0));
    cluster.run(async {
        // What was finished still comes, what was not begun is refused; then the connection ends, within the time of `run`.
        while let Ok(Some(frame)) = wire.reader.next().await {
            assert!(matches!(frame.header.kind, Kind::Batch | Kind::Failed));
        }
    });
    // The other server goes on: a batch of nodes that it has itself.
    let mut wire = cluster.wire(1, [1; 16]);
    cluster.run(async {
        wire.credit(other, 0, &[0]).await;
        let answer = wire.next().await.unwrap().message;
        assert!(matches!(answer, Message::Batch(_) | Message::Failed(_)), "{answer:?}");
    });
    assert_eq!(cluster.stop_one(1).channels, 1);
}

/// A channel whose client asked for all of its 32 batches and reads none, so that it is parked.
fn parked(cluster: &Cluster) -> (u64, Wire) {
    let opening = Opening { config: flat(), nodes: 256, max_credits: 32, max_bytes: 2 << 20, ..Opening::default() };
    let channel = cluster.open(0, opening.clone());
    let mut wire = cluster.wire(0, opening.client);
    cluster.run(wire.credit(channel, 0, &(0..32).collect::<Vec<_>>()));
    eventually("it is parked", || {
        let seen = cluster.describe(0, channel);
        seen.state == "parked" && seen.running == 0
    });
    (channel, wire)
}

#[test]
fn closing_a_parked_channel_waits_for_nobody_and_what_is_on_its_way_still_comes_whole() {
    let store = Store::new(wide(), 1);
    let cluster = Cluster::start(&store.path, 1);
    let (channel, mut wire) = parked(&cluster);
    let finished = cluster.describe(0, channel).completed;
    let mut control = cluster.control(0);
    cluster.run(close(&mut control, channel));
    assert_eq!(cluster.status(0).registered, 0);
    assert!(cluster.status(0).backends.is_empty(), "it was the last channel of its backend");
    // Nothing more is sampled for it; a frame that was begun is written to its end.
    let came = cluster.run(async {
        wire.ping().await;
        wire.until_pong().await
    });
    assert!(came.iter().all(|frame| frame.header.kind == Kind::Batch));
    assert!((finished..=32).contains(&(came.len() as u64)), "{} of {finished}", came.len());
    drop(wire);
    assert!(cluster.stop());
}

#[test]
fn a_stopping_server_sends_what_it_has_finished() {
    let store = Store::new(wide(), 1);
    let mut cluster = Cluster::start(&store.path, 1);
    let (channel, mut wire) = parked(&cluster);
    let finished = cluster.describe(0, channel).completed;
    // Its client begins to read when the server takes nothing new any more.
    let mut control = cluster.control(0);
    let reading = cluster.spawn(async move {
        while open_backend(&mut control, "another", &config()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut met = Vec::new();
        while let Some(frame) = wire.next().await {
            assert_eq!(frame.header.kind, Kind::Batch);
            let mut body = vec![0; frame.header.body as usize];
            wire.reader.read_body(&mut body).await.expect("a whole batch");
            met.push(frame.header.g);
        }
        met
    });
    let left = cluster.stop_one(0);
    assert_eq!((left.channels, left.batches), (1, 0));
    let mut met = cluster.run(reading).unwrap();
    met.sort_unstable();
    assert!((finished..=32).contains(&(met.len() as u64)), "{} of {finished}", met.len());
    assert!(met.iter().copied().eq(0..met.len() as u64), "what was begun first is there");
}

#[test]
fn a_channel_tells_where_it_stands() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let channel = cluster.open(0, Opening { nodes: 20, ..Opening::default() });
    let fresh = cluster.describe(0, channel);
    assert_eq!((fresh.epoch, fresh.seeds, fresh.total, fresh.submitted), (None, 20, 3, 0));
    let mut wire = cluster.wire(0, [1; 16]);
    cluster.run(async {
        wire.credit(channel, 6, &[2, 0]).await;
        wire.batch().await;
        wire.batch().await;
    });
    eventually("it is taken", || cluster.describe(0, channel).buffered_bytes == 0);
    let used = cluster.describe(0, channel);
    assert_eq!((used.epoch, used.submitted, used.completed, used.running), (Some(6), 2, 2, 0));
    assert!(used.work > 0 && Duration::from_millis(used.last_credit_age_ms) < crate::support::PATIENCE);
    let status = cluster.status(0);
    assert_eq!((status.registered, status.active, status.clients), (1, 0, 1));
}

#[test]
fn a_channel_obeys_its_own_client_alone() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let opening = Opening::default();
    let channel = cluster.open(0, opening.clone());
    let mut stranger = cluster.wire(0, [7; 16]);
    let mut owner = cluster.wire(0, opening.client);
    let mut control = cluster.control(0);
    cluster.run(async {
        stranger.credit(channel, 0, &[0]).await;
        assert!(matches!(stranger.next().await.unwrap().message, Message::Lost(_)));
        control.close_channel(CloseChannelRequest { channel, client: vec![7; 16] }).await.unwrap();
        let epoch = StartEpochRequest { channel, epoch: 9, client: vec![7; 16] };
        assert_eq!(control.start_epoch(epoch).await.unwrap_err().code(), Code::InvalidArgument);
        owner.credit(channel, 0, &[0]).await;
        assert_eq!(owner.next().await.unwrap().header.kind, Kind::Batch);
    });
}

#[test]
fn a_client_that_hangs_up_in_the_middle_of_a_batch_leaves_nothing_charged() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let opening = Opening { batch_size: 100, ..Opening::default() };
    let channel = cluster.open(0, opening.clone());
    for epoch in 0..8 {
        let mut wire = cluster.wire(0, opening.client);
        cluster.run(async { wire.credit(channel, epoch, &[0, 1]).await });
        drop(wire);
    }
    eventually("all is let go", || {
        let described = cluster.describe(0, channel);
        (described.running, described.buffered_batches, described.buffered_bytes) == (0, 0, 0)
    });
}
