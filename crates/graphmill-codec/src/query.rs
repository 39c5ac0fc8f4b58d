//! Questions of samplers and their answers, as frames carry them.

use graphmill_graph::Direction;
use graphmill_graph::random::Stream;
use graphmill_sample::{Answer, Ask, BatchId, Gather, IdVec, Need, Source, Take, grow};
use graphmill_wire::Limits;
use graphmill_wire::proto::{self, AskKind, RowKind, TakeKind};

use crate::{Error, Result};

/// The most edges in an answer: 16 bytes each fill a frame.
pub const ANSWER_EDGES: u64 = Limits::SERVER.body / 16;
/// The most ids in a question: with another for each they fill a frame.
pub const ASKED_IDS: usize = (Limits::SERVER.body / 16) as usize;

/// How much longer than the average list those of a question may be together.
const SKEW: u64 = 16;

/// How many ids to ask about at once, so that neither the question nor, as far as that is known, its answer is longer than a
/// frame. Where whole lists are asked for, their average length is what is known.
pub fn at_once(ask: Ask, average: u64) -> usize {
    let Ask::Neighbors { take, .. } = ask else { return ASKED_IDS };
    let edges = match take {
        Take::First(fanout)
        | Take::Uniform(fanout)
        | Take::UniformReplace(fanout)
        | Take::Weighted(fanout)
        | Take::WeightedReplace(fanout) => u64::from(fanout),
        Take::All | Take::Positive => average.saturating_mul(SKEW),
        Take::Nothing => 0,
    };
    ((ANSWER_EDGES / edges.max(1)) as usize).clamp(1, ASKED_IDS)
}

/// A question in pieces of at most so many ids. Their answers, one after the other, are its answer.
pub fn pieces(need: Need<'_>, most: usize) -> impl Iterator<Item = Need<'_>> {
    let paired = matches!(need.ask, Ask::Contains);
    (0..need.ids.len()).step_by(most.max(1)).map(move |start| {
        let piece = start..(start + most.max(1)).min(need.ids.len());
        // A node is asked for with its own other, or with all of them.
        let others = if paired { &need.others[piece.clone()] } else { need.others };
        Need { ids: &need.ids[piece], others, ..need }
    })
}

/// The head of a question. Its body is the ids, then the others.
pub fn ask(need: &Need<'_>) -> proto::Ask {
    let (kind, take, stream, edge_ids) = match need.ask {
        Ask::Neighbors { take, stream, edge_ids } => (AskKind::Neighbors, take, stream.word(), edge_ids),
        Ask::Within { edge_ids } => (AskKind::Within, Take::Nothing, 0, edge_ids),
        Ask::Contains => (AskKind::Contains, Take::Nothing, 0, false),
        Ask::Degrees => (AskKind::Degrees, Take::Nothing, 0, false),
    };
    let (take, fanout) = match take {
        Take::Nothing => (TakeKind::Nothing, 0),
        Take::All => (TakeKind::All, 0),
        Take::Positive => (TakeKind::Positive, 0),
        Take::First(fanout) => (TakeKind::First, fanout),
        Take::Uniform(fanout) => (TakeKind::Uniform, fanout),
        Take::UniformReplace(fanout) => (TakeKind::UniformReplace, fanout),
        Take::Weighted(fanout) => (TakeKind::Weighted, fanout),
        Take::WeightedReplace(fanout) => (TakeKind::WeightedReplace, fanout),
    };
    proto::Ask {
        edge_type: need.edge_type as u32,
        outward: need.direction == Direction::Out,
        kind: kind.into(),
        take: take.into(),
        fanout,
        stream,
        edge_ids,
        limit: need.limit,
        ids: need.ids.len() as u64,
        others: need.others.len() as u64,
    }
}

/// The question of a frame. The body must lie at a multiple of eight.
///
/// # Errors
/// When the body is not as long as the head says, or not aligned.
pub fn need<'a>(head: &proto::Ask, body: &'a [u8], batch: BatchId) -> Result<Need<'a>> {
    let words = words::<u64>(body)?;
    let ids = usize::try_from(head.ids).ok().filter(|&ids| ids <= words.len());
    let (ids, others) = words.split_at(ids.ok_or_else(|| lengths("question", body.len()))?);
    if others.len() as u64 != head.others {
        return Err(lengths("question", body.len()));
    }
    let fanout = head.fanout;
    let take = match head.take() {
        TakeKind::Nothing => Take::Nothing,
        TakeKind::All => Take::All,
        TakeKind::Positive => Take::Positive,
        TakeKind::First => Take::First(fanout),
        TakeKind::Uniform => Take::Uniform(fanout),
        TakeKind::UniformReplace => Take::UniformReplace(fanout),
        TakeKind::Weighted => Take::Weighted(fanout),
        TakeKind::WeightedReplace => Take::WeightedReplace(fanout),
    };
    let ask = match head.kind() {
        AskKind::Neighbors => Ask::Neighbors { take, stream: Stream::from_word(head.stream), edge_ids: head.edge_ids },
        AskKind::Within => Ask::Within { edge_ids: head.edge_ids },
        AskKind::Contains if ids.len() != others.len() => return Err(lengths("question", body.len())),
        AskKind::Contains => Ask::Contains,
        AskKind::Degrees => Ask::Degrees,
    };
    Ok(Need {
        batch,
        edge_type: head.edge_type as usize,
        direction: if head.outward { Direction::Out } else { Direction::In },
        ask,
        ids,
        others,
        limit: head.limit,
    })
}

