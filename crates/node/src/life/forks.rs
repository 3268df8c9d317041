//! What no child of fork is to get a part of, because it is half made.
//!
//! A file's locks last for as long as any process has what it was opened as: a descriptor, or a map.
//! Between the call that opens the file and the one that closes it again, a child that another
//! thread forks gets the descriptor. A lock by which a process is known to live would then outlive
//! the process.
//!
//! So forks wait for such work, and work for forks (pthread_atfork(3)). Work takes microseconds; a
//! thread that is kept from its processor meanwhile takes longer, and after [`PATIENCE`] nobody is
//! waited for. A signal's handler may fork in the middle of the work, and another library's handler
//! of a fork may ask for work: a thread does not wait for itself. A child of vfork or posix_spawn
//! has its descriptors until its exec, which is not far.

use ginnel_region::sys;
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Milliseconds.
const PATIENCE: u32 = 2000;
/// So many looks go before a thread sleeps for one.
const LOOKS: u32 = 100;

/// How many threads work, and how many fork. Each enters itself, then looks at the other (Dekker).
static WORKING: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How much of the two this thread is in the middle of.
    static BUSY: Cell<u32> = const { Cell::new(0) };
}

/// This thread begins one of the two. True where it was in the middle of none.
fn begin() -> bool {
    BUSY.replace(BUSY.get() + 1) == 0
}

fn end() {
    BUSY.set(BUSY.get().saturating_sub(1));
}

fn leave(who: &AtomicU32) {
    let _ = who.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
}

/// Waits until `look` says that nobody is in the way, for as long as there is patience.
fn wait(mut look: impl FnMut() -> bool) -> bool {
    for round in 0..LOOKS + PATIENCE {
        if look() {
            return true;
        }
        if round < LOOKS { sys::yield_now() } else { sys::sleep_ms(1) }
    }
    false
}

extern "C" fn prepare() {
    FORKING.fetch_add(1, SeqCst);
    if begin() {
        wait(|| WORKING.load(SeqCst) == 0);
    }
}

extern "C" fn parent() {
    end();
    leave(&FORKING);
}

/// It has one thread, which waits for nobody.
extern "C" fn child() {
    end();
    FORKING.store(0, SeqCst);
    WORKING.store(0, SeqCst);
}

/// Forks are heeded from here on. It is to be called before any handler of a fork asks for
/// [`without`]: old C libraries take no further handler in one.
pub fn heed() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: functions that last as long as this library, with which the C library forgets
        // them.
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

/// Works while no other thread of this process forks.
pub fn without<T>(work: impl FnOnce() -> T) -> T {
    heed();
    let enters = begin()
        && wait(|| {
            WORKING.fetch_add(1, SeqCst);
            let alone = FORKING.load(SeqCst) == 0;
            if !alone {
                leave(&WORKING);
            }
            alone
        });
    let done = work();
    if enters {
        leave(&WORKING);
    }
    end();
    done
}
