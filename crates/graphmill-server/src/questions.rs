//! What a peer asks: answered by the workers from what is here, and nobody else is asked.

use std::sync::Arc;
use std::time::Duration;

use graphmill_codec::query as codec;
use graphmill_net::{FrameReader, Incoming};
use graphmill_sample::{BatchId, room};
use graphmill_wire::{Header, Kind, Limits, Message, proto};
use tokio::time::timeout;

use crate::Refusal;
use crate::budget::Charged;
use crate::core::Core;
use crate::dataset;
use crate::job::panic_message;
use crate::outlet::Outlet;
use crate::work::{Memory, Urgent};

/// Bytes that a peer must send in a microsecond, at least.
const SLOWEST: u64 = 1;

/// Reads a peer's question and hands it to the workers.
pub(crate) async fn take(
    core: &Arc<Core>,
    outlet: &Arc<Outlet>,
    reader: &mut FrameReader,
    frame: Incoming,
    patience: Duration,
) -> Result<(), String> {
    let bytes = frame.header.body as usize;
    let under_way = outlet.backlog.question(bytes).await;
    let mut body = match outlet.buffer(bytes) {
        Ok(body) => body,
        Err(refusal) => {
            // Its body is skipped.
            core.metrics.refused("memory");
            let header = Header { request: frame.header.request, ..Header::new(Kind::Failed) };
            outlet.send_message(header, Message::Failed(refusal.failed()));
            return Ok(());
        }
    };
    // A long body takes its time, if only over a slow link.
    let patience = patience + Duration::from_micros(frame.header.body / SLOWEST);
    match timeout(patience, reader.read_body(body.bytes_mut())).await {
        Ok(read) => read.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("a question did not arrive within {} s", patience.as_secs_f64())),
    }
    let (core_too, outlet_too) = (Arc::clone(core), Arc::clone(outlet));
    let question: Urgent = Box::new(move |memory| {
        let (core, outlet) = (core_too, outlet_too);
        let answered =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| answer(&core, &outlet, &frame, &body, memory)));
        let refusal = match answered {
            Ok(Ok(())) => None,
            Ok(Err(refusal)) => Some(refusal),
            Err(panic) => {
                *memory = Memory::default();
                Some(Refusal::internal(format!("answering panicked: {}", panic_message(panic.as_ref()))))
            }
        };
        if let Some(refusal) = refusal {
            let header = Header { request: frame.header.request, ..Header::new(Kind::Failed) };
            outlet.send_message(header, Message::Failed(refusal.failed()));
        }
        core.metrics.question();
        drop(under_way);
    });
    outlet.hand_over(&core.work, question);
    Ok(())
}

fn answer(
    core: &Core,
    outlet: &Arc<Outlet>,
    frame: &Incoming,
    body: &Charged,
    memory: &mut Memory,
) -> Result<(), Refusal> {
    let invalid = |error: graphmill_codec::Error| Refusal::invalid(error.to_string());
    let Header { request, epoch, g, .. } = frame.header;
    let lineup = core.cluster.lineup();
    match &frame.message {
        Message::Ask(head) => {
            let mut need = codec::need(head, body.bytes(), BatchId { epoch, g, repeated: false }).map_err(invalid)?;
            // An answer must fit a frame, whatever a peer asks for.
            need.limit = need.limit.min(codec::ANSWER_EDGES);
            lineup.view.answer(&need, &mut memory.answer, &mut memory.scratch)?;
            let head = Message::Answer(codec::answer_head(&memory.answer));
            let mut bytes = room("bytes of an answer", codec::answer_bytes(&memory.answer))?;
            codec::answer_body(&memory.answer, &mut bytes);
            outlet.send_bytes(Header { request, ..Header::new(head.kind()) }, head, bytes)?;
        }
        Message::Gather(head) => {
            let gather = codec::rows(head, body.bytes()).map_err(invalid)?;
            let size = lineup.view.row_bytes(gather.source, gather.half)?;
            let all = gather.ids.len().checked_mul(size).filter(|&bytes| bytes as u64 <= Limits::SERVER.body);
            let all =
                all.ok_or_else(|| Refusal::invalid(format!("{} rows are too many for one answer", gather.ids.len())))?;
            let mut rows = outlet.memory_for_rows(all)?;
            lineup.view.gather(gather, rows.bytes_mut())?;
            outlet.send_rows(Header { request, ..Header::new(Kind::Rows) }, size, all, rows);
        }
        Message::Read(head) => {
            let bytes = dataset::answer_read(&lineup.dataset, head, body.bytes())?;
            let message = Message::Reading(proto::Reading {});
            outlet.send_bytes(Header { request, ..Header::new(message.kind()) }, message, bytes)?;
        }
        _ => return Err(Refusal::invalid("this is no question")),
    }
    Ok(())
}
