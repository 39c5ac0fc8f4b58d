//! No bytes make the readers of kept runs panic, and a run that they accept goes on by the rules. Few mutations survive a
//! checksum, so each input is also read as the payload of a write that has the right one.

#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use graphmill_rendezvous::etcd::EtcdUrl;
use graphmill_rendezvous::keeper::replay;
use graphmill_rendezvous::records::{self, Records};
use graphmill_rendezvous::{Event, Node, Run, Target};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

/// Whatever was kept, the rules hold from here on.
fn go_on(records: &Records) {
    let Ok(Some(kept)) = records::read(records) else { return };
    let now = Duration::from_secs(7);
    let mut run = Run::restored(kept.settings, kept.state, now);
    let known: Vec<_> = run.state().members().take(3).cloned().collect();
    let stranger = Arc::new(Node::new("stranger", 1, 1));
    let mut events = vec![Event::Tick, Event::Join(stranger, Duration::from_secs(5))];
    events.extend(known.iter().flat_map(|node| {
        [
            Event::KeepAlive(Arc::clone(node)),
            Event::JoinAgain(Arc::clone(node), now),
            Event::Join(Arc::clone(node), now),
        ]
    }));
    events.extend([Event::Tick, Event::Close]);
    for (step, event) in events.into_iter().enumerate() {
        run.handle(event, now + Duration::from_secs(4 * step as u64));
        let state = run.state();
        let members: Vec<_> = state.members().collect();
        assert_eq!(members.len(), members.iter().collect::<BTreeSet<_>>().len(), "a member is in two lists");
        assert!(state.participants.len() as u64 <= u64::from(run.settings().max));
        for node in run.take_touched() {
            records::member_change(run.state(), &node);
        }
        records::run_change(run.settings(), run.state());
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(replayed) = replay(bytes) {
        assert!(replayed.bytes as usize <= bytes.len());
        go_on(&replayed.records);
    }
    let length = (bytes.len() as u32).to_le_bytes();
    let sealed =
        [b"GMRDZV\x02\0", &length[..], &(xxh3_64(&length) as u32).to_le_bytes(), &xxh3_64(bytes).to_le_bytes(), bytes]
            .concat();
    if let Ok(replayed) = replay(&sealed) {
        go_on(&replayed.records);
    }
    // The records themselves, with nothing around them: lines of keys and values.
    let records: Records = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let space = line.iter().position(|&byte| byte == b' ')?;
            Some((String::from_utf8(line[..space].to_vec()).ok()?, line[space + 1..].to_vec()))
        })
        .collect();
    go_on(&records);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Target>();
        let _ = text.parse::<EtcdUrl>();
    }
});
