//! Whether TCP still gets through. A ring must not outlive the permission that the network gave:
//! when a rule or a cut link would have stalled TCP, what is written goes to TCP, and stalls.
//!
//! The kernel asks, by keepalive: its probes are no bytes of the stream, so nothing that is counted
//! changes. They are sent only while rings carry bytes. For that time the shim's settings stand in
//! the kernel instead of the program's (`Stand`), which the slot keeps and which `getsockopt` goes
//! on to show. The service thread looks at the answers ([`Endpoint::check_path`]); nothing here is
//! on the way of a byte.
//!
//! An end that finds the path cut says so in its own slot and, for the other end's writer, in the
//! gate of the direction that it reads. Nothing is sent for that: a direction leaves its ring with
//! the next byte that is written, as on TCP nothing would be in flight before. So a connection on
//! which nobody writes outlives the cut, as it would on TCP. A writer that goes on all the same is
//! frozen.

use crate::endpoint::Endpoint;
use crate::kernel::{self, Path};
use crate::layout::{GATE_CUT, GATE_HOLD};
use crate::ledger::{Reason, Slot, Stage, flag};
use ginnel_region::sys;
use libc::c_int;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// After how much silence on TCP the kernel is to ask, seconds.
const IDLE: c_int = 2;
/// Seconds between two probes of the kernel's own. Long: the service thread asks for more probes
/// where one is not answered, and where there is no such thread any more, 127 of these are hours.
const INTERVAL: c_int = 60;
/// How many unanswered probes end a connection: as many as can be said.
const COUNT: c_int = 127;
/// Silence that is no sign of anything while rings carry bytes, milliseconds.
const QUIET: u32 = 1500;
/// So long nothing was heard where a path counts as cut, milliseconds: the first probe, and time
/// for its answer and that of others.
const SILENCE: u32 = 2500;
/// So many probes were not answered by then …
const UNANSWERED: u8 = 3;
/// … or so many sendings of the same bytes.
const UNACKNOWLEDGED: u8 = 2;
/// Where the path is cut, so many unanswered probes are asked for soon, the pause between two of
/// them doubling; further ones the kernel sends by itself, [`INTERVAL`] apart …
const HURRIED: u8 = 6;
/// … and none are sent after so many, well before they would end the connection.
const WEARY: u8 = 100;
/// So long before the program's own keepalive begins to ask, no other probes are sent where the
/// path is cut, milliseconds.
const OWN_TURN: u32 = 5000;

/// The socket options that are not always the program's.
const OPTIONS: [(c_int, c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];
/// The largest values that setsockopt takes of those (`include/net/tcp.h`: MAX_TCP_KEEPIDLE,
/// MAX_TCP_KEEPINTVL, MAX_TCP_KEEPCNT).
const LARGEST: [c_int; 5] = [1, 32767, 32767, 127, c_int::MAX];

/// When to look at a path again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Next {
    /// When rings carry bytes again.
    #[default]
    Idle,
    /// In a second or so.
    Watched,
    /// Soon: a probe is not answered yet. One that a kernel dropped, whose queues are full for a
    /// moment, is to be followed by others before that means anything.
    Doubted,
}

/// Is it an option that the path's check uses?
#[must_use]
pub fn is_option(level: c_int, name: c_int) -> bool {
    OPTIONS.contains(&(level, name))
}

/// What stands in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// The program's settings.
    Program,
    /// The shim's: probes soon, and no end however many are unanswered. Also where the path is cut
    /// and nothing is in flight: only a probe can tell then that it is mended.
    Probing,
    /// The path is cut, and TCP has bytes to send, or the program's probes have their turn: the
    /// program's, but for the probes that the shim's settings have used up.
    Resting,
}

/// Values of [`OPTIONS`].
type Values = [c_int; 5];

fn read(fd: c_int) -> sys::Result<Values> {
    let mut values = [0; 5];
    for (value, (level, name)) in values.iter_mut().zip(OPTIONS) {
        kernel::getsockopt(fd, level, name, value)?;
    }
    values[0] = c_int::from(values[0] != 0);
    Ok(values)
}

/// Sets what is to be different. SO_KEEPALIVE comes last where it begins, so that the first probe
/// goes by the new times, and first where it ends.
fn write(fd: c_int, values: Values) {
    let order = if values[0] == 0 { [0, 1, 2, 3, 4] } else { [4, 3, 2, 0, 1] };
    for index in order {
        if let (Some((level, name)), Some(value)) = (OPTIONS.get(index), values.get(index)) {
            let _ = kernel::setsockopt(fd, *level, *name, value);
        }
    }
}

/// The program's values as they lie in the slot.
fn kept(slot: &Slot) -> (Stand, Values) {
    let word = slot.keepalive.load(SeqCst);
    let stand = match word & 3 {
        0 => Stand::Program,
        1 => Stand::Probing,
        _ => Stand::Resting,
    };
    let part = |shift: u32| (word >> shift & 0x7fff) as c_int;
    (stand, [part(2) & 1, part(4), part(20), part(36), slot.user_timeout.load(Relaxed) as c_int])
}

