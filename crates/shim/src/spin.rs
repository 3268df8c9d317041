//! Spinning: looking at shared memory for what another processor is about to write, for as long as
//! a sleep and a wake-up would take; and letting the other end run where it is on this processor.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Attachment;
use ginnel_tcp::Endpoint;

/// Learns whether spinning pays: up when a spin saw what it waited for, down when it was in vain.
pub struct Habit(AtomicU32);

const TRUST: u32 = 8;
const PROBE: u32 = 64;
/// The bits of a habit: the score; above it tries since it fell to nothing, and whether the other
/// end was on this processor.
const SCORE: u32 = 0xff;
const TOGETHER: u32 = 1 << 31;

impl Habit {
    /// Trusts at first.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(TRUST))
    }

    /// Spin this time?
    fn worth_it(&self) -> bool {
        let habit = self.0.load(Ordering::Relaxed);
        if habit & SCORE != 0 {
            return true;
        }
        // In vain so far: try again now and then.
        let tries = ((habit & !TOGETHER) >> 8) + 1;
        self.0.store(
            habit & TOGETHER | if tries >= PROBE { 1 } else { tries << 8 },
            Ordering::Relaxed,
        );
        tries >= PROBE
    }

    fn learn(&self, success: bool) {
        let score = self.0.load(Ordering::Relaxed) & SCORE;
        self.0.store(
            if success { (score + 2).min(TRUST) } else { score.saturating_sub(1) },
            Ordering::Relaxed,
        );
    }

    /// [`learn`](Self::learn), where the other end ran on this processor.
    fn learn_together(&self, success: bool) {
        self.learn(success);
        self.meet_together();
    }

    /// The other end ran on this processor.
    fn meet_together(&self) {
        self.0.fetch_or(TOGETHER, Ordering::Relaxed);
    }

    /// Did the other end run on this processor the last time? Then there is nothing to see before
    /// it is let run.
    fn was_together(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TOGETHER != 0
    }
}

/// What is added to a processor's number where several kernels share the segment, so that no two
/// processors of theirs have one number.
static KERNEL: AtomicU64 = AtomicU64::new(0);

/// Tells this kernel's processors apart from those of the others that share the segment.
pub fn set_kernel(attachment: &Attachment) {
    KERNEL.store(
        attachment.node.joined().place.map_or(0, |place| u64::from(place.peer) << 16),
        Ordering::Relaxed,
    );
}

/// The processor this thread runs on.
#[must_use]
#[inline]
pub fn processor() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut aux = 0u32;
        // SAFETY: every x86-64 processor that Linux runs on with TSC has RDTSCP; the kernel keeps
        // the number there (vdso getcpu reads it so).
        unsafe { core::arch::x86_64::__rdtscp(&raw mut aux) };
        u64::from(aux & 0xfff) + 1 + KERNEL.load(Ordering::Relaxed)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: asks the C library, which the shim does not replace here.
        u64::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
            + 1
            + KERNEL.load(Ordering::Relaxed)
    }
}

/// Does the other end, as far as it told, run on this processor too? Tells it where this end is.
pub fn together(endpoint: Endpoint<'_>) -> bool {
    let here = processor();
    // Under the lock: the channel may be left, and its page be another's by the time that this
    // thread runs again.
    if let Some(_held) = endpoint.slot().rx.lock.try_lock(endpoint.ticket()) {
        endpoint.incoming().reader_cpu().store(here, Ordering::Relaxed);
    }
    endpoint.outgoing().reader_cpu().load(Ordering::Relaxed) == here
}

/// Between two looks at memory that another processor is to change: the next one begins when this
/// one has come. Where many are under way at once and the line is taken away, the processor throws
/// all of them away and begins again, and the news comes later; a pause (`spin_loop`) is longer
/// than the whole way.
#[inline]
fn look_done() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2, which every x86-64 processor has.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    spin_loop();
}

pub use ginnel_tcp::order::ticks;

/// Is a spin worth its while, this time? Asked once for each.
pub fn pays(attachment: &Attachment, habit: &Habit) -> bool {
    attachment.node.spin_ns() != 0 && habit.worth_it() && !SPINNERS.are_there()
}

/// [`spin_on`], where it [`pays`].
pub fn spin(
    attachment: &Attachment,
    habit: &Habit,
    ready: impl Fn() -> bool,
    together: impl Fn() -> bool,
) -> bool {
    pays(attachment, habit) && spin_on(attachment, habit, ready, together)
}

/// So many looks come close upon each other before a spin pauses between them: half a microsecond,
/// in which what another processor of the same chip was asked for is here. A pause makes the news
/// wait.
const CLOSE_LOOKS: u32 = 120;

/// A spin that takes longer than this gives way now and then, nanoseconds: about what a sleep and a
/// wake-up take. (Longer ones are of virtual machines.)
const SHORT: u64 = 50_000;

