//! What makes no sense, from whomever: each is told what is wrong, and the coordinator goes on.

mod serving;

use std::time::Duration;

use graphmill_net::Token;
use graphmill_rendezvous::client::{ConnectOptions, Connection, Error};
use graphmill_rendezvous::{Keeping, Target};
use graphmill_testing::{Fault, Proxy, Way};
use graphmill_wire::proto::rendezvous_service_client::RendezvousServiceClient;
use graphmill_wire::proto::store_request::Operation;
use graphmill_wire::proto::{
    CloseRunRequest, JoinOutcome, JoinRequest, MemberId, MemberRequest, RunRequest, RunSettings, StoreAdd,
    StoreCompareSet, StoreCount, StoreEntry, StoreKeys, StoreRequest, StoreSet,
};
use serving::{LONG, Serving, brisk, member};
use tonic::Code;

fn sensible() -> JoinRequest {
    JoinRequest {
        run: "run".to_owned(),
        member: Some(MemberId { address: "host".to_owned(), process: 1, counter: 0 }),
        settings: Some(RunSettings {
            min: 1,
            max: 1,
            last_call_ms: 30_000,
            keep_alive_ms: 60_000,
            missed: 3,
            stable_ranks: true,
            expected: None,
        }),
        timeout_ms: 10_000,
        retry: false,
        told: None,
    }
}

fn of_store(round: u64, operation: Option<Operation>) -> StoreRequest {
    StoreRequest { run: "run".to_owned(), round, operation, timeout_ms: 10, call: None }
}

