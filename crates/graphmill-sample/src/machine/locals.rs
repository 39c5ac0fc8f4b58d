//! From global ids to the rows of a batch.
//!
//! A table has a slot for every node of its type. A slot holds `base + row`, where `base` grows with every batch by the
//! number of rows of the last one: what earlier batches wrote is below `base` and counts as empty, so nothing is cleared
//! between batches. Where a type has too many nodes for that, a hash table takes the place of the dense one.

use crate::cache::prefetch;
use crate::exchange::{Id, IdVec};
use crate::memory::Memory;

/// Up to so many nodes a type has a dense table: 64 MiB at most.
const DENSE: u64 = 1 << 24;
/// How many edges ahead a slot begins to load.
const SLOTS_AHEAD: usize = 48;
/// Rows are below this.
pub(crate) const MAX_ROWS: u64 = u32::MAX as u64 - 1;

/// The nodes of one type in a batch, in order, and the way back from id to row.
#[derive(Debug)]
pub(crate) struct Locals {
    /// The nodes, and room for more behind them.
    nodes: Vec<u64>,
    len: usize,
    base: u32,
    count: u64,
    table: Table,
}

#[derive(Debug)]
enum Table {
    Dense(Memory),
    Hashed(Hashed),
}

/// Why ids were not taken in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This one is not of the type.
    OutOfRange(u64),
    /// There are more than a batch can number.
    TooMany,
    /// There is no memory for so many.
    NoMemory(u64),
}

impl Locals {
    pub(crate) fn new(count: u64) -> Self {
        let table = if count <= DENSE { Table::Dense(Memory::default()) } else { Table::Hashed(Hashed::default()) };
        Self { nodes: Vec::new(), len: 0, base: 1, count, table }
    }

    /// Forgets all nodes.
    pub(crate) fn clear(&mut self) {
        let next = u64::from(self.base) + self.len as u64;
        self.len = 0;
        match u32::try_from(next) {
            Ok(base) => self.base = base,
            Err(_) => self.wipe(),
        }
    }

    fn wipe(&mut self) {
        self.base = 1;
        match &mut self.table {
            Table::Dense(memory) => memory.words_mut().fill(0),
            Table::Hashed(hashed) => hashed.slots.fill((0, 0)),
        }
    }

    /// The nodes in order of their rows.
    pub(crate) fn nodes(&self) -> &[u64] {
        &self.nodes[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        let table = match &self.table {
            Table::Dense(memory) => memory.len(),
            Table::Hashed(hashed) => size_of::<(u64, u32)>() * hashed.slots.capacity(),
        };
        8 * self.nodes.capacity() + table
    }

    /// Appends the rows of nodes; those not met before are new, in order. After a refusal all nodes are forgotten.
    pub(crate) fn admit_all(&mut self, ids: &IdVec, rows: &mut Vec<u32>) -> Result<(), Refusal> {
        match ids {
            IdVec::U32(ids) => self.admit_slice(ids, rows),
            IdVec::U64(ids) => self.admit_slice(ids, rows),
        }
    }

    pub(crate) fn admit_slice<N: Id>(&mut self, ids: &[N], rows: &mut Vec<u32>) -> Result<(), Refusal> {
        let most = self.len as u64 + ids.len() as u64;
        if u64::from(self.base) + most > MAX_ROWS {
            if most > MAX_ROWS {
                return Err(Refusal::TooMany);
            }
            self.renumber()?;
        }
        let no_memory = |_| Refusal::NoMemory(most);
        rows.try_reserve(ids.len()).map_err(no_memory)?;
        // Every edge writes the place after the last node, whether it is new or not: no branch to mispredict.
        let room = self.len + ids.len() + 1;
        if self.nodes.len() < room {
            let room = room.next_power_of_two();
            self.nodes.try_reserve_exact(room - self.nodes.len()).map_err(no_memory)?;
            self.nodes.resize(room, 0);
        }
        let mut admission = Admission { base: self.base, nodes: &mut self.nodes, len: self.len, stranger: None };
        match &mut self.table {
            Table::Dense(memory) => {
                if memory.len() == 0 {
                    let table = Memory::new("nodes", 4 * self.count as usize);
                    *memory = table.map_err(|_| Refusal::NoMemory(self.count))?;
                }
                let slots = memory.words_mut();
                let slots = slots.get_mut(..self.count as usize).unwrap_or_default();
                admission.by_table(slots, ids, rows);
            }
            Table::Hashed(hashed) => {
                hashed.reserve(self.len + ids.len(), self.base).ok_or(Refusal::NoMemory(most))?;
                admission.by_hash(hashed, self.count, ids, rows);
            }
        }
        let Admission { len, stranger, .. } = admission;
        self.len = len;
        match stranger {
            None => Ok(()),
            Some(id) => {
                self.clear();
                Err(Refusal::OutOfRange(id))
            }
        }
    }

    /// Numbers the rows of this batch from 1 again, with nothing else in the table.
    fn renumber(&mut self) -> Result<(), Refusal> {
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(self.len).map_err(|_| Refusal::NoMemory(self.len as u64))?;
        nodes.extend_from_slice(self.nodes());
        self.wipe();
        self.len = 0;
        self.admit_slice(&nodes, &mut Vec::new())
    }
}

/// Nodes on their way in.
struct Admission<'a> {
    base: u32,
    nodes: &'a mut [u64],
    len: usize,
    stranger: Option<u64>,
}

