//! Rows that somebody else owns and that are asked for again and again, kept here.
//!
//! In most graphs a few nodes are neighbours of nearly all others, and so in nearly every batch. A row that was asked for
//! some times is kept when it arrives, until there is no room left. Nothing is removed: rows of a dataset never change, and
//! what is asked for often goes on to be.
//!
//! Looking up takes no lock. A bucket of entries is one cache line; an entry is one word, an id with how often it was asked
//! for or with the number of its row. Rows lie in chunks, which do not change once an entry names them: a row is found when the
//! chunk that it is in is full.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::Result;
use crate::cache::prefetch;
use crate::memory::Memory;
use crate::places::copy_rows;

/// A row is kept when it was asked for so many times.
const WANTED: u64 = 3;
/// An entry whose row is about to be kept; above it are the numbers of rows that are.
const ARRIVING: u64 = 255;
const KEPT: u64 = 256;
/// How many bits of an entry are not the id.
const STATE_BITS: u32 = 24;
const STATE: u64 = (1 << STATE_BITS) - 1;
/// Ids from here on have no room in an entry.
const MAX_ID: u64 = 1 << (u64::BITS - STATE_BITS);
/// The most rows that can be numbered.
const MAX_ROWS: usize = (STATE - KEPT) as usize;
/// Entries per row that there is room for: most ids that are asked for are not worth keeping.
const ENTRIES_PER_ROW: usize = 4;
/// About the bytes of a chunk: a huge page.
const CHUNK: usize = 2 << 20;
/// Smaller rows cost about as much to look up as to ask for.
const LEAST_ROW: usize = 64;
/// How many ids ahead a bucket begins to load.
const BUCKETS_AHEAD: usize = 32;

/// Bytes that several caches share.
#[derive(Debug)]
pub struct CacheRoom {
    left: AtomicUsize,
}

impl CacheRoom {
    /// So many bytes.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }

    /// What is left of them.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// Rows of one tensor.
#[derive(Debug)]
pub struct RowCache {
    row_bytes: usize,
    /// Rows of a chunk, as a power of two.
    chunk_bits: u32,
    buckets: Box<[Bucket]>,
    chunks: Box<[OnceLock<Memory>]>,
    filling: Mutex<Filling>,
    room: Arc<CacheRoom>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; 8]);

/// The chunk that rows are added to; nobody reads it yet.
#[derive(Debug, Default)]
struct Filling {
    memory: Memory,
    ids: Vec<u64>,
    /// How many chunks are full.
    full: usize,
    /// There is no room for another chunk.
    ended: bool,
}

/// Rows that were found: their numbers, and where they go.
#[derive(Debug, Default)]
pub struct KeptRows {
    numbers: Vec<u32>,
    places: Vec<u32>,
}

impl KeptRows {
    /// How many.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

impl RowCache {
    /// A cache for rows of so many bytes; nothing if they are not worth it or there is no room.
    pub fn new(row_bytes: usize, room: &Arc<CacheRoom>) -> Option<Self> {
        if !(LEAST_ROW..=CHUNK).contains(&row_bytes) {
            return None;
        }
        let most = room.left() / (row_bytes + ENTRIES_PER_ROW * size_of::<u64>());
        let chunk_bits = (CHUNK / row_bytes).ilog2();
        let chunks = most.min(MAX_ROWS) >> chunk_bits;
        let buckets = ((chunks << chunk_bits) * ENTRIES_PER_ROW / 8).next_power_of_two();
        if chunks == 0 || !room.take(buckets * size_of::<Bucket>()) {
            return None;
        }
        Some(Self {
            row_bytes,
            chunk_bits,
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            filling: Mutex::default(),
            room: Arc::clone(room),
        })
    }

    /// Takes those ids out of a list, with their places, whose rows are here. The others are noted as asked for.
    pub fn take_out(&self, ids: &mut Vec<u64>, places: &mut Vec<u32>, kept: &mut KeptRows) {
        kept.numbers.reserve(ids.len());
        kept.places.reserve(ids.len());
        let mut left = 0;
        for index in 0..ids.len().min(places.len()) {
            if let Some(&later) = ids.get(index + BUCKETS_AHEAD) {
                prefetch(&self.buckets, self.home(later));
            }
            let (id, place) = (ids[index], places[index]);
            if let Some(number) = self.find(id) {
                kept.numbers.push(number);
                kept.places.push(place);
            } else {
                (ids[left], places[left]) = (id, place);
                left += 1;
            }
        }
        ids.truncate(left);
        places.truncate(left);
    }

