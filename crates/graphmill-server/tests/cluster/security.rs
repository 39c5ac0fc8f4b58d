//! Who gets in, by certificate and by token, and what a server tells those who watch it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Error, Loader, Remote, SeedList, Transport};
use graphmill_graph::{Dataset, OpenOptions, Storage};
use graphmill_net::{ClientTls, Endpoint, Plane, Token};
use graphmill_server::{Leftovers, Options, Server, StartError};
use graphmill_wire::proto::StatusRequest;
use graphmill_wire::proto::sampling_service_client::SamplingServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::authority::Authority;
use crate::support::{
    Cluster, NODES, Opening, PATIENCE, Store, bytes, config, eventually, expected, loading, open_backend,
};

const SERVICE: &str = "graphmill.v1.SamplingService";

fn token() -> Token {
    Token::new("open-sesame-please").unwrap()
}

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

/// Servers with certificates of an authority, which ask for one of the same if it is mutual, and for a token if told so.
fn guarded(store: &Store, servers: usize, authority: &Authority, mutual: bool, token: Option<Token>) -> Cluster {
    let clients = mutual.then_some(authority);
    let (tls, peer_tls) = (authority.server(clients), authority.client(clients));
    Cluster::over_tcp(&store.path, servers, move |options| Options {
        tls: Some(tls.clone()),
        peer_tls: Some(peer_tls.clone()),
        token: token.clone(),
        // So that everything goes over TLS.
        shared_memory: false,
        ..options
    })
}

fn connect(cluster: &Cluster, tls: Option<ClientTls>, token: Option<Token>) -> Result<Arc<Remote>, Error> {
    let options =
        ConnectOptions { tls, token, transport: Transport::Socket, deadline: PATIENCE, ..ConnectOptions::default() };
    Remote::connect(&cluster.addresses(), options)
}

/// A page over HTTP/1.1: its status and what it says.
pub(crate) async fn page(endpoint: &Endpoint, tls: Option<&ClientTls>, path: &str) -> (u16, String) {
    let mut stream = graphmill_net::dial(endpoint, tls, Plane::Watch, PATIENCE).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: graphmill\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no page: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {head}")), body.to_owned())
}

/// The value of a metric on a page: a count.
pub(crate) fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("there is no {name} in\n{page}")).parse().unwrap()
}

#[test]
fn an_epoch_over_tls_is_the_embedded_one_whatever_else_is_asked_for() {
    let store = Store::homogeneous(2);
    let wanted = expected(&store, &config(), seeds(), &loading(16), 0);
    for (mutual, asked) in [(false, None), (true, None), (false, Some(token())), (true, Some(token()))] {
        let authority = Authority::new("servers");
        let cluster = guarded(&store, 2, &authority, mutual, asked.clone());
        let tls = authority.client(mutual.then_some(&authority));
        let remote = connect(&cluster, Some(tls), asked).unwrap();
        let loader = Loader::remote(&remote, config(), seeds(), loading(16)).unwrap();
        assert!(bytes(loader.epoch(0)) == wanted, "mutual: {mutual}");
        let batch_bytes: usize = wanted.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(remote.traffic().socket_bytes, batch_bytes as u64);
        // The servers asked each other, over TLS too: there is no other way.
        for (endpoint, status) in remote.status() {
            let peers = status.unwrap().peers;
            assert!(peers[0].connected && peers[0].bytes_received > 0, "{endpoint}: {peers:?}");
            assert!(peers[0].address.starts_with("127.0.0.1:"), "{peers:?}");
        }
        drop((loader, remote));
        assert!(cluster.stop());
    }
}

#[test]
fn whoever_lacks_a_certificate_or_the_token_is_told_which_at_once() {
    let (authority, stranger) = (Authority::new("servers"), Authority::new("strangers"));
    let namesake = Authority::new("servers");
    let store = Store::homogeneous(1);
    let cluster = guarded(&store, 1, &authority, true, Some(token()));
    let right = || Some(authority.client(Some(&authority)));
    let cases = [
        ("no certificate", Some(authority.client(None)), Some(token()), "certificate"),
        ("another authority's of the same name", Some(authority.client(Some(&namesake))), Some(token()), "certificate"),
        ("another authority's", Some(authority.client(Some(&stranger))), Some(token()), "certificate"),
        ("another authority is trusted", Some(stranger.client(Some(&authority))), Some(token()), "certificate"),
        ("one that has expired", Some(authority.expired_client()), Some(token()), "certificate"),
        ("no TLS", None, Some(token()), "TLS"),
        ("no token", right(), None, "token"),
        ("another token", right(), Some(Token::new("open-sesame").unwrap()), "token"),
    ];
    for (case, tls, token, part) in cases {
        let began = Instant::now();
        let error = connect(&cluster, tls, token).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Denied { .. }), "{case}: {error:?}");
        assert!(text.contains(part) && !text.contains("sesame"), "{case}: {text}");
        assert!(text.contains(&cluster.addresses()[0].to_string()), "{case}: {text}");
        assert!(began.elapsed() < PATIENCE, "{case}: it will not become right by waiting");
    }
    assert!(connect(&cluster, right(), Some(token())).is_ok());
}

