//! The objects of a server: found by id, gone when their time is over, and, if asked for, making room for others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::blob::Blob;
use super::budget::{Budget, Charge};
use crate::ObjectId;

/// All objects, and those who wait for one.
#[derive(Debug)]
pub(super) struct Store {
    objects: HashMap<ObjectId, Entry>,
    /// Those with a time to live, by its end.
    ends: BTreeSet<(Instant, ObjectId)>,
    /// If objects make room for others: all of them, by their last use.
    uses: Option<BTreeMap<u64, ObjectId>>,
    /// The number of the last use.
    tick: u64,
    waiting: HashMap<ObjectId, Vec<oneshot::Sender<Arc<Blob>>>>,
    pub(super) counts: Counts,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) blob: Arc<Blob>,
    pub(super) since: Instant,
    pub(super) end: Option<Instant>,
    used: u64,
}

/// What has happened so far.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) puts: u64,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) refused: u64,
    pub(super) evicted: u64,
    pub(super) expired: u64,
}

impl Store {
    pub(super) fn new(evicts: bool) -> Self {
        Self {
            objects: HashMap::new(),
            ends: BTreeSet::new(),
            uses: evicts.then(BTreeMap::new),
            tick: 0,
            waiting: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Keeps an object, in the place of another if there is one, and hands it to those who wait for it.
    pub(super) fn put(&mut self, id: ObjectId, blob: Arc<Blob>, ttl: Option<Duration>, now: Instant) {
        self.remove(id);
        for waiting in self.waiting.remove(&id).into_iter().flatten() {
            // One that gave up is no loss.
            let _ = waiting.send(Arc::clone(&blob));
        }
        // A time that no clock reaches is no end.
        let end = ttl.and_then(|ttl| now.checked_add(ttl));
        self.ends.extend(end.map(|end| (end, id)));
        self.objects.insert(id, Entry { blob, since: now, end, used: 0 });
        self.touch(id);
        self.counts.puts += 1;
    }

    /// An object, if it is there.
    pub(super) fn get(&mut self, id: ObjectId, now: Instant) -> Option<Arc<Blob>> {
        self.counts.gets += 1;
        let found = self.find(id, now)?;
        self.counts.hits += 1;
        self.touch(id);
        Some(found)
    }

    /// An object when it is put. Dropping what is returned gives up; [`Self::forget_waiting`] makes room then.
    pub(super) fn wait(&mut self, id: ObjectId) -> oneshot::Receiver<Arc<Blob>> {
        let (to, object) = oneshot::channel();
        self.waiting.entry(id).or_default().push(to);
        object
    }

    /// Somebody who waited for an object gave up.
    pub(super) fn forget_waiting(&mut self, id: ObjectId) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.retain(|one| !one.is_closed());
            if waiting.is_empty() {
                self.waiting.remove(&id);
            }
        }
    }

    pub(super) fn has(&self, id: ObjectId, now: Instant) -> bool {
        self.find(id, now).is_some()
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, id: ObjectId) {
        if let Some(entry) = self.objects.remove(&id) {
            if let Some(uses) = &mut self.uses {
                uses.remove(&entry.used);
            }
            if let Some(end) = entry.end {
                self.ends.remove(&(end, id));
            }
        }
    }

    /// Puts the same bytes in another place, unless the object has become another.
    pub(super) fn replace(&mut self, id: ObjectId, old: &Arc<Blob>, new: &Arc<Blob>) {
        if let Some(entry) = self.objects.get_mut(&id).filter(|entry| Arc::ptr_eq(&entry.blob, old)) {
            entry.blob = Arc::clone(new);
        }
    }