    /// Copies rows that were found to their places among the rows of `into`.
    ///
    /// # Errors
    /// When they are not of this cache.
    ///
    /// # Panics
    /// When a place is past the end.
    pub fn copy(&self, kept: &KeptRows, into: &mut [u8]) -> Result<()> {
        let row = |index: usize| Ok(self.row(kept.numbers[index]));
        copy_rows(into, self.row_bytes, kept.numbers.len(), row, |index| kept.places[index] as usize)
    }

    /// Shows rows that have arrived; those that are wanted are kept. If somebody else is showing some, it is left for the
    /// next time.
    pub fn offer(&self, ids: &[u64], rows: &[u8]) {
        let Ok(mut filling) = self.filling.try_lock() else { return };
        for (&id, row) in ids.iter().zip(rows.chunks_exact(self.row_bytes)) {
            if filling.ended {
                return;
            }
            if let Some(entry) = self.entry(id, WANTED..ARRIVING)
                && self.has_memory(&mut filling)
            {
                entry.store(id << STATE_BITS | ARRIVING, Ordering::Relaxed);
                let start = filling.ids.len() * self.row_bytes;
                filling.memory.bytes_mut()[start..start + self.row_bytes].copy_from_slice(row);
                filling.ids.push(id);
                if filling.ids.len() == 1 << self.chunk_bits {
                    self.publish(&mut filling);
                }
            }
        }
    }

    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.buckets.len() - 1)
    }

    /// The number of an id's row, if it is here; otherwise the id was asked for once more.
    #[inline]
    fn find(&self, id: u64) -> Option<u32> {
        let Bucket(entries) = &self.buckets[self.home(id)];
        // All are looked at, for where it is cannot be foreseen.
        let of_id = |(place, entry): (usize, &AtomicU64)| {
            let word = entry.load(Ordering::Relaxed);
            u32::from(word >> STATE_BITS == id && word != 0) << place
        };
        let found = entries.iter().enumerate().map(of_id).fold(0, |found, bit| found | bit);
        let Some(entry) = entries.get(found.trailing_zeros() as usize) else {
            Self::count_stranger(entries, id);
            return None;
        };
        let word = entry.load(Ordering::Acquire);
        match word & STATE {
            // Somebody else has its place by now.
            _ if word >> STATE_BITS != id => None,
            state @ KEPT.. => Some((state - KEPT) as u32),
            state => {
                if state < WANTED {
                    advance(entry, word, word + 1);
                }
                None
            }
        }
    }

    /// A stranger weakens whoever was asked for least, and takes its place in the end.
    fn count_stranger(entries: &[AtomicU64; 8], id: u64) {
        let words = entries.iter().map(|entry| (entry, entry.load(Ordering::Relaxed)));
        let counting = words.filter(|(_, word)| word & STATE < ARRIVING);
        if let Some((entry, word)) = counting.min_by_key(|(_, word)| word & STATE).filter(|_| id < MAX_ID) {
            advance(entry, word, if word & STATE == 0 { id << STATE_BITS | 1 } else { word - 1 });
        }
    }

    /// The entry of an id, if its state is in a range.
    fn entry(&self, id: u64, states: std::ops::Range<u64>) -> Option<&AtomicU64> {
        self.buckets[self.home(id)].0.iter().find(|entry| {
            let word = entry.load(Ordering::Relaxed);
            word >> STATE_BITS == id && states.contains(&(word & STATE))
        })
    }

    /// Whether there is a chunk to add to.
    fn has_memory(&self, filling: &mut Filling) -> bool {
        if filling.memory.len() > 0 {
            return true;
        }
        let bytes = self.row_bytes << self.chunk_bits;
        filling.ended = filling.full == self.chunks.len() || !self.room.take(Memory::rounded(bytes));
        if !filling.ended {
            match Memory::new("rows of others", bytes) {
                Ok(memory) => filling.memory = memory,
                Err(_) => filling.ended = true,
            }
        }
        !filling.ended
    }

    /// Lets everybody see a full chunk.
    fn publish(&self, filling: &mut Filling) {
        if self.chunks[filling.full].set(std::mem::take(&mut filling.memory)).is_err() {
            return;
        }
        let first = (filling.full << self.chunk_bits) as u64;
        for (number, id) in (first..).zip(filling.ids.drain(..)) {
            if let Some(entry) = self.entry(id, ARRIVING..KEPT) {
                entry.store(id << STATE_BITS | KEPT + number, Ordering::Release);
            }
        }
        filling.full += 1;
    }

    #[inline]
    fn row(&self, number: u32) -> &[u8] {
        let (chunk, row) = (number >> self.chunk_bits, number as usize & ((1 << self.chunk_bits) - 1));
        let chunk = self.chunks.get(chunk as usize).and_then(OnceLock::get).map(Memory::bytes).unwrap_or_default();
        chunk.get(row * self.row_bytes..(row + 1) * self.row_bytes).unwrap_or_default()
    }
}

