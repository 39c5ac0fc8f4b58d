//! Members over real connections, with every way to keep their runs: what the reference calls its handler.

#[path = "serving/authority.rs"]
#[allow(unreachable_pub)]
mod authority;
mod etcd;
mod serving;

use std::time::{Duration, Instant};

use authority::Authority;
use graphmill_net::{ClientTls, ServerTls, Token};
use graphmill_rendezvous::client::{ConnectOptions, Connection, Error, Member, Timeouts};
use graphmill_rendezvous::{Keeping, Node, Settings, Target};
use serving::{LONG, Serving, brisk, connect, join_all, member, timeouts, until};

/// Plays something for every way to keep runs; etcd where it is installed.
async fn everywhere(play: impl AsyncFn(&Serving)) {
    play(&Serving::start(Keeping::Memory).await).await;
    let folder = tempfile::tempdir().unwrap();
    play(&Serving::start(Keeping::Folder(folder.path().to_owned())).await).await;
    if let Some(nodes) = etcd::Nodes::start(1) {
        let serving = Serving::start(Keeping::Etcd(nodes.connect("members"), "here".to_owned())).await;
        let listening = connect(&serving.address());
        until("leading", async || matches!(listening.status("x", LONG).await, Err(Error::NoRun { .. }))).await;
        play(&serving).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_get_ranks_rounds_and_a_store_of_each_round() {
    everywhere(async |serving| {
        let members: Vec<_> = (0..3).map(|_| member(&serving.address(), "three", &brisk(3, 3), LONG)).collect();
        let members: Vec<&Member> = members.iter().collect();
        for round in 0..4 {
            let joined = join_all(&members).await;
            assert_eq!(joined, [(round, 0, 3), (round, 1, 3), (round, 2, 3)]);
        }
        let shared = futures_util::future::join_all(members.iter().map(|member| member.next_rendezvous())).await;
        let stores: Vec<_> = shared.into_iter().map(|joined| joined.unwrap().store).collect();
        stores[0].set(vec![("k".to_owned(), b"v".to_vec())]).await.unwrap();
        assert_eq!(stores[2].get(vec!["k".to_owned()], LONG).await.unwrap(), [b"v".to_vec()], "they share one");
        let next = futures_util::future::join_all(members.iter().map(|member| member.next_rendezvous())).await;
        assert!(!next[1].as_ref().unwrap().store.check(vec!["k".to_owned()]).await.unwrap(), "each round has its own");
        assert!(stores[1].check(vec!["k".to_owned()]).await.unwrap(), "and the last one's is still there");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_counted() {
    everywhere(async |serving| {
        let settings = brisk(1, 3);
        let here = member(&serving.address(), "waiting", &settings, LONG);
        assert_eq!(here.num_nodes_waiting().await.unwrap(), 0, "there is no run yet");
        assert!(!here.is_closed().await.unwrap());
        here.next_rendezvous().await.unwrap();
        let others: Vec<_> = (0..2).map(|_| member(&serving.address(), "waiting", &settings, LONG)).collect();
        let waiting =
            others.into_iter().map(|other| tokio::spawn(async move { (other.next_rendezvous().await, other) }));
        let waiting: Vec<_> = waiting.collect();
        until("two that wait", async || here.num_nodes_waiting().await.unwrap() == 2).await;
        here.leave().await.unwrap();
        for joined in waiting {
            let (joined, _member) = joined.await.unwrap();
            assert_eq!(joined.unwrap().round, 1);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_is_seen_by_all_and_done_twice_without_harm() {
    everywhere(async |serving| {
        let (one, two) = (
            member(&serving.address(), "closed", &brisk(1, 1), LONG),
            member(&serving.address(), "closed", &brisk(1, 1), LONG),
        );
        one.next_rendezvous().await.unwrap();
        assert!(!two.is_closed().await.unwrap());
        one.set_closed().await.unwrap();
        one.set_closed().await.unwrap();
        assert!(two.is_closed().await.unwrap());
        assert!(matches!(two.next_rendezvous().await, Err(Error::Closed(_))));
        assert!(one.shutdown().await && one.shutdown().await);

        let (first, second) = (
            member(&serving.address(), "never begun", &brisk(1, 1), LONG),
            member(&serving.address(), "never begun", &brisk(1, 1), LONG),
        );
        assert!(first.shutdown().await, "a run can be closed before anybody has joined");
        assert!(second.is_closed().await.unwrap());
        assert!(matches!(second.next_rendezvous().await, Err(Error::Closed(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_outs_are_kept() {
    everywhere(async |serving| {
        let began = Instant::now();
        let lonely = member(&serving.address(), "lonely", &brisk(2, 2), Duration::from_millis(300));
        assert!(matches!(lonely.next_rendezvous().await, Err(Error::TimedOut { .. })));
        assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < LONG);
        assert!(!lonely.is_lost(), "it was in no round");
    })
    .await;
    let usual = Timeouts::default();
    assert_eq!([usual.join, usual.close, usual.answer].map(|time| time.as_secs()), [600, 30, 5]);
    for wrong in [
        Timeouts { join: Duration::ZERO, ..usual },
        Timeouts { close: Duration::ZERO, ..usual },
        Timeouts { answer: Duration::from_micros(1), ..usual },
    ] {
        let refused = Member::new(connect("127.0.0.1:1"), "run", "host", Settings::new(1, 1), wrong).unwrap_err();
        assert!(refused.to_string().contains("expected 1 ms or more"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_go_on_until_the_member_leaves_or_is_dropped() {
    let serving = Serving::start(Keeping::Memory).await;
    let age = async |node: &Node| {
        let status = serving.coordinator.status("beats").await.unwrap();
        status.ages.iter().find(|(known, _)| ***known == *node).map(|(_, age)| *age)
    };
    let settings = Settings { missed: 1000, ..brisk(2, 2) };
    let (stays, goes) =
        (member(&serving.address(), "beats", &settings, LONG), member(&serving.address(), "beats", &settings, LONG));
    join_all(&[&stays, &goes]).await;
    let (kept, dropped) = (stays.node().clone(), goes.node().clone());
    drop(goes);
    let silent = Duration::from_secs(1);
    until("silence", async || age(&dropped).await.unwrap() > silent).await;
    until("a heartbeat", async || age(&kept).await.unwrap() < silent).await;
    assert!(age(&dropped).await.unwrap() > silent, "nobody speaks for it any more");
    stays.leave().await.unwrap();
    assert_eq!(age(&kept).await, None);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(age(&kept).await, None, "and nothing brings it back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_end_on_shutdown() {
    let serving = Serving::start(Keeping::Memory).await;
    let here = member(&serving.address(), "shut", &brisk(1, 1), LONG);
    here.next_rendezvous().await.unwrap();
    until("a heartbeat", async || here.heartbeats() > 0).await;
    assert!(here.shutdown().await);
    let heard = here.heartbeats();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(here.heartbeats(), heard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_has_the_time_that_it_was_given() {
    // Lets everybody in, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (brief, lasting) = (Duration::from_millis(300), 2 * LONG);
    let with = |timeouts| {
        let connection = connect(&silent.local_addr().unwrap().to_string());
        Member::new(connection, "silent", "127.0.0.1", brisk(1, 1), timeouts).unwrap()
    };
    let began = Instant::now();
    let closing = with(Timeouts { join: lasting, close: brief, answer: lasting }).set_closed().await;
    assert!(matches!(closing, Err(Error::Unavailable { .. })), "{closing:?}");
    let asking = with(Timeouts { join: lasting, close: lasting, answer: brief }).is_closed().await;
    assert!(matches!(asking, Err(Error::Unavailable { .. })), "{asking:?}");
    let leaving = with(Timeouts { join: lasting, close: lasting, answer: brief }).leave().await;
    assert!(matches!(leaving, Err(Error::Unavailable { .. })), "{leaving:?}");
    assert!(began.elapsed() >= 3 * brief && began.elapsed() < LONG);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_who_it_was_made_as() {
    let serving = Serving::start(Keeping::Memory).await;
    let settings = Settings { expected: Some(2), ..brisk(1, 3) };
    let make =
        |address: &str| Member::new(connect(&serving.address()), "made", address, settings.clone(), timeouts(LONG));
    let (one, two) = (make("10.1.2.3").unwrap(), make("10.1.2.3").unwrap());
    assert_eq!((one.node().address.as_str(), one.node().process), ("10.1.2.3", std::process::id()));
    assert!(one.node().counter < two.node().counter && one.node() < two.node());
    let (first, second) = tokio::join!(one.next_rendezvous(), two.next_rendezvous());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.master, second.master, "both are told the same of rank 0");
    assert_eq!(first.master.address, "10.1.2.3");
    assert_ne!(first.master.port, 0);
    assert_eq!(serving.coordinator.status("made").await.unwrap().settings, settings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_0_that_says_nothing_costs_a_round_and_the_time_of_it() {
    let serving = Serving::start(Keeping::Memory).await;
    let settings = Settings { missed: 2, ..brisk(2, 2) };
    let within = Duration::from_secs(6);
    let here = member(&serving.address(), "mute", &settings, within);
    // It comes before all others in the order of members, and is never heard of again.
    let mute = serving.coordinator.join("mute", Node::new("0", 0, 0), settings, LONG);
    let (joined, _) = tokio::join!(here.next_rendezvous(), mute);
    let in_what_was_left = match &joined {
        Err(Error::TimedOut { within: left, .. }) => *left < within,
        Err(Error::NoMaster { .. }) => true,
        _ => false,
    };
    assert!(in_what_was_left, "{joined:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_joins_once_at_a_time_and_leaving_ends_that() {
    let serving = Serving::start(Keeping::Memory).await;
    let here = member(&serving.address(), "twice", &brisk(2, 2), LONG);
    let known = async || serving.coordinator.status("twice").await.is_ok_and(|run| run.state.len() == 1);
    let (joined, ()) = tokio::join!(here.next_rendezvous(), async {
        until("the first call", known).await;
        assert!(matches!(here.next_rendezvous().await, Err(Error::Joining(_))));
        assert!(known().await, "which goes on");
        here.leave().await.unwrap();
    });
    assert!(matches!(joined, Err(Error::Left(_))), "{joined:?}");
    assert!(!known().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_coordinator_everything_is_an_error_in_time() {
    let serving = Serving::start(Keeping::Memory).await;
    let alone = member(&serving.address(), "gone", &brisk(1, 1), Duration::from_millis(600));
    let store = alone.next_rendezvous().await.unwrap().store;
    drop(serving);
    // Heartbeats fail meanwhile, and harm nobody.
    until("the end of its lease", async || alone.is_lost()).await;
    let began = Instant::now();
    let unavailable = |error: &Error| matches!(error, Error::Unavailable { .. });
    assert!(unavailable(&alone.num_nodes_waiting().await.unwrap_err()));
    assert!(unavailable(&alone.is_closed().await.unwrap_err()));
    assert!(unavailable(&alone.set_closed().await.unwrap_err()));
    assert!(unavailable(&store.check(vec!["k".to_owned()]).await.unwrap_err()));
    assert!(unavailable(&alone.next_rendezvous().await.unwrap_err()));
    assert!(!alone.shutdown().await);
    assert!(began.elapsed() < LONG);
    assert!(alone.is_lost(), "it cannot know that anybody still counts on it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_in_by_tls_and_by_socket() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (cert, key) = ours.issue("127.0.0.1");
    let tls = ServerTls::load(&cert, &key, Some(&ours.path())).unwrap();
    let token = || Some(Token::new("sesame-sesame").unwrap());
    let serving = Serving::guarded("127.0.0.1:0", Keeping::Memory, token(), Some(tls)).await;
    let join = async |trusted: &Authority, identity: Option<&Authority>, token: Option<Token>| {
        let identity = identity.map(|authority| authority.issue("member"));
        let identity = identity.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        let tls = Some(ClientTls::load(&trusted.path(), identity).unwrap());
        let connection =
            Connection::open(&serving.address().parse::<Target>().unwrap().place, &ConnectOptions { token, tls })
                .unwrap();
        let member = Member::new(connection, "tls", "127.0.0.1", brisk(1, 1), timeouts(LONG)).unwrap();
        member.next_rendezvous().await.map(|joined| joined.rank)
    };
    assert_eq!(join(&ours, Some(&ours), token()).await.unwrap(), 0);
    let began = Instant::now();
    for (trusted, identity, shown) in [
        (&theirs, Some(&ours), token()),
        (&ours, None, token()),
        (&ours, Some(&theirs), token()),
        (&ours, Some(&ours), None),
    ] {
        let refused = join(trusted, identity, shown).await.unwrap_err();
        assert!(matches!(refused, Error::Denied { .. }), "{refused}");
    }
    let plain = member(&serving.address(), "tls", &brisk(1, 1), LONG).next_rendezvous().await.unwrap_err();
    assert!(plain.to_string().contains("TLS"), "{plain}");
    assert!(began.elapsed() < LONG, "nobody waits for what cannot become better");

    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let _serving = Serving::guarded(&socket, Keeping::Memory, None, None).await;
    assert_eq!(member(&socket, "local", &brisk(1, 1), LONG).next_rendezvous().await.unwrap().rank, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_find_the_leader_through_etcd() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let url = format!("etcd://{}/train?prefix=found", nodes.addresses());
    let early = member(&url, "train", &brisk(2, 2), LONG);
    let waits = tokio::spawn(async move { (early.next_rendezvous().await, early) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let serve = async || {
        // Where it listens must be known before it leads.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Serving::guarded(&port.to_string(), Keeping::Etcd(nodes.connect("found"), port.to_string()), None, None).await
    };
    let first = serve().await;
    let other = member(&url, "train", &brisk(2, 2), LONG);
    let joined = other.next_rendezvous().await.unwrap();
    let (early_joined, early) = waits.await.unwrap();
    assert_eq!((joined.round, early_joined.unwrap().round), (0, 0));
    let second = serve().await;
    drop(first);
    // Nobody has told them where the second is.
    let set = async || joined.store.set(vec![("still".to_owned(), b"here".to_vec())]).await.is_ok();
    until("the second to be found", set).await;
    let both = join_all(&[&early, &other]).await;
    assert_eq!(both.iter().map(|(round, ..)| *round).collect::<Vec<_>>(), [1, 1]);
    drop(second);
    let nobody = connect(&format!("etcd://{}/train?prefix=nobody", nodes.addresses()));
    let error = nobody.status("train", Duration::from_millis(500)).await.unwrap_err().to_string();
    assert!(error.contains("no coordinator leads"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_for_a_leader_that_is_gone_finds_the_next_one() {
    let Some(nodes) = etcd::Nodes::start(1) else { return };
    let url = format!("etcd://{}/train?prefix=next", nodes.addresses());
    // Etcd says that one leads, but nobody is there.
    let gone = etcd::lead(&nodes.connect("next"), "127.0.0.1:1").await;
    // Two ask over each connection, as members and servers do, and doubt it at the same time.
    let mut asking = tokio::task::JoinSet::new();
    for connection in (0..32).map(|_| connect(&url)) {
        for connection in [connection.clone(), connection] {
            asking.spawn(async move { connection.runs(LONG).await });
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(gone);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let _serving = Serving::guarded(&port, Keeping::Etcd(nodes.connect("next"), port.clone()), None, None).await;
    while let Some(answered) = asking.join_next().await {
        assert_eq!(answered.unwrap().unwrap(), Vec::<String>::new());
    }
}