    /// Forgets what has reached its end.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(end, id)) = self.ends.first()
            && end <= now
        {
            self.remove(id);
            self.counts.expired += 1;
        }
    }

    /// Room for an object, if there is some, or can be made: by what is over, then by what nobody reads and was used least
    /// lately.
    pub(super) fn make_room(&mut self, budget: &Arc<Budget>, bytes: u64, now: Instant) -> Option<Charge> {
        if let Some(charge) = budget.take(bytes) {
            return Some(charge);
        }
        self.expire(now);
        self.make_way(budget, bytes);
        budget.take(bytes)
    }

    /// If objects make room for others: forgets what nobody reads and was used least lately, until so many bytes fit. Nothing
    /// is forgotten where they would not fit even then.
    pub(super) fn make_way(&mut self, budget: &Budget, bytes: u64) {
        let Some(uses) = &self.uses else { return };
        let (lacking, mut freed) = (budget.lacking(bytes), 0);
        let mut least = Vec::new();
        for id in uses.values() {
            if freed >= lacking {
                break;
            }
            if let Some(entry) = self.objects.get(id).filter(|entry| Arc::strong_count(&entry.blob) == 1) {
                freed += entry.blob.charged();
                least.push(*id);
            }
        }
        if freed >= lacking {
            self.counts.evicted += least.len() as u64;
            for id in least {
                self.remove(id);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.values().map(|waiting| waiting.iter().filter(|one| !one.is_closed()).count()).sum()
    }

    /// Up to so many objects in the order of their ids, after one.
    pub(super) fn list(&self, after: Option<ObjectId>, limit: usize) -> Vec<(ObjectId, &Entry)> {
        let mut found: Vec<_> = self.objects.iter().filter(|(id, _)| after.is_none_or(|after| **id > after)).collect();
        found.sort_unstable_by_key(|(id, _)| **id);
        found.truncate(limit);
        found.into_iter().map(|(id, entry)| (*id, entry)).collect()
    }

    fn find(&self, id: ObjectId, now: Instant) -> Option<Arc<Blob>> {
        let entry = self.objects.get(&id)?;
        entry.end.is_none_or(|end| end > now).then(|| Arc::clone(&entry.blob))
    }

    /// Notes that an object was used.
    fn touch(&mut self, id: ObjectId) {
        let Some(uses) = &mut self.uses else { return };
        if let Some(entry) = self.objects.get_mut(&id) {
            uses.remove(&entry.used);
            self.tick += 1;
            entry.used = self.tick;
            uses.insert(self.tick, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::blob::heap_charge;
    use super::*;

    fn blob(budget: &Arc<Budget>, bytes: usize) -> Option<Arc<Blob>> {
        let charge = budget.take(heap_charge(bytes as u64))?;
        Some(Arc::new(Blob::heap(vec![0; bytes].into(), charge)))
    }

    #[test]
    fn what_was_used_least_lately_makes_room_unless_it_is_read() {
        let (budget, now) = (Budget::new(heap_charge(1000) * 3), Instant::now());
        let mut store = Store::new(true);
        for id in 1..=3 {
            store.put(ObjectId(id), blob(&budget, 1000).unwrap(), None, now);
        }
        let read = store.get(ObjectId(2), now).unwrap();
        drop(store.get(ObjectId(1), now));
        // Least lately: 3, then 2, which is read, then 1.
        let charge = store.make_room(&budget, heap_charge(1000), now).unwrap();
        assert_eq!([1, 2, 3].map(|id| store.has(ObjectId(id), now)), [true, true, false]);
        let more = store.make_room(&budget, heap_charge(1000), now).unwrap();
        assert_eq!([1, 2].map(|id| store.has(ObjectId(id), now)), [false, true]);
        assert!(store.make_room(&budget, 1, now).is_none(), "all room is taken, and read");
        assert!(store.has(ObjectId(2), now));
        drop((charge, more, read));
        assert_eq!(store.counts.evicted, 2);
    }

    #[test]
    fn nothing_makes_room_for_what_would_not_fit_even_then() {
        let (budget, now) = (Budget::new(heap_charge(1000) * 4), Instant::now());
        let mut store = Store::new(true);
        for id in 1..=4 {
            store.put(ObjectId(id), blob(&budget, 1000).unwrap(), None, now);
        }
        let read = store.get(ObjectId(1), now).unwrap();
        for bytes in [heap_charge(1000) * 4, budget.total() + 1, u64::MAX] {
            assert!(store.make_room(&budget, bytes, now).is_none());
        }
        assert_eq!((store.len(), store.counts.evicted), (4, 0));
        // While somebody else has the right of way, no more is forgotten than this one needs.
        let _waiting = budget.wait(heap_charge(1000) * 4);
        assert!((0..3).all(|_| store.make_room(&budget, heap_charge(1000), now).is_none()));
        assert_eq!((store.len(), store.counts.evicted), (3, 1));
        drop(read);
    }

    #[test]
    fn what_is_evicted_and_read_stays_charged() {
        let (budget, now) = (Budget::new(10_000), Instant::now());
        let mut store = Store::new(false);
        store.put(ObjectId(1), blob(&budget, 1000).unwrap(), None, now);
        let read = store.get(ObjectId(1), now).unwrap();
        store.remove(ObjectId(1));
        assert_eq!(budget.used(), heap_charge(1000));
        drop(read);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_end_is_an_end_also_before_anyone_sweeps() {
        let (budget, now) = (Budget::new(10_000), Instant::now());
        let mut store = Store::new(false);
        store.put(ObjectId(1), blob(&budget, 10).unwrap(), Some(Duration::from_secs(5)), now);
        assert!(store.has(ObjectId(1), now + Duration::from_secs(4)));
        let later = now + Duration::from_secs(6);
        assert!(!store.has(ObjectId(1), later) && store.get(ObjectId(1), later).is_none());
        store.expire(later);
        assert_eq!((store.len(), budget.used(), store.counts.expired), (0, 0, 1));
    }

    proptest! {
        /// Against a plain map: whatever is done, the same objects are there, and the indexes hold nothing else.
        #[test]
        fn indexes_agree_with_the_objects(
            evicts: bool, steps in proptest::collection::vec((0u8..5, 0u128..8, 0u64..20), 0..200),
        ) {
            let (budget, mut now) = (Budget::new(u64::MAX), Instant::now());
            let (mut store, mut model) = (Store::new(evicts), BTreeMap::new());
            for (what, id, time) in steps {
                let id = ObjectId(id);
                match what {
                    0 => {
                        let ttl = (time > 5).then(|| Duration::from_secs(time));
                        store.put(id, blob(&budget, 1).unwrap(), ttl, now);
                        model.insert(id, ttl.map(|ttl| now + ttl));
                    }
                    1 => {
                        store.remove(id);
                        model.remove(&id);
                    }
                    2 => now += Duration::from_secs(time),
                    3 => store.expire(now),
                    _ => drop(store.get(id, now)),
                }
                model.retain(|_, end: &mut Option<Instant>| end.is_none_or(|end| end > now));
                for id in (0..8).map(ObjectId) {
                    prop_assert_eq!(store.has(id, now), model.contains_key(&id));
                }
                prop_assert_eq!(store.ends.len(), store.objects.values().filter(|one| one.end.is_some()).count());
                prop_assert_eq!(store.uses.as_ref().map_or(0, BTreeMap::len), if evicts { store.len() } else { 0 });
            }
        }
    }
}
