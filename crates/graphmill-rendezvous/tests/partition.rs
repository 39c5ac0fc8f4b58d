//! Members that are cut off from the coordinator: nobody is in two rounds, and everybody learns what came of it in time.

#[path = "serving/authority.rs"]
#[allow(unreachable_pub)]
mod authority;
mod serving;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::Authority;
use graphmill_net::{ClientTls, ServerTls};
use graphmill_rendezvous::client::{ConnectOptions, Connection, Error, Member, Timeouts};
use graphmill_rendezvous::{Keeping, Operation, Target};
use graphmill_testing::{Fault, Proxy, Storm, Way};
use serving::{LONG, Serving, brisk, connect, join_all, member, timeouts, until};

/// The world size of each round, and who was told which rank in it.
type Told = BTreeMap<u64, (u32, BTreeMap<u32, usize>)>;

/// Notes what a member was told, which must not contradict what others were.
fn note(told: &mut Told, who: usize, (round, rank, world_size): (u64, u32, u32)) {
    let (world, ranks) = told.entry(round).or_insert((world_size, BTreeMap::new()));
    assert_eq!(*world, world_size, "round {round} has two sizes");
    assert!(rank < world_size);
    let first = *ranks.entry(rank).or_insert(who);
    assert_eq!(first, who, "rank {rank} of round {round} was given twice");
    assert_eq!(ranks.values().filter(|&&other| other == who).count(), 1, "a member has two ranks in round {round}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_are_cut_off_learn_it_and_come_back_in_a_later_round() {
    let serving = Serving::start(Keeping::Memory).await;
    let proxy = Proxy::start(serving.socket(), 1).unwrap();
    let (direct, through) = (serving.address(), proxy.address().to_string());
    let brief = Duration::from_secs(3);
    let here: Vec<_> = (0..2).map(|_| member(&direct, "cut", &brisk(2, 4), LONG)).collect();
    let there: Vec<_> = (0..2).map(|_| member(&through, "cut", &brisk(2, 4), brief)).collect();
    let all: Vec<&Member> = here.iter().chain(&there).collect();
    assert!(join_all(&all).await.iter().all(|joined| (joined.0, joined.2) == (0, 4)));

    proxy.apply(Fault::Partition);
    let began = Instant::now();
    until("loss", async || there.iter().all(Member::is_lost)).await;
    assert!(here.iter().all(|member| !member.is_lost()));
    // Whoever takes itself for dead does so no later than the coordinator; now the others form a round without it.
    until("two deaths", async || serving.coordinator.status("cut").await.unwrap().state.len() == 2).await;
    assert_eq!(join_all(&here.iter().collect::<Vec<_>>()).await, [(1, 0, 2), (1, 1, 2)]);
    let mut cut_off = Vec::new();
    for member in &there {
        cut_off.push(member.num_nodes_waiting().await.unwrap_err());
        cut_off.push(member.next_rendezvous().await.unwrap_err());
    }
    for error in cut_off {
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    assert!(began.elapsed() < 2 * LONG, "each call within its own time");

    proxy.apply(Fault::Heal);
    let status = serving.coordinator.status("cut").await.unwrap();
    assert_eq!((status.state.round, status.state.participants.len()), (1, 2), "nothing has happened to the others");
    let back = async {
        let joins = there.iter().map(async |member| {
            loop {
                // A connection that hung may be found out late.
                match member.next_rendezvous().await {
                    Ok(joined) => return (joined.round, joined.rank, joined.world_size),
                    Err(error) => {
                        assert!(matches!(error, Error::Unavailable { .. } | Error::TimedOut { .. }), "{error}");
                    }
                }
                assert!(began.elapsed() < 3 * LONG);
            }
        });
        futures_util::future::join_all(joins).await
    };
    let others = async {
        until("two that wait", async || here[0].num_nodes_waiting().await.unwrap() == 2).await;
        join_all(&here.iter().collect::<Vec<_>>()).await
    };
    let (back, others) = tokio::join!(back, others);
    let mut told = Told::new();
    for (who, joined) in others.into_iter().chain(back).enumerate() {
        assert_eq!((joined.0, joined.2), (2, 4));
        note(&mut told, who, joined);
    }
    assert!(all.iter().all(|member| !member.is_lost()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_dropped_counts_itself_among_those_that_wait() {
    let serving = Serving::start(Keeping::Memory).await;
    let proxy = Proxy::start(serving.socket(), 1).unwrap();
    let lost = member(&proxy.address().to_string(), "dropped", &brisk(1, 1), LONG);
    lost.next_rendezvous().await.unwrap();
    proxy.apply(Fault::Stall(Way::Up));
    until("death", async || serving.coordinator.status("dropped").await.unwrap().state.is_empty()).await;
    proxy.apply(Fault::Heal);
    until("to be told", async || lost.num_nodes_waiting().await.is_ok_and(|waiting| waiting == 1)).await;
    until("to know", async || lost.is_lost()).await;
    assert_eq!(lost.next_rendezvous().await.unwrap().round, 1);
    assert_eq!((lost.num_nodes_waiting().await.unwrap(), lost.is_lost()), (0, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_survives_a_cut_connection_and_is_answered_once() {
    let serving = Serving::start(Keeping::Memory).await;
    let proxy = Proxy::start(serving.socket(), 1).unwrap();
    let settings = graphmill_rendezvous::Settings { missed: 100, ..brisk(2, 2) };
    for fault in [Fault::Reset, Fault::HalfClose(Way::Down), Fault::HalfClose(Way::Up)] {
        let run = format!("{fault:?}");
        let early = member(&proxy.address().to_string(), &run, &settings, LONG);
        let waits = tokio::spawn(async move { (early.next_rendezvous().await, early) });
        until("the first", async || serving.coordinator.status(&run).await.is_ok_and(|run| run.state.len() == 1)).await;
        proxy.apply(fault);
        let late = member(&serving.address(), &run, &settings, LONG);
        let joined = late.next_rendezvous().await.unwrap();
        let (early, _member) = waits.await.unwrap();
        assert_eq!((joined.round, early.unwrap().round), (0, 0), "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_that_failed_leaves_nobody_behind() {
    let serving = Serving::start(Keeping::Memory).await;
    let proxy = Proxy::start(serving.socket(), 1).unwrap();
    // Longer than it is cut off.
    let settings = graphmill_rendezvous::Settings { missed: 25, ..brisk(2, 2) };
    let cut_off = member(&proxy.address().to_string(), "ghost", &settings, Duration::from_secs(1));
    let known = async |count| serving.coordinator.status("ghost").await.is_ok_and(|run| run.state.len() == count);
    let (failed, ()) = tokio::join!(cut_off.next_rendezvous(), async {
        until("the first", async || known(1).await).await;
        proxy.apply(Fault::Partition);
    });
    assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    proxy.apply(Fault::Heal);
    until("the end of its lease", async || known(0).await).await;

    // Whoever does not wait any more is not heard of any more.
    let given_up = member(&serving.address(), "ghost", &settings, LONG);
    let joins = given_up.next_rendezvous();
    assert!(tokio::time::timeout(Duration::from_millis(500), joins).await.is_err());
    until("the end of another", async || known(0).await).await;

    // Whoever can say so says so, and no lease has to end.
    let patient = graphmill_rendezvous::Settings { missed: 1000, ..brisk(2, 2) };
    let deaf = member(&proxy.address().to_string(), "goodbye", &patient, Duration::from_secs(1));
    let known = async |count| serving.coordinator.status("goodbye").await.is_ok_and(|run| run.state.len() == count);
    let (failed, ()) = tokio::join!(deaf.next_rendezvous(), async {
        until("the first", async || known(1).await).await;
        proxy.apply(Fault::Stall(Way::Down));
    });
    assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    until("its leave", async || known(0).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_is_lost_is_done_once() {
    let serving = Serving::start(Keeping::Memory).await;
    let proxy = Proxy::start(serving.socket(), 1).unwrap();
    let settings = graphmill_rendezvous::Settings { missed: 1000, ..brisk(1, 1) };
    let patient = Timeouts { join: LONG, close: LONG, answer: LONG };
    let connection = connect(&proxy.address().to_string());
    let here = Member::new(connection, "once", "127.0.0.1", settings, patient).unwrap();
    let store = here.next_rendezvous().await.unwrap().store;
    proxy.apply(Fault::Stall(Way::Down));
    let (sum, ()) = tokio::join!(store.add("n".to_owned(), 1), async {
        let done = async || {
            let check = Operation::Check(vec!["n".to_owned()]);
            serving.coordinator.store("once", 0, check).await.unwrap().yes
        };
        until("the addition", done).await;
        proxy.apply(Fault::Reset);
        proxy.apply(Fault::Heal);
    });
    assert_eq!(sum.unwrap(), 1);
    assert_eq!(store.get(vec!["n".to_owned()], LONG).await.unwrap(), [b"1".to_vec()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_bytes_are_noticed_under_tls() {
    let authority = Authority::new("ours");
    let (cert, key) = authority.issue("127.0.0.1");
    let tls = ServerTls::load(&cert, &key, None).unwrap();
    let serving = Serving::guarded("127.0.0.1:0", Keeping::Memory, None, Some(tls)).await;
    let proxy = Proxy::start(serving.socket(), 3).unwrap();
    let options = ConnectOptions { token: None, tls: Some(ClientTls::load(&authority.path(), None).unwrap()) };
    let connection = Connection::open(&proxy.address().to_string().parse::<Target>().unwrap().place, &options).unwrap();
    let settings = graphmill_rendezvous::Settings { missed: 100, ..brisk(1, 1) };
    let here = Member::new(connection, "wrong", "127.0.0.1", settings, timeouts(LONG)).unwrap();
    here.next_rendezvous().await.unwrap();
    proxy.apply(Fault::Corrupt(Way::Up, 50));
    let _ = here.num_nodes_waiting().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.apply(Fault::Heal);
    until("calm", async || here.num_nodes_waiting().await.is_ok()).await;
    assert_eq!(here.next_rendezvous().await.unwrap().round, 1, "nothing that was damaged was believed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_storm_puts_a_member_into_two_rounds() {
    const MEMBERS: usize = 4;
    let serving = Serving::start(Keeping::Memory).await;
    let told = Arc::new(std::sync::Mutex::new(Told::new()));
    let over = Instant::now() + Duration::from_secs(15);
    let mut playing = tokio::task::JoinSet::new();
    let mut storms = Vec::new();
    for who in 0..MEMBERS {
        let proxy = Arc::new(Proxy::start(serving.socket(), who as u64).unwrap());
        let url = proxy.address().to_string();
        storms.push(std::thread::spawn(move || {
            let storm = Storm::new(7 + who as u64, Duration::from_secs(3));
            proxy.weather(storm, over.saturating_duration_since(Instant::now()));
            proxy
        }));
        let told = Arc::clone(&told);
        playing.spawn(async move {
            let member = member(&url, "storm", &brisk(2, MEMBERS as u32), Duration::from_secs(3));
            let mut rounds = 0u32;
            while Instant::now() < over {
                let began = Instant::now();
                match member.next_rendezvous().await {
                    Ok(joined) => {
                        note(&mut told.lock().unwrap(), who, (joined.round, joined.rank, joined.world_size));
                        rounds += 1;
                        // It goes on until it has to do with others again.
                        for _ in 0..20 {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            if member.is_lost() || member.num_nodes_waiting().await.unwrap_or(1) > 0 {
                                break;
                            }
                        }
                    }
                    Err(Error::Unavailable { .. } | Error::TimedOut { .. } | Error::Lost(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                assert!(began.elapsed() < LONG, "an outcome in time");
            }
            (member, rounds)
        });
    }
    let mut members = Vec::new();
    while let Some(played) = playing.join_next().await {
        members.push(played.unwrap());
    }
    let _proxies: Vec<_> = storms.into_iter().map(|storm| storm.join().unwrap()).collect();
    let rounds = told.lock().unwrap().len();
    assert!(rounds >= 2, "only {rounds} rounds were formed");
    // When the storm is over, all meet.
    let met = async |member: &Member| {
        loop {
            match member.next_rendezvous().await {
                Ok(joined) if joined.world_size == MEMBERS as u32 => return (joined.round, joined.rank),
                Ok(_) => until("others", async || member.num_nodes_waiting().await.unwrap_or(1) > 0).await,
                Err(_) => {}
            }
        }
    };
    let all = tokio::time::timeout(LONG, futures_util::future::join_all(members.iter().map(|(member, _)| met(member))));
    let mut all = all.await.expect("they meet");
    all.sort_unstable();
    assert_eq!(all.iter().map(|(_, rank)| *rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(all.iter().all(|(round, _)| *round == all[0].0));
}
