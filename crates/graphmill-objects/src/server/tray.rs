//! Memory of a client that its objects lie in, one after the other.
//!
//! Pages that are there already are filled several times faster than new ones, which the system has to find, clear and map. So
//! a client keeps some, its trays, and hands the server the same one again. While an object lies in a tray its room is charged;
//! when it is gone, and nobody has it mapped any more, the tray is the client's to fill again, and the client is told.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use graphmill_net::{MappedSlot, SealedMemory};
use graphmill_wire::proto;

use super::budget::{Budget, Charge};
use crate::wire::lock;

/// The most trays of a connection; their numbers are less.
const MOST: u32 = u64::BITS;

/// The trays of a connection.
#[derive(Debug, Default)]
pub(super) struct Trays {
    known: HashMap<u32, Arc<Tray>>,
    news: Arc<Mutex<proto::Return>>,
}

#[derive(Debug)]
struct Tray {
    number: u32,
    memory: SealedMemory,
    /// Whether an object lies in it, or is just about to.
    taken: AtomicBool,
    /// What its client is still to be told.
    news: Arc<Mutex<proto::Return>>,
    _descriptor: Charge,
}

impl Trays {
    /// The tray of a put, which comes along if it is new; nothing if there is no descriptor left for it.
    ///
    /// # Errors
    /// When the client does not keep to the protocol.
    pub(super) fn take(
        &mut self,
        number: u32,
        put: &proto::Put,
        memory: Option<OwnedFd>,
        descriptors: &Arc<Budget>,
    ) -> Result<Option<Filled>, String> {
        if number >= MOST {
            return Err(format!("there is no tray {number}, they are numbered from 0 to {}", MOST - 1));
        }
        if self.known.get(&number).is_some_and(|tray| tray.taken.load(Ordering::Acquire)) {
            return Err(format!("an object lies in tray {number}"));
        }
        if let Some(memory) = memory {
            self.known.remove(&number);
            let memory = SealedMemory::lent_whole(memory).map_err(|error| error.to_string())?;
            let Some(descriptor) = descriptors.take(1) else { return Ok(None) };
            let news = Arc::clone(&self.news);
            let tray = Tray { number, memory, taken: AtomicBool::new(false), news, _descriptor: descriptor };
            self.known.insert(number, Arc::new(tray));
        }
        let tray = self.known.get(&number).ok_or_else(|| format!("tray {number} did not come along"))?;
        let bytes = put.bytes;
        if tray.memory.len() < bytes {
            return Err(format!("tray {number} has {} bytes, its object {bytes}", tray.memory.len()));
        }
        tray.taken.store(true, Ordering::Release);
        Ok(Some(Filled { tray: Arc::clone(tray), bytes }))
    }

    /// Trays that the client has no more, a bit for each.
    pub(super) fn drop_all(&mut self, dropped: u64) {
        self.known.retain(|number, _| dropped >> number & 1 == 0);
    }

    /// Nothing came to lie in a tray, and its client gives it up.
    pub(super) fn forget(&mut self, number: Option<u32>) {
        if let Some(number) = number {
            self.known.remove(&number);
        }
    }

    /// What the client is to be told: trays that it may fill again, and those that it must not.
    pub(super) fn news(&mut self) -> Option<proto::Return> {
        let news = std::mem::take(&mut *lock(&self.news));
        for number in &news.retired {
            self.known.remove(number);
        }
        (!news.returned.is_empty() || !news.retired.is_empty()).then_some(news)
    }
}

/// A tray with an object in it.
#[derive(Debug)]
pub(super) struct Filled {
    tray: Arc<Tray>,
    bytes: u64,
}

impl Filled {
    /// The room that it takes, its object's and the rest.
    pub(super) fn capacity(&self) -> u64 {
        self.tray.memory.len()
    }

    /// The bytes of its object.
    pub(super) fn len(&self) -> u64 {
        self.bytes
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.tray.memory.fd()
    }

    pub(super) fn map(&self) -> std::io::Result<MappedSlot> {
        self.tray.memory.map()
    }

    /// The object is gone. Where somebody may still have it mapped, the tray is never filled again.
    pub(super) fn empty(&self, unseen: bool) {
        let mut news = lock(&self.tray.news);
        if unseen {
            self.tray.taken.store(false, Ordering::Release);
            news.returned.push(self.tray.number);
        } else {
            news.retired.push(self.tray.number);
        }
    }
}