#[test]
fn a_server_whose_certificate_has_expired_is_not_trusted() {
    let (authority, store) = (Authority::new("servers"), Store::homogeneous(1));
    let tls = authority.expired_server();
    let cluster = Cluster::over_tcp(&store.path, 1, move |options| Options { tls: Some(tls.clone()), ..options });
    let error = connect(&cluster, Some(authority.client(None)), None).unwrap_err();
    assert!(matches!(error, Error::Denied { .. }) && error.to_string().contains("expired"), "{error:?}");
}

#[test]
fn a_peer_that_is_not_let_in_says_why() {
    let (authority, stranger) = (Authority::new("servers"), Authority::new("strangers"));
    let store = Store::homogeneous(2);
    for (peer_tls, part) in [(Some(authority.client(Some(&stranger))), "certificate"), (None, "TLS")] {
        let tls = authority.server(Some(&authority));
        let cluster = Cluster::over_tcp(&store.path, 2, move |options| Options {
            tls: Some(tls.clone()),
            peer_tls: peer_tls.clone(),
            peer_wait: Duration::from_millis(300),
            ..options
        });
        let peer = cluster.addresses()[1].to_string();
        // Before the first attempt has failed it can only say that there was none.
        let mut said = String::new();
        eventually("it says why", || {
            let mut control = cluster.control(0);
            let status = cluster.run(open_backend(&mut control, "", &config())).unwrap_err();
            status.message().clone_into(&mut said);
            assert!(said.contains("partition 1 of 2") && said.contains(&peer), "{said}");
            said.contains(part)
        });
        assert!(!cluster.status(0).peers[0].connected);
    }
}

#[test]
fn a_token_is_asked_for_on_every_call_over_tls_too() {
    let authority = Authority::new("servers");
    let store = Store::homogeneous(1);
    let cluster = guarded(&store, 1, &authority, false, Some(token()));
    let grpc = || cluster.grpc(cluster.addresses()[0].clone(), Some(authority.client(None)));
    for (given, let_in) in
        [(None, false), (Some("Bearer open-sesame"), false), (Some("Bearer open-sesame-please"), true)]
    {
        let mut request = tonic::Request::new(StatusRequest {});
        if let Some(given) = given {
            request.metadata_mut().insert("authorization", given.parse().unwrap());
        }
        match cluster.run(SamplingServiceClient::new(grpc()).status(request)) {
            Ok(_) => assert!(let_in, "{given:?} was let in"),
            Err(status) => {
                assert!(!let_in, "{status}");
                assert_eq!(status.code(), tonic::Code::Unauthenticated);
                assert!(status.message().contains("token"), "{status}");
            }
        }
    }
}

