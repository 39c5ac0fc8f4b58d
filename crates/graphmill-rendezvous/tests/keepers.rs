//! The contract of every keeper, and what a crash can do to the file of one.

mod etcd;

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
    assert_eq!(file(&folder.path().join("state")).await.read().await.unwrap(), None, "what is forgotten is gone");
    if let Some(nodes) = etcd::Nodes::start(1) {
        let etcd = nodes.connect("contract");
        let leader = etcd::lead(&etcd, "here").await;
        let keeper = || Keeper::Etcd(EtcdKeeper::new(std::sync::Arc::clone(&etcd), "run", leader.1));
        contract(keeper()).await;
        assert_eq!(keeper().read().await.unwrap(), None, "what is forgotten is gone");
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
    keeper.forget(Some(second)).await.unwrap();
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
    // A file can have grown when its bytes had not come yet.
    std::fs::write(&path, [&whole[..], &[0; 40]].concat()).unwrap();
    assert_eq!(file(&path).await.read().await.unwrap(), Some((records(&[("a", "1")]), 1)));
}

#[tokio::test]
async fn damage_is_never_taken_for_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut keeper = file(&path).await;
    let mut ends = vec![];
    for (write, token) in [None, Some(1), Some(2)].into_iter().enumerate() {
        keeper.write(vec![set("a", &write.to_string())], token).await.unwrap();
        ends.push(std::fs::metadata(&path).unwrap().len() as usize);
    }
    drop(keeper);
    let sound = std::fs::read(&path).unwrap();
    let last = ends[1];
    for (at, bit) in (0..sound.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut damaged = sound.clone();
        damaged[at] ^= 1 << bit;
        std::fs::write(&path, &damaged).unwrap();
        match FileKeeper::open(path.clone()).await {
            Ok(keeper) => {
                // Only a payload at the very end may be one that a crash has left half-written.
                assert!(at >= last + 8, "bit {bit} of byte {at}");
                assert_eq!(Keeper::File(keeper).read().await.unwrap(), Some((records(&[("a", "1")]), 2)));
            }
            Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
        }
    }
}

#[tokio::test]
async fn files_of_a_run_are_written_anew_beside_each_other_and_are_nobody_elses() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let paths = ["run.rendezvous", "run.storage"].map(|name| folder.path().join(name));
    let mut writing = Vec::new();
    for path in &paths {
        let mut keeper = file(path).await;
        let name = path.display().to_string();
        writing.push(tokio::spawn(async move {
            let mut token = None;
            for _ in 0..12 {
                let written = keeper.write(vec![set("name", &name), set("pad", &"x".repeat(300_000))], token).await;
                let Written::Set(next) = written.unwrap() else { panic!("nobody else writes") };
                token = Some(next);
            }
        }));
    }
    futures_util::future::join_all(writing).await.into_iter().for_each(Result::unwrap);
    for path in &paths {
        let written = std::fs::metadata(path).unwrap();
        assert!(written.len() < 2_000_000, "history is left behind");
        assert_eq!(written.permissions().mode() & 0o777, 0o600);
        let (found, _) = file(path).await.read().await.unwrap().unwrap();
        assert_eq!(found["name"], path.display().to_string().as_bytes());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
