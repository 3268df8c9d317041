//! One registration, and what the kernel is told of it.

use super::collect::OUT;
use super::{Inner, Set, late, local, local_bits, shared, turn};
use crate::fds::{self, Entry};
use crate::runtime;
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::Endpoint;
use ginnel_tcp::ledger::{Slot, TOLD};
use libc::{c_int, epoll_event};

/// One registration.
pub(super) struct Registration {
    pub(super) fd: c_int,
    pub(super) slot: Option<u32>,
    /// What the program asked for.
    pub(super) events: u32,
    pub(super) data: u64,
    /// What the kernel returns with its events: `data`, or a tag where another registration of the
    /// set has the same data (see [`super::tag`]).
    pub(super) known: u64,
    /// Not a TCP socket: kept only to tell it from one that is.
    pub(super) plain: bool,
    /// Another process has what is registered, perhaps: there was a fork since.
    pub(super) lent: bool,
    /// What is told of its edges is known to all of them: see [`Registration::lend`].
    pub(super) in_common: bool,
    /// It was a TCP socket whose number is closed here, and that another process has.
    pub(super) outlived: bool,
    /// It is an inner set, of this number.
    pub(super) inner_set: Option<u32>,
    /// Of an inner set: which of its edges were told of, or passed over; and which are counted among
    /// those of the set that it is in.
    pub(super) seen_edges: Edges,
    pub(super) noted_inside: Edges,
    /// The set's witness has it.
    pub(super) witnessed: bool,
    pub(super) used: bool,
    /// EPOLLONESHOT fired …
    pub(super) disabled: bool,
    /// … for bytes in a ring.
    pub(super) shot: bool,
    /// As often it was armed by then, where several processes have the set.
    pub(super) arming: u32,
    /// The kernel has the registration.
    pub(super) in_kernel: bool,
    /// EPOLLOUT is taken out of the kernel's interest.
    pub(super) masked: bool,
    /// EPOLLOUT is put into it, so that the kernel reports the socket at once.
    pub(super) loud: bool,
    pub(super) hot: bool,
    /// Waits in vain since it last had something.
    pub(super) idle: u32,
    /// Edge-triggered: what was reported of the ring (of an inner set: of its arrivals) …
    pub(super) seen: u64,
    /// … what [`Slot::dry`](ginnel_tcp::ledger::Slot::dry) was then …
    pub(super) dry: u64,
    /// What of the ring (or of an inner set) is counted among the set's arrivals: see
    /// [`super::inside`]; and what `dry` was then.
    pub(super) noted: u64,
    pub(super) noted_dry: u64,
    /// The same of the end, of edges of the program's own making, and of room that is to be told
    /// of.
    pub(super) noted_ends: u32,
    pub(super) noted_edges: u32,
    pub(super) noted_room: bool,
    pub(super) noted_urgent: bool,
    /// As many wake-ups had come over TCP by then.
    pub(super) noted_tokens: u64,
    /// Edge-triggered, once this end has shut its own direction: the same, when it was told of
    /// last.
    pub(super) told_tokens: u64,
    /// Edge-triggered, while TCP carried: so much had come when it was told of last, where it may
    /// be told anew for a purpose of this library's.
    pub(super) told_by_tcp: Option<u64>,
    /// What of the end it was told of, as [`super::edges::held`] has it.
    pub(super) ended: u32,
    /// For what it was rung last by a pair's line: see [`super::doors`].
    pub(super) rung: u64,
    /// The kernel was told of it for a purpose of this library's, and makes an edge of that.
    pub(super) retold: bool,
    /// The same, as far as nobody has asked who waits on a set that this one is in.
    pub(super) retold_outside: bool,
    /// As many edges of the program's own making are known: see [`super::edge`].
    pub(super) edges: u32,
    /// Edge-triggered: room for what is sent may be news yet.
    pub(super) room: bool,
    pub(super) turn: turn::Turn,
    /// Which pass reported it last, and at which place of the program's.
    pub(super) reported: (u64, u32),
    /// What the kernel has of it, where it was not told of the last change: see [`super::late`].
    pub(super) late: Option<late::Told>,
    /// Is it in the set's list of these?
    pub(super) listed: bool,
    /// In a set that several processes have: as many changes of the slot's registrations are known
    /// here.
    pub(super) changes: u32,
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            fd: -1,
            slot: None,
            events: 0,
            data: 0,
            known: 0,
            plain: false,
            lent: false,
            in_common: false,
            outlived: false,
            inner_set: None,
            seen_edges: Edges::default(),
            noted_inside: Edges::default(),
            witnessed: false,
            used: false,
            disabled: false,
            shot: false,
            arming: 0,
            in_kernel: false,
            masked: false,
            loud: false,
            hot: false,
            idle: 0,
            seen: u64::MAX,
            dry: 0,
            noted: u64::MAX,
            noted_dry: 0,
            noted_ends: 0,
            noted_edges: 0,
            noted_room: false,
            noted_urgent: false,
            noted_tokens: 0,
            told_tokens: 0,
            told_by_tcp: None,
            rung: u64::MAX,
            ended: 0,
            retold: false,
            retold_outside: false,
            edges: 0,
            room: true,
            turn: turn::Turn::default(),
            reported: (0, 0),
            late: None,
            listed: false,
            changes: 0,
        }
    }
}