/// The head of an answer.
pub fn answer_head(answer: &Answer) -> proto::Answer {
    proto::Answer {
        counts: answer.counts.len() as u64,
        neighbors: answer.neighbors.len() as u64,
        wide: matches!(answer.neighbors, IdVec::U64(_)),
        edge_ids: answer.edge_ids.len() as u64,
        degrees: answer.degrees.len() as u64,
    }
}

/// How long an answer's body is.
pub fn answer_bytes(answer: &Answer) -> u64 {
    let width = if matches!(answer.neighbors, IdVec::U64(_)) { 8 } else { 4 };
    let words = answer.edge_ids.len() + answer.degrees.len();
    (8 * words + width * answer.neighbors.len() + 4 * answer.counts.len()) as u64
}

/// Appends an answer's body: the arrays of 64 bits first, so that all are aligned.
pub fn answer_body(answer: &Answer, body: &mut Vec<u8>) {
    body.extend_from_slice(bytemuck::cast_slice(&answer.edge_ids));
    body.extend_from_slice(bytemuck::cast_slice(&answer.degrees));
    match &answer.neighbors {
        IdVec::U64(ids) => body.extend_from_slice(bytemuck::cast_slice(ids)),
        IdVec::U32(ids) => body.extend_from_slice(bytemuck::cast_slice(ids)),
    }
    body.extend_from_slice(bytemuck::cast_slice(&answer.counts));
}

/// Reads an answer into memory that is used again. The body must lie at a multiple of eight.
///
/// # Errors
/// When the body is not as long as the head says, or not aligned, or there is no memory for it.
pub fn read_answer(head: &proto::Answer, body: &[u8], answer: &mut Answer) -> Result<()> {
    answer.clear();
    read_more(head, body, answer)
}

/// Reads the answer to the next piece of a question behind those before it. The body must lie at a multiple of eight.
///
/// # Errors
/// When the body is not as long as the head says, or not aligned, or there is no memory for it.
pub fn read_more(head: &proto::Answer, body: &[u8], answer: &mut Answer) -> Result<()> {
    let mut rest = body;
    let mut take = |elements: u64, size: usize| {
        let bytes = usize::try_from(elements).ok().and_then(|elements| elements.checked_mul(size));
        let bytes = bytes.filter(|&bytes| bytes <= rest.len()).ok_or_else(|| lengths("answer", body.len()))?;
        let (taken, left) = rest.split_at(bytes);
        rest = left;
        Ok::<_, Error>(taken)
    };
    append(&mut answer.edge_ids, words(take(head.edge_ids, 8)?)?)?;
    append(&mut answer.degrees, words(take(head.degrees, 8)?)?)?;
    if head.wide {
        let ids = words(take(head.neighbors, 8)?)?;
        match &mut answer.neighbors {
            IdVec::U64(to) => append(to, ids)?,
            IdVec::U32(before) => {
                let mut all = Vec::new();
                room_for(&mut all, before.len() + ids.len())?;
                all.extend(before.iter().map(|&id| u64::from(id)).chain(ids.iter().copied()));
                answer.neighbors = IdVec::U64(all);
            }
        }
    } else {
        let ids = words(take(head.neighbors, 4)?)?;
        match &mut answer.neighbors {
            IdVec::U32(to) => append(to, ids)?,
            wide @ IdVec::U64(_) if wide.is_empty() => {
                let mut narrow = Vec::new();
                append(&mut narrow, ids)?;
                *wide = IdVec::U32(narrow);
            }
            IdVec::U64(to) => {
                room_for(to, ids.len())?;
                to.extend(ids.iter().map(|&id| u64::from(id)));
            }
        }
    }
    append(&mut answer.counts, words(take(head.counts, 4)?)?)?;
    if rest.is_empty() { Ok(()) } else { Err(lengths("answer", body.len())) }
}

