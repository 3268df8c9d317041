//! Waking the other end, or a sleeper of this one: by its waiter, or by a token over TCP.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::ledger::{Slot, Stage, attention, flag};
use ginnel_node::waiter::Rung;
use ginnel_ring::park::{self, Want};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// So many tokens are sent in one call at most.
const MOST_TOKENS: u64 = 1 << 12;

impl<'a> Endpoint<'a> {
    /// Sends the tokens that are owed, as far as the kernel takes them. Under the send lock.
    pub(crate) fn pay_tokens(self) {
        let slot = self.slot();
        let owed = slot.tx.owed.load(Relaxed);
        let owed = if owed == 0 { 0 } else { self.says_by_tcp(|| self.pay_some(owed)) };
        if owed == 0 {
            slot.attention.fetch_and(!attention::TOKEN_OWED, Relaxed);
        } else {
            slot.attention.fetch_or(attention::TOKEN_OWED, Relaxed);
        }
    }

    /// [`Self::pay_tokens`] of `owed`. Returns how many are owed still.
    fn pay_some(self, mut owed: u64) -> u64 {
        let slot = self.slot();
        let before = owed;
        // Each wish owes one. Of a number that cannot be, the rest waits for the next call: nobody
        // is kept in here.
        for _ in 0..owed.min(MOST_TOKENS) {
            match self.counted(1, || kernel::token(self.fd()).map(|()| 1)) {
                Ok(_) => {
                    Slot::count(&slot.tokens, 1);
                    owed -= 1;
                    slot.tx.owed.store(owed, Relaxed);
                }
                Err(libc::EAGAIN) => break,
                // This process has no number of it any more. That says nothing of the connection,
                // which another process of this end has: it pays.
                Err(libc::EBADF) => {
                    self.poke_own_service();
                    break;
                }
                // The connection is gone: nobody sleeps on it any more.
                Err(errno) => {
                    owed = 0;
                    self.told(errno);
                    break;
                }
            }
        }
        slot.tx.owed.store(owed, Relaxed);
        if owed < before && kernel::unsent(self.fd()) != 0 {
            // Somebody sleeps until it comes.
            kernel::push(self.fd());
        }
        owed
    }

    /// Runs the program's `setsockopt` of TCP_NODELAY: not while a token is pushed, for which it is
    /// set.
    pub fn beside_tokens<T>(self, call: impl FnOnce() -> T) -> T {
        let _held = self.send_lock_unless_interrupted();
        call()
    }

    /// Grants a claimed wish of the reader's. Under the send lock.
    #[cold]
    pub(crate) fn grant(self, want: Want) {
        match want {
            Want::Token => {
                Slot::count(&self.slot().tx.owed, 1);
                self.pay_tokens();
            }
            Want::Waiter { page, bit } => {
                if !self.ring_waiter(page, bit) {
                    self.cannot_ring();
                    self.wake_by_token();
                }
            }
            Want::Nothing | Want::Closed | Want::Promised(_) => {}
        }
    }

    /// Rings a waiter of the other end, and counts that. False: it sleeps, and a token is to wake
    /// it.
    pub(crate) fn ring_waiter(self, page: u32, bit: u16) -> bool {
        match self.joined().ring(page, bit, self.attachment.is_deaf()) {
            Rung::Awake => true,
            Rung::Woken => {
                self.slot().wakes.fetch_add(1, Relaxed);
                true
            }
            Rung::Unreachable => false,
        }
    }

    /// Rings a waiter of this process.
    pub(crate) fn ring_own(self, page: u32, bit: u16) {
        let node = &self.attachment.node;
        let _ = if self.is_in_pair() {
            node.ring_own(self.joined(), page, bit)
        } else {
            node.ring(page, bit)
        };
    }

    /// The other end sleeps, and this process has no way to ring it. Where that is so for good, it
    /// is told to ask for tokens from now on: in whatever phase, as a reader that never writes has
    /// no other.
    #[cold]
    fn cannot_ring(self) {
        if self.joined().bells.is_none() && self.attachment.settings.deaf == 0 {
            self.outgoing().mute().store(1, SeqCst);
        }
    }

    /// Wakes a reader whose waiter cannot be rung: by a token that is promised, as a downgrade's
    /// is, so that it is counted. In ring phase, under the send lock.
    #[cold]
    fn wake_by_token(self) {
        match park::promise_one(self.outgoing().want_data()) {
            // None will be read, or one is on its way.
            Want::Closed | Want::Promised(_) => {}
            Want::Nothing | Want::Token | Want::Waiter { .. } => {
                Slot::count(&self.slot().tx.owed, 1);
                self.pay_tokens();
            }
        }
    }

    /// The daemon by whose way machines are rung is gone, perhaps with a ring that it had not
    /// passed on: wakes the reader at the other end over TCP.
    pub fn wake_again(self) {
        let _held = self.send_lock();
        if self.slot().stage() == Stage::Active
            && self.tx_in_ring()
            && !self.slot().has(flag::TX_SHUT)
        {
            self.wake_by_token();
        }
    }

    /// Wakes the writer at the other end if it waits for room in the ring that this end reads:
    /// after the reader took bytes. Not under the receive lock. Where that cannot be (no token may
    /// be sent, or a send waits for this signal handler), a writer that waits for room looks again
    /// after a while.
    #[cold]
    pub(crate) fn grant_space(self) {
        let word = self.incoming().want_space();
        match Want::of(word.load(Relaxed)) {
            Want::Waiter { .. } => {
                if let Want::Waiter { page, bit } = park::claim_waiter(word)
                    && !self.ring_waiter(page, bit)
                {
                    self.cannot_ring();
                    let Ok(_held) = self.send_lock_unless_interrupted() else { return };
                    if self.tx_in_ring() && !self.slot().has(flag::TX_SHUT) {
                        self.wake_by_token();
                    }
                }
            }
            Want::Token => {
                // A token may be sent only in ring phase, which the send lock keeps as it is.
                // Outside it the downgrade's own token did the waking, or FIN.
                let Ok(_held) = self.send_lock_unless_interrupted() else { return };
                if self.tx_in_ring()
                    && !self.slot().has(flag::TX_SHUT)
                    && park::claim(word) == Want::Token
                {
                    Slot::count(&self.slot().tx.owed, 1);
                    self.pay_tokens();
                }
            }
            Want::Nothing | Want::Closed | Want::Promised(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::tests::attached;
    use crate::settle::tests::active_end;
    use ginnel_node::waiter::Waiter;
    use ginnel_node::wake::directory::wake_directory;

    /// The other end's writer sleeps until there is room, and this process cannot ring it, nor send
    /// it a token: it would sleep its whole nap for each ring.
    #[test]
    fn a_writer_that_cannot_be_rung_hears_so_from_a_reader_that_never_writes() {
        let directory = tempfile::tempdir().expect("a directory");
        let attachment = attached(directory.path());
        let end = active_end(&attachment);
        let waiter = Waiter::new(&attachment.node).expect("a waiter");
        std::fs::remove_dir_all(wake_directory(
            directory.path(),
            attachment.node.joined().segment.path(),
        ))
        .expect("there");
        waiter.sleeping(&attachment.node.joined().segment);
        end.incoming().want_space().store(waiter.want(0).word(), Relaxed);
        assert!(!end.tx_in_ring() && end.outgoing().mute().load(Relaxed) == 0);
        end.grant_space();
        assert_eq!(end.outgoing().mute().load(Relaxed), 1, "tokens, please");
    }
}
