//! The frames of a connection that wait to be written. However the connection ends, the channels of what its client will
//! never take are told.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use crate::core::Core;
use crate::outlet::{Out, Outlet};
use crate::sync::{Arc, thread};

/// What waits to be written.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    core: &'a Core,
    outlet: &'a Arc<Outlet>,
    waiting: mpsc::UnboundedReceiver<Out>,
    /// What is being written now.
    current: Option<Out>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(core: &'a Core, outlet: &'a Arc<Outlet>, waiting: mpsc::UnboundedReceiver<Out>) -> Self {
        Self { core, outlet, waiting, current: None }
    }

    /// What is to be written next; nothing if nothing will come any more.
    pub(crate) async fn next(&mut self) -> Option<&Out> {
        let out = self.waiting.recv().await?;
        Some(self.current.insert(out))
    }

    /// What was being written is taken, or lost: its channel is told.
    pub(crate) fn gone(&mut self) {
        let Some(out) = self.current.take() else { return };
        let questions = self.outlet.written(&out);
        let (batch, held) = (out.batch(), out.is_charged());
        // First its memory, so that whoever waits for some finds it.
        drop(out);
        for question in questions {
            self.outlet.hand_over(&self.core.work, question);
        }
        if let Some((channel, bytes)) = batch {
            self.core.work.scheduler(|scheduler| scheduler.consumed(channel, bytes));
        } else if held {
            self.core.work.wake();
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.waiting.close();
        self.gone();
        loop {
            match self.waiting.try_recv() {
                Ok(out) => {
                    self.current = Some(out);
                    self.gone();
                }
                // Whoever is just now putting a frame in needs an instant more.
                Err(TryRecvError::Empty) => thread::yield_now(),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        let lost = self.outlet.give_up();
        self.core
            .work
            .scheduler(|scheduler| lost.iter().for_each(|&(channel, bytes)| scheduler.consumed(channel, bytes)));
    }
}