/// The head of a question for rows. Its body is the ids.
pub fn gather(Gather { source, half, ids }: Gather<'_>) -> proto::Gather {
    let (kind, place, feature) = match source {
        Source::Node { node_type, feature } => (RowKind::NodeFeature, node_type, feature),
        Source::Label { node_type } => (RowKind::NodeLabel, node_type, 0),
        Source::Edge { edge_type, feature } => (RowKind::EdgeFeature, edge_type, feature),
    };
    proto::Gather { kind: kind.into(), r#type: place as u32, feature: feature as u32, ids: ids.len() as u64, half }
}

/// Whose rows a question asks for, and which.
///
/// # Errors
/// When the body is not as long as the head says, or not aligned.
pub fn rows<'a>(head: &proto::Gather, body: &'a [u8]) -> Result<Gather<'a>> {
    let (place, feature) = (head.r#type as usize, head.feature as usize);
    let source = match head.kind() {
        RowKind::NodeFeature => Source::Node { node_type: place, feature },
        RowKind::NodeLabel => Source::Label { node_type: place },
        RowKind::EdgeFeature => Source::Edge { edge_type: place, feature },
    };
    let ids = words(body)?;
    let gather = Gather { source, half: head.half, ids };
    if ids.len() as u64 == head.ids { Ok(gather) } else { Err(lengths("question", body.len())) }
}

/// Appends, unless there is no memory for that.
fn append<T: Copy>(list: &mut Vec<T>, more: &[T]) -> Result<()> {
    room_for(list, more.len())?;
    list.extend_from_slice(more);
    Ok(())
}

fn room_for<T>(list: &mut Vec<T>, more: usize) -> Result<()> {
    grow(list, "elements of an answer", more).map_err(Error::Memory)
}

fn words<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&[T]> {
    bytemuck::try_cast_slice(bytes).map_err(|reason| Error::content(format!("an array cannot be read: {reason}")))
}