/// Changes an entry, unless somebody else just has.
fn advance(entry: &AtomicU64, from: u64, to: u64) {
    let _ = entry.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn row(id: u64, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|byte| (id * 31 + byte as u64) as u8).collect()
    }

    /// Asks for ids as a server does, owners answering whatever is not kept; says how many rows were.
    fn ask(cache: &RowCache, ids: &[u64], bytes: usize) -> usize {
        let (mut asked, mut places) = (ids.to_vec(), (0..ids.len() as u32).collect());
        let (mut kept, mut into) = (KeptRows::default(), vec![0; ids.len() * bytes]);
        cache.take_out(&mut asked, &mut places, &mut kept);
        cache.copy(&kept, &mut into).unwrap();
        let rows: Vec<u8> = asked.iter().flat_map(|&id| row(id, bytes)).collect();
        for (row, &place) in rows.chunks_exact(bytes).zip(&places) {
            into[place as usize * bytes..][..bytes].copy_from_slice(row);
        }
        cache.offer(&asked, &rows);
        let expected: Vec<u8> = ids.iter().flat_map(|&id| row(id, bytes)).collect();
        assert!(into == expected, "rows of {bytes} bytes");
        kept.len()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn rows_are_those_of_their_owner_whether_kept_or_not(
            bytes in prop_oneof![Just(64usize), Just(100), Just(1 << 16)],
            rounds in prop::collection::vec(prop::collection::vec(0u64..50, 1..80), 1..40),
            far in prop_oneof![Just(0u64), Just(MAX_ID - 20)],
        ) {
            let room = CacheRoom::new(8 << 20);
            let cache = RowCache::new(bytes, &room).unwrap();
            for ids in &rounds {
                ask(&cache, &ids.iter().map(|id| id + far).collect::<Vec<_>>(), bytes);
            }
        }
    }

    #[test]
    fn what_is_asked_for_often_is_kept_and_what_is_not_leaves_room() {
        let room = CacheRoom::new(4 << 20);
        let cache = RowCache::new(512, &room).unwrap();
        let hot: Vec<u64> = (0..6000).map(|id| id * 7).collect();
        let mut found = 0;
        for round in 0..8 {
            found = ask(&cache, &hot, 512);
            // Nobody asks for these again; in the end they are as many as there are entries.
            ask(&cache, &(0..2048).map(|id| 1_000_000 + round * 2048 + id).collect::<Vec<_>>(), 512);
        }
        assert_eq!(found, 4096, "all there is room for are hot ones");
    }

    #[test]
    fn all_caches_together_stay_within_their_room() {
        let room = CacheRoom::new(7 << 20);
        let caches: Vec<_> = (0..3).filter_map(|_| RowCache::new(1024, &room)).collect();
        for cache in &caches {
            let ids: Vec<u64> = (0..20_000).collect();
            (0..5).for_each(|_| _ = ask(cache, &ids, 1024));
            let chunks = cache.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
            assert!(chunks <= cache.chunks.len() && cache.buckets.len() * 64 <= 7 << 20);
        }
        let memory = |cache: &RowCache| {
            let chunks = cache.chunks.iter().filter_map(OnceLock::get).map(Memory::len).sum::<usize>();
            chunks + cache.filling.lock().unwrap().memory.len() + size_of_val(&*cache.buckets)
        };
        assert_eq!(caches.iter().map(memory).sum::<usize>() + room.left(), 7 << 20);
        assert!(RowCache::new(512, &CacheRoom::new(1 << 20)).is_none() && RowCache::new(8, &room).is_none());
    }

    #[test]
    fn threads_that_ask_and_offer_at_once_see_whole_rows() {
        let cache = RowCache::new(256, &CacheRoom::new(16 << 20)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..30 {
                        let ids: Vec<u64> = (0..9000).map(|id| (id * 13 + thread + round) % 12_000).collect();
                        ask(cache, &ids, 256);
                    }
                });
            }
        });
        let mut numbers = HashMap::new();
        for id in 0..12_000 {
            if let Some(number) = cache.find(id) {
                assert!(numbers.insert(number, id).is_none() && cache.row(number) == row(id, 256));
            }
        }
        assert!(numbers.len() > 8000, "{} rows are kept", numbers.len());
    }
}
