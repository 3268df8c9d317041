//! Publish and park: the two halves of one handshake.
//!
//! The publisher stores its index, fences, and looks whether the other side is armed. The sleeper
//! arms, fences, and looks at the index again before it sleeps. With a full fence on both sides at
//! least one of them sees the other (Dekker): either the publisher finds the sleeper armed and
//! wakes it, or the sleeper finds the new index and does not sleep. `tests/loom.rs` checks it; the
//! fences are explicit because loom treats SeqCst accesses as AcqRel.

use crate::sync::{AtomicU64, Ordering, fence, fence_after_exchange};

/// What a side that waits has asked to be woken by; the word it is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Awake: no wake-up is needed.
    Nothing,
    /// One byte over the connection's own TCP socket.
    Token,
    /// The side has closed and will never look again.
    Closed,
    /// Nobody was armed, yet so many tokens are on their way: those of downgrades, and of a wake-up
    /// whose sleeper could not be rung. Who arms next is to count them.
    Promised(u8),
    /// A waiter in the segment: page number, and the bit that names this channel to it.
    Waiter {
        /// Page of the waiter in the segment.
        page: u32,
        /// Which bit to set there.
        bit: u16,
    },
}

const TOKEN: u64 = 1;
const CLOSED: u64 = 2;
const PROMISED: u64 = 3;
const WAITER: u64 = 1 << 63;

impl Want {
    /// The word that stands for it.
    #[must_use]
    #[inline]
    pub fn word(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Token => TOKEN,
            Self::Closed => CLOSED,
            Self::Promised(count) => PROMISED | u64::from(count) << 8,
            Self::Waiter { page, bit } => WAITER | u64::from(page) << 16 | u64::from(bit),
        }
    }

    /// What a word stands for. Words that stand for nothing (a peer wrote them) read as
    /// [`Want::Nothing`]: whoever wrote one harms only its own sleep.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fields are cut out of the word")]
    pub fn of(word: u64) -> Self {
        match word {
            TOKEN => Self::Token,
            CLOSED => Self::Closed,
            promised if is_promised(promised) => Self::Promised((promised >> 8) as u8),
            waiter if waiter & WAITER != 0 => {
                Self::Waiter { page: (waiter >> 16) as u32, bit: waiter as u16 }
            }
            _ => Self::Nothing,
        }
    }
}

fn is_promised(word: u64) -> bool {
    word & !(0xff << 8) == PROMISED
}

/// Is there nobody to wake?
#[inline]
fn is_quiet(word: u64) -> bool {
    word == 0 || word == CLOSED || is_promised(word)
}

/// Publishes a new index and claims the other side's wish to be woken, if it has one. A claimed
/// wish must be granted: nobody else will. [`Want::Closed`] is never taken away.
#[inline]
pub fn publish(index: &AtomicU64, value: u64, want: &AtomicU64) -> Want {
    // Release pairs with the Acquire load by which the other side reads the index: the bytes before
    // it are visible first.
    index.store(value, Ordering::Release);
    claim(want)
}

/// The second half of [`publish`]: for news that is not an index (an epoch, an end mark), stored
/// before.
#[inline]
pub fn claim(want: &AtomicU64) -> Want {
    fence(Ordering::SeqCst);
    claim_seen(want)
}

/// The same, directly behind an exchange by which this thread published its news.
#[inline]
pub fn claim_after_exchange(want: &AtomicU64) -> Want {
    fence_after_exchange();
    claim_seen(want)
}

#[inline]
fn claim_seen(want: &AtomicU64) -> Want {
    let seen = want.load(Ordering::Relaxed);
    if is_quiet(seen) {
        return Want::of(seen);
    }
    take(want)
}

/// Stores the index as [`publish`] does, and only looks: does the other side's word say anything, be
/// it a wish or that it closed? Takes nothing: that is for whoever then calls [`claim_waiter`], or
/// publishes once more.
#[inline]
pub fn publish_and_look(index: &AtomicU64, value: u64, want: &AtomicU64) -> bool {
    index.store(value, Ordering::Release);
    fence(Ordering::SeqCst);
    want.load(Ordering::Relaxed) != 0
}

/// Claims the wish only where it names a waiter.
pub fn claim_waiter(want: &AtomicU64) -> Want {
    let seen = want.load(Ordering::Relaxed);
    let taken = seen & WAITER != 0
        && want.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if taken { Want::of(seen) } else { Want::Nothing }
}

/// How often a change of the word is tried anew because the other side changed it meanwhile. An
/// honest one changes it a few times at most; one that never stops gets it overwritten, so that no
/// call hangs here.
const TRIES: u32 = 1000;

#[cold]
fn take(want: &AtomicU64) -> Want {
    let mut seen = want.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        if is_quiet(seen) {
            return Want::of(seen);
        }
        match want.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Want::of(seen),
            Err(now) => seen = now,
        }
    }
    Want::of(want.swap(0, Ordering::AcqRel))
}

