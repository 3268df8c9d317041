//! A bit for each number of a table.

use core::sync::atomic::{AtomicU64, Ordering};

/// 64 × `WORDS` bits, in private or in shared memory: `8 × WORDS` bytes. Higher numbers are as good
/// as unset. A change and a look are sequentially consistent.
///
/// ```
/// use ginnel_node::bits::Bits;
///
/// static OPEN: Bits<2> = Bits::new();
/// assert!(OPEN.set(70) && !OPEN.set(70));
/// assert_eq!(OPEN.ones(0).collect::<Vec<_>>(), [70]);
/// ```
#[repr(transparent)]
pub struct Bits<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Bits<WORDS> {
    /// None set.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics, which need a constant")]
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// Is it set?
    #[must_use]
    pub fn has(&self, index: u32) -> bool {
        self.word(index) & bit(index) != 0
    }

    /// True if this changed it.
    pub fn set(&self, index: u32) -> bool {
        self.0
            .get(index as usize / 64)
            .is_some_and(|word| word.fetch_or(bit(index), Ordering::SeqCst) & bit(index) == 0)
    }

    /// True if this changed it.
    pub fn unset(&self, index: u32) -> bool {
        self.0
            .get(index as usize / 64)
            .is_some_and(|word| word.fetch_and(!bit(index), Ordering::SeqCst) & bit(index) != 0)
    }

    /// Unsets it if `is_free`, which is asked again afterwards: whoever takes what the
    /// bit stands for, and sets it, between the two keeps it.
    pub fn unset_if_free(&self, index: u32, is_free: impl Fn() -> bool) {
        if is_free() {
            self.unset(index);
            if !is_free() {
                self.set(index);
            }
        }
    }

    /// The word that has the bit of `index`, in which that is number `index % 64`.
    #[must_use]
    pub fn word(&self, index: u32) -> u64 {
        self.0.get(index as usize / 64).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    /// As at first.
    pub fn unset_all(&self) {
        for word in &self.0 {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Those that are set, least first, from `first` on. Each word is read once, when the walk
    /// comes to it; an empty one costs that read.
    pub fn ones(&self, first: u32) -> impl Iterator<Item = u32> {
        // Written out: a service thread that has nothing else to do comes through here.
        let (mut bits, mut base, mut next) = (0u64, 0, first / 64);
        let mut wanted = u64::MAX << (first % 64);
        core::iter::from_fn(move || {
            while bits == 0 {
                bits = self.0.get(next as usize)?.load(Ordering::SeqCst) & wanted;
                (base, next, wanted) = (next * 64, next + 1, u64::MAX);
            }
            let index = base + bits.trailing_zeros();
            bits &= bits - 1;
            Some(index)
        })
    }
}

const fn bit(index: u32) -> u64 {
    1 << (index % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_once_in_order() {
        let bits = Bits::<16>::new();
        let set = [0, 63, 64, 127, 500, 1023];
        assert!(set.iter().all(|&index| bits.set(index) && !bits.set(index)));
        assert!(!bits.set(1024) && !bits.has(1024), "there is no such bit");
        assert_eq!(bits.ones(0).collect::<Vec<_>>(), set);
        assert_eq!(bits.ones(64).collect::<Vec<_>>(), set[2..]);
        assert_eq!(bits.ones(65).collect::<Vec<_>>(), set[3..], "in the middle of a word");
        assert_eq!(bits.ones(1024).next(), None);
        bits.unset_if_free(63, || false);
        bits.unset_if_free(127, || true);
        assert!(bits.has(63) && !bits.has(127));
        let asked = core::cell::Cell::new(0);
        bits.unset_if_free(500, || asked.replace(asked.get() + 1) == 0);
        assert!(bits.has(500) && asked.get() == 2, "somebody came meanwhile");
        assert!(bits.has(64) && bits.unset(64) && !bits.unset(64) && !bits.has(64) && bits.has(63));
        bits.unset_all();
        assert_eq!(bits.ones(0).next(), None);
    }
}
