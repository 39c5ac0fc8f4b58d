//! A coordinator as a process: members that find each other through it, its status, its death.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use graphmill_rendezvous::client::{ConnectOptions, Connection, Error, Joined, Member, Timeouts};
use graphmill_rendezvous::{Settings, Target};

use crate::servers::Coordinator;
use crate::support::Workplace;

pub(crate) fn member(address: &str, settings: &Settings) -> Member {
    let target: Target = address.parse().unwrap();
    let connection = Connection::open(&target.place, &ConnectOptions::default()).unwrap();
    let timeouts = Timeouts { join: Duration::from_secs(60), ..Timeouts::default() };
    Member::new(connection, "train", "127.0.0.1", settings.clone(), timeouts).unwrap()
}

async fn join_all(members: &[Member]) -> Vec<(u64, u32, u32)> {
    let joins = members.iter().map(async |member| {
        let Joined { round, rank, world_size, .. } = member.next_rendezvous().await.unwrap();
        (round, rank, world_size)
    });
    let mut joined = futures_util::future::join_all(joins).await;
    joined.sort_unstable();
    joined
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_keep_their_ranks_when_the_coordinator_is_killed_and_comes_back() {
    let place = Workplace::new();
    let state = place.path("state");
    let (coordinator, address) =
        Coordinator::start(&place, &format!("--listen 127.0.0.1:0 --state {}", state.display()));
    let settings = Settings { keep_alive: Duration::from_millis(200), missed: 50, ..Settings::new(3, 3) };
    let members: Vec<_> = (0..3).map(|_| member(&address, &settings)).collect();
    assert_eq!(join_all(&members).await, [(0, 0, 3), (0, 1, 3), (0, 2, 3)]);

    // A newcomer waits for the next round while the coordinator dies.
    let spare = member(&address, &settings);
    let waits = tokio::spawn(async move { (spare.next_rendezvous().await, spare) });
    let shown = place.succeed(&format!("rendezvous status {address}/train"));
    assert!(shown.contains("3 take part (3 to 3 can)"), "{shown}");
    drop(coordinator);
    let (_coordinator, _) = Coordinator::start(&place, &format!("--listen {address} --state {}", state.display()));
    assert!(!members[0].is_closed().await.unwrap());
    let shown = place.succeed(&format!("rendezvous status {address}/train --json"));
    let status: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let ranks = status["members"].as_array().unwrap().iter().filter(|member| member["list"] == "participant");
    assert_eq!(ranks.map(|member| member["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);

    // One leaves; the spare, whose call was cut off and sent again, takes its place.
    members[2].leave().await.unwrap();
    let two = tokio::join!(members[0].next_rendezvous(), members[1].next_rendezvous());
    let (joined, spare) = waits.await.unwrap();
    let ranks = [two.0.unwrap(), two.1.unwrap(), joined.unwrap()].map(|joined| (joined.round, joined.rank));
    assert_eq!(ranks, [(1, 0), (1, 1), (1, 2)]);
    spare.set_closed().await.unwrap();
    assert!(matches!(members[0].next_rendezvous().await, Err(Error::Closed(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_told_what_is_wrong_and_harms_nobody() {
    let place = Workplace::new();
    place.write("token", "secret-of-the-run\n");
    std::fs::set_permissions(place.path("token"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let token = place.path("token").display().to_string();
    let (_coordinator, address) = Coordinator::start(&place, &format!("--listen 127.0.0.1:0 --token-file {token}"));
    let without = member(&address, &Settings::new(1, 1)).next_rendezvous().await.unwrap_err();
    assert!(matches!(without, Error::Denied { .. }), "{without}");
    assert!(place.fail(&format!("rendezvous status {address}")).contains("token"));

    // Bytes that are no protocol at all.
    for garbage in [&b"\x00\xff\x00\xff"[..], b"GET / HTTP/1.0\r\n\r\n", &[0x8b; 100]] {
        use std::io::Write as _;
        let _ = std::net::TcpStream::connect(&address).unwrap().write_all(garbage);
    }
    let listed = place.succeed(&format!("rendezvous status {address} --token-file {token}"));
    assert_eq!(listed.trim(), "no run is under way");
    let unknown = place.fail(&format!("rendezvous status {address}/other --token-file {token}"));
    assert!(unknown.contains("there is no run `other`"), "{unknown}");
}

/// Limits how large files of a process may become; what is beyond is refused, as by a full disk.
fn limit_files(process: u32, bytes: &str) {
    let limited =
        Command::new("prlimit").args(["--pid", &process.to_string(), &format!("--fsize={bytes}:unlimited")]).status();
    assert!(limited.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told_to_members_and_the_run_goes_on_when_there_is_room() {
    let place = Workplace::new();
    // The signal that comes with the limit is ignored, so that writes fail as they do on a full disk.
    let mut command = Command::new("sh");
    let line = format!(
        "trap '' XFSZ; exec {} --quiet rendezvous serve --listen 127.0.0.1:0 --state state",
        env!("CARGO_BIN_EXE_graphmill")
    );
    command.args(["-c", &line]).current_dir(place.path(".")).stdin(Stdio::null()).stdout(Stdio::piped());
    let (coordinator, address) = Coordinator::spawn(command);
    let brief = |settings: &Settings| {
        let connection =
            Connection::open(&address.parse::<Target>().unwrap().place, &ConnectOptions::default()).unwrap();
        let second = Duration::from_secs(1);
        let timeouts = Timeouts { join: second, close: second, answer: second };
        Member::new(connection, "train", "127.0.0.1", settings.clone(), timeouts).unwrap()
    };
    let settings = Settings { expected: Some(1), ..Settings::new(1, 2) };
    let first = brief(&settings);
    let store = first.next_rendezvous().await.unwrap().store;
    store.set(vec![("before".to_owned(), b"kept".to_vec())]).await.unwrap();

    let kept = std::fs::metadata(place.path("state/train.rendezvous")).unwrap().len();
    limit_files(coordinator.0.id(), &(kept + 5).to_string());
    let full = store.set(vec![("k".to_owned(), vec![0; 1000])]).await.unwrap_err().to_string();
    assert!(full.contains("cannot be kept") && full.contains("train.rendezvous"), "{full}");
    let other = brief(&settings);
    let full = other.next_rendezvous().await.unwrap_err();
    assert!(matches!(full, Error::Unserved { .. }), "{full}");
    assert_eq!(store.get(vec!["before".to_owned()], Duration::from_secs(1)).await.unwrap(), [b"kept".to_vec()]);
    // A run that is new cannot even begin; what is left of that is no damage.
    limit_files(coordinator.0.id(), "3");
    assert!(place.fail(&format!("rendezvous status {address}/other --deadline 1")).contains("no run `other`"));
    let begin = |run: &str| {
        let connection =
            Connection::open(&address.parse::<Target>().unwrap().place, &ConnectOptions::default()).unwrap();
        let timeouts = Timeouts { join: Duration::from_secs(1), ..Timeouts::default() };
        Member::new(connection, run, "127.0.0.1", settings.clone(), timeouts).unwrap()
    };
    assert!(begin("other").next_rendezvous().await.is_err());

    limit_files(coordinator.0.id(), "unlimited");
    assert_eq!(begin("other").next_rendezvous().await.unwrap().round, 0);
    store.set(vec![("k".to_owned(), b"now".to_vec())]).await.unwrap();
    assert_eq!(store.get(vec!["k".to_owned()], Duration::from_secs(1)).await.unwrap(), [b"now".to_vec()]);
    assert_eq!(first.num_nodes_waiting().await.unwrap(), 0, "it is in the round that it was in");
    drop(coordinator);
    let (_coordinator, _) = Coordinator::start(&place, &format!("--listen {address} --state state"));
    assert_eq!(store.get(vec!["before".to_owned(), "k".to_owned()], Duration::from_secs(5)).await.unwrap().len(), 2);
}

#[test]
fn an_address_that_leads_nowhere_is_not_told_to_members() {
    let place = Workplace::new();
    for listen in ["127.0.0.1:0", "0.0.0.0:4300"] {
        let error = place.fail(&format!("rendezvous serve --listen {listen} --insecure --state etcd://127.0.0.1:1/p"));
        assert!(error.contains("--advertise"), "{error}");
    }
    for (state, reason) in [
        ("etcd://me:secret@127.0.0.1/p", "password_file"),
        ("etcd://127.0.0.1/p?ca=/no/such/file", "/no/such/file"),
        ("etcd://127.0.0.1/p?prefix=q", "PREFIX"),
    ] {
        let error = place.fail(&format!("rendezvous serve --listen 127.0.0.1:4399 --state {state}"));
        assert!(error.contains(reason) && !error.contains("secret"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_follows_a_run_over_the_death_of_its_coordinator() {
    let place = Workplace::new();
    let socket = format!("unix:{}", place.path("socket").display());
    let (coordinator, address) = Coordinator::start(&place, &format!("--listen {socket} --state state"));
    assert_eq!(address, socket);
    let settings = Settings { expected: Some(1), ..Settings::new(1, 2) };
    let first = member(&address, &settings);
    first.next_rendezvous().await.unwrap();
    let mut watcher = place.command(&format!("rendezvous status {address}//train --watch --json")).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((next()["round"].as_u64(), first.num_nodes_waiting().await.unwrap()), (Some(0), 0));
    drop(coordinator);
    let (_coordinator, _) = Coordinator::start(&place, &format!("--listen {socket} --state state"));
    assert_eq!(next()["members"].as_array().unwrap().len(), 1, "it has found the run again");
    first.next_rendezvous().await.unwrap();
    while next()["round"] != 1 {}
    first.set_closed().await.unwrap();
    while next()["closed"] != true {}
    assert!(watcher.wait().unwrap().success(), "the end of the run is the end of the watch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_room_for_more_members_than_a_shell_lets_a_process_have_files() {
    let place = Workplace::new();
    let mut command = Command::new("sh");
    let line = format!(
        "ulimit -Sn 32; exec {} --quiet rendezvous serve --listen 127.0.0.1:0",
        env!("CARGO_BIN_EXE_graphmill")
    );
    command.args(["-c", &line]).current_dir(place.path(".")).stdin(Stdio::null()).stdout(Stdio::piped());
    let (_coordinator, address) = Coordinator::spawn(command);
    let settings = Settings::new(48, 48);
    let members: Vec<_> = (0..48).map(|_| member(&address, &settings)).collect();
    assert!(join_all(&members).await.iter().zip(0..).all(|(joined, rank)| *joined == (0, rank, 48)));
}

#[test]
fn a_benchmark_needs_a_time_that_makes_sense() {
    let place = Workplace::new();
    for seconds in ["nan", "inf", "0"] {
        let error = place.fail(&format!("bench rendezvous --members 2 --seconds {seconds} --json"));
        assert!(error.contains("--seconds is") && error.contains("expected 1 to"), "{error}");
    }
}
