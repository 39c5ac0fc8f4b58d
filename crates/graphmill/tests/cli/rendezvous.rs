//! A coordinator as a process: members that find each other through it, its status, its death.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use graphmill_rendezvous::client::{ConnectOptions, Connection, Error, Joined, Member, Timeouts};
use graphmill_rendezvous::{Settings, Target};

use crate::support::Workplace;

struct Coordinator(Child);

impl Coordinator {
    fn start(place: &Workplace, line: &str) -> (Self, String) {
        let mut command = place.command(&format!("--quiet rendezvous serve {line}"));
        let mut child = command.env("GRAPHMILL_LOG", "error").stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("a coordinator says where it listens").unwrap();
        (Self(child), first.strip_prefix("listening on ").unwrap().to_owned())
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn member(address: &str, settings: &Settings) -> Member {
    let target: Target = address.parse().unwrap();
    let connection = Connection::new(&target.endpoints, &ConnectOptions::default());
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
