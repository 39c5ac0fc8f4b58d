//! Memory that this process fills again and again, for objects that it puts.
//!
//! Pages that are there already are filled several times faster than new ones. So a connection keeps a few trays, which only
//! this process can write: the server is handed each once, and told afterwards which one an object lies in. It says when the
//! object is gone and nobody has it mapped any more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use graphmill_net::SharedSlot;
use graphmill_wire::proto;

/// The most trays of a connection.
const MOST: usize = 8;
/// The bytes that the trays of a connector may have: a part of its server's budget, or these.
const BYTES: (u64, u64) = (8, 16 << 20);
/// What the server charges for a tray beside its bytes, at most.
const CHARGE: u64 = 8 << 10;

/// The bytes that trays may still take.
#[derive(Debug, Default)]
pub(super) struct TrayRoom {
    taken: AtomicU64,
}

/// The trays of a connection, by their numbers.
#[derive(Debug)]
pub(super) struct Trays {
    places: Vec<Option<Tray>>,
    /// Those that made way and that the server still has, a bit for each.
    dropped: u64,
    room: Arc<TrayRoom>,
    most_bytes: u64,
}

#[derive(Debug)]
struct Tray {
    memory: SharedSlot,
    /// Whether no object lies in it.
    is_empty: bool,
    room: Arc<TrayRoom>,
}

impl Drop for Tray {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.memory.bytes().len() as u64, Ordering::Relaxed);
    }
}

/// A tray that was filled, to be put.
pub(super) struct Filled<'a> {
    pub(super) number: u32,
    /// Its memory, if the server does not know it yet.
    pub(super) memory: Option<&'a SharedSlot>,
    /// Trays that made way, which the server need not keep: a bit for each.
    pub(super) dropped: u64,
}

impl Trays {
    /// For a server with a budget.
    pub(super) fn new(room: &Arc<TrayRoom>, budget: u64) -> Self {
        let most_bytes = (budget / BYTES.0).max(BYTES.1).min(budget.saturating_sub(CHARGE));
        Self { places: Vec::new(), dropped: 0, room: Arc::clone(room), most_bytes }
    }

    /// Copies an object into a tray; nothing if it is too large, or there are as many trays as may be, with an object in each.
    ///
    /// # Errors
    /// When there is no memory for another tray.
    pub(super) fn fill(&mut self, bytes: u64, parts: &[&[u8]]) -> io::Result<Option<Filled<'_>>> {
        let capacity = capacity(bytes);
        let fits = |tray: &mut Tray| tray.is_empty && tray.memory.bytes().len() as u64 == capacity;
        // The first: the fewer are in use, the warmer they stay.
        let known = self.places.iter_mut().position(|place| place.as_mut().is_some_and(fits));
        let Some(number) = known else { return self.fill_new(capacity, parts) };
        let Some(tray) = &mut self.places[number] else { return Ok(None) };
        let mut room = tray.memory.bytes_mut();
        for part in parts {
            let (first, rest) = room.split_at_mut(part.len());
            first.copy_from_slice(part);
            room = rest;
        }
        tray.is_empty = false;
        Ok(Some(Filled { number: number as u32, memory: None, dropped: std::mem::take(&mut self.dropped) }))
    }

    fn fill_new(&mut self, capacity: u64, parts: &[&[u8]]) -> io::Result<Option<Filled<'_>>> {
        if !self.make_way(capacity) {
            return Ok(None);
        }
        let memory = SharedSlot::filled(capacity as usize, parts).inspect_err(|_| {
            self.room.taken.fetch_sub(capacity, Ordering::Relaxed);
        })?;
        let number = self.free_place();
        // The new one takes its place there.
        let dropped = std::mem::take(&mut self.dropped) & !(1 << number);
        let tray = self.places[number].insert(Tray { memory, is_empty: false, room: Arc::clone(&self.room) });
        Ok(Some(Filled { number: number as u32, memory: Some(&tray.memory), dropped }))
    }

    /// Takes room for another tray, if there is some; those of other sizes that are empty make way for it.
    fn make_way(&mut self, capacity: u64) -> bool {
        if capacity > self.most_bytes {
            return false;
        }
        loop {
            if self.places.iter().flatten().count() < MOST && self.room.take(capacity, self.most_bytes) {
                return true;
            }
            let is_empty = |place: &Option<Tray>| place.as_ref().is_some_and(|tray| tray.is_empty);
            let Some(number) = self.places.iter().position(is_empty) else { return false };
            self.places[number] = None;
            self.dropped |= 1 << number;
        }
    }

    fn free_place(&mut self) -> usize {
        self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        })
    }

    /// A tray is never to be filled again.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(place) = self.places.get_mut(number as usize) {
            *place = None;
        }
    }

    /// The server says which trays are empty, and which are never to be filled again.
    pub(super) fn hear(&mut self, news: &proto::Return) {
        for &number in &news.returned {
            if let Some(Some(tray)) = self.places.get_mut(number as usize) {
                tray.is_empty = true;
            }
        }
        for &number in &news.retired {
            self.forget(number);
        }
    }
}

