//! Out of a channel while the connection lives: for a detach, and where the other end has left.
//! Step by step as well; nobody waits for the other end.
//!
//! Both directions go back to TCP as at a hand-over ([`crate::finish`]), but unread ring bytes are
//! always given back by their reader, or read. From then on the kernel's socket holds the whole
//! truth. The slot is a candidate again, and meets the other end anew once there is a segment for
//! both.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::GATE_HOLD;
use crate::ledger::{Reason, Slot, Stage, flag};
use crate::lifetime;
use crate::rendezvous::{Entry, state};
use ginnel_region::sys;
use ginnel_ring::park;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

impl Endpoint<'_> {
    /// Takes the next step out of the channel, for this reason. True once there is nothing of the
    /// connection in the segment.
    #[must_use]
    pub fn leave(self, reason: Reason) -> bool {
        // None of the steps waits for a lock, and so none takes it over from the dead.
        self.heal();
        match self.slot().stage() {
            Stage::Candidate | Stage::Plain | Stage::Broken | Stage::Closed => {
                self.drop_channel(reason)
            }
            Stage::Published | Stage::Offered => self.withdraw(reason),
            Stage::Settling | Stage::Active => {
                self.come_down();
                self.part(reason)
            }
        }
    }

    /// Is the connection on its way out, or has the other end left?
    #[must_use]
    pub fn is_leaving(self) -> bool {
        let slot = self.slot();
        matches!(slot.stage(), Stage::Settling | Stage::Active)
            && (slot.has(flag::LEAVING) || self.other_end_left())
    }

    fn other_end_left(self) -> bool {
        self.channel().was_left(1 - self.slot().side())
    }

    /// Says in the channel by whom this end's service thread is woken. False where somebody is in
    /// the middle of a send: it is to be said once more, or nobody wakes it.
    #[must_use]
    pub fn show_service(self) -> bool {
        let Some(_held) = self.slot().tx.lock.try_lock(self.ticket()) else { return false };
        if matches!(self.slot().stage(), Stage::Settling | Stage::Active) {
            self.channel()
                .service(self.slot().side())
                .store(u64::from(self.joined().service_page()), Relaxed);
        }
        true
    }

    /// Has it been said, if there is anything to say?
    #[must_use]
    pub fn shows_service(self) -> bool {
        self.joined().service_page() == 0
            || self.channel().service(self.slot().side()).load(Relaxed) != 0
    }

    /// This process closes its last descriptor of a connection that others have, while its service
    /// thread is the one that the other end wakes. A fork child that has not used the connection
    /// yet has no such thread, and would leave the other end's wishes unanswered: so what is sent
    /// goes back to TCP, where nothing lies unread, until somebody sends. Who uses the connection
    /// next is named.
    pub fn leave_to_heirs(self) {
        let slot = self.slot();
        let _held = self.send_lock();
        if slot.stage() != Stage::Active || self.is_in_pair() {
            return;
        }
        let mine = u64::from(self.joined().service_page());
        let named = self.channel().service(slot.side());
        let was = named.compare_exchange(mine, 0, Relaxed, Relaxed).unwrap_or_else(|other| other);
        if (was == mine || was == 0)
            && self.tx_in_ring()
            && !slot.has(flag::TX_SHUT)
            && self.unread() == 0
        {
            self.downgrade();
        }
    }

    /// Before the program's `connect` to no address: the kernel resets the connection, and the
    /// other end is to know that it is meant. The socket lives on, perhaps under other descriptors
    /// and in other processes, and may be connected again: for those it is the kernel's alone.
    pub fn disconnect(self) {
        let slot = self.slot();
        if matches!(slot.stage(), Stage::Published | Stage::Offered) {
            let _ = self.withdraw(Reason::HandedOver);
        }
        // Bytes of a ring count as sent: those that are to be sent again come before the reset.
        self.flush();
        let (_tx, _rx) = (self.send_lock(), self.receive_lock());
        if matches!(slot.stage(), Stage::Settling | Stage::Active) {
            self.channel().reset(slot.side());
            // The other end's writer goes on over TCP, whose kernel answers.
            park::close(self.incoming().want_data());
            self.settle_cork();
            self.restore_options();
        } else if !matches!(slot.stage(), Stage::Candidate | Stage::Broken) {
            return;
        }
        if slot.channel.load(Relaxed) != 0 {
            lifetime::set_left(self.attachment, slot);
        }
        self.forget_phases();
        slot.rx.error.store(0, Relaxed);
        slot.make_plain(Reason::HandedOver);
    }

    /// Nothing was agreed on: at most a channel is left that was of no use. Under both locks, so
    /// that nobody is in the middle of a step.
    fn drop_channel(self, reason: Reason) -> bool {
        let slot = self.slot();
        let (Some(_tx), Some(_rx)) =
            (slot.tx.lock.try_lock(self.ticket()), slot.rx.lock.try_lock(self.ticket()))
        else {
            return false;
        };
        if !matches!(slot.stage(), Stage::Candidate | Stage::Plain | Stage::Broken | Stage::Closed)
        {
            return false;
        }
        if slot.channel.load(Relaxed) != 0 {
            self.channel().leave(slot.side());
            lifetime::set_left(self.attachment, slot);
        }
        if slot.stage() == Stage::Candidate {
            slot.set_reason(reason);
        }
        true
    }

    /// Takes back what stands in the rendezvous table.
    fn withdraw(self, reason: Reason) -> bool {
        let slot = self.slot();
        let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return false };
        let entry = Entry::at(&self.joined().segment, slot.entry.load(Relaxed).wrapping_sub(1));
        match slot.stage() {
            // Whoever offers a channel at this moment finds the entry gone, and begins anew.
            Stage::Published => match entry.state() {
                state::PUBLISHED if entry.step(state::PUBLISHED, state::FREE) => {}
                state::OFFERED if entry.offer().1 == slot.nonce.load(Relaxed) => entry.free(),
                state::FREE => {}
                _ => return false,
            },
            // It may have been taken up at this moment: the mark says that nobody is here.
            Stage::Offered => {
                let _ = entry.step(state::OFFERED, state::FREE);
                self.channel().leave(slot.side());
                lifetime::set_left(self.attachment, slot);
            }
            _ => return false,
        }
        self.start_over();
        slot.set_reason(reason);
        true
    }

    /// Asks for both directions to come back to TCP, and does what this end has to do for it.
    fn come_down(self) {
        let slot = self.slot();
        slot.set(flag::LEAVING, true);
        self.freeze_or_hold();
        {
            let Some(_held) = slot.tx.lock.try_lock(self.ticket()) else { return };
            if !matches!(slot.stage(), Stage::Settling | Stage::Active) {
                return;
            }
            self.incoming().gate().fetch_or(GATE_HOLD, SeqCst);
            self.restore_options();
            if self.tx_in_ring() && !slot.has(flag::TX_SHUT) {
                if self.frozen() { self.downgrade() } else { self.leave_ring() }
            }
        }
        self.serve_tx();
        let _ = self.tidy();
        self.request_downgrade();
        self.poke_service();
    }

    /// Lets go of the channel if the kernel's socket holds the whole truth.
    fn part(self, reason: Reason) -> bool {
        let slot = self.slot();
        {
            let (Some(_tx), Some(_rx)) =
                (slot.tx.lock.try_lock(self.ticket()), slot.rx.lock.try_lock(self.ticket()))
            else {
                return false;
            };
            if !matches!(slot.stage(), Stage::Settling | Stage::Active)
                || !self.on_tcp()
                || self.rx_in_ring() && !self.only_the_end_is_left()
            {
                return false;
            }
            let kept = slot.rx.error.load(Relaxed) != 0;
            let stage = match kernel::state(self.fd()) {
                // The kernel told of it once, and it is not told again.
                _ if kept && !self.reset_is_end() => Stage::Broken,
                Ok(kernel::ESTABLISHED)
                    if !slot.has(flag::HOLD | flag::TX_SHUT) && !kept && !self.rx_in_ring() =>
                {
                    Stage::Candidate
                }
                _ => Stage::Plain,
            };
            self.restore_options();
            self.channel().leave(slot.side());
            self.poke_reader();
            lifetime::set_left(self.attachment, slot);
            self.forget_phases();
            if stage == Stage::Candidate || slot.reason() == Reason::None {
                slot.set_reason(reason);
            }
            slot.set_stage(stage);
        }
        true
    }

    /// There is no channel any more.
    pub(crate) fn forget_phases(self) {
        let slot = self.slot();
        for word in [&slot.tx.epoch, &slot.rx.phase, &slot.rx.frozen, &slot.nonce, &slot.cut_at] {
            word.store(0, Relaxed);
        }
        slot.set(
            flag::LEAVING | flag::SIDE_ONE | flag::COUNTED | flag::CUT | flag::OF_PROOF,
            false,
        );
    }

    /// The incoming stream has ended in the ring, and all was read: does the kernel hold nothing
    /// but its FIN? A token would be taken for data from now on.
    fn only_the_end_is_left(self) -> bool {
        sys::poll(self.fd(), libc::POLLRDHUP, 0) & libc::POLLRDHUP != 0
            && kernel::readable(self.fd()) == 0
    }
}

