//! How much memory the server may take for others, over all channels and connections: batches on their way, answers to
//! peers, lists of seeds.
//!
//! What is granted is a [`Charge`], which lives as long as the memory that it stands for. Nobody waits here: batches wait in
//! the scheduler until there is room, and everything else is refused, to be asked for again.

use graphmill_sample::{Buffer, Pool};

use crate::Refusal;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Idle buffers that are kept for batches and answers.
const KEPT: usize = 64;

/// Who asks, and so how full it may get: those who have much already leave something to those who have nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// All of it: for the only batch of a channel, for its seeds if they are few, and for peers.
    Whole,
    /// Three quarters: for further batches of a channel, and for long lists of seeds.
    Most,
    /// Half: for shared memory, which a connection keeps.
    Half,
}

/// A number of bytes, and how many of them are taken.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    /// What may be lent; the rest is for buffers that rest.
    lent: u64,
    used: AtomicU64,
    pool: Pool,
}

impl Budget {
    pub(crate) fn new(total: u64) -> Arc<Self> {
        let idle = total / 4;
        let pool = Pool::bounded(KEPT, usize::try_from(idle).unwrap_or(usize::MAX));
        Arc::new(Self { total, lent: total - idle, used: AtomicU64::new(0), pool })
    }

    /// All there is.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// What is taken now, with the buffers that rest.
    pub(crate) fn taken(&self) -> u64 {
        self.used() + self.pool.idle_bytes() as u64
    }

    /// What is lent now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// How much may be lent at a time.
    pub(crate) fn limit(&self, share: Share) -> u64 {
        match share {
            Share::Whole => self.lent,
            Share::Most => self.lent / 4 * 3,
            Share::Half => self.lent / 2,
        }
    }

    /// So many bytes, if there are as many.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, share: Share) -> Option<Charge> {
        let limit = self.limit(share);
        let fits = |used: u64| used.checked_add(bytes).filter(|&used| used <= limit);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Charge { budget: Arc::clone(self), bytes })
    }

    /// No bytes yet.
    pub(crate) fn nothing(self: &Arc<Self>) -> Charge {
        Charge { budget: Arc::clone(self), bytes: 0 }
    }

    /// A buffer of so many bytes, with its charge.
    ///
    /// # Errors
    /// When there is no room for it now, or can never be.
    pub(crate) fn buffer(self: &Arc<Self>, bytes: usize) -> Result<Charged, Refusal> {
        let room = Pool::room_for(bytes) as u64;
        let mut charge = self.take(room, Share::Whole).ok_or_else(|| self.refusal(room, Share::Whole))?;
        let buffer = self.pool.take(bytes)?;
        // One that has rested may be larger; that memory was counted before, among those that rest.
        charge.set(buffer.room() as u64);
        Ok(Charged { buffer, _charge: charge })
    }

    /// A buffer in the place of memory that is given up at once, so that nobody is asked whether there is room.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn buffer_instead(self: &Arc<Self>, bytes: usize) -> Result<Charged, Refusal> {
        let mut charge = self.nothing();
        let buffer = self.pool.take(bytes)?;
        charge.set(buffer.room() as u64);
        Ok(Charged { buffer, _charge: charge })
    }

    /// Why there is no room for so many bytes.
    pub(crate) fn refusal(&self, bytes: u64, share: Share) -> Refusal {
        let (total, most) = (self.total, self.limit(share));
        if bytes > most {
            return Refusal::over_budget(format!(
                "{bytes} bytes are needed at once, this server lends {most} of its memory budget of {total} \
                 (--memory-budget); ask for smaller batches, or give it more"
            ));
        }
        Refusal::busy(format!(
            "there is no room for {bytes} bytes: {} of the memory budget of {total} (--memory-budget) are taken, by what \
             clients did not take yet; ask again, or another server",
            self.taken()
        ))
    }
}

/// Bytes that were granted; they are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Stands for so many bytes from now on, if there are as many.
    pub(crate) fn grow(&mut self, bytes: u64, share: Share) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else { return true };
        let Some(mut charge) = self.budget.take(more, share) else { return false };
        charge.bytes = 0;
        self.bytes = bytes;
        true
    }

    /// Stands for memory of so many bytes from now on, which is there already.
    fn set(&mut self, bytes: u64) {
        self.budget.used.fetch_add(bytes, Ordering::AcqRel);
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A buffer, charged for as long as it is lent.
#[derive(Debug)]
pub(crate) struct Charged {
    /// First, so that it rests before it is not charged any more.
    buffer: Buffer,
    _charge: Charge,
}

impl Charged {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

#[cfg(test)]
mod tests {
    use graphmill_wire::proto::Code;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Buffers of any size, lent and given back at random: memory that is lent or rests never exceeds the budget.
        #[test]
        fn the_budget_is_never_exceeded(steps in proptest::collection::vec((0u8..3, 1usize..3_000_000), 0..60)) {
            let budget = Budget::new(16 << 20);
            let mut held = Vec::new();
            for (what, bytes) in steps {
                match what {
                    0 | 1 => match budget.buffer(bytes) {
                        Ok(buffer) => held.push(buffer),
                        Err(refusal) => prop_assert!(refusal.busy || refusal.code == Code::OverBudget),
                    },
                    _ if !held.is_empty() => drop(held.swap_remove(bytes % held.len())),
                    _ => {}
                }
                prop_assert!(budget.taken() <= budget.total(), "{} of {}", budget.taken(), budget.total());
                prop_assert_eq!(budget.used(), held.iter().map(|one| one.buffer.room() as u64).sum::<u64>());
            }
            drop(held);
            prop_assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn who_has_much_leaves_something_to_who_has_nothing() {
        let budget = Budget::new(1600);
        let mut seeds = budget.take(100, Share::Most).unwrap();
        assert!(seeds.grow(900, Share::Most) && !seeds.grow(901, Share::Most));
        assert!(budget.take(1, Share::Half).is_none() && budget.take(1, Share::Most).is_none());
        let last = budget.take(300, Share::Whole).unwrap();
        assert!(budget.take(1, Share::Whole).is_none());
        drop((seeds, last));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_can_never_fit_is_not_worth_another_try() {
        let budget = Budget::new(16 << 20);
        let never = budget.buffer(64 << 20).unwrap_err();
        assert!(never.code == Code::OverBudget && never.reason.contains("--memory-budget"), "{never}");
        let _all = budget.take(budget.limit(Share::Whole), Share::Whole).unwrap();
        let later = budget.buffer(1 << 20).unwrap_err();
        assert!(later.busy && later.code == Code::Unavailable && later.reason.contains("ask again"), "{later}");
    }
}
