//! Rows that somebody else owns and that are asked for again and again, kept here.
//!
//! In most graphs a few nodes are neighbours of nearly all others, and so in nearly every batch. A row that was asked for
//! some times is kept once it has arrived twice the same, until there is no room left: a byte that was damaged on its way is not
//! kept. Nothing is removed: rows of a dataset never change, and what is asked for often goes on to be.
//!
//! Looking up takes no lock. A bucket of entries is one cache line; an entry is one word, an id with how often it was asked
//! for, what it was like, or where its row is. Rows lie in chunks, which do not change once an entry names them: a row is found when the
//! chunk that it is in is full. The first chunks are small.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use graphmill_graph::random::mix;

use crate::Result;
use crate::cache::prefetch;
use crate::memory::{HUGE, Memory};
use crate::places::copy_rows;
use crate::room::grow;

/// What there may be no memory for.
const ROWS: &str = "rows of others";

/// The states of an entry: how often its id was asked for, up to so many times; then what its row was like when it arrived; that
/// it is about to be kept; and where it is kept.
const WANTED: u64 = 2;
const SEEN: u64 = 1 << 8;
const ARRIVING: u64 = SEEN + (1 << 16);
const KEPT: u64 = 3 << ROW_BITS;
/// How many bits of an entry are not the id.
const STATE_BITS: u32 = 24;
const STATE: u64 = (1 << STATE_BITS) - 1;
/// Ids from here on have no room in an entry.
const MAX_ID: u64 = 1 << (u64::BITS - STATE_BITS);

/// Where a row is: its chunk, and its number there in so many bits.
const ROW_BITS: u32 = 15;
/// The bytes of a chunk: the first ones double, up to a huge page.
const CHUNKS: (usize, usize) = (64 << 10, HUGE);
/// The most chunks that can be numbered, some 1 GiB.
const MAX_CHUNKS: usize = ((STATE - KEPT) >> ROW_BITS) as usize;
/// Smaller rows cost about as much to look up as to ask for.
const LEAST_ROW: usize = 64;
/// Entries per row that there is room for: most ids that are asked for are not worth keeping.
const ENTRIES_PER_ROW: usize = 4;
/// The entries of all rows take no more than this part of the room.
const ENTRIES_SHARE: usize = 8;
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
    buckets: Vec<Bucket>,
    chunks: Vec<OnceLock<Memory>>,
    filling: Mutex<Filling>,
    /// There is no room for another chunk: what is here is all that ever will be.
    is_full: AtomicBool,
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
    /// How many rows there will be.
    rows: usize,
    /// How many chunks are full.
    full: usize,
}

/// Rows that were found: where they are, and where they go.
#[derive(Debug, Default)]
pub struct KeptRows {
    sites: Vec<u32>,
    places: Vec<u32>,
}

impl KeptRows {
    /// How many.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Bytes that are kept for the next ones.
    pub fn scratch_bytes(&self) -> usize {
        4 * (self.sites.capacity() + self.places.capacity())
    }

    /// Forgets them, and keeps their memory.
    pub fn clear(&mut self) {
        self.sites.clear();
        self.places.clear();
    }
}

impl RowCache {
    /// A cache for rows of so many bytes; nothing if they are not worth it, or there is no room or memory.
    pub fn new(row_bytes: usize, room: &Arc<CacheRoom>) -> Option<Self> {
        let left = room.left();
        if !(LEAST_ROW..=CHUNKS.1).contains(&row_bytes) || left < 2 * CHUNKS.0.max(row_bytes) {
            return None;
        }
        let wanted = left / row_bytes * ENTRIES_PER_ROW / 8;
        let most = (left / ENTRIES_SHARE / size_of::<Bucket>()).max(1);
        let count = 1 << wanted.clamp(1, most).ilog2();
        let (mut buckets, mut chunks) = (Vec::new(), Vec::new());
        buckets.try_reserve_exact(count).ok()?;
        chunks.try_reserve_exact(MAX_CHUNKS).ok()?;
        buckets.resize_with(count, Bucket::default);
        chunks.resize_with(MAX_CHUNKS, OnceLock::new);
        room.take(count * size_of::<Bucket>()).then(|| Self {
            row_bytes,
            buckets,
            chunks,
            filling: Mutex::default(),
            is_full: AtomicBool::new(false),
            room: Arc::clone(room),
        })
    }