/// Asks as a client would that checks nothing.
async fn plain(serving: &Serving) -> RendezvousServiceClient<tonic::transport::Channel> {
    let channel = tonic::transport::Endpoint::new(format!("http://{}", serving.address())).unwrap();
    let client = RendezvousServiceClient::new(channel.connect().await.unwrap());
    client.max_encoding_message_size(64 << 20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_that_make_no_sense_are_refused() {
    let serving = Serving::start(Keeping::Memory).await;
    let mut client = plain(&serving).await;
    let with = |edit: &dyn Fn(&mut RunSettings)| {
        let mut settings = sensible().settings.unwrap();
        edit(&mut settings);
        JoinRequest { settings: Some(settings), ..sensible() }
    };
    let at = |address: &str| JoinRequest {
        member: Some(MemberId { address: address.to_owned(), process: 1, counter: 0 }),
        ..sensible()
    };
    let rows = [
        (JoinRequest { run: String::new(), ..sensible() }, "not empty"),
        (JoinRequest { run: "a\nb".to_owned(), ..sensible() }, "control characters"),
        (JoinRequest { run: "x".repeat(257), ..sensible() }, "at most 256"),
        (JoinRequest { member: None, ..sensible() }, "member is missing"),
        (JoinRequest { settings: None, ..sensible() }, "needs the run's settings"),
        (JoinRequest { timeout_ms: 0, ..sensible() }, "1 ms to 30 days"),
        (JoinRequest { timeout_ms: u64::MAX, ..sensible() }, "1 ms to 30 days"),
        (at(""), "1 to 256 bytes"),
        (at(&"x".repeat(257)), "1 to 256 bytes"),
        (at("a\0b"), "control characters"),
        (with(&|settings| settings.min = 0), "at least 1"),
        (with(&|settings| settings.min = 2), "fewer than the fewest"),
        (with(&|settings| settings.last_call_ms = 0), "above 0"),
        (with(&|settings| settings.keep_alive_ms = 0), "above 0"),
        (with(&|settings| settings.missed = 0), "above 0"),
        (with(&|settings| settings.last_call_ms = u64::MAX), "at most a day"),
        (with(&|settings| settings.missed = u32::MAX), "at most a day"),
        (with(&|settings| settings.expected = Some(9)), "are expected"),
    ];
    for (request, reason) in rows {
        let refused = client.join(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{request:?}");
        assert!(refused.message().contains(reason), "{refused:?}");
    }
    assert_eq!(serving.coordinator.runs(), Vec::<String>::new(), "no run has begun by that");
    assert_eq!(client.join(sensible()).await.unwrap().into_inner().outcome(), JoinOutcome::Joined);
    let other = client.join(with(&|settings| settings.max = 2)).await.unwrap_err();
    assert!(other.message().contains("the most participants are 1 there, 2 here"), "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_not_there_is_named() {
    let serving = Serving::start(Keeping::Memory).await;
    let mut client = plain(&serving).await;
    let run = RunRequest { run: "other".to_owned() };
    let this = MemberRequest { run: "other".to_owned(), member: sensible().member };
    let of = |status: tonic::Status| (status.code(), status.message().contains("`other`"));
    let expected = (Code::NotFound, true);
    assert_eq!(of(client.describe_run(run.clone()).await.unwrap_err()), expected);
    assert_eq!(of(client.watch_run(run.clone()).await.unwrap_err()), expected);
    let close = CloseRunRequest { run: run.run, settings: None };
    assert_eq!(of(client.close_run(close.clone()).await.unwrap_err()), expected);
    let settings = RunSettings { min: 0, ..sensible().settings.unwrap() };
    let senseless = client.close_run(CloseRunRequest { settings: Some(settings), ..close }).await.unwrap_err();
    assert_eq!(senseless.code(), Code::InvalidArgument);
    assert_eq!(of(client.glance_at_run(this.clone()).await.unwrap_err()), expected);
    assert_eq!(of(client.keep_alive(this.clone()).await.unwrap_err()), expected);
    assert_eq!(of(client.leave_run(this).await.unwrap_err()), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_are_too_many_or_too_large_are_refused() {
    let serving = Serving::start(Keeping::Memory).await;
    let mut client = plain(&serving).await;
    client.join(sensible()).await.unwrap();
    let set = |key: &str, bytes: usize| {
        Operation::Set(StoreSet { entries: vec![StoreEntry { key: key.to_owned(), value: vec![0; bytes] }] })
    };
    let long = "k".repeat(1025);
    let rows = [
        (of_store(0, None), Code::InvalidArgument, "nothing is asked"),
        (of_store(7, Some(set("k", 1))), Code::InvalidArgument, "the round is 0"),
        (of_store(u64::MAX, Some(set("k", 1))), Code::InvalidArgument, "the round is 0"),
        (of_store(0, Some(set("", 1))), Code::InvalidArgument, "1 to 1024"),
        (of_store(0, Some(set(&long, 1))), Code::InvalidArgument, "1 to 1024"),
        (of_store(0, Some(set("k", 1 << 20))), Code::ResourceExhausted, "holds 1048576 bytes"),
        (of_store(0, Some(set("k", 5 << 20))), Code::OutOfRange, "too large"),
        (
            of_store(
                0,
                Some(Operation::CompareSet(StoreCompareSet {
                    key: "no".to_owned(),
                    expected: b"x".to_vec(),
                    value: vec![],
                })),
            ),
            Code::FailedPrecondition,
            "no key `no`",
        ),
        (
            of_store(0, Some(Operation::Get(StoreKeys { keys: vec!["later".to_owned()] }))),
            Code::DeadlineExceeded,
            "`later`",
        ),
    ];
    for (request, code, reason) in rows {
        let refused = client.store(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(reason), "{refused:?}");
    }
    client.store(of_store(0, Some(set("text", 3)))).await.unwrap();
    let add = Operation::Add(StoreAdd { key: "text".to_owned(), amount: 1 });
    assert!(client.store(of_store(0, Some(add))).await.unwrap_err().message().contains("no number"));
    // What fits goes in, up to the last byte, and comes out again.
    client.store(of_store(0, Some(set("k", (1 << 20) - 1 - 7)))).await.unwrap();
    assert!(client.store(of_store(0, Some(set("l", 0)))).await.is_err());
    let count = Operation::Count(StoreCount { prefix: String::new() });
    assert_eq!(client.store(of_store(0, Some(count))).await.unwrap().into_inner().number, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_take_too_much_memory_is_refused() {
    let serving = Serving::start(Keeping::Memory).await;
    let mut client = plain(&serving).await;
    client.join(sensible()).await.unwrap();
    let entries = vec![StoreEntry { key: "k".to_owned(), value: vec![0; 900 << 10] }];
    client.store(of_store(0, Some(Operation::Set(StoreSet { entries })))).await.unwrap();
    let of = |key: &str, count: usize| StoreKeys { keys: vec![key.to_owned(); count] };
    let rows = [
        (Operation::Get(of("k", 6000)), Code::InvalidArgument, "names 6000 keys"),
        (Operation::Wait(of("later", 4097)), Code::InvalidArgument, "names 4097 keys"),
        (Operation::Delete(of("k", 4097)), Code::InvalidArgument, "names 4097 keys"),
        (Operation::Get(of("k", 4096)), Code::ResourceExhausted, "ask for fewer keys"),
        (Operation::Get(of("later", 4096)), Code::DeadlineExceeded, "and 4088 others"),
    ];
    for (operation, code, reason) in rows {
        let refused = client.store(of_store(0, Some(operation))).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(reason), "{refused:?}");
    }
    assert_eq!(client.store(of_store(0, Some(Operation::Get(of("k", 2))))).await.unwrap().into_inner().values.len(), 2);

    // Calls that wait are charged for what they wait for: some of these are refused, and the others go on.
    let key = "l".repeat(1000);
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let wait = Operation::Wait(StoreKeys { keys: vec![key.clone(); 4000] });
        let request = StoreRequest { timeout_ms: LONG.as_millis() as u64, ..of_store(0, Some(wait)) };
        let mut client = client.clone();
        waits.spawn(async move { client.store(request).await.map(drop) });
    }
    let refused = waits.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let entries = vec![StoreEntry { key, value: vec![] }];
    client.store(of_store(0, Some(Operation::Set(StoreSet { entries })))).await.unwrap();
    let served = waits.join_all().await.into_iter().flatten().count();
    assert!(served >= 16, "only {served} were served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_port_harms_nobody() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let serving = Serving::start(Keeping::Memory).await;
    let here = member(&serving.address(), "run", &brisk(1, 1), LONG);
    here.next_rendezvous().await.unwrap();
    let mut kinds: Vec<Vec<u8>> = vec![
        vec![0; 100],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
        b"POST /graphmill.v1.RendezvousService/Join HTTP/1.1\r\nContent-Length: 5\r\n\r\n\0\xff\xff\xff\xff".to_vec(),
        vec![0x16, 3, 1, 2, 0],
    ];
    // Many that look random, the same each time.
    let mut bits = 1u64;
    kinds.extend((0..100).map(|length| {
        let byte = |_| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (bits >> 56) as u8
        };
        (0..length * 7).map(byte).collect()
    }));
    for bytes in kinds {
        let mut stream = tokio::net::TcpStream::connect(serving.socket()).await.unwrap();
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let _ = tokio::time::timeout(Duration::from_secs(6), stream.read_to_end(&mut Vec::new())).await;
    }
    assert_eq!(here.num_nodes_waiting().await.unwrap(), 0);
    assert!(!here.is_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_whose_bytes_are_damaged_on_the_way_end_in_time_and_the_coordinator_goes_on() {
    const ANSWER: Duration = Duration::from_millis(500);
    let serving = Serving::start(Keeping::Memory).await;
    let here = member(&serving.address(), "run", &brisk(1, 1), LONG);
    here.next_rendezvous().await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for seed in 0..24 {
        let proxy = Proxy::start(serving.socket(), seed).unwrap();
        let way = if seed % 2 == 0 { Way::Up } else { Way::Down };
        proxy.apply(Fault::Corrupt(way, 16 << (seed / 2 % 5)));
        let target: Target = proxy.address().to_string().parse().unwrap();
        calls.spawn(async move {
            let connection = Connection::open(&target.place, &ConnectOptions::default()).unwrap();
            for _ in 0..2 {
                // An answer or an error, whichever: it is not waited for twice as long as was said.
                let both = async { (connection.runs(ANSWER).await, connection.status("run", ANSWER).await) };
                let _ = tokio::time::timeout(LONG, both).await.expect("an end in time");
            }
            drop(proxy);
        });
    }
    calls.join_all().await;
    assert_eq!(here.num_nodes_waiting().await.unwrap(), 0);
    assert!(!here.is_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_opens_nothing() {
    let token = |text: &str| Some(Token::new(text).unwrap());
    let serving = Serving::guarded("127.0.0.1:0", Keeping::Memory, token("sesame-sesame"), None).await;
    let target: Target = serving.address().parse().unwrap();
    for wrong in [None, token("sesame-sesamE"), token("x")] {
        let connection = Connection::open(&target.place, &ConnectOptions { token: wrong, tls: None }).unwrap();
        let errors = [
            connection.status("run", LONG).await.unwrap_err(),
            connection.runs(LONG).await.unwrap_err(),
            connection.close("run", None, LONG).await.unwrap_err(),
            connection.watch("run", LONG).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Denied { .. }), "{error}");
            assert!(!error.to_string().contains("sesame"), "{error}");
        }
    }
    let connection =
        Connection::open(&target.place, &ConnectOptions { token: token("sesame-sesame"), tls: None }).unwrap();
    assert_eq!(connection.runs(LONG).await.unwrap(), Vec::<String>::new());
}
