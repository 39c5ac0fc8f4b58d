//! What is kept stays small: a member costs its record, and no record grows with the run.

use graphmill_rendezvous::records::Records;
use graphmill_rendezvous::{Event, Node, Run, Settings};

use crate::stage::{SECOND, changes};

/// The bytes of a member's record with its key, in both of which stands its address, and of any record, at most.
const MEMBER: usize = 192;
const RECORD: usize = 512;

fn member(counter: u32) -> std::sync::Arc<Node> {
    Node::new("node-0001.cluster.example.org", 4_000_000, counter).into()
}

/// Writes what has changed, and gives the number of records that it took.
fn keep(run: &mut Run, kept: &mut Records) -> usize {
    let changes = changes(run);
    let count = changes.len();
    for (key, value) in changes {
        match value {
            Some(value) => drop(kept.insert(key, value)),
            None => drop(kept.remove(&key)),
        }
    }
    count
}

#[test]
fn a_member_costs_its_record_however_many_there_are() {
    for count in [10, 100, 1_000, 10_000] {
        let (mut run, mut kept) = (Run::new(Settings::new(count, count)), Records::new());
        for counter in 0..count {
            run.handle(Event::Join(member(counter), 60 * SECOND), SECOND);
            let records = keep(&mut run, &mut kept);
            assert!(
                records <= 2 || counter + 1 == count,
                "a member that joins an open round writes itself and the run"
            );
        }
        assert!(run.state().complete);
        let bytes: usize = kept.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes <= count as usize * MEMBER + RECORD, "{count} members take {bytes} bytes");
        assert!(kept.values().all(|record| record.len() <= RECORD));
        assert_eq!(run.handle(Event::KeepAlive(member(0)), 2 * SECOND), [], "a keep-alive writes nothing");
    }
}

#[test]
fn members_that_come_and_go_leave_nothing_behind() {
    for stable_ranks in [true, false] {
        let settings = Settings { stable_ranks, ..Settings::new(2, 2) };
        let (mut run, mut kept) = (Run::new(settings), Records::new());
        for round in 0..500 {
            let pair = [member(2 * round), member(2 * round + 1)];
            for node in &pair {
                run.handle(Event::Join(node.clone(), 60 * SECOND), SECOND);
                keep(&mut run, &mut kept);
            }
            assert!(run.state().complete && run.state().round == u64::from(round));
            for node in &pair {
                run.handle(Event::Leave(node.clone()), SECOND);
                keep(&mut run, &mut kept);
            }
        }
        assert!(kept.len() <= 5 && run.state().former.len() <= 2, "stable: {stable_ranks}: {}", kept.len());
    }
}
