//! What a test uses of the machine while others run beside it. Most tests wait, some keep a
//! processor busy, a few want the machine for themselves.
//!
//! A test asks for one permit, before anything else, and holds it to its end. A test that asks for
//! none gets [`waits`] with its first [`Stand`](crate::Stand). `RUST_TEST_THREADS` says how many
//! tests ask at a time; the Makefile sets it to more than there are processors.
//!
//! ```no_run
//! let _permit = ginnel_tests::permit::cpu(2);
//! ```

use std::cell::{Cell, RefCell};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// Tests that wait and share one processor.
const SHARES: usize = 4;

/// A part of the machine, given back when this is dropped.
#[must_use = "the part is given back when this is dropped"]
pub struct Permit {
    shares: usize,
}

/// For a test that mostly waits: a share of one processor.
pub fn waits() -> Permit {
    take(1)
}

/// For a test that keeps `processors` busy.
pub fn cpu(processors: usize) -> Permit {
    take(processors * SHARES)
}

/// For a test that bears no other beside it.
pub fn machine() -> Permit {
    take(usize::MAX)
}

/// Shares that nobody has, and the queue for them.
struct Office {
    all: usize,
    free: usize,
    /// The number that the next who asks will have.
    next: usize,
    /// The number whose turn it is: a test that wants much is not passed for ever by those that
    /// want little.
    turn: usize,
}

static OFFICE: LazyLock<(Mutex<Office>, Condvar)> = LazyLock::new(|| {
    let all = std::thread::available_parallelism().map_or(1, usize::from) * SHARES;
    (Mutex::new(Office { all, free: all, next: 0, turn: 0 }), Condvar::new())
});

fn office() -> MutexGuard<'static, Office> {
    OFFICE.0.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether this thread holds a permit.
    static HAS_ONE: Cell<bool> = const { Cell::new(false) };
    /// The permit of a test that asked for none. Each test has a thread, which ends with it.
    static UNASKED: RefCell<Option<Permit>> = const { RefCell::new(None) };
}

/// Waits until so many shares are free, or all there are.
fn take(shares: usize) -> Permit {
    // Two tests that each hold one and ask for a second would wait for each other.
    assert!(!HAS_ONE.replace(true), "a test asks for its permit once, before its first stand");
    let mut office = office();
    let shares = shares.min(office.all);
    let number = office.next;
    office.next += 1;
    while office.turn != number || office.free < shares {
        office = OFFICE.1.wait(office).unwrap_or_else(PoisonError::into_inner);
    }
    office.free -= shares;
    office.turn += 1;
    OFFICE.1.notify_all();
    Permit { shares }
}

impl Drop for Permit {
    fn drop(&mut self) {
        office().free += self.shares;
        OFFICE.1.notify_all();
        // A thread that ends may have forgotten already.
        let _ = HAS_ONE.try_with(|has_one| has_one.set(false));
    }
}

/// A test that has no permit yet waits, as far as anybody knows. Threads that a test starts go by
/// its permit: they have no name, as tests have.
pub fn of_this_test() {
    let is_test = std::thread::current().name().is_some_and(|name| name != "main");
    if is_test && !HAS_ONE.get() {
        UNASKED.set(Some(waits()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn the_machine_is_one_tests_and_no_more_have_shares_than_there_are() {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let all = office().all;
        let stay = |shares: usize| {
            let now = inside.fetch_add(shares, Ordering::SeqCst) + shares;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            inside.fetch_sub(shares, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for n in 0..4 * all {
                scope.spawn(move || {
                    let (permit, shares) = match n % 8 {
                        0 => (machine(), all),
                        1 => (cpu(1), SHARES),
                        _ => (waits(), 1),
                    };
                    stay(shares);
                    drop(permit);
                });
            }
        });
        assert!(most.into_inner() <= all);
    }

    #[test]
    #[should_panic(expected = "once")]
    fn a_second_one_is_refused() {
        let _first = waits();
        let _second = waits();
    }
}