fn lengths(what: &str, bytes: usize) -> Error {
    Error::content(format!("the body of a {what} has {bytes} bytes, which is not what its head says"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn aligned(bytes: &[u8]) -> Vec<u64> {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        words
    }

    proptest! {
        #[test]
        fn an_answer_arrives_as_it_was(
            counts: Vec<u32>, narrow: Vec<u32>, wide: Vec<u64>, is_wide: bool, edge_ids: Vec<u64>, degrees: Vec<u64>,
        ) {
            let neighbors = if is_wide { IdVec::U64(wide) } else { IdVec::U32(narrow) };
            let sent = Answer { counts, neighbors, edge_ids, degrees };
            let mut body = Vec::new();
            answer_body(&sent, &mut body);
            prop_assert_eq!(body.len() as u64, answer_bytes(&sent));
            let memory = aligned(&body);
            let mut found = Answer::default();
            read_answer(&answer_head(&sent), &bytemuck::cast_slice(&memory)[..body.len()], &mut found).unwrap();
            prop_assert_eq!(format!("{found:?}"), format!("{sent:?}"));
        }

        #[test]
        fn pieces_are_the_question_and_their_answers_the_answer(
            lists in proptest::collection::vec((any::<u64>(), proptest::collection::vec(any::<u32>(), 0..4)), 0..12),
            most in 1usize..6, wide: Vec<bool>, kind in 0usize..3,
        ) {
            let ask_one = [Ask::Contains, Ask::Degrees, Ask::Within { edge_ids: true }][kind];
            let ids: Vec<u64> = lists.iter().map(|(id, _)| *id).collect();
            let others: Vec<u64> = if kind == 1 { Vec::new() } else { ids.iter().map(|id| !id).collect() };
            let batch = BatchId { epoch: 3, g: 4, repeated: false };
            let whole = Need { batch, edge_type: 0, direction: Direction::In, ask: ask_one, ids: &ids, others: &others, limit: 9 };
            // Whoever answers does so node by node, with wide ids or with narrow ones.
            let answer_to = |need: &Need<'_>, wide: bool| {
                let lists = || need.ids.iter().filter_map(|id| lists.iter().find(|(of, _)| of == id)).map(|(_, list)| list);
                let neighbors = lists().flatten().copied();
                Answer {
                    counts: lists().map(|list| list.len() as u32).collect(),
                    neighbors: if wide { IdVec::U64(neighbors.map(u64::from).collect()) } else { IdVec::U32(neighbors.collect()) },
                    edge_ids: lists().flatten().map(|&id| !u64::from(id)).collect(),
                    degrees: need.ids.to_vec(),
                }
            };
            let mut found = Answer::default();
            let mut asked = Vec::new();
            for (number, piece) in pieces(whole, most).enumerate() {
                prop_assert!(piece.ids.len() <= most);
                asked.extend_from_slice(piece.ids);
                let with: Vec<u64> = if kind == 0 { piece.ids.iter().map(|id| !id).collect() } else { others.clone() };
                prop_assert_eq!(piece.others, with);
                let sent = answer_to(&piece, wide.get(number).copied().unwrap_or(false));
                let mut body = Vec::new();
                answer_body(&sent, &mut body);
                let memory = aligned(&body);
                read_more(&answer_head(&sent), &bytemuck::cast_slice(&memory)[..body.len()], &mut found).unwrap();
            }
            prop_assert_eq!(&asked, &ids);
            let expected = answer_to(&whole, matches!(found.neighbors, IdVec::U64(_)));
            prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }

        #[test]
        fn no_head_makes_an_answer_read_past_its_body(
            sizes: [u64; 4], small in proptest::array::uniform4(0u64..9), large: bool, wide: bool,
            body in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            let [counts, neighbors, edge_ids, degrees] = if large { sizes } else { small };
            let head = proto::Answer { counts, neighbors, wide, edge_ids, degrees };
            let mut answer = Answer::default();
            if read_answer(&head, bytemuck::cast_slice(&body), &mut answer).is_ok() {
                prop_assert_eq!(answer.counts.len() as u64, counts);
                prop_assert_eq!(answer.neighbors.len() as u64, neighbors);
            }
        }

        #[test]
        fn a_question_arrives_as_it_was(
            ids: Vec<u64>, others: Vec<u64>, take in 0u8..8, fanout: u32, stream: u64, edge_ids: bool, outward: bool,
            edge_type in 0usize..9, limit: u64,
        ) {
            let takes = [
                Take::Nothing, Take::All, Take::Positive, Take::First(fanout), Take::Uniform(fanout),
                Take::UniformReplace(fanout), Take::Weighted(fanout), Take::WeightedReplace(fanout),
            ];
            let asks = [
                Ask::Neighbors { take: takes[usize::from(take)], stream: Stream::from_word(stream), edge_ids },
                Ask::Within { edge_ids },
                Ask::Degrees,
            ];
            for ask_one in asks {
                let sent = Need {
                    batch: BatchId { epoch: 3, g: 4, repeated: false },
                    edge_type,
                    direction: if outward { Direction::Out } else { Direction::In },
                    ask: ask_one,
                    ids: &ids,
                    others: &others,
                    limit,
                };
                let body: Vec<u64> = ids.iter().chain(&others).copied().collect();
                let found = need(&ask(&sent), bytemuck::cast_slice(&body), sent.batch).unwrap();
                prop_assert_eq!(format!("{found:?}"), format!("{sent:?}"));
            }
        }
    }
}
