//! Memory that objects lie in one after the other.
//!
//! Pages that are there already are filled several times faster than new ones, which the system has to find, clear and map. So
//! a part of the budget is kept in slots, which go from object to object. A slot is written by the server alone; readers map it,
//! and it is written again only when each of them has said that it does not have it any more.

use std::io;
use std::sync::Arc;

use graphmill_net::SharedSlot;

use super::blob::shared_charge;
use super::budget::{Budget, Charge};

/// The most bytes of slots, and the part of the budget that they may be.
const MOST: (u64, u64) = (64 << 20, 4);
/// The part of all slots that one may be.
const PART: u64 = 8;

/// Where slots come from.
#[derive(Debug)]
pub(super) struct Slots {
    /// The bytes of those that there are, spare ones too.
    bytes: Arc<Budget>,
    /// A descriptor is taken by each.
    descriptors: Arc<Budget>,
    /// What they are charged to; it has the spare ones.
    budget: Arc<Budget>,
}

/// Memory, empty or with an object in it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) memory: SharedSlot,
    _bytes: Charge,
    _descriptor: Charge,
}

impl Slot {
    pub(super) fn capacity(&self) -> u64 {
        self.memory.bytes().len() as u64
    }
}

impl Slots {
    pub(super) fn new(budget: &Arc<Budget>, descriptors: &Arc<Budget>) -> Self {
        let bytes = Budget::new(MOST.0.min(budget.total() / MOST.1));
        Self { bytes, descriptors: Arc::clone(descriptors), budget: Arc::clone(budget) }
    }

    /// A slot for an object of so many bytes, if there can be one without anybody waiting.
    pub(super) fn take(&self, bytes: u64) -> Option<(Slot, Charge)> {
        let capacity = capacity(bytes);
        if capacity > self.bytes.total() / PART {
            return None;
        }
        self.budget.take_spare(capacity).or_else(|| self.create(capacity).ok().flatten())
    }

    fn create(&self, capacity: u64) -> io::Result<Option<(Slot, Charge)>> {
        let room = self.bytes.take(capacity).or_else(|| {
            // Objects have other sizes now than they had: the one that was not asked for longest makes way.
            self.budget.drop_spare();
            self.bytes.take(capacity)
        });
        let Some((bytes, descriptor)) = room.zip(self.descriptors.take(1)) else { return Ok(None) };
        let Some(charge) = self.budget.take(shared_charge(capacity)) else { return Ok(None) };
        let memory = SharedSlot::create(capacity as usize)?;
        Ok(Some((Slot { memory, _bytes: bytes, _descriptor: descriptor }, charge)))
    }
}

/// The size of the slots for objects of so many bytes, at most a quarter more: few sizes, so that one slot serves many objects.
fn capacity(bytes: u64) -> u64 {
    let step = (bytes.max(1 << 16).next_power_of_two() / 8).max(1);
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slot_has_room_for_its_object_and_little_more(bytes in 1u64 << 16..1 << 40) {
            let capacity = capacity(bytes);
            prop_assert!(bytes <= capacity && capacity <= bytes + bytes / 4, "{capacity}");
            prop_assert_eq!(super::capacity(capacity), capacity);
        }
    }

    #[test]
    fn a_slot_that_was_given_back_is_taken_again_and_makes_way_for_another_size() {
        let (budget, descriptors) = (Budget::new(8 << 20), Budget::new(100));
        let slots = Slots::new(&budget, &descriptors);
        let (slot, charge) = slots.take(200_000).unwrap();
        let at = slot.memory.bytes().as_ptr();
        charge.keep(slot);
        assert_eq!((budget.used(), descriptors.used()), (0, 1));
        let taken: Vec<_> = (0..).map_while(|_| slots.take(210_000)).collect();
        assert_eq!((taken[0].0.memory.bytes().as_ptr(), taken.len()), (at, (2 << 20) / (224 << 10)));
        for (slot, charge) in taken {
            charge.keep(slot);
        }
        assert!(slots.take(300_000).is_none(), "what one spare slot had is not enough");
        assert!(slots.take(250_000).is_some(), "what two had is");
        assert!(slots.take(256 << 10).is_some() && slots.take((256 << 10) + 1).is_none(), "one is a part of all");
    }

    #[test]
    fn spare_slots_are_room() {
        let (budget, descriptors) = (Budget::new(4 << 20), Budget::new(100));
        let slots = Slots::new(&budget, &descriptors);
        let taken: Vec<_> = (0..).map_while(|_| slots.take(128 << 10)).collect();
        assert_eq!((taken.len(), descriptors.used()), (8, 8));
        for (slot, charge) in taken {
            charge.keep(slot);
        }
        let most = budget.take((4 << 20) - (300 << 10)).unwrap();
        assert_eq!(descriptors.used(), 2, "so many fit beside what was taken");
        let mut waiting = budget.wait(301 << 10);
        assert!(slots.take(128 << 10).is_none(), "somebody else came first");
        drop(most);
        assert_eq!(waiting.try_recv().unwrap().bytes(), 301 << 10);
        assert!(slots.take(128 << 10).is_some());
    }
}