/// What is counted of an inner set's edges, as far as somebody looked.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Edges {
    /// So often there were some of the kernel's own (see [`super::witness`]) …
    pub(super) own: u64,
    /// … and so often some that wake-ups of this library's explain.
    pub(super) woken: u64,
}

/// Does one who was `told` of a [key](super::edges::key) know all that another stands for?
pub(super) fn is_told(told: u64, key: u64) -> bool {
    told != u64::MAX && told == key
}

impl Registration {
    pub(super) fn wants(&self, event: c_int) -> bool {
        self.events & event as u32 != 0
    }

    /// Level-triggered, and asked for bytes alone: while its connection goes on, those in its ring
    /// are all that there is to tell.
    pub(super) fn tells_bytes_alone(&self) -> bool {
        let more = (libc::EPOLLET | libc::EPOLLONESHOT) as u32 | OUT;
        self.events & more == 0 && !self.masked && !self.in_common
    }

    /// What the program may be told: what it asked for, and errors, which it need not ask for.
    pub(super) fn asked(&self) -> u32 {
        self.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32
    }

    /// It is of this slot's socket.
    pub(super) fn link(&mut self, slot: u32) {
        self.slot = Some(slot);
        self.edges = self.edges_made();
        let writes = if self.wants(libc::EPOLLOUT) { local::WRITES } else { 0 };
        local_bits(slot, local::REGISTERED | writes, 0);
    }

    /// It was told of, and is armed once. `shot`: for bytes in a ring, or of what the kernel is yet
    /// to be told.
    pub(super) fn spend(&mut self, shot: bool) {
        self.disabled = true;
        self.shot |= shot;
        self.arming = self.armings();
    }

    /// What was told of it comes anew: it was changed, or only looked at.
    pub(super) fn forget_told(&mut self) {
        self.forget_told_here();
        if let Some(slot) = self.common() {
            slot.told.store(0, Ordering::Release);
        }
    }

    /// The same, of what this process was told of alone.
    pub(super) fn forget_told_here(&mut self) {
        (self.seen, self.noted, self.ended, self.room) = (u64::MAX, u64::MAX, 0, true);
        (self.noted_ends, self.noted_room, self.told_by_tcp) = (0, false, None);
        self.edges = self.edges_made();
    }

    /// Of which [key](super::edges::key) the program was told last; `u64::MAX`: of none. Where
    /// other processes have the set, one of them may have been told.
    pub(super) fn told(&self) -> u64 {
        let Some(slot) = self.common() else { return self.seen };
        let told = slot.told.load(Ordering::Acquire);
        if told & TOLD == 0 { u64::MAX } else { told & !TOLD }
    }

    /// Edge-triggered: was all told of that this key stands for? A switch alone brings no byte.
    pub(super) fn was_told(&self, key: u64) -> bool {
        is_told(self.told(), key)
    }

    /// The program is told of this key.
    pub(super) fn tell(&mut self, key: u64) {
        self.seen = key;
        if self.wants(libc::EPOLLET) {
            self.dry = self.entry().map_or(0, |slot| slot.dry.load(Ordering::Relaxed));
        }
        if let Some(slot) = self.common() {
            slot.told.store(key | TOLD, Ordering::Release);
        }
    }

    /// This key is counted among the set's arrivals. Returns what was before.
    pub(super) fn note_come(&mut self, key: u64) -> u64 {
        self.noted_dry = self.entry().map_or(0, |slot| slot.dry.load(Ordering::Relaxed));
        core::mem::replace(&mut self.noted, key)
    }

    /// Another process has what is registered, or is to have it: it is to know what the program was
    /// told of.
    pub(super) fn lend(&mut self, set: &Set) {
        let first = !core::mem::replace(&mut self.lent, true);
        if first && let Some(slot) = self.entry() {
            let name = u64::from(set.maker.load(Ordering::Relaxed)) << 32
                | u64::from(set.number & 0xfff) << 20
                | u64::from(self.fd.cast_unsigned() & 0xf_ffff);
            let other = slot.told_of.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
            self.in_common = other.is_ok();
            match other {
                // One word is for one registration: where there are several, each process knows its
                // own.
                Err(_) => slot.told_of.store(u64::MAX, Ordering::Release),
                Ok(_) if self.seen != u64::MAX => self.tell(self.seen),
                Ok(_) => {}
            }
        }
    }