/// Spins until `ready`, at most for the attachment's limit. `together`: does the other end run on
/// this processor? Then it is let run instead.
///
/// A short spin does not give way to anybody: where a third thread wants to run here, `sched_yield`
/// gives it all that is left of the turn, some milliseconds (`yield_task_fair` in the kernel).
pub fn spin_on(
    attachment: &Attachment,
    habit: &Habit,
    ready: impl Fn() -> bool,
    together: impl Fn() -> bool,
) -> bool {
    if !habit.was_together() {
        for _ in 0..CLOSE_LOOKS {
            if ready() {
                paid(habit);
                return true;
            }
            look_done();
        }
    }
    if together() {
        return let_run(habit, ready);
    }
    let begin = sys::monotonic_ns();
    let mut now = begin;
    let mut round = 0u32;
    while now < begin.saturating_add(attachment.node.spin_ns()) {
        for _ in 0..20 {
            if ready() {
                paid(habit);
                return true;
            }
            spin_loop();
        }
        round += 1;
        let gives_way = now > begin + SHORT && round.is_multiple_of(8) && !YIELDERS.are_there();
        if gives_way {
            sys::yield_now();
        }
        let before = now;
        now = sys::monotonic_ns();
        if now - before > AWAY {
            if gives_way {
                YIELDERS.met(now);
            }
            SPINNERS.met(now);
            let came = ready();
            habit.learn(came);
            return came;
        }
    }
    SPINNERS.gone();
    habit.learn(false);
    false
}

/// Looks until `ready`, for so many ticks at most, without giving way: for a call that need not
/// wait. `together`: who runs on this processor cannot say anything meanwhile.
pub fn for_a_moment(
    habit: &Habit,
    limit: u64,
    ready: impl Fn() -> bool,
    together: impl Fn() -> bool,
) -> bool {
    let begin = ticks();
    let mut waited = if together() { limit } else { 0 };
    let mut came = false;
    while !came && waited < limit {
        came = (0..20).any(|_| {
            let ready = ready();
            look_done();
            ready
        });
        waited = ticks().wrapping_sub(begin);
    }
    // As in a spin: another thread had the processor.
    if waited > limit.saturating_mul(100) {
        SPINNERS.met(sys::monotonic_ns());
    }
    habit.learn(came);
    came
}

/// The other end runs on this processor: lets it run, until `ready`. That takes half as long as to
/// sleep and be woken, unless a third thread wants to run here.
fn let_run(habit: &Habit, ready: impl Fn() -> bool) -> bool {
    const YIELDS: u32 = 8;
    if ready() {
        habit.learn_together(true);
        return true;
    }
    if YIELDERS.are_there() {
        // Nothing was tried, and nothing learnt: once the pause is over all are to try it at once,
        // not each some time.
        habit.meet_together();
        return false;
    }
    let mut came = false;
    let mut now = sys::monotonic_ns();
    for _ in 0..YIELDS {
        sys::yield_now();
        came = ready();
        let before = now;
        now = sys::monotonic_ns();
        if now - before > AWAY {
            YIELDERS.met(now);
            break;
        }
        if came {
            YIELDERS.not_met();
            break;
        }
    }
    habit.learn_together(came);
    came
}

/// A spin saw what it waited for.
#[inline]
fn paid(habit: &Habit) {
    habit.learn(true);
    SPINNERS.gone();
}

/// Longer than this between two looks at the clock, nanoseconds, and another thread has had the
/// processor: there are more that want to run than processors.
const AWAY: u64 = 400_000;

/// Others that want to run here, as far as this process found out: what to do without for a while,
/// each time that they are met again twice as long.
struct Others {
    until: AtomicU64,
    pause: AtomicU64,
    quick: AtomicU32,
    at_first: u64,
    at_most: u64,
    /// Do the pauses of all processes end together?
    in_step: bool,
}

/// Met by who spins, which then only loses its turn: a thread that slept is let run first. The
/// pause is shorter than the scheduler's turns: where pairs of processes share the processors, both
/// ends of one get to run at the same time as long as neither sleeps, and are then as fast as if
/// they were alone.
static SPINNERS: Others = Others::new(200_000, 3_000_000, false);
/// Met by who gave way, which costs some milliseconds each time: two percent of the time, at the
/// end.
///
/// Where several pairs share a processor, to give way is quick for each while all do so, and costs
/// those a turn who do it while others sleep and are woken. So they try it again at the same
/// moments: the clock's multiples of the pause, which is a power of two of the first.
static YIELDERS: Others = Others::new(1_000_000, 256_000_000, true);

impl Others {
    /// Pauses, nanoseconds: the first, the longest.
    const fn new(at_first: u64, at_most: u64, in_step: bool) -> Self {
        Self {
            until: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            quick: AtomicU32::new(0),
            at_first,
            at_most,
            in_step,
        }
    }

    /// Were they met lately?
    #[inline]
    fn are_there(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && self.are_there_still(until)
    }

    /// Is it before `until`? Once it is not, the clock is asked no more.
    #[cold]
    fn are_there_still(&self, until: u64) -> bool {
        let still = sys::monotonic_ns() < until;
        if !still {
            // (Where they were met again meanwhile, that stands.)
            let _ = self.until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        still
    }

    /// They had the processor, until `now`.
    #[cold]
    fn met(&self, now: u64) {
        let pause = (self.pause.load(Ordering::Relaxed) * 2).clamp(self.at_first, self.at_most);
        self.pause.store(pause, Ordering::Relaxed);
        // Half of it at least: a turn may be lost for as long as a pause is.
        let until =
            if self.in_step { (now + pause / 2).next_multiple_of(pause) } else { now + pause };
        self.until.store(until, Ordering::Relaxed);
        self.quick.store(0, Ordering::Relaxed);
    }

    /// They are gone.
    #[inline]
    fn gone(&self) {
        if self.pause.load(Ordering::Relaxed) != 0 {
            self.pause.store(0, Ordering::Relaxed);
        }
    }

    /// They were not met. After so many times they are gone: a third thread does not take each
    /// turn.
    #[inline]
    fn not_met(&self) {
        const QUICK: u32 = 64;
        if self.pause.load(Ordering::Relaxed) != 0
            && self.quick.fetch_add(1, Ordering::Relaxed) >= QUICK
        {
            self.pause.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
