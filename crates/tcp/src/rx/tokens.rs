//! Sleeping until there are bytes: the wish for data, and the tokens that wake those who sleep in
//! the kernel.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::Direction;
use crate::ledger::{Slot, Stage, flag};
use ginnel_node::processes::Interrupted;
use ginnel_region::Corrupt;
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

/// Who throws tokens away.
#[derive(Clone, Copy)]
pub(super) enum Sweeper {
    /// Is about to sleep, to be woken so.
    Sleeps(Want),
    /// Arms before anybody sleeps again: whoever is awake is the only one who ever sleeps here.
    ArmsNext,
    /// Somebody else may be asleep.
    Other,
}

/// What [`Endpoint::sweep`] found.
#[derive(PartialEq, Eq)]
pub(super) enum Swept {
    /// There is something to receive.
    News,
    /// Nothing; so many tokens were thrown away.
    Tokens(u64),
}

impl<'a> Endpoint<'a> {
    /// Throws away up to `n` bytes that are tokens, as many as have come.
    pub(super) fn discard_tokens(self, n: u64) -> u64 {
        // Asked for where nothing is, the kernel would tell, and forget, an error of the
        // connection.
        let there = kernel::readable(self.fd()).min(n);
        if there == 0 { 0 } else { self.discard_those(there) }
    }

    /// Throws away `n` > 0 bytes that are tokens and have come.
    fn discard_those(self, n: u64) -> u64 {
        let rx = &self.slot().rx;
        let got = match kernel::discard(self.fd(), n as usize) {
            Ok(got) => got as u64,
            Err(errno) => {
                if errno != libc::EAGAIN {
                    self.keep_error(errno);
                }
                0
            }
        };
        Slot::count(&rx.received, got);
        Slot::count(&rx.tokens, got);
        if self.live() {
            self.incoming().received().store(rx.received.load(Relaxed), Relaxed);
        }
        got
    }

    /// Arms the wish for data. `Some`: armed, and there is nothing: sleep. `None`: look again at
    /// once.
    #[must_use]
    pub fn arm_data(self, want: Want) -> Option<Want> {
        let _held = self.receive_lock_unless_interrupted().ok()?;
        if !self.receives_by_ring() {
            // On TCP the kernel wakes.
            self.note(want);
            return Some(Want::Token);
        }
        (self.sweep(Sweeper::Sleeps(want)) != Swept::News)
            .then(|| Want::of(self.incoming().want_data().load(Relaxed)))
    }

    /// Are this end's sleepers woken by tokens only? Also while one sleeps in the kernel's own
    /// receive, since TCP carried: an upgrade's first token wakes it, and nobody may throw that
    /// away.
    fn by_token(self) -> bool {
        self.is_shared() || self.slot().rx.sleeper.load(Relaxed) == Want::Token.word()
    }

    /// How many tokens had come, for one who is about to look at the kernel's next byte: see
    /// [`token_is_there`](Self::token_is_there). `None` where that byte need not be a token.
    #[must_use]
    pub fn tokens_so_far(self) -> Option<u64> {
        // In a ring's phase the next byte is one: a downgrade's goes before its data.
        let tokens = self.slot().rx.tokens.load(Relaxed);
        self.receives_by_ring().then_some(tokens)
    }

    /// One who had [`tokens_so_far`](Self::tokens_so_far) saw a byte, and left it: the next sleep
    /// need not ask whether there is any.
    pub fn token_is_there(self, so_far: Option<u64>) {
        if let Some(tokens) = so_far {
            self.slot().rx.seen.store(tokens.wrapping_add(1), Relaxed);
        }
    }

    /// Are this end's sleepers woken by tokens only, from now on and for good?
    fn is_shared(self) -> bool {
        !self.joined().rings()
            || self.slot().has(flag::SHARED)
            || self.incoming().mute().load(Relaxed) != 0
    }

    /// The one who slept in the kernel's own receive is awake.
    pub fn woken_by_kernel(self) {
        let _ = self.slot().rx.sleeper.compare_exchange(Want::Token.word(), 0, Relaxed, Relaxed);
    }

    /// Arms a wish for data.
    pub(super) fn arm(self, want: Want) {
        self.note(want);
        let want = if self.by_token() { Want::Token } else { want };
        let by_line = want != Want::Token && self.is_in_pair();
        if self.slot().has(flag::BY_LINE) != by_line {
            self.slot().set(flag::BY_LINE, by_line);
        }
        let (_, fresh) = park::arm(self.incoming().want_data(), want);
        self.slot().rx.armed.fetch_add(fresh, Relaxed);
    }

    /// Remembers who sleeps here. A second sleeper, or one without a waiter of its own while a ring
    /// carries: from now on all are woken in the one way that reaches all.
    fn note(self, want: Want) {
        let slot = self.slot();
        if self.is_shared() {
            return;
        }
        let before = slot.rx.sleeper.swap(want.word(), Relaxed);
        let token = want == Want::Token;
        if token && self.rx_in_ring() || before != 0 && (token || before != want.word()) {
            slot.set(flag::SHARED, true);
        }
    }

