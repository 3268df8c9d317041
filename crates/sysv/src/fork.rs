//! fork(3): its handlers run in the thread that calls it, before and after. The child enters itself
//! as one that has attached what its parent had, and tells its parent, whose call returns then.
//!
//! They tell by a pipe, whose end tells of a child that was killed; where there is no descriptor
//! for one, by a word in memory that both have. A child that is not entered, or not heard of, has
//! the memory all the same: the parent keeps it from being freed for as long as it is there itself,
//! and the child keeps its parent's party from being taken for dead (`presence/attached.rs` of the
//! SDK).

use crate::process::{
    ATTACHED, Alone, BEGINNING, DESCRIPTORS, attached_all, current, is_own, joined,
};
use ginnel_region::sys;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// The pipe.
static PIPE: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];
/// In place of it.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// The child has its parent's life.
static LIFE: AtomicBool = AtomicBool::new(false);
static SIGNALS: Alone<Option<sys::SignalsBlocked>> = Alone::new(None);
/// How long a parent waits for its child to have entered itself, milliseconds …
const PATIENCE: i32 = 2000;
/// … and where it does not hear that the child has ended, or that there is none.
const PATIENCE_WITHOUT_PIPE: i32 = 300;
const PAGE: usize = 4096;

/// What the child says.
const ENTERED: u8 = 1;
const IS_NOT: u8 = 2;

extern "C" fn prepare() {
    let signals = sys::block_signals();
    // All are given back after the fork, in both.
    BEGINNING.take();
    ATTACHED.take();
    DESCRIPTORS.take();
    *SIGNALS.lock() = Some(signals);
    // SAFETY: this thread has the lock.
    let any = unsafe { !(*ATTACHED.value.get()).is_empty() };
    if !any {
        return;
    }
    if let Some(joined) = current().filter(|process| is_own(process)).and_then(|own| own.joined()) {
        LIFE.store(joined.space.share_life(true), Ordering::Relaxed);
    }
    let mut pipe = [-1; 2];
    // SAFETY: room for two.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } == 0 {
        PIPE[0].store(pipe[0], Ordering::Relaxed);
        PIPE[1].store(pipe[1], Ordering::Relaxed);
    } else if let Ok(page) = sys::map_common(PAGE) {
        WORD.store(page.cast(), Ordering::Relaxed);
    }
}

/// The ways to tell, which are over.
struct Ways {
    pipe: [i32; 2],
    word: *mut AtomicU32,
}

impl Ways {
    fn take() -> Self {
        let pipe = [0, 1].map(|end: usize| PIPE[end].swap(-1, Ordering::Relaxed));
        Self { pipe, word: WORD.swap(std::ptr::null_mut(), Ordering::Relaxed) }
    }

    fn word(&self) -> Option<&AtomicU32> {
        // SAFETY: null, or a page of zeroes that this process mapped and has not unmapped.
        unsafe { self.word.as_ref() }
    }

    fn tell(&self, what: u8) {
        if self.pipe[1] >= 0 {
            let _ = sys::write(self.pipe[1], &[what]);
        }
        if let Some(word) = self.word() {
            word.store(what.into(), Ordering::Release);
        }
    }

    /// What the child says; `None`: it is gone, or there is none, and 0 where it said nothing.
    fn heard(&self) -> Option<u8> {
        if self.pipe[0] >= 0 {
            let mut said = [0];
            close(self.pipe[1]);
            if sys::poll(self.pipe[0], libc::POLLIN, PATIENCE) == 0 {
                return Some(0);
            }
            return (sys::read(self.pipe[0], &mut said) == Ok(1)).then_some(said[0]);
        }
        let word = self.word()?;
        for _ in 0..PATIENCE_WITHOUT_PIPE {
            let said = word.load(Ordering::Acquire);
            if said != 0 {
                return Some(said as u8);
            }
            sys::sleep_ms(1);
        }
        Some(0)
    }

    fn over(self) {
        if !self.word.is_null() {
            // SAFETY: nobody of this process has it any more.
            unsafe { sys::unmap(self.word.cast(), PAGE) };
        }
    }
}

/// Gives the locks back; the signals are to be let through at the end.
fn give_back() -> Option<sys::SignalsBlocked> {
    DESCRIPTORS.give_back();
    ATTACHED.give_back();
    let signals = SIGNALS.lock().take();
    BEGINNING.give_back();
    signals
}

fn close(fd: i32) {
    if fd >= 0 {
        sys::close(fd);
    }
}

extern "C" fn parent() {
    let ways = Ways::take();
    // SAFETY: this thread has the lock.
    let list = unsafe { &*ATTACHED.value.get() };
    if !list.is_empty() {
        let no_way = ways.pipe[0] < 0 && ways.word.is_null();
        if no_way || ways.heard().is_some_and(|said| said != ENTERED) {
            list.iter().filter_map(|attached| attached.record.as_ref()).for_each(|it| it.keep());
        }
        let process = current().filter(|process| is_own(process));
        if let Some(joined) = process.and_then(|own| own.joined()) {
            joined.space.share_life(false);
            LIFE.store(false, Ordering::Relaxed);
        }
    }
    close(ways.pipe[0]);
    ways.over();
    let _signals = give_back();
}

extern "C" fn child() {
    let ways = Ways::take();
    let _signals = give_back();
    close(ways.pipe[0]);
    // Now, as the user that its parent is: it may become another before its first call.
    if let Some(parents) = current().and_then(|parent| parent.joined()) {
        let entered = joined().is_some() && attached_all();
        // Where it has none, another map may have come to lie there.
        if LIFE.swap(false, Ordering::Relaxed) && entered {
            parents.space.leave_life_to_parent();
        }
        ways.tell(if entered { ENTERED } else { IS_NOT });
    } else {
        ways.tell(IS_NOT);
    }
    close(ways.pipe[1]);
    ways.over();
}

/// Run by the loader before the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    crate::jumps::find();
    ginnel::sysv::at_fork(prepare, parent, child);
}