/// Arms: from here on a publisher will wake this side. The caller must look at the other side's
/// index again after this, and sleep only if there is still nothing.
///
/// Several sleepers may share the word. A second, different one makes it a [`Want::Token`], which
/// wakes them all. Returns what the word says now, and how many tokens this call has to count as
/// coming one day: its own, if it is the one that armed it, and those that were promised.
#[inline]
pub fn arm(want: &AtomicU64, wish: Want) -> (Want, u64) {
    let mut seen = want.load(Ordering::Relaxed);
    let mut tries = 0;
    let armed = loop {
        let mut promised = 0;
        let next = match Want::of(seen) {
            Want::Nothing => wish,
            Want::Promised(count) => {
                promised = u64::from(count);
                wish
            }
            same if same == wish => break (wish, 0),
            Want::Token => break (Want::Token, 0),
            Want::Closed => break (Want::Closed, 0),
            Want::Waiter { .. } => Want::Token,
        };
        match want.compare_exchange(seen, next.word(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break (next, promised + u64::from(next == Want::Token)),
            Err(_) if tries == TRIES => {
                want.store(next.word(), Ordering::Release);
                break (next, promised + u64::from(next == Want::Token));
            }
            Err(now) => seen = now,
        }
        tries += 1;
    };
    fence(Ordering::SeqCst);
    armed
}

/// Takes back exactly `wish`, where nobody claimed or changed it. True if it was taken back.
#[inline]
pub fn disarm(want: &AtomicU64, wish: Want) -> bool {
    want.load(Ordering::Relaxed) == wish.word()
        && want.compare_exchange(wish.word(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// A downgrade's token is about to be sent: takes an armed token's place, or promises one, beside
/// what is promised already. [`Want::Closed`]: send none. A waiter is taken too, and is to be
/// woken.
pub fn promise(want: &AtomicU64) -> Want {
    promise_beside(want, |count| Some(Want::Promised(count.saturating_add(1))))
}

/// A token is about to be sent to whoever sleeps: as [`promise`], but [`Want::Promised`]: send
/// none. That one's reader has not armed since, and so does not sleep.
pub fn promise_one(want: &AtomicU64) -> Want {
    promise_beside(want, |_| None)
}

fn promise_beside(want: &AtomicU64, more: impl Fn(u8) -> Option<Want>) -> Want {
    let mut seen = want.load(Ordering::Relaxed);
    for _ in 0..TRIES {
        let next = match Want::of(seen) {
            Want::Closed => return Want::Closed,
            Want::Token => Want::Nothing,
            Want::Promised(count) => match more(count) {
                Some(next) => next,
                None => return Want::Promised(count),
            },
            Want::Nothing | Want::Waiter { .. } => Want::Promised(1),
        };
        match want.compare_exchange(seen, next.word(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Want::of(seen),
            Err(now) => seen = now,
        }
    }
    Want::of(want.swap(Want::Promised(1).word(), Ordering::AcqRel))
}

/// Closes the word for good; returns what it said.
pub fn close(want: &AtomicU64) -> Want {
    Want::of(want.swap(CLOSED, Ordering::AcqRel))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for want in [
            Want::Nothing,
            Want::Token,
            Want::Closed,
            Want::Promised(1),
            Want::Promised(u8::MAX),
            Want::Waiter { page: u32::MAX, bit: u16::MAX },
            Want::Waiter { page: 0, bit: 0 },
        ] {
            assert_eq!(Want::of(want.word()), want);
        }
        assert_eq!(Want::of(77), Want::Nothing);
    }

    #[test]
    fn a_second_sleeper_makes_it_a_token() {
        let word = AtomicU64::new(0);
        let (a, b) = (Want::Waiter { page: 1, bit: 0 }, Want::Waiter { page: 2, bit: 0 });
        assert_eq!(arm(&word, a), (a, 0));
        assert_eq!(arm(&word, a), (a, 0));
        assert_eq!(arm(&word, b), (Want::Token, 1));
        assert!(!disarm(&word, a));
        assert_eq!(claim(&word), Want::Token);
        assert_eq!(claim(&word), Want::Nothing);
    }

    #[test]
    fn a_promise_is_counted_by_who_arms_next() {
        let word = AtomicU64::new(0);
        assert_eq!(promise(&word), Want::Nothing);
        assert_eq!(claim(&word), Want::Promised(1), "a promise is nobody's to take");
        assert_eq!(
            promise_one(&word),
            Want::Promised(1),
            "whoever sleeps is woken by the one that comes"
        );
        assert_eq!(arm(&word, Want::Token), (Want::Token, 2));
        assert_eq!(promise(&word), Want::Token, "the armed token is the one that is sent");
        assert_eq!(
            (promise_one(&word), promise(&word)),
            (Want::Nothing, Want::Promised(1)),
            "a downgrade's comes beside the other"
        );
        assert_eq!(arm(&word, Want::Token), (Want::Token, 3));
        assert_eq!(arm(&word, Want::Waiter { page: 1, bit: 0 }).1, 0);
        close(&word);
        assert_eq!(promise(&word), Want::Closed);
    }

    #[test]
    fn closed_stays() {
        let word = AtomicU64::new(0);
        assert_eq!(arm(&word, Want::Token), (Want::Token, 1));
        assert_eq!(close(&word), Want::Token);
        assert_eq!(claim(&word), Want::Closed);
        assert_eq!(arm(&word, Want::Token), (Want::Closed, 0));
        assert_eq!(claim(&word), Want::Closed);
    }
}
