//! No bytes of a frame make its readers panic, and what they accept keeps what the format promises: a header is its bytes, a
//! message survives being sent on, tensors lie inside their buffer, arrays are as long as the head says.

#![no_main]

mod corpus;
mod seeds;

use graphmill_codec::query as codec;
use graphmill_sample::{Answer, BatchId};
use graphmill_wire::proto::{
    LookupRequest, LookupResponse, NodeIdsRequest, NodeIdsResponse, OriginalIdsRequest, OriginalIdsResponse, ReadMethod,
};
use graphmill_wire::{HEADER, Header, Limits, Message, VERSION, read};
use libfuzzer_sys::fuzz_target;

/// A body where the readers want it: at a multiple of eight.
fn aligned(body: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; body.len().div_ceil(8)];
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..body.len()].copy_from_slice(body);
    words
}

fn read_body(message: &Message, body: &[u8], batch: BatchId) {
    match message {
        Message::Batch(head) => {
            if let Ok(layout) = graphmill_codec::batch::layout(head.tensors.clone(), head.bytes) {
                assert_eq!(layout.bytes() as u64, head.bytes);
                assert!(layout.entries().iter().all(|entry| entry.offset + entry.bytes <= layout.bytes()));
                let again = graphmill_codec::batch::layout(graphmill_codec::batch::tensors(&layout), head.bytes).unwrap();
                assert_eq!(again.entries(), layout.entries());
            }
        }
        Message::Ask(head) => {
            if let Ok(need) = codec::need(head, body, batch) {
                assert_eq!((need.ids.len() as u64, need.others.len() as u64), (head.ids, head.others));
                assert_eq!((need.ids.len() + need.others.len()) * 8, body.len());
                let again = codec::need(&codec::ask(&need), body, batch).unwrap();
                assert_eq!(format!("{again:?}"), format!("{need:?}"));
            }
        }
        Message::Hello(hello) => {
            let ours = (graphmill_wire::OLDEST, VERSION);
            let agreed = graphmill_wire::agree(ours, (hello.oldest_wire, hello.newest_wire));
            assert!(agreed.is_none_or(|version| (ours.0..=ours.1).contains(&version)));
        }
        Message::Welcome(welcome) => {
            let chosen = graphmill_wire::chosen(welcome.wire);
            assert!(chosen.is_err() || chosen.is_ok_and(|version| u32::from(version) == welcome.wire));
        }
        Message::Answer(head) => {
            let mut answer = Answer::default();
            // The same answer twice is an answer to twice the question.
            let mut twice = Answer::default();
            if codec::read_answer(head, body, &mut twice).is_ok() {
                let _ = codec::read_more(head, body, &mut twice);
            }
            if codec::read_answer(head, body, &mut answer).is_ok() {
                assert_eq!(codec::answer_head(&answer), *head);
                let mut again = Vec::new();
                codec::answer_body(&answer, &mut again);
                assert_eq!(again, body);
            }
        }
        Message::Gather(head) => {
            if let Ok(gather) = codec::rows(head, body) {
                assert_eq!((gather.ids.len() as u64, gather.ids.len() * 8), (head.ids, body.len()));
                let again = codec::rows(&codec::gather(gather), body).unwrap();
                assert_eq!((again.source, again.half, again.ids), (gather.source, gather.half, gather.ids));
            }
        }
        Message::Read(head) => match head.method() {
            ReadMethod::NodeIds => drop(read::decode::<NodeIdsRequest>(body)),
            ReadMethod::OriginalIds => drop(read::decode::<OriginalIdsRequest>(body)),
            ReadMethod::Lookup => drop(read::decode::<LookupRequest>(body)),
        },
        Message::Reading(_) => {
            let _ = read::decode::<NodeIdsResponse>(body);
            let _ = read::decode::<OriginalIdsResponse>(body);
            let _ = read::decode::<LookupResponse>(body);
        }
        _ => {}
    }
}

fuzz_target!(init: corpus::write_to_corpus(&seeds::frames()), |input: &[u8]| {
    let Some((bytes, rest)) = input.split_first_chunk::<HEADER>() else { return };
    let Ok(header) = Header::decode(bytes, VERSION, Limits::SERVER) else { return };
    assert_eq!(&header.encode(), bytes);
    // Where the lengths do not fit, what there is is read all the same.
    let (head, body) = rest.split_at(rest.len().min(header.head as usize));
    let Ok(message) = Message::decode(header.kind, head) else { return };
    assert_eq!(message.kind(), header.kind);
    let _ = message.has_descriptor();
    assert_eq!(Message::decode(header.kind, &message.encode()).unwrap(), message);
    let words = aligned(body);
    let body = &bytemuck::cast_slice::<u64, u8>(&words)[..body.len()];
    read_body(&message, body, BatchId { epoch: header.epoch, g: header.g, repeated: false });
});