    /// The bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Whether it will never keep anything more.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Takes those ids out of a list, with their places, whose rows are here. The others are noted as asked for.
    ///
    /// # Errors
    /// When there is no memory to note what was found.
    pub fn take_out(&self, ids: &mut Vec<u64>, places: &mut Vec<u32>, kept: &mut KeptRows) -> Result<()> {
        grow(&mut kept.sites, ROWS, ids.len())?;
        grow(&mut kept.places, ROWS, ids.len())?;
        let (counts, mut left) = (!self.is_full(), 0);
        for index in 0..ids.len().min(places.len()) {
            if let Some(&later) = ids.get(index + BUCKETS_AHEAD) {
                prefetch(&self.buckets, self.home(later));
            }
            let (id, place) = (ids[index], places[index]);
            if let Some(site) = self.find(id, counts) {
                kept.sites.push(site);
                kept.places.push(place);
            } else {
                (ids[left], places[left]) = (id, place);
                left += 1;
            }
        }
        ids.truncate(left);
        places.truncate(left);
        Ok(())
    }

    /// Copies rows that were found here to their places among the rows of `into`.
    ///
    /// # Errors
    /// When one is nowhere here.
    ///
    /// # Panics
    /// When a place is past the end.
    pub fn copy(&self, kept: &KeptRows, into: &mut [u8]) -> Result<()> {
        let row = |index: usize| Ok(self.row(kept.sites[index]));
        copy_rows(into, self.row_bytes, kept.sites.len(), row, |index| kept.places[index] as usize)
    }

    /// Shows rows that have arrived; those that are wanted are kept. If somebody else is showing some, it is left for the
    /// next time.
    pub fn offer(&self, ids: &[u64], rows: &[u8]) {
        let Ok(mut filling) = self.filling.try_lock() else { return };
        for (&id, row) in ids.iter().zip(rows.chunks_exact(self.row_bytes)) {
            if self.is_full() {
                return;
            }
            let Some((entry, state)) = self.entry(id, WANTED..ARRIVING) else { continue };
            let likeness = SEEN + likeness(row);
            if state != likeness {
                entry.store(id << STATE_BITS | likeness, Ordering::Relaxed);
            } else if self.has_memory(&mut filling) {
                entry.store(id << STATE_BITS | ARRIVING, Ordering::Relaxed);
                let start = filling.ids.len() * self.row_bytes;
                filling.memory.bytes_mut()[start..start + self.row_bytes].copy_from_slice(row);
                filling.ids.push(id);
                if filling.ids.len() == filling.rows {
                    self.publish(&mut filling);
                }
            }
        }
    }

    fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.buckets.len() - 1)
    }

    /// Where an id's row is, if it is here; otherwise the id was asked for once more.
    #[inline]
    fn find(&self, id: u64, counts: bool) -> Option<u32> {
        let Bucket(entries) = &self.buckets[self.home(id)];
        // All are looked at, for where it is cannot be foreseen.
        let of_id = |(place, entry): (usize, &AtomicU64)| {
            let word = entry.load(Ordering::Relaxed);
            u32::from(word >> STATE_BITS == id && word != 0) << place
        };
        let found = entries.iter().enumerate().map(of_id).fold(0, |found, bit| found | bit);
        let Some(entry) = entries.get(found.trailing_zeros() as usize) else {
            if counts {
                count_stranger(entries, id);
            }
            return None;
        };
        let word = entry.load(Ordering::Acquire);
        match word & STATE {
            // Somebody else has its place by now.
            _ if word >> STATE_BITS != id => None,
            state @ KEPT.. => Some((state - KEPT) as u32),
            state => {
                if counts && state < WANTED {
                    change(entry, word, word + 1);
                }
                None
            }
        }
    }

    /// The entry of an id and its state, if that is in a range.
    fn entry(&self, id: u64, states: std::ops::Range<u64>) -> Option<(&AtomicU64, u64)> {
        let entries = self.buckets[self.home(id)].0.iter().map(|entry| (entry, entry.load(Ordering::Relaxed)));
        let of_id = entries.filter(|(_, word)| word >> STATE_BITS == id).map(|(entry, word)| (entry, word & STATE));
        of_id.into_iter().find(|(_, state)| states.contains(state))
    }

    /// Whether there is a chunk to add to.
    fn has_memory(&self, filling: &mut Filling) -> bool {
        if filling.memory.len() > 0 {
            return true;
        }
        let rows = (CHUNKS.0 << filling.full.min(8)).clamp(self.row_bytes, CHUNKS.1) / self.row_bytes;
        let bytes = rows * self.row_bytes;
        let has_room = filling.full < self.chunks.len() && self.room.take(Memory::rounded(bytes));
        match has_room.then(|| Memory::new(ROWS, bytes)) {
            Some(Ok(memory)) => (filling.memory, filling.rows) = (memory, rows),
            _ => self.is_full.store(true, Ordering::Relaxed),
        }
        filling.memory.len() > 0
    }

    /// Lets everybody see a full chunk.
    fn publish(&self, filling: &mut Filling) {
        let first = KEPT + ((filling.full as u64) << ROW_BITS);
        let shown = self.chunks[filling.full].set(std::mem::take(&mut filling.memory));
        debug_assert!(shown.is_ok(), "chunks are shown one after the other, under a lock");
        for (state, id) in (first..).zip(filling.ids.drain(..)) {
            if let Some((entry, _)) = self.entry(id, ARRIVING..ARRIVING + 1) {
                entry.store(id << STATE_BITS | state, Ordering::Release);
            }
        }
        filling.full += 1;
    }

    #[inline]
    fn row(&self, site: u32) -> &[u8] {
        let (chunk, row) = ((site >> ROW_BITS) as usize, site as usize & ((1 << ROW_BITS) - 1));
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get).map(Memory::bytes).unwrap_or_default();
        chunk.get(row * self.row_bytes..(row + 1) * self.row_bytes).unwrap_or_default()
    }
}

/// A stranger weakens whoever was asked for least, and takes its place in the end.
///
/// Two threads may give one id two places. Then its row is kept twice, if both are found wanted, and is the same in both.
fn count_stranger(entries: &[AtomicU64; 8], id: u64) {
    let words = entries.iter().map(|entry| (entry, entry.load(Ordering::Relaxed)));
    let weak = words.filter(|(_, word)| word & STATE < ARRIVING);
    let weakest = weak.min_by_key(|(_, word)| (word & STATE).min(SEEN)).filter(|_| id < MAX_ID);
    if let Some((entry, word)) = weakest {
        let weaker = match word & STATE {
            0 => id << STATE_BITS | 1,
            1..SEEN => word - 1,
            _ => word & !STATE | WANTED,
        };
        change(entry, word, weaker);
    }
}

/// Changes an entry, unless somebody else just has.
fn change(entry: &AtomicU64, from: u64, to: u64) {
    let _ = entry.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
}