    /// Throws away the tokens of an empty ring, which would only keep the kernel's readiness up.
    ///
    /// A token may be the only thing that will wake another thread or process. So: count what lies
    /// there, arm, look at the ring, and only if there is nothing throw away, and no more than was
    /// counted. Each of these was sent for bytes that were published before it and are read by now;
    /// whatever is published after the arming brings a token that is not touched; what was
    /// published in between is news, and the tokens stay.
    pub(super) fn sweep(self, sweeper: Sweeper) -> Swept {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let wish = || Want::of(direction.want_data().load(Relaxed));
        // Whether any token can lie there is known without asking: all that were armed (the first
        // by the channel's creator), less those that came.
        let tokens = rx.tokens.load(Relaxed);
        let due = rx
            .armed
            .load(Relaxed)
            .wrapping_add(1)
            .wrapping_sub(u64::from(wish() == Want::Token))
            .wrapping_sub(tokens);
        let counted = match sweeper {
            Sweeper::Sleeps(_) if due == 0 => 0,
            // The only one that can lie there was seen. (A wish for room that nobody claimed yet is
            // counted too: then only the kernel knows.)
            Sweeper::Sleeps(_)
                if due == 1
                    && rx.seen.load(Relaxed) == tokens.wrapping_add(1)
                    && Want::of(self.outgoing().want_space().load(Relaxed)) != Want::Token =>
            {
                self.tokens_of_phase(direction, 1)
            }
            _ => self.tokens_until(direction),
        };
        match sweeper {
            Sweeper::Sleeps(want) => self.arm(want),
            _ if counted > 0 && self.by_token() => self.arm(Want::Token),
            // Whoever sleeps in the kernel was to be woken by these. A wish that stands is another,
            // made after it was woken. (Looked at after the count: a token that was counted was
            // promised before.)
            Sweeper::Other if counted > 0 && !matches!(wish(), Want::Waiter { .. }) => {
                let (_, fresh) = park::arm(direction.want_data(), Want::Token);
                rx.armed.fetch_add(fresh, Relaxed);
            }
            _ => {}
        }
        fence(SeqCst);
        let waits = rx.frozen.load(Relaxed) != 0
            && direction.epoch().load(Acquire) == rx.phase.load(Relaxed);
        if !waits && self.has_news(direction) {
            return Swept::News;
        }
        Swept::Tokens(if counted > 0 { self.discard_those(counted) } else { 0 })
    }

    /// Throws away tokens beside unread bytes, for the only one who ever sleeps here: it is awake,
    /// has seen the bytes, and looks at the ring before it sleeps again. Left where they are, they
    /// would keep the kernel's readiness up for as long as the ring is never read empty.
    pub fn sweep_beside_bytes(self) {
        let Some(_held) = self.slot().rx.lock.try_lock(self.ticket()) else { return };
        if self.receives_by_ring() && !self.by_token() && self.ring_has_bytes() {
            let counted = self.tokens_until(self.incoming());
            if counted > 0 {
                self.discard_those(counted);
            }
        }
    }

    /// Does a wish for data stand: will whoever sleeps here be woken by the next byte?
    #[must_use]
    pub fn will_be_woken(self) -> bool {
        matches!(
            Want::of(self.incoming().want_data().load(Relaxed)),
            Want::Waiter { .. } | Want::Token
        )
    }

    /// Arms the wish for data although there is unread data: for an edge-triggered waiter that was
    /// told of it. The caller looks afterwards whether more came.
    ///
    /// # Errors
    /// Not armed: a receive that waits for this signal handler is at it.
    pub fn arm_past(self, want: Want) -> Result<(), Interrupted> {
        let _held = self.receive_lock_unless_interrupted()?;
        if self.receives_by_ring() || self.is_before_ring() {
            self.arm(want);
        }
        Ok(())
    }

    /// Has the writer moved into the ring, and nobody who reads has followed? Nothing of TCP's is
    /// before that any more: the writer waited until all was received.
    #[must_use]
    pub fn is_before_ring(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        self.slot().stage() == Stage::Active
            && phase & 1 == 0
            && direction.epoch().load(Acquire) == phase + 1
    }

    /// How many of the bytes in the kernel are tokens of this phase at most.
    fn tokens_until(self, direction: Direction<'_>) -> u64 {
        let there = kernel::readable(self.fd());
        self.tokens_of_phase(direction, there)
    }

    /// The same of so many that were there: before the boundary is looked at, as bytes behind one
    /// that appears in between must not be thrown away.
    fn tokens_of_phase(self, direction: Direction<'_>, there: u64) -> u64 {
        let rx = &self.slot().rx;
        let phase = rx.phase.load(Relaxed);
        fence(SeqCst);
        match self.epoch(direction) {
            Ok(epoch) if epoch > phase => self
                .record(direction, epoch)
                .map_or(0, |record| there.min(record.tcp - rx.received.load(Relaxed))),
            Ok(_) => there,
            Err(Corrupt) => 0,
        }
    }

    /// Takes the wish for data back.
    pub fn disarm_data(self, want: Want) {
        let _ = self.slot().rx.sleeper.compare_exchange(want.word(), 0, Relaxed, Relaxed);
        park::disarm(self.incoming().want_data(), want);
    }
}