/// The segment is lost, and with it what was in its rings: the connection is reset if it was
/// carried, and goes on over TCP if nothing of it had left that.
pub fn lose(endpoint: Endpoint<'_>, reason: Reason) {
    let slot = endpoint.slot();
    let _tx = endpoint.send_lock();
    let _rx = slot.rx.lock.lock(&endpoint.attachment.node.processes, endpoint.ticket());
    match slot.stage() {
        Stage::Active => endpoint.break_off(reason),
        Stage::Published | Stage::Offered | Stage::Settling => {
            slot.set(flag::LEAVING | flag::COUNTED, false);
            endpoint.start_over();
            slot.set_reason(reason);
        }
        Stage::Candidate => slot.set_reason(reason),
        Stage::Plain | Stage::Broken | Stage::Closed => {}
    }
    forget_channel(slot);
}

/// Its page means nothing any more.
fn forget_channel(slot: &Slot) {
    for word in [&slot.channel, &slot.left] {
        word.store(0, Relaxed);
    }
}

/// Has a connection a channel in this segment?
#[must_use]
pub fn is_in_segment(slot: &Slot, segment: u64) -> bool {
    // (The number of a pair's memory is the other process's to choose.)
    !slot.has(flag::PAIR) && slot.segment.load(Relaxed) == segment && slot.channel.load(SeqCst) != 0
}