/// What a row is like, in 16 bits.
fn likeness(row: &[u8]) -> u64 {
    let (words, rest) = row.as_chunks::<8>();
    let rest = rest.iter().fold(row.len() as u64, |hash, &byte| mix(hash ^ u64::from(byte)));
    words.iter().fold(rest, |hash, word| mix(hash ^ u64::from_le_bytes(*word))) >> 48
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn row(id: u64, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|byte| (id * 31 + byte as u64 * (id + 7)) as u8).collect()
    }

    /// Asks for ids as a server does, owners answering whatever is not kept; says how many rows were.
    fn ask(cache: &RowCache, ids: &[u64], bytes: usize) -> usize {
        let (mut asked, mut places) = (ids.to_vec(), (0..ids.len() as u32).collect());
        let (mut kept, mut into) = (KeptRows::default(), vec![0; ids.len() * bytes]);
        cache.take_out(&mut asked, &mut places, &mut kept).unwrap();
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
            bytes in prop_oneof![Just(2000usize), Just(4096), Just(1 << 16)],
            rounds in prop::collection::vec(prop::collection::vec(0u64..60, 1..80), 1..40),
            far in prop_oneof![Just(0u64), Just(MAX_ID - 45)],
        ) {
            let cache = RowCache::new(bytes, &CacheRoom::new(8 << 20)).unwrap();
            for ids in &rounds {
                ask(&cache, &ids.iter().map(|id| id + far).collect::<Vec<_>>(), bytes);
            }
        }
    }

    #[test]
    fn rows_of_any_size_and_id_are_kept() {
        for bytes in [64, 100, 512, 4096, 100_000, 2 << 20] {
            for far in [0, MAX_ID - 3000] {
                let cache = RowCache::new(bytes, &CacheRoom::new(64 << 20)).unwrap();
                let ids: Vec<u64> = (0..=(1 << 20) / bytes as u64).map(|id| far + id % 2900).collect();
                let found = (0..5).map(|_| ask(&cache, &ids, bytes)).last();
                assert!(found > Some(0), "rows of {bytes} bytes");
            }
        }
        for bytes in [0, 8, (2 << 20) + 1] {
            assert!(RowCache::new(bytes, &CacheRoom::new(64 << 20)).is_none());
        }
    }

    #[test]
    fn what_is_asked_for_often_is_kept_and_what_is_not_leaves_room() {
        let cache = RowCache::new(512, &CacheRoom::new(4 << 20)).unwrap();
        let hot: Vec<u64> = (0..9000).map(|id| id * 7).collect();
        let strangers = |round: u64| (0..1000).map(|id| 1_000_000 + round * 1000 + id).collect::<Vec<_>>();
        let mut found = 0;
        for round in 0..12 {
            found = ask(&cache, &hot, 512);
            ask(&cache, &strangers(round), 512);
        }
        assert!(cache.is_full() && found > 3000, "{found} are kept");
        for round in 0..12 {
            assert_eq!(ask(&cache, &strangers(round), 512), 0, "nobody asked for these again");
        }
    }

    #[test]
    fn a_row_that_was_damaged_on_its_way_is_not_kept() {
        let cache = RowCache::new(1024, &CacheRoom::new(1 << 20)).unwrap();
        let ids: Vec<u64> = (0..64).collect();
        for round in 0..6 {
            let (mut asked, mut places) = (ids.clone(), (0..64).collect());
            cache.take_out(&mut asked, &mut places, &mut KeptRows::default()).unwrap();
            let mut rows: Vec<u8> = asked.iter().flat_map(|&id| row(id, 1024)).collect();
            // Another byte of the same row each time.
            if let Some(place) = asked.iter().position(|&id| id == 5) {
                rows[1024 * place + round] ^= 1;
            }
            cache.offer(&asked, &rows);
        }
        assert_eq!(cache.find(5, false), None);
        (0..4).for_each(|_| _ = ask(&cache, &(0..65).collect::<Vec<_>>(), 1024));
        assert!(cache.find(5, false).is_some(), "it is kept once it is sound");
    }

    #[test]
    fn all_caches_together_stay_within_their_room() {
        const ROOM: usize = 7 << 20;
        for bytes in [400, 1024, 2408] {
            let room = CacheRoom::new(ROOM);
            let caches: Vec<_> = (0..3).filter_map(|_| RowCache::new(bytes, &room)).collect();
            assert_eq!(caches.len(), 3);
            for cache in &caches {
                let ids: Vec<u64> = (0..2 * ROOM as u64 / bytes as u64).collect();
                (0..6).for_each(|_| _ = ask(cache, &ids, bytes));
            }
            let memory = |cache: &RowCache| {
                let chunks = cache.chunks.iter().filter_map(OnceLock::get).map(Memory::len).sum::<usize>();
                chunks + cache.filling.lock().unwrap().memory.len() + size_of_val(&cache.buckets[..])
            };
            assert_eq!(caches.iter().map(memory).sum::<usize>() + room.left(), ROOM);
            assert!(room.left() < 2 << 20, "{} bytes are left of rows of {bytes}", room.left());
        }
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
        let mut sites = HashSet::new();
        for id in 0..12_000 {
            if let Some(site) = cache.find(id, false) {
                assert!(sites.insert(site) && cache.row(site) == row(id, 256));
            }
        }
        assert!(sites.len() > 6000, "{} rows are kept", sites.len());
    }
}
