//! What no child of fork is to get a part of, because it is half made.
//!
//! A file's locks last for as long as any process has what it was opened as: a descriptor, or a map.
//! Between the call that opens the file and the one that closes it again, a child that another
//! thread forks gets the descriptor. A lock by which a process is known to live would then outlive
//! the process.
//!
//! So forks wait for such work, and work for forks (pthread_atfork(3)). Work takes microseconds; a
//! thread that is kept from its processor meanwhile takes longer, and after [`PATIENCE`] nobody is
//! waited for. No signal's handler runs in the midst of work: it might fork, or jump out and leave
//! the work half done for ever. Another library's handler of a fork may ask for work: a thread does
//! not wait for itself. A child of vfork or posix_spawn has its descriptors until its exec, which
//! is not far.

use ginnel_region::sys;
use std::cell::Cell;
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
    /// How many forks this thread is in the middle of.
    static OWN_FORKS: Cell<u32> = const { Cell::new(0) };
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

/// Before a fork: no thread begins work from here on, and none is in the midst of it. The C library
/// calls it once forks are [heeded](heed), but for those that it runs no handlers for.
pub extern "C" fn before() {
    FORKING.fetch_add(1, SeqCst);
    if OWN_FORKS.replace(OWN_FORKS.get() + 1) == 0 {
        wait(|| WORKING.load(SeqCst) == 0);
    }
}

fn over() {
    OWN_FORKS.set(OWN_FORKS.get().saturating_sub(1));
}

/// After it, in the parent; also where there is no child.
pub extern "C" fn after() {
    over();
    leave(&FORKING);
}

/// After it, in the child, which has one thread: that waits for nobody.
pub extern "C" fn in_child() {
    over();
    FORKING.store(0, SeqCst);
    WORKING.store(0, SeqCst);
}

/// Forks are heeded from here on.
///
/// Whoever has handlers of a fork of its own calls it before it registers them. They run before
/// [`before`] then: what they wait for may be the work of a thread that would wait for this fork.
/// And old C libraries take no further handler in one.
pub fn heed() {
    if HEEDED.load(SeqCst) != DONE {
        // A handler of a signal would wait for what it interrupts.
        let _blocked = sys::block_signals();
        heed_first();
    }
}

/// The process that is about to have forks heeded; 0: none has begun. (No `Once`: a child that is
/// forked while another thread is in one would wait for it for ever.)
static HEEDED: AtomicU32 = AtomicU32::new(0);
/// They are. (No process has this number.)
const DONE: u32 = u32::MAX;

fn heed_first() {
    let me = sys::pid();
    let begun = HEEDED.fetch_update(SeqCst, SeqCst, |by| (by != me && by != DONE).then_some(me));
    // Another thread is at it, perhaps: work that began before that is done would be no fork's to
    // wait for.
    if begun.is_err() && wait(|| HEEDED.load(SeqCst) == DONE) {
        return;
    }
    // SAFETY: functions that last as long as this library, with which the C library forgets them.
    // They may be called twice.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    HEEDED.store(DONE, SeqCst);
}

/// Works while no other thread of this process forks.
pub fn without<T>(work: impl FnOnce() -> T) -> T {
    heed();
    if OWN_FORKS.get() != 0 {
        return work();
    }
    let signals = sys::block_signals();
    let enters = wait(|| {
        WORKING.fetch_add(1, SeqCst);
        let alone = FORKING.load(SeqCst) == 0;
        if !alone {
            leave(&WORKING);
            signals.let_through();
        }
        alone
    });
    let done = work();
    if enters {
        leave(&WORKING);
    }
    done
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    /// Is this a process for the test of this name alone? Else runs one, which must succeed.
    pub fn is_alone(name: &str) -> bool {
        const ALONE: &str = "GINNEL_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return true;
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let done = command.args(["--exact", name]).env(ALONE, "1").output().expect("it starts");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        false
    }

    /// A child that does nothing until it is ended.
    fn child() -> i32 {
        // SAFETY: the child waits, and touches nothing.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            loop {
                // SAFETY: no memory is passed.
                unsafe { libc::pause() };
            }
        }
        child
    }

    fn end(child: i32) {
        // SAFETY: this process's own child; no status is asked for.
        let ended = unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0)
        };
        assert_eq!(ended, child);
    }

    /// Has `work` done again and again while another thread forks a hundred children, each in the
    /// midst of it. What `look` finds while all of them live.
    ///
    /// They have all that other tests have open: only for a process that is [alone](is_alone).
    pub fn beside_forks<T>(mut work: impl FnMut(), look: impl FnOnce() -> T) -> T {
        const CHILDREN: usize = 100;
        let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let forks = || {
            let mut children = Vec::new();
            while children.len() < CHILDREN {
                let before = done.load(SeqCst);
                children.push(child());
                // What was at work then, if anything, and once more.
                while done.load(SeqCst) < before + 2 {
                    std::thread::yield_now();
                }
            }
            over.store(true, SeqCst);
            children
        };
        let children = std::thread::scope(|scope| {
            let forks = scope.spawn(forks);
            while !over.load(SeqCst) {
                work();
                done.fetch_add(1, SeqCst);
            }
            forks.join().expect("forked")
        });
        let found = look();
        children.into_iter().for_each(end);
        found
    }

    /// One that jumps out of the work would leave every fork from then on to wait for it in vain.
    #[test]
    fn no_handler_runs_in_the_midst_of_work() {
        static SEEN: AtomicUsize = AtomicUsize::new(0);
        static WITHIN: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn handler(_: libc::c_int) {
            SEEN.fetch_add(1, SeqCst);
            WITHIN.fetch_add(WORKING.load(SeqCst) as usize, SeqCst);
        }
        if !is_alone("life::forks::tests::no_handler_runs_in_the_midst_of_work") {
            return;
        }
        // SAFETY: the handler changes two numbers.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
        // SAFETY: no arguments.
        let me = unsafe { libc::pthread_self() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    // SAFETY: the thread lives, and waits for this one in the end.
                    unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
                }
            });
            while SEEN.load(SeqCst) < 1000 {
                without(std::thread::yield_now);
            }
            over.store(true, SeqCst);
        });
        assert_eq!(WITHIN.load(SeqCst), 0);
        // A child of a fork that the C library has no handlers for has it likewise.
        before();
        assert_eq!(FORKING.load(SeqCst), 1);
        without(|| assert_eq!(WORKING.load(SeqCst), 0, "its own fork is not waited for"));
        in_child();
        assert_eq!((FORKING.load(SeqCst), OWN_FORKS.get()), (0, 0));
    }

    /// A thread whose work no fork would wait for yet waits until that is so; in a child that was
    /// forked meanwhile nobody else would see to it.
    #[test]
    fn no_work_begins_before_forks_are_heeded() {
        if !is_alone("life::forks::tests::no_work_begins_before_forks_are_heeded") {
            return;
        }
        let (begun, waits) = (AtomicBool::new(false), std::time::Duration::from_millis(50));
        HEEDED.store(sys::pid(), SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| without(|| begun.store(true, SeqCst)));
            std::thread::sleep(waits);
            assert!(!begun.load(SeqCst), "another thread is about to have forks heeded");
            HEEDED.store(DONE, SeqCst);
        });
        assert!(begun.load(SeqCst));
        HEEDED.store(sys::pid() + 1, SeqCst);
        heed();
        assert_eq!(HEEDED.load(SeqCst), DONE, "it was the parent's thread");
        let child = child();
        assert_eq!((FORKING.load(SeqCst), OWN_FORKS.get()), (0, 0));
        end(child);
    }
}
