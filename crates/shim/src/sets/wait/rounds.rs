//! The rounds of a wait that may find something in rings: look there, ask the kernel, spin, sleep.

use super::sleep;
use crate::deadline::{self, Deadline};
use crate::moment::Moment;
use crate::sets::collect::{Pass, beside_kernel, collect, collect_due, only};
use crate::sets::hot::{spin_hot, switching};
use crate::sets::look::look;
use crate::sets::room::heat_masked;
use crate::sets::told::NONE_BEFORE;
use crate::sets::{Set, late, shared};
use crate::spin;
use core::sync::atomic::Ordering;
use ginnel_tcp::Attachment;
use libc::{c_int, epoll_event, sigset_t};

/// So often a wait begins anew since other processes changed what is registered meanwhile.
const OUTDATED: u32 = 16;

/// Fills `room` with what there is to report, however long that takes. 0: nothing in time.
///
/// # Safety
/// `mask` is null or a signal mask.
pub(in crate::sets) unsafe fn until_ready(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
    at_once: bool,
    end: Deadline,
    mask: *const sigset_t,
) -> Result<usize, i32> {
    let (mut asked, mut outdated, mut switch) = (false, 0, Moment::default());
    loop {
        late::give_way();
        shared::look_before_wait(set, epfd);
        // Nothing here can be in a ring. But another thread may add what is, while this one sleeps.
        if !set.holds_any() && !at_once {
            // SAFETY: the caller's promise.
            match unsafe { sleep(set, attachment, epfd, room, end, mask) }? {
                Some(n) => return Ok(n),
                None => continue,
            }
        }
        heat_masked(set);
        let Pass { n: ready, hot, recent, reserved, number } =
            collect(set, attachment, epfd, room, core::mem::take(&mut asked));
        if set.cold.load(Ordering::Relaxed) == hot {
            set.cold.store(!hot, Ordering::Relaxed);
        }
        if ready > 0 {
            return Ok(with_the_kernels(set, epfd, room, (ready, recent), number));
        }
        if room.len() == 1 && reserved {
            // The only place was kept free for the kernel.
            match look(set, epfd, room, NONE_BEFORE)? {
                0 => asked = true,
                n => return Ok(n),
            }
            continue;
        }
        if shared::is_behind(set) && outdated < OUTDATED {
            outdated += 1;
            continue;
        }
        let spins = hot && !at_once && spin::pays(attachment, &set.habit);
        if spins && recent && spin_hot(set, attachment) {
            match only(set, attachment, epfd, room) {
                // What a spin takes for news and a pass does not, as spoilt memory may be, is
                // looked at until the time is up.
                0 if deadline::is_over(end) => {}
                0 => continue,
                n => return Ok(n),
            }
        }
        // A sleep begins with a look of the kernel's own. But who sleeps arms every ring for it,
        // and is rung, or sent tokens, for nothing where it does not come to that.
        if at_once || spins && !recent || hot && set.lively.load(Ordering::Relaxed) {
            let n = look_first(set, epfd, room, hot, number)?;
            if n == 0 && at_once && hot && comes_again(set, &mut switch) {
                continue;
            }
            if n == 0 && at_once {
                // SAFETY: the caller's promise.
                unsafe { deadline::let_signals_in(mask) }?;
            }
            if n > 0 || at_once {
                return Ok(n);
            }
        }
        if spins && !recent && spin_hot(set, attachment) && !deadline::is_over(end) {
            continue;
        }
        // SAFETY: the caller's promise.
        if let Some(n) = unsafe { sleep(set, attachment, epfd, room, end, mask) }? {
            return Ok(n);
        }
        if deadline::is_over(end) {
            return last_look(set, attachment, epfd, room);
        }
    }
}

/// The time is over.
fn last_look(
    set: &Set,
    attachment: &'static Attachment,
    epfd: c_int,
    room: &mut [epoll_event],
) -> Result<usize, i32> {
    match collect(set, attachment, epfd, room, true).n {
        0 => look(set, epfd, room, NONE_BEFORE),
        n => Ok(n),
    }
}

/// Is a wait that does not sleep, and has found nothing, to look again, since bytes are just
/// changing carriers?
fn comes_again(set: &Set, switch: &mut Moment) -> bool {
    switching(set).is_some_and(|endpoint| switch.passes(endpoint))
}

/// Behind `ready` events of rings, what the kernel has to tell, if it was not asked recently, and
/// what is due then.
fn with_the_kernels(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    (ready, recent): (usize, bool),
    number: u64,
) -> usize {
    if ready == room.len() || recent {
        return ready;
    }
    let n = look(set, epfd, room, (ready, number)).unwrap_or(ready);
    let n = beside_kernel(set, epfd, room, ready, n, number);
    if n < room.len() { collect_due(set, epfd, room, n, number) } else { n }
}

/// What the kernel has to tell where no ring has anything. `hot`: beside what rings have by then.
fn look_first(
    set: &Set,
    epfd: c_int,
    room: &mut [epoll_event],
    hot: bool,
    number: u64,
) -> Result<usize, i32> {
    let before = if hot { (0, number) } else { NONE_BEFORE };
    let n = look(set, epfd, room, before)?;
    Ok(if hot { beside_kernel(set, epfd, room, 0, n, number) } else { n })
}