impl Admission<'_> {
    #[inline]
    fn by_table<N: Id>(&mut self, slots: &mut [u32], ids: &[N], rows: &mut Vec<u32>) {
        let (ahead, last) = ids.split_at(ids.len().saturating_sub(SLOTS_AHEAD));
        let later = &ids[ids.len() - ahead.len()..];
        rows.extend(ahead.iter().zip(later).map(|(id, later)| {
            prefetch(slots, later.widen() as usize);
            self.look_up(slots, id.widen())
        }));
        rows.extend(last.iter().map(|id| self.look_up(slots, id.widen())));
    }

    #[inline]
    fn look_up(&mut self, slots: &mut [u32], id: u64) -> u32 {
        match slots.get_mut(id as usize) {
            Some(slot) => self.take(id, slot),
            None => self.refuse(id),
        }
    }

    fn by_hash<N: Id>(&mut self, hashed: &mut Hashed, count: u64, ids: &[N], rows: &mut Vec<u32>) {
        rows.extend(ids.iter().enumerate().map(|(place, id)| {
            if let Some(later) = ids.get(place + SLOTS_AHEAD) {
                prefetch(&hashed.slots, hashed.home(later.widen()));
            }
            let id = id.widen();
            if id >= count {
                return self.refuse(id);
            }
            let slot = hashed.find(id, self.base);
            let (holds, value) = &mut hashed.slots[slot];
            *holds = id;
            self.take(id, value)
        }));
    }

    /// The row of a node by its slot.
    #[inline]
    fn take(&mut self, id: u64, slot: &mut u32) -> u32 {
        let new = *slot < self.base;
        let value = if new { self.base + self.len as u32 } else { *slot };
        *slot = value;
        self.nodes[self.len] = id;
        self.len += usize::from(new);
        value - self.base
    }

    #[cold]
    fn refuse(&mut self, id: u64) -> u32 {
        self.stranger.get_or_insert(id);
        0
    }
}

/// Open addressing with linear probing; slots hold an id and `base + row`.
#[derive(Debug, Default)]
struct Hashed {
    slots: Vec<(u64, u32)>,
}

impl Hashed {
    /// Makes room for so many nodes, at most half full; nothing if there is no memory for that.
    fn reserve(&mut self, nodes: usize, base: u32) -> Option<()> {
        let wanted = (2 * nodes).next_power_of_two().max(1 << 10);
        if wanted <= self.slots.len() {
            return Some(());
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(wanted).ok()?;
        slots.resize(wanted, (0, 0));
        let old = std::mem::replace(&mut self.slots, slots);
        for (id, value) in old.into_iter().filter(|&(_, value)| value >= base) {
            let slot = self.find(id, base);
            self.slots[slot] = (id, value);
        }
        Some(())
    }

    #[inline]
    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    /// The slot of an id: where it is, or where it goes.
    #[inline]
    fn find(&self, id: u64, base: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(id);
        while self.slots[slot].1 >= base && self.slots[slot].0 != id {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn both(count: u64) -> [Locals; 2] {
        let mut hashed = Locals::new(count);
        hashed.table = Table::Hashed(Hashed::default());
        [Locals::new(count), hashed]
    }

    proptest! {
        #[test]
        fn rows_count_the_nodes_in_order_of_discovery(
            batches in vec(vec(vec(0u64..300, 0..100), 0..4), 1..5),
            base in prop_oneof![Just(1u32), Just(u32::MAX - 200)],
        ) {
            for mut locals in both(300) {
                locals.base = base;
                for batch in &batches {
                    locals.clear();
                    let (mut oracle, mut order) = (HashMap::new(), Vec::new());
                    for ids in batch {
                        let mut rows = Vec::new();
                        prop_assert_eq!(locals.admit_all(&IdVec::U64(ids.clone()), &mut rows), Ok(()));
                        for (id, row) in ids.iter().zip(rows) {
                            let next = oracle.len() as u32;
                            let expected = *oracle.entry(*id).or_insert_with(|| { order.push(*id); next });
                            prop_assert_eq!(row, expected);
                        }
                        prop_assert_eq!(locals.nodes(), &order[..]);
                    }
                }
            }
        }
    }

    #[test]
    fn an_id_outside_its_type_is_refused_and_leaves_the_rest() {
        for mut locals in both(10) {
            let mut rows = Vec::new();
            assert_eq!(locals.admit_slice(&[3u64], &mut rows), Ok(()));
            assert_eq!(locals.admit_all(&IdVec::U32(vec![4, 10, 5]), &mut rows), Err(Refusal::OutOfRange(10)));
            locals.clear();
            rows.clear();
            assert_eq!(locals.admit_all(&IdVec::U32(vec![5, 4, 5]), &mut rows), Ok(()));
            assert_eq!((&rows[..], locals.nodes()), (&[0, 1, 0][..], &[5, 4][..]));
        }
    }
}
