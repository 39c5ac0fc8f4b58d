//! The contract of every keeper, and what a crash can do to the file of one.

mod etcd;

use std::io::Write as _;
use std::path::Path;

use graphmill_rendezvous::keeper::{EtcdKeeper, FileKeeper, KeepError, Keeper, MemoryKeeper, Written};
use graphmill_rendezvous::records::{Changes, Records};

fn set(key: &str, value: &str) -> (String, Option<Vec<u8>>) {
    (key.to_owned(), Some(value.as_bytes().to_vec()))
}

fn records(pairs: &[(&str, &str)]) -> Records {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

async fn file(path: &Path) -> Keeper {
    Keeper::File(FileKeeper::open(path.to_owned()).await.unwrap())
}

#[tokio::test]
async fn who_writes_must_know_the_newest_token() {
    let folder = tempfile::tempdir().unwrap();
    contract(Keeper::Memory(MemoryKeeper::default())).await;
    contract(file(&folder.path().join("state")).await).await;
    if let Some(nodes) = etcd::Nodes::start(1) {
        let etcd = nodes.connect("contract");
        let leader = etcd::lead(&etcd, "here").await;
        contract(Keeper::Etcd(EtcdKeeper::new(etcd, "run", leader.1))).await;
    }
}

async fn contract(mut keeper: Keeper) {
    assert_eq!(keeper.read().await.unwrap(), None, "nothing there");
    assert_eq!(keeper.write(vec![set("a", "0")], Some(7)).await.unwrap(), Written::Stale(None), "a token of nothing");
    let Written::Set(first) = keeper.write(vec![set("a", "1"), set("b", "2")], None).await.unwrap() else {
        panic!("nothing was there, so nobody needs a token")
    };
    let now = records(&[("a", "1"), ("b", "2")]);
    assert_eq!(keeper.read().await.unwrap(), Some((now.clone(), first)), "what was written is read");
    let stale = Written::Stale(Some((now, first)));
    assert_eq!(keeper.write(vec![set("a", "3")], None).await.unwrap(), stale, "no token, but something is there");
    assert_eq!(keeper.write(vec![set("a", "3")], Some(first + 9)).await.unwrap(), stale, "a token never given");
    let changes: Changes = vec![set("a", "3"), ("b".to_owned(), None)];
    let Written::Set(second) = keeper.write(changes, Some(first)).await.unwrap() else { panic!("the newest token") };
    let now = records(&[("a", "3")]);
    assert_eq!(keeper.read().await.unwrap(), Some((now.clone(), second)));
    let stale = Written::Stale(Some((now, second)));
    assert_eq!(keeper.write(vec![set("a", "4")], Some(first)).await.unwrap(), stale, "an old token");
}

#[tokio::test]
async fn a_file_is_there_after_the_process_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut keeper = file(&path).await;
    let mut token = None;
    for count in 0..3000u32 {
        let Written::Set(next) =
            keeper.write(vec![set("n", &count.to_string()), set("pad", &"x".repeat(500))], token).await.unwrap()
        else {
            panic!("nobody else writes")
        };
        token = Some(next);
    }
    assert!(std::fs::metadata(&path).unwrap().len() < 1_200_000, "history is left behind");
    assert!(
        matches!(FileKeeper::open(path.clone()).await, Err(KeepError::Io { doing: "lock", .. })),
        "one process at a time"
    );
    drop(keeper);
    let (found, _) = file(&path).await.read().await.unwrap().unwrap();
    assert_eq!(found["n"], b"2999");
}

#[tokio::test]
async fn a_crash_loses_at_most_what_was_not_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut keeper = file(&path).await;
    keeper.write(vec![set("a", "1")], None).await.unwrap();
    drop(keeper);
    let whole = std::fs::read(&path).unwrap();
    let mut keeper = file(&path).await;
    keeper.write(vec![set("a", "2")], Some(1)).await.unwrap();
    drop(keeper);
    let longer = std::fs::read(&path).unwrap();
    for end in whole.len()..longer.len() {
        std::fs::write(&path, &longer[..end]).unwrap();
        let mut keeper = file(&path).await;
        assert_eq!(keeper.read().await.unwrap(), Some((records(&[("a", "1")]), 1)), "cut at {end}");
        assert!(matches!(keeper.write(vec![set("a", "3")], Some(1)).await.unwrap(), Written::Set(2)));
        drop(keeper);
        assert_eq!(file(&path).await.read().await.unwrap(), Some((records(&[("a", "3")]), 2)), "cut at {end}");
    }
    for at in [0, 9, whole.len() - 1] {
        let mut damaged = longer.clone();
        damaged[at] ^= 0x40;
        std::fs::File::create(&path).unwrap().write_all(&damaged).unwrap();
        // Damage may look like a cut, but never like other records.
        match FileKeeper::open(path.clone()).await {
            Ok(keeper) => {
                let read = Keeper::File(keeper).read().await.unwrap();
                assert!(read.is_none() || read == Some((records(&[("a", "1")]), 1)), "damaged at {at}");
            }
            Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
        }
    }
}