    /// The slot in which processes that have the set say what they were told of.
    pub(super) fn common(&self) -> Option<&'static Slot> {
        // Most often there is none, and nothing is looked up.
        self.in_common
            .then(|| self.entry())
            .flatten()
            .filter(|slot| slot.told_of.load(Ordering::Acquire) != u64::MAX)
    }

    /// It is armed again.
    pub(super) fn rearm(&mut self) {
        (self.disabled, self.shot) = (false, false);
    }

    /// Is the kernel's report of it one too many? Another thread reported it meanwhile, and nobody
    /// has armed it since. (Another process's arming is known here only later.)
    pub(super) fn is_spent(&self, set: &Set) -> bool {
        let rearmed = set.shared.load(Ordering::Relaxed) && self.arming != self.armings();
        self.disabled
            && self.wants(libc::EPOLLONESHOT)
            && if self.slot.is_some() { !rearmed } else { self.shot }
    }

    /// The ledger's slot of what is registered.
    fn entry(&self) -> Option<&'static Slot> {
        Some(runtime::attachment()?.ledger.slot(self.slot?))
    }

    pub(super) fn edges_made(&self) -> u32 {
        self.entry().map_or(0, |slot| slot.edges.load(Ordering::Acquire))
    }

    pub(super) fn armings(&self) -> u32 {
        self.entry().map_or(0, |slot| slot.armings.load(Ordering::Acquire))
    }

    /// What the kernel is told.
    pub(super) fn interest(&self) -> u32 {
        if self.disabled {
            // As the kernel's own shot leaves it: registered, and told of nothing. (Errors it adds
            // by itself: those come once more, and are not passed on.)
            return (libc::EPOLLONESHOT | libc::EPOLLET) as u32;
        }
        let mut events = self.events;
        if self.masked {
            if !self.wants(libc::EPOLLET) {
                // Edges need no mask: the kernel tells of its own room only when that changes.
                // Another process that has the set too would miss what is masked here.
                let mark = if self.wants(libc::EPOLLEXCLUSIVE) { 0 } else { shared::MASKED };
                events = events & !(libc::EPOLLOUT as u32) | mark;
            }
            if !self.wants(libc::EPOLLIN) && events & libc::EPOLLEXCLUSIVE as u32 == 0 {
                // A token for room must be noticed, once.
                events |= (libc::EPOLLIN | libc::EPOLLET) as u32 | shared::LISTENS;
            }
        }
        events
    }

    /// Is its number still its socket's? Where that has other numbers the registration outlives its
    /// own, and the kernel can be told nothing more of it: another socket may have the number.
    pub(super) fn is_named(&self) -> bool {
        match (self.inner_set, self.slot) {
            _ if self.outlived => false,
            (Some(number), _) => fds::get(self.fd) == Entry::Epoll(number),
            (None, Some(slot)) => {
                matches!(fds::get(self.fd), Entry::Endpoint(of) | Entry::Inherited(of) if of == slot)
            }
            (None, None) => true,
        }
    }

    /// Has the kernel a tag instead of its data?
    pub(super) fn is_tagged(&self) -> bool {
        self.known != self.data
    }

    pub(super) fn endpoint(&self) -> Option<Endpoint<'static>> {
        let slot = self.slot?;
        let fd = if self.is_named() { self.fd } else { fds::of_slot(slot)? };
        runtime::endpoint(fd, slot)
    }
}

pub(super) fn kernel_control(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    events: u32,
    data: u64,
) -> Result<usize, i32> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: `event` is readable.
    unsafe {
        sys::raw(
            syscalls::Sysno::epoll_ctl,
            [epfd as usize, operation as usize, fd as usize, &raw mut event as usize, 0, 0],
        )
    }
}

/// Tells the kernel a registration's present interest.
pub(super) fn retell(set: &Set, epfd: c_int, entry: &mut Registration) {
    (entry.loud, entry.late) = (false, None);
    (entry.retold, entry.retold_outside) = (true, true);
    if !entry.is_named() {
        return;
    }
    let data = entry.known;
    if entry.wants(libc::EPOLLEXCLUSIVE) {
        // The kernel does not modify exclusive registrations.
        let _ = kernel_control(epfd, libc::EPOLL_CTL_DEL, entry.fd, 0, 0);
        entry.in_kernel =
            kernel_control(epfd, libc::EPOLL_CTL_ADD, entry.fd, entry.interest(), data).is_ok();
    } else if entry.in_kernel {
        let _ = kernel_control(epfd, libc::EPOLL_CTL_MOD, entry.fd, entry.interest(), data);
    } else {
        entry.in_kernel =
            kernel_control(epfd, libc::EPOLL_CTL_ADD, entry.fd, entry.interest(), data).is_ok();
    }
    shared::told(set, entry);
}

pub(super) fn make_hot(inner: &mut Inner, index: u32) {
    if let Some(entry) = inner.registrations.get_mut(index as usize) {
        entry.idle = 0;
        if entry.used && !entry.hot && entry.slot.is_some() {
            entry.hot = true;
            if let Some(slot) = entry.slot {
                local_bits(slot, local::HOT, 0);
            }
            inner.hot.push(index);
        }
    }
}
