//! The batches that a client asks for over its data connection.

use std::time::Instant;

use graphmill_wire::{Header, Kind, Message, proto};

use crate::Refusal;
use crate::core::Core;
use crate::limits::MOST_CREDITS;
use crate::outlet::Outlet;
use crate::registry::{ClientId, Found};
use crate::scheduler::Credited;
use crate::sync::Arc;

/// Takes a client's credits, and says over the same connection what becomes of those that are not taken.
///
/// # Errors
/// When the client asks for what nobody may; the connection ends.
pub(crate) fn take(
    core: &Core,
    outlet: &Arc<Outlet>,
    client: ClientId,
    header: &Header,
    credit: &proto::Credit,
) -> Result<(), String> {
    let channel = match core.registry.find(header.channel) {
        Found::Open(channel) if channel.client == client => channel,
        Found::Closed => return Ok(()),
        // A channel of somebody else's is as unknown as one that never was.
        Found::Open(_) | Found::Lost | Found::Never => {
            let reason = format!("channel {} is not known here; open it again", header.channel);
            let lost = Header { channel: header.channel, epoch: header.epoch, ..Header::new(Kind::Lost) };
            outlet.send_message(lost, Message::Lost(proto::Lost { reason }));
            return Ok(());
        }
    };
    // Before each of them is answered.
    if credit.g.len() as u64 > MOST_CREDITS {
        return Err(format!("channel {} asked for more batches at once than it may", channel.id));
    }
    if core.is_stopping() {
        let refusal = Refusal::unavailable("this server stops; ask another one, or later");
        for &g in &credit.g {
            let header = Header { channel: channel.id, epoch: header.epoch, g, ..Header::new(Kind::Failed) };
            outlet.send_message(header, Message::Failed(refusal.failed()));
        }
        return Ok(());
    }
    let batches = channel.batches();
    if let Some(g) = credit.g.iter().find(|&&g| g >= batches) {
        return Err(format!("batch {g} was asked for, an epoch of channel {} has {batches}", channel.id));
    }
    channel.attach(outlet);
    let now = Instant::now();
    channel.lives.asked(channel.id, header.epoch, &credit.g);
    match core.work.scheduler(|scheduler| scheduler.credit(channel.id, header.epoch, &credit.g, now)) {
        Credited::Taken | Credited::Stale | Credited::Unknown => Ok(()),
        Credited::TooMany => Err(format!("channel {} asked for more batches at once than it may", channel.id)),
    }
}
