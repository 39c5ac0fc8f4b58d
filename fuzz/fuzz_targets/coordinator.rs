//! Whatever the messages of calls to a coordinator are, it answers or goes on waiting, and runs keep to the rules.

#![no_main]

mod calls;
mod corpus;

use std::time::Duration;

use bytes::Bytes;
use graphmill_rendezvous::{Coordinator, Keeping, service};
use graphmill_wire::proto::store_request::Operation;
use graphmill_wire::proto::{self, MemberId, MemberRequest, RunRequest, RunSettings, StorageSettings};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tokio::runtime::Runtime;

/// The calls, by the byte that they begin with.
const METHODS: [&str; 14] = [
    "/graphmill.v1.RendezvousService/Join",
    "/graphmill.v1.RendezvousService/KeepAlive",
    "/graphmill.v1.RendezvousService/LeaveRun",
    "/graphmill.v1.RendezvousService/CloseRun",
    "/graphmill.v1.RendezvousService/GlanceAtRun",
    "/graphmill.v1.RendezvousService/DescribeRun",
    "/graphmill.v1.RendezvousService/WatchRun",
    "/graphmill.v1.RendezvousService/ListRuns",
    "/graphmill.v1.RendezvousService/Store",
    "/graphmill.v1.RendezvousService/RegisterServer",
    "/graphmill.v1.RendezvousService/RenewServer",
    "/graphmill.v1.RendezvousService/RemoveServer",
    "/graphmill.v1.RendezvousService/DescribeStorage",
    "/graphmill.v1.RendezvousService/WatchStorage",
];

/// Long enough for an answer that comes at all. A call that waits for others is given up then, as by a client that hangs up.
const PATIENCE: Duration = Duration::from_millis(2);

/// Makes the calls of an input to a coordinator of its own.
async fn run(input: &[u8]) {
    let coordinator = Coordinator::new(Keeping::Memory).unwrap();
    let service = service::service(std::sync::Arc::clone(&coordinator), None);
    let mut known = Vec::new();
    for (method, message) in calls::calls(input) {
        let Some(path) = METHODS.get(usize::from(method)) else { continue };
        let asked = calls::call(service.clone(), path, vec![Bytes::copy_from_slice(message)]);
        // What is given up goes on without its caller.
        let Ok(answer) = tokio::time::timeout(PATIENCE, asked).await else { continue };
        if let (Ok(answer), 5) = (&answer, method) {
            check(&proto::RunStatus::decode(answer.clone()).unwrap());
        }
        known = coordinator.runs();
    }
    for run in known {
        let status = calls::call(service.clone(), METHODS[5], vec![RunRequest { run }.encode_to_vec().into()]).await;
        // It may have ended just now.
        if let Ok(status) = status {
            check(&proto::RunStatus::decode(status).unwrap());
        }
    }
}

/// What holds for every run.
fn check(status: &proto::RunStatus) {
    let settings = status.settings.as_ref().expect("a run has settings");
    let ranks = status.members.iter().filter_map(|member| member.rank);
    let mut sorted: Vec<u32> = ranks.collect();
    sorted.sort_unstable();
    sorted.dedup();
    let given = status.members.iter().filter(|member| member.rank.is_some()).count();
    assert_eq!(sorted.len(), given, "two members have the same rank");
    let participants = status.members.iter().filter(|member| member.list() == proto::MemberList::Participant).count();
    assert!(participants as u64 <= u64::from(settings.max), "more take part than may");
}

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
}