#[test]
fn a_server_that_others_can_reach_needs_a_guard_or_a_plain_word() {
    let authority = Authority::new("servers");
    let store = Store::homogeneous(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let everywhere = || Options { listen: vec!["0.0.0.0:0".parse().unwrap()], threads: 1, ..Options::default() };
    let start = |options: Options| {
        let opening = OpenOptions { storage: Storage::Mmap, partitions: None };
        runtime.block_on(Server::start(Dataset::open_with(&store.path, &opening).unwrap(), options))
    };
    let unguarded = [
        everywhere(),
        Options { tls: Some(authority.server(None)), ..everywhere() },
        Options { listen: vec!["127.0.0.1:0".parse().unwrap(), "[::]:0".parse().unwrap()], ..everywhere() },
        Options { watch_listen: Some("0.0.0.0:0".parse().unwrap()), threads: 1, ..Options::default() },
    ];
    for options in unguarded {
        match start(options) {
            Err(StartError::Options(reason)) => {
                assert!(reason.contains("0.0.0.0:0") || reason.contains("[::]:0"), "{reason}");
                for way in ["--token-file", "--tls-client-ca", "--insecure"] {
                    assert!(reason.contains(way), "{reason}");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let guarded = [
        Options { insecure: true, ..everywhere() },
        Options { token: Some(token()), watch_listen: Some("0.0.0.0:0".parse().unwrap()), ..everywhere() },
        Options { tls: Some(authority.server(Some(&authority))), ..everywhere() },
    ];
    for options in guarded {
        let server = start(options).unwrap();
        assert_eq!(runtime.block_on(server.stop(PATIENCE)), Leftovers::default());
    }
}

#[test]
fn health_is_told_without_a_token_until_the_server_stops() {
    let authority = Authority::new("servers");
    let store = Store::homogeneous(1);
    let mut cluster = guarded(&store, 1, &authority, false, Some(token()));
    let mut health = HealthClient::new(cluster.grpc(cluster.addresses()[0].clone(), Some(authority.client(None))));
    let about = |service: &str| HealthCheckRequest { service: service.to_owned() };
    for service in ["", SERVICE, "graphmill.v1.DatasetService"] {
        let answer = cluster.run(health.check(about(service))).unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = cluster.run(health.check(about("graphmill.v1.Nothing"))).unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);

    let mut watched = Vec::new();
    for service in ["", SERVICE] {
        let mut changes = cluster.run(health.watch(about(service))).unwrap().into_inner();
        let now = cluster.run(changes.message()).unwrap().unwrap();
        assert_eq!(now.status(), ServingStatus::Serving);
        watched.push(changes);
    }
    cluster.stop_one(0);
    for mut changes in watched {
        // The last word may be lost with the connection.
        while let Ok(Some(change)) = cluster.run(changes.message()) {
            assert_eq!(change.status(), ServingStatus::NotServing);
        }
    }
    assert!(cluster.run(health.check(about(SERVICE))).is_err());
}

#[test]
fn a_server_that_finishes_what_is_under_way_is_no_longer_well() {
    // Its peer is behind a proxy that holds everything up, so a batch is under way for as long as this test wants.
    let store = Store::homogeneous(2);
    let way = Arc::new(Mutex::new(None::<Endpoint>));
    let peers = Arc::clone(&way);
    let mut cluster = Cluster::prepare(&store.path, 2, move |options| {
        let proxied = peers.lock().unwrap().take();
        let peers = proxied.map_or(options.peers, |endpoint| vec![endpoint]);
        // Rows in shared memory would go past the proxy.
        Options { peers, shared_memory: false, ..options }
    });
    cluster.start_one(1);
    let proxy = cluster.proxy(1);
    *way.lock().unwrap() = Some(proxy.endpoint.clone());
    cluster.start_one(0);
    let channel = cluster.open(0, Opening::default());
    proxy.freeze();
    let mut wire = cluster.wire(0, [1; 16]);
    cluster.run(wire.credit(channel, 0, &[0]));
    eventually("a batch is under way", || cluster.describe(0, channel).running == 1);

    let mut health = HealthClient::new(cluster.grpc(cluster.addresses()[0].clone(), None));
    let mut watched = Vec::new();
    for service in ["", SERVICE] {
        let about = HealthCheckRequest { service: service.to_owned() };
        let mut changes = cluster.run(health.watch(about)).unwrap().into_inner();
        assert_eq!(cluster.run(changes.message()).unwrap().unwrap().status(), ServingStatus::Serving);
        watched.push(changes);
    }
    let endpoint = cluster.addresses()[0].clone();
    // When all were told, the batch may end, and the server with it.
    let told = cluster.spawn(async move {
        for changes in &mut watched {
            let change = tokio::time::timeout(Duration::from_secs(4), changes.message()).await;
            let change = change.expect("a word while it drains").unwrap().unwrap();
            assert_eq!(change.status(), ServingStatus::NotServing);
        }
        assert_eq!(page(&endpoint, None, "/healthz").await, (503, "stopping\n".to_owned()));
        proxy.thaw();
    });
    let left = cluster.stop_one(0);
    cluster.run(told).unwrap();
    assert_eq!(left, Leftovers { channels: 1, batches: 0 });
}

#[test]
fn reflection_lists_what_can_be_called() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let mut reflection = ServerReflectionClient::new(cluster.grpc(cluster.addresses()[0].clone(), None));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answer = cluster.run(async {
        let mut answers = reflection.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap()
    });
    let Some(MessageResponse::ListServicesResponse(listed)) = answer.message_response else { panic!("{answer:?}") };
    let names: Vec<&str> = listed.service.iter().map(|service| service.name.as_str()).collect();
    for name in [SERVICE, "graphmill.v1.DatasetService", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn the_numbers_on_the_page_are_those_of_the_batches_that_were_pulled() {
    let authority = Authority::new("servers");
    let store = Store::homogeneous(2);
    let cluster = guarded(&store, 2, &authority, false, Some(token()));
    let (tls, addresses) = (authority.client(None), cluster.addresses());
    let remote = connect(&cluster, Some(tls.clone()), Some(token())).unwrap();
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let found = bytes(loader.epoch(0));
    // What was written is counted after its last byte has gone, so it may be read a moment earlier.
    let pages = || -> Vec<String> {
        let one = |endpoint| {
            let (status, text) = cluster.run(page(endpoint, Some(&tls), "/metrics"));
            assert_eq!(status, 200);
            text
        };
        addresses.iter().map(one).collect()
    };
    let sum = |pages: &[String], name: &str| pages.iter().map(|page| metric(page, name)).sum::<u64>();
    eventually("all are counted", || sum(&pages(), "graphmill_sent_seconds_count") == found.len() as u64);
    let pages = pages();
    let total: usize = found.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(sum(&pages, "graphmill_batches_total"), found.len() as u64);
    assert_eq!(sum(&pages, "graphmill_batch_bytes_total"), total as u64);
    assert_eq!(sum(&pages, "graphmill_failed_batches_total"), 0);
    for name in ["queued", "sampled", "gathered"] {
        assert_eq!(sum(&pages, &format!("graphmill_{name}_seconds_count")), found.len() as u64);
    }
    for page in &pages {
        assert!(metric(page, "graphmill_sampled_edges_total") > 0);
        assert!(metric(page, "graphmill_peer_questions_total") > 0);
        assert_eq!(metric(page, "graphmill_channels"), 1);
        assert_eq!(metric(page, "graphmill_backends"), 1);
        assert_eq!(metric(page, "graphmill_clients"), 1);
        assert_eq!(metric(page, "graphmill_running_batches"), 0);
        assert_eq!(metric(page, "graphmill_buffered_bytes"), 0);
        assert!(!page.contains("sesame"));
    }
}

#[test]
fn a_channel_has_numbers_of_its_own_until_it_ends() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let numbers = || cluster.run(page(&cluster.addresses()[0], None, "/metrics")).1;
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), loading(16)).unwrap();
    assert_eq!(loader.epoch(0).map(Result::unwrap).count(), loader.len());
    let channel = cluster.status(0).channels[0].channel;
    let of = |name: &str| format!("graphmill_channel_{name}_total{{channel=\"{channel}\"}}");
    let shown = numbers();
    assert_eq!(metric(&shown, &of("batches")), loader.len() as u64);
    assert_eq!(metric(&shown, &of("slow_batches")), 0);
    assert!(shown.contains(&of("batch_seconds")) && shown.ends_with("# EOF\n"), "{shown}");
    drop(loader);
    eventually("its series end with it", || !numbers().contains("{channel="));

    // However many there are, the page has an end.
    for _ in 0..300 {
        cluster.open(0, Opening { nodes: 4, ..Opening::default() });
    }
    let shown = numbers();
    assert_eq!(metric(&shown, "graphmill_channels"), 300);
    assert_eq!(shown.matches("graphmill_channel_batches_total{channel=").count(), 256);
}

#[test]
fn the_address_for_watching_tells_health_and_numbers_and_nothing_else() {
    let authority = Authority::new("servers");
    let store = Store::homogeneous(1);
    let tls = authority.server(Some(&authority));
    let cluster = Cluster::start_with(&store.path, 1, move |options| Options {
        tls: Some(tls.clone()),
        token: Some(token()),
        watch_listen: Some("127.0.0.1:0".parse().unwrap()),
        ..options
    });
    // Neither TLS nor token here.
    let watch = cluster.watch_endpoint(0);
    assert_eq!(cluster.run(page(&watch, None, "/healthz")), (200, "ok\n".to_owned()));
    let (status, numbers) = cluster.run(page(&watch, None, "/metrics"));
    assert!(status == 200 && numbers.contains("graphmill_batches_total 0"), "{numbers}");
    for path in ["/", "/status", "/graphmill.v1.SamplingService/Status", "/grpc.health.v1.Health/Check"] {
        assert_eq!(cluster.run(page(&watch, None, path)).0, 404, "{path}");
    }
    let bearer = "Bearer open-sesame-please".parse().unwrap();
    let mut request = tonic::Request::new(StatusRequest {});
    request.metadata_mut().insert("authorization", bearer);
    let status = cluster.run(SamplingServiceClient::new(cluster.grpc(watch.clone(), None)).status(request));
    assert_eq!(status.unwrap_err().code(), tonic::Code::Unimplemented);
    let health = HealthCheckRequest { service: String::new() };
    assert!(cluster.run(HealthClient::new(cluster.grpc(watch.clone(), None)).check(health)).is_err());
    // A data connection is hung up on.
    cluster.run(async {
        let mut wire = crate::support::Wire::connect(&watch).await;
        assert!(!matches!(wire.reader.next().await, Ok(Some(_))));
    });
}