/// Before the kernel is told: whoever dies in between leaves a word that says what to restore.
fn keep(slot: &Slot, stand: Stand, values: Values) {
    let part = |index: usize, shift: u32| {
        u64::from(values.get(index).copied().unwrap_or(0).unsigned_abs()) << shift
    };
    let stand = match stand {
        Stand::Program => return slot.keepalive.store(0, SeqCst),
        Stand::Probing => 1,
        Stand::Resting => 2,
    };
    slot.user_timeout.store(part(4, 0), Relaxed);
    slot.keepalive.store(stand | part(0, 2) | part(1, 4) | part(2, 20) | part(3, 36), SeqCst);
}

impl Path {
    /// Did TCP ask, and hear nothing?
    fn is_cut(self) -> bool {
        self.silent >= SILENCE && (self.probes >= UNANSWERED || self.retransmits >= UNACKNOWLEDGED)
    }
}

impl Endpoint<'_> {
    /// Did either end find the path cut?
    pub(crate) fn is_cut(self) -> bool {
        self.slot().has(flag::CUT) || self.outgoing().cut()
    }

    /// Is there anything for [`Self::check_path`] to do, where no ring has carried bytes since the
    /// last look?
    #[must_use]
    pub fn path_in_question(self) -> bool {
        self.slot().keepalive.load(Relaxed) != 0 || self.slot().has(flag::CUT)
    }

    /// A look at the path. `moved`: rings carried bytes not long ago. Returns when the next is due.
    ///
    /// `asks`: how many probes the caller may still have sent now; each that this look asks for is
    /// taken from it. The probes of thousands of connections at one moment would be more than the
    /// kernel's queue for a network device's packets takes (`net.core.netdev_max_backlog`): it
    /// drops the rest, and what was not asked is not answered.
    pub fn check_path(self, moved: bool, asks: &mut u32) -> Next {
        let slot = self.slot();
        if slot.stage() != Stage::Active {
            return Next::Idle;
        }
        if slot.has(flag::HOLD) {
            // No ring carries anything, for good.
            if let (true, Some(_held)) =
                (self.path_in_question(), slot.tx.lock.try_lock(self.ticket()))
            {
                self.restore_options();
                self.incoming().gate().fetch_and(!GATE_CUT, SeqCst);
                slot.set(flag::CUT, false);
            }
            return Next::Idle;
        }
        let Ok(path) = kernel::path(self.fd()) else { return Next::Idle };
        let stand = kept(slot).0;
        let now = sys::monotonic_ns() / 1_000_000;
        if slot.has(flag::CUT) {
            if now.saturating_sub(u64::from(path.silent)) > slot.cut_at.load(Relaxed) {
                self.path_is_open();
            } else if self.rx_in_ring()
                && self.incoming().tail().load(Relaxed) != slot.cut_tail.load(Relaxed)
            {
                // A writer that does not look at the gate, or did not see it in time: what it
                // writes is not read.
                self.request_downgrade();
            } else {
                self.ask_while_cut(path, asks);
            }
            return Next::Watched;
        }
        if path.is_cut() {
            self.path_is_cut(now);
            return Next::Watched;
        }
        if stand == Stand::Program {
            if moved && path.silent > QUIET && *asks != 0 {
                *asks -= 1;
                self.ask_kernel_to_probe();
            }
            return if moved { Next::Watched } else { Next::Idle };
        }
        if !moved && path.probes == 0 {
            if let Some(_held) = slot.tx.lock.try_lock(self.ticket()) {
                self.restore_options();
            }
        } else if (path.probes != 0 || path.silent > QUIET) && *asks != 0 {
            // Not answered yet; or it was, and the kernel would ask again only after [`INTERVAL`].
            *asks -= 1;
            self.ask_at_once();
        }
        if path.probes == 0 { Next::Watched } else { Next::Doubted }
    }

    /// Where the shim's settings stand and TCP has been silent: setting the time again makes the
    /// kernel send a probe now, or after [`IDLE`] of silence.
    fn ask_at_once(self) {
        let _ = kernel::setsockopt(self.fd(), libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &IDLE);
    }

    /// The path is cut, and was not heard of since. Bytes in flight ask by themselves; where there
    /// are none, nothing would ever tell that it is mended.
    fn ask_while_cut(self, path: Path, asks: &mut u32) {
        let (stand, own) = kept(self.slot());
        // The program's own probes are to find what they would have found: the connection ends by
        // them where it says so.
        let own_turn = own[0] != 0
            && path.silent.saturating_add(OWN_TURN) >= own[1].unsigned_abs().saturating_mul(1000);
        let rests = kernel::unacknowledged(self.fd()) != 0 || own_turn || path.probes >= WEARY;
        let pause = 1000u32.checked_shl(path.probes.into()).unwrap_or(u32::MAX);
        let due = path.probes < HURRIED && path.silent >= pause && *asks != 0;
        match stand {
            Stand::Probing if rests => {
                if let Some(_held) = self.slot().tx.lock.try_lock(self.ticket()) {
                    self.rest();
                }
            }
            Stand::Probing if due => {
                *asks -= 1;
                self.ask_at_once();
            }
            Stand::Resting if due && !rests => {
                let Some(_held) = self.slot().tx.lock.try_lock(self.ticket()) else { return };
                if kept(self.slot()) == (Stand::Resting, own) {
                    *asks -= 1;
                    keep(self.slot(), Stand::Probing, own);
                    write(self.fd(), [1, IDLE, INTERVAL, COUNT, 0]);
                    self.ask_at_once();
                }
            }
            // With the program's settings it was cut by what TCP itself had to say.
            _ => {}
        }
    }

    /// Rings carry bytes, and TCP has been silent: keepalive is to ask.
    fn ask_kernel_to_probe(self) {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return };
        if slot.has(flag::LEAVING) || slot.stage() != Stage::Active {
            return;
        }
        let Ok(own) = read(self.fd()) else { return };
        let foreign =
            own.iter().zip(LARGEST).any(|(&value, largest)| !(0..=largest).contains(&value));
        // Where the program has both, an unanswered probe would count for its TCP_USER_TIMEOUT: its
        // own probes must do.
        if kept(slot).0 != Stand::Program || foreign || own[0] != 0 && own[4] != 0 {
            return;
        }
        keep(slot, Stand::Probing, own);
        write(self.fd(), [1, IDLE, INTERVAL, COUNT, 0]);
    }

    fn path_is_cut(self, now: u64) {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return };
        if slot.has(flag::HOLD | flag::LEAVING) || slot.stage() != Stage::Active {
            return;
        }
        slot.cut_at.store(now, Relaxed);
        slot.set_reason(Reason::PathCut);
        slot.set(flag::CUT, true);
        // The other end's writer looks at it before each byte.
        self.incoming().gate().fetch_or(GATE_HOLD | GATE_CUT, SeqCst);
        slot.cut_tail.store(self.incoming().tail().load(Relaxed), Relaxed);
        self.rest();
    }

    /// TCP was answered since.
    fn path_is_open(self) {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return };
        let gate = self.incoming().gate();
        gate.fetch_and(!(GATE_HOLD | GATE_CUT), SeqCst);
        if slot.has(flag::HOLD | flag::LEAVING) {
            // Held for good meanwhile, or on its way out.
            gate.fetch_or(GATE_HOLD, SeqCst);
        }
        slot.set(flag::CUT, false);
        if slot.reason() == Reason::PathCut {
            slot.set_reason(Reason::None);
        }
        self.restore_options();
    }

    /// From here on TCP is to do what the program asked for: also to give up after as many probes
    /// of its own as it said.
    fn rest(self) {
        let (stand, own) = kept(self.slot());
        if stand == Stand::Program {
            return;
        }
        let used = kernel::path(self.fd()).map_or(0, |path| c_int::from(path.probes));
        keep(self.slot(), Stand::Resting, own);
        let mut values = own;
        values[3] = (own[3] + used).min(COUNT);
        write(self.fd(), values);
    }

    /// The program's settings stand in the kernel again. Under the send lock.
    pub(crate) fn restore_options(self) {
        let (stand, own) = kept(self.slot());
        if stand != Stand::Program {
            write(self.fd(), own);
            keep(self.slot(), Stand::Program, own);
        }
    }

    /// This process is done with the socket, and others are not: nobody may be left to look after
    /// the kernel's settings.
    pub fn leave_options(self) {
        if self.slot().keepalive.load(Relaxed) != 0 {
            let _held = self.send_lock();
            self.restore_options();
        }
    }

    /// [`Self::leave_options`] at a point where this very thread may hold the lock already.
    pub fn leave_options_if_free(self) {
        if let (true, Some(_held)) =
            (self.slot().keepalive.load(Relaxed) != 0, self.slot().tx.lock.try_lock(self.ticket()))
        {
            self.restore_options();
        }
    }

    /// The program's value of one of the options ([`is_option`]).
    ///
    /// # Errors
    /// The `errno`.
    pub fn own_option(self, level: c_int, name: c_int) -> sys::Result<c_int> {
        let _held = self.send_lock();
        let (stand, own) = kept(self.slot());
        if stand == Stand::Program {
            let mut value = 0;
            kernel::getsockopt(self.fd(), level, name, &mut value)?;
            return Ok(value);
        }
        let found = OPTIONS.iter().zip(own).find(|(option, _)| **option == (level, name));
        found.map(|(_, value)| value).ok_or(libc::ENOPROTOOPT)
    }

    /// Runs the program's `setsockopt` of such an option, with its own settings in the kernel.
    pub fn with_own_options<T>(self, call: impl FnOnce() -> T) -> T {
        let _held = self.send_lock();
        let stand = kept(self.slot()).0;
        let resting =
            stand == Stand::Resting || stand == Stand::Probing && self.slot().has(flag::CUT);
        self.restore_options();
        let result = call();
        if let (true, Ok(own)) = (resting, read(self.fd())) {
            keep(self.slot(), Stand::Resting, own);
            self.rest();
        }
        result
    }
}

#[cfg(test)]
mod tests;