/// A run from its beginning to its end, and a registry of servers.
fn inputs() -> Vec<Vec<u8>> {
    let run = || "run".to_owned();
    let member = |process| Some(MemberId { address: "host".to_owned(), process, counter: 0 });
    let settings = |min, max| {
        let (last_call_ms, keep_alive_ms, missed, stable_ranks) = (1, 60_000, 3, true);
        Some(RunSettings { min, max, last_call_ms, keep_alive_ms, missed, stable_ranks, expected: None })
    };
    let join = |process, settings, told: Option<u64>| {
        let (timeout_ms, retry) = (1000, told.is_some());
        let request = proto::JoinRequest { run: run(), member: member(process), settings, timeout_ms, retry, told };
        (0, request.encode_to_vec())
    };
    let of_member = |method, process| (method, MemberRequest { run: run(), member: member(process) }.encode_to_vec());
    let of_run = |method| (method, RunRequest { run: run() }.encode_to_vec());
    let close = |settings| (3, proto::CloseRunRequest { run: run(), settings }.encode_to_vec());
    let store = |operation, number: u64| {
        let call = (number > 0).then_some(proto::StoreCall { caller: 9, number });
        let request = proto::StoreRequest { run: run(), round: 0, operation: Some(operation), timeout_ms: 1, call };
        (8, request.encode_to_vec())
    };
    let keys = |names: &[&str]| proto::StoreKeys { keys: names.iter().map(|&name| name.to_owned()).collect() };
    let set = |key: &str, value: &[u8]| proto::StoreSet {
        entries: vec![proto::StoreEntry { key: key.to_owned(), value: value.to_vec() }],
    };
    let compare = |expected: &[u8]| {
        let (key, expected, value) = ("k".to_owned(), expected.to_vec(), b"new".to_vec());
        Operation::CompareSet(proto::StoreCompareSet { key, expected, value })
    };
    let register = |address: &str, lease_ms, wanted: &[u32]| {
        let terms = StorageSettings { fingerprint: "0123".to_owned(), law: 1, parts: 2, replicas: 1, servers: 0 };
        let request = proto::RegisterServerRequest {
            run: run(),
            address: address.to_owned(),
            incarnation: 5,
            settings: Some(terms),
            lease_ms,
            wanted: wanted.to_vec(),
            serving: vec![0],
        };
        (9, request.encode_to_vec())
    };
    let renew = |address: &str| {
        let (address, serving) = (address.to_owned(), vec![0, 1]);
        (10, proto::RenewServerRequest { run: run(), address, incarnation: 5, serving }.encode_to_vec())
    };
    let remove = |address: &str| {
        let request = proto::RemoveServerRequest { run: run(), address: address.to_owned(), incarnation: 5 };
        (11, request.encode_to_vec())
    };
    let alone = || settings(1, 1);
    let of_store = |operations: Vec<(Operation, u64)>| {
        let begin = [join(1, alone(), None)];
        calls::input(
            begin.into_iter().chain(operations.into_iter().map(|(operation, number)| store(operation, number))),
        )
    };
    vec![
        calls::input([join(1, alone(), None), of_member(1, 1), of_member(4, 1), of_run(5), of_run(6), (7, Vec::new())]),
        calls::input([
            join(1, settings(2, 3), None),
            join(2, settings(2, 3), None),
            join(1, settings(2, 3), Some(0)),
            of_run(5),
        ]),
        calls::input([
            join(1, alone(), None),
            join(2, alone(), None),
            of_member(2, 1),
            of_run(5),
            close(None),
            of_run(5),
        ]),
        calls::input([join(1, alone(), None), join(1, settings(1, 2), None), of_member(1, 7), close(alone())]),
        calls::input([close(alone()), join(1, alone(), None), of_run(5)]),
        of_store(vec![
            (Operation::Set(set("k", b"1")), 1),
            (Operation::Set(set("k", b"1")), 1),
            (Operation::Append(set("k", b"2")), 2),
            (Operation::Get(keys(&["k"])), 0),
            (Operation::Wait(keys(&["k"])), 0),
            (Operation::Check(keys(&["k", "n"])), 0),
            (Operation::Add(proto::StoreAdd { key: "n".to_owned(), amount: -3 }), 3),
            (Operation::Count(proto::StoreCount { prefix: "k".to_owned() }), 0),
            (Operation::Delete(keys(&["k", "m"])), 4),
            (compare(b""), 5),
            (compare(b"old"), 6),
        ]),
        of_store(vec![(Operation::Get(keys(&["missing"])), 0), (Operation::Wait(keys(&["missing"])), 0)]),
        calls::input([
            of_run(12),
            register("127.0.0.1:1", 5000, &[]),
            register("127.0.0.1:2", 5000, &[1]),
            renew("127.0.0.1:1"),
            renew("127.0.0.1:3"),
            of_run(12),
            of_run(13),
            remove("127.0.0.1:1"),
            register("127.0.0.1:3", 0, &[]),
            register("127.0.0.1:3", 5000, &[9]),
        ]),
    ]
}

fuzz_target!(init: corpus::write_to_corpus(&inputs()), |input: &[u8]| {
    RUNTIME.with(|runtime| {
        // Tasks of runs end with their coordinator, when it is their turn.
        runtime.block_on(run(input));
    });
});
