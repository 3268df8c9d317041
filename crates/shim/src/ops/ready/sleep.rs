//! How poll and select sleep: what they ask of writers and readers, the kernel's own sleep, and
//! what is taken back after it.

use super::{Few, IN, OUT, Special, shared_memory, special};
use crate::deadline::{self, Deadline};
use crate::ops::limits;
use crate::pool::{self, Borrowed};
use crate::{next, sets};
use ginnel_ring::park::Want;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::Stage;
use libc::{pollfd, sigset_t, timespec};

pub(super) enum Slept {
    Again,
    TimedOut,
}

/// # Safety
/// `mask` is null or a signal mask.
pub(super) unsafe fn sleep(
    wanted: &[pollfd],
    asked: &mut Few<pollfd>,
    attachment: &'static ginnel_tcp::Attachment,
    end: Deadline,
    mask: *const sigset_t,
) -> Result<Slept, i32> {
    // The kernel takes no more entries than the process may have descriptors: then without a FIFO
    // of ours beside the program's.
    let waiter =
        if wanted.len() + LINES < most_entries() { pool::borrow(attachment) } else { None };
    let mut armed =
        Armed { ends: Few::new(), lines: Few::new(), quiet: true, limit: deadline::remaining(end) };
    asked.clear();
    for entry in wanted {
        let events = armed.arm(entry, waiter.as_ref());
        asked.push(pollfd { fd: entry.fd, events, revents: 0 });
    }
    if let Some(waiter) = &waiter {
        waiter.sleeping();
        armed.lines.iter().for_each(pool::Line::sleeping);
        armed.quiet &= waiter.is_fit();
        let beside = core::iter::once(waiter.fifo()).chain(armed.lines.iter().map(pool::Line::fd));
        asked.extend(beside.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 }));
    }
    let mut got = Ok(1);
    if armed.quiet && !armed.has_news(waiter.as_ref()) {
        let limit = armed.limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: `asked` is ours; a cancellation point, as the program's own call.
        let n =
            unsafe { next::ppoll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, limit, mask) };
        got = if n < 0 { Err(next::errno()) } else { Ok(n) };
    }
    armed.awake(waiter.as_ref(), asked.get(wanted.len()..).unwrap_or_default());
    match got? {
        // Whatever the kernel said, which may mean nothing, and for ever.
        _ if deadline::is_over(end) => Ok(Slept::TimedOut),
        _ => Ok(Slept::Again),
    }
}

/// What a sleep has asked others for.
struct Armed {
    ends: Few<Arm>,
    lines: Few<pool::Line>,
    /// Everything is armed, and nothing was there.
    quiet: bool,
    /// After so long it looks again.
    limit: Option<timespec>,
}

/// An end, what it was asked for, and whether that is room.
type Arm = (Endpoint<'static>, Want, bool);

/// Has that come?
fn has_come((endpoint, _, space): &Arm) -> bool {
    shared_memory(*endpoint, if *space { OUT } else { IN }) != 0
}

impl Armed {
    /// Asks for what an entry waits for. Returns what the kernel is to look for.
    fn arm(&mut self, entry: &pollfd, waiter: Option<&Borrowed>) -> i16 {
        match special(entry.fd) {
            Some(Special::Socket(endpoint))
                if matches!(endpoint.slot().stage(), Stage::Settling | Stage::Active) =>
            {
                return self.arm_socket(entry.events, endpoint, waiter);
            }
            Some(Special::Set(set)) => {
                if !sets::arm_for_kernel(set) {
                    self.quiet = false;
                } else if sets::waits_for_room(set) {
                    self.limit = sooner(self.limit, 10_000_000);
                }
            }
            _ => {}
        }
        entry.events
    }

    /// Likewise of a socket.
    fn arm_socket(
        &mut self,
        events: i16,
        endpoint: Endpoint<'static>,
        waiter: Option<&Borrowed>,
    ) -> i16 {
        let want = wish(endpoint, waiter, &mut self.lines);
        if events & IN != 0 {
            // Also while TCP carries: another who sleeps there may throw away the token by which a
            // ring begins, and is then not to be woken alone. Taken back also where there was
            // something: the next who sleeps there is to be the only one.
            self.quiet &= endpoint.arm_data(want).is_some();
            self.ends.push((endpoint, want, false));
        }
        let active = endpoint.slot().stage() == Stage::Active;
        if events & OUT == 0 || !active || !endpoint.tx_in_ring() {
            return events;
        }
        match endpoint.arm_space(want) {
            Some(now) => {
                self.ends.push((endpoint, want, true));
                // Unread bytes may hide a token, another thread may throw it away, and the reader
                // may have gone over to TCP: look again soon.
                let soon = match now {
                    Want::Token if events & IN == 0 => 1_000_000,
                    Want::Token => 10_000_000,
                    _ => 20_000_000,
                };
                self.limit = sooner(self.limit, soon);
            }
            None => self.quiet = false,
        }
        events & !OUT
    }

    /// Has anything come that was asked for?
    fn has_news(&self, waiter: Option<&Borrowed>) -> bool {
        self.ends.iter().any(has_come)
            || waiter.is_some_and(Borrowed::any)
            || self.lines.iter().any(pool::Line::any)
    }

    /// Takes back what was asked for. `beside`: what the kernel says of the FIFO and the lines.
    fn awake(self, waiter: Option<&Borrowed>, beside: &[pollfd]) {
        let told = |place: usize| beside.get(place).map_or(0, |beside| beside.revents);
        for (line, place) in self.lines.iter().zip(1..) {
            let has_news = |arm: &Arm| line.is_of(arm.0.joined()) && has_come(arm);
            line.awake(told(place), self.ends.iter().any(has_news));
        }
        if let Some(waiter) = waiter {
            waiter.awake([told(0), 0], true);
        }
        let current = waiter.is_some_and(Borrowed::is_current);
        for (endpoint, want, space) in self.ends {
            match want {
                Want::Token if !space => endpoint.woken_by_kernel(),
                Want::Token => {}
                _ if !current => {}
                _ if space => endpoint.disarm_space(want),
                _ => endpoint.disarm_data(want),
            }
        }
    }
}

/// How many entries `poll` takes at most.
pub(super) fn most_entries() -> usize {
    usize::try_from(limits::present(libc::RLIMIT_NOFILE as _)).unwrap_or(usize::MAX)
}

/// The limit, or `ns` nanoseconds (less than a second) where that is sooner.
pub(super) fn sooner(limit: Option<timespec>, ns: i64) -> Option<timespec> {
    Some(deadline::sooner(limit, timespec { tv_sec: 0, tv_nsec: ns }))
}

/// How many pairs' lines one call takes at most.
const LINES: usize = 16;

fn wish(
    endpoint: Endpoint<'static>,
    waiter: Option<&Borrowed>,
    lines: &mut Few<pool::Line>,
) -> Want {
    let registered = sets::registered(endpoint.index());
    let shared = registered || endpoint.wakes_by_token();
    match waiter {
        Some(waiter) if !shared && endpoint.is_in_pair() => {
            let pair = endpoint.joined();
            if !lines.iter().any(|line| line.is_of(pair)) && lines.len() < LINES {
                lines.extend(waiter.take_line(pair));
            }
            lines.iter().find(|line| line.is_of(pair)).map_or(Want::Token, pool::Line::want)
        }
        Some(waiter) if !shared => waiter.want(),
        _ => Want::Token,
    }
}