impl TrayRoom {
    fn take(&self, bytes: u64, most: u64) -> bool {
        let taken = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

/// The size of trays for objects of so many bytes, at most a quarter more: few sizes, so that one tray serves many objects.
fn capacity(bytes: u64) -> u64 {
    let step = bytes.max(1 << 16).checked_next_power_of_two().unwrap_or(1 << 63) / 8;
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tray_has_room_for_its_object_and_little_more(bytes in 1u64 << 16..1 << 40) {
            let capacity = capacity(bytes);
            prop_assert!(bytes <= capacity && capacity <= bytes + bytes / 4, "{capacity}");
            prop_assert_eq!(super::capacity(capacity), capacity);
        }
    }

    fn fill(trays: &mut Trays, bytes: usize) -> Option<(u32, bool)> {
        let filled = trays.fill(bytes as u64, &[&vec![7; bytes]]).unwrap()?;
        Some((filled.number, filled.memory.is_some()))
    }

    #[test]
    fn a_tray_is_filled_again_when_it_is_empty_and_announced_once() {
        let mut trays = Trays::new(&Arc::default(), 1 << 30);
        assert_eq!(fill(&mut trays, 100_000), Some((0, true)));
        assert_eq!(fill(&mut trays, 100_000), Some((1, true)), "the first is taken");
        trays.hear(&proto::Return { returned: vec![0, 77], retired: vec![] });
        assert_eq!(fill(&mut trays, 100_001), Some((0, false)));
        trays.hear(&proto::Return { returned: vec![], retired: vec![1, 77] });
        assert_eq!(fill(&mut trays, 100_000), Some((1, true)), "another has its place");
    }

    #[test]
    fn there_are_few_and_one_that_is_empty_makes_way_for_another_size() {
        let room = Arc::default();
        let mut trays = Trays::new(&room, 16 << 20);
        assert_eq!((0..).map_while(|_| fill(&mut trays, 100_000)).count(), MOST);
        trays.hear(&proto::Return { returned: vec![3, 5], retired: vec![] });
        let filled = trays.fill(200_000, &[&vec![1; 200_000]]).unwrap().unwrap();
        assert_eq!((filled.number, filled.dropped), (3, 0), "the new one takes its place");
        trays.hear(&proto::Return { returned: (0..8).collect(), retired: vec![] });
        let mut others = Trays::new(&room, 16 << 20);
        assert_eq!((0..).map_while(|_| fill(&mut others, 7 << 20)).count(), 2, "as many bytes as may be");
        assert_eq!(fill(&mut trays, 17 << 20), None);
        assert_eq!(trays.dropped, 0, "nothing makes way for what never fits");
        assert_eq!(fill(&mut trays, 7 << 20), None);
        drop(others);
        let filled = trays.fill(7 << 20, &[&vec![1; 7 << 20]]).unwrap().unwrap();
        assert_eq!((filled.number, filled.dropped), (0, 0b1111_1110), "the server hears of all that made way");
        drop(trays);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
