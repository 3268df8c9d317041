//! Is there something to receive? As far as memory tells, and by settling what stands between the
//! program and its bytes.

use super::tokens::{Sweeper, Swept};
use super::{Sink, Step, Take};
use crate::endpoint::Endpoint;
use crate::kernel;
use crate::layout::{Direction, NO_EOF};
use crate::ledger::{DRY_AT, Reason, attention, flag};
use ginnel_region::{Corrupt, sys};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

impl<'a> Endpoint<'a> {
    /// Has the writer published anything that this reader could take now? A downgrade whose token
    /// is still on its way is none: TCP wakes.
    pub(super) fn has_news(self, direction: Direction<'_>) -> bool {
        let rx = &self.slot().rx;
        let (phase, head) = (rx.phase.load(Relaxed), rx.head.load(Relaxed));
        let epoch = direction.epoch().load(Acquire);
        if epoch == phase {
            return direction.tail().load(Acquire) != head;
        }
        match self.record(direction, phase + 1) {
            Ok(record) => {
                record.ring != head
                    || rx.received.load(Relaxed) >= record.tcp
                    || kernel::readable(self.fd()) > 0
            }
            Err(Corrupt) => true,
        }
    }

    /// Would a receive return at once, as far as shared memory tells? (POLLIN, where the ring is
    /// the carrier.)
    #[must_use]
    #[inline]
    pub fn readable(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        if direction.epoch().load(Acquire) != rx.phase.load(Relaxed) {
            // A downgrade is to be entered. Whether anything is readable, only `tidy` can tell.
            return self.tidy();
        }
        self.is_filled(direction)
    }

    /// Are there bytes in the ring, no switch being under way? Looks at memory only: good without a
    /// lock, and when the descriptor may be gone.
    #[must_use]
    #[inline]
    pub fn ring_is_filled(self) -> bool {
        self.look_at_ring() == Some(true)
    }

    /// Are there bytes in the ring, as memory alone tells? `None`: a switch is under way, and only
    /// [`Self::readable`] can tell.
    #[must_use]
    #[inline]
    pub fn look_at_ring(self) -> Option<bool> {
        let direction = self.incoming();
        let filled = self.is_filled(direction);
        (direction.epoch().load(Acquire) == self.slot().rx.phase.load(Relaxed)).then_some(filled)
    }

    /// The same, whatever switch may be under way.
    #[inline]
    fn is_filled(self, direction: Direction<'_>) -> bool {
        let rx = &self.slot().rx;
        direction.tail().load(Acquire) != rx.head.load(Relaxed) && rx.frozen.load(Relaxed) == 0
    }

    /// Bytes that the ring says it holds. A hint, not checked.
    #[must_use]
    pub fn ring_bytes(self) -> u64 {
        self.incoming().tail().load(Acquire).wrapping_sub(self.slot().rx.head.load(Relaxed))
    }

    /// Is there nothing to receive, the ring being the carrier: no bytes, no switch, no end, and no
    /// word from the kernel? False where only a closer look could tell.
    #[must_use]
    #[inline]
    pub fn is_surely_empty(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        rx.phase.load(Relaxed) & 1 == 1
            && direction.tail().load(Acquire) == rx.head.load(Relaxed)
            && direction.epoch().load(Acquire) == rx.phase.load(Relaxed)
            && self.slot().attention.load(Relaxed) & attention::KERNEL == 0
            && direction.eof().load(Acquire) == NO_EOF
            && !self.reset_is_meant()
    }

    /// May the kernel hold more of this connection than tokens: an end, a reset, an error? As far
    /// as memory tells: ends that are meant are said there before the kernel is told of them.
    #[must_use]
    #[inline]
    pub fn may_have_ended(self) -> bool {
        let slot = self.slot();
        slot.attention.load(Relaxed) & attention::KERNEL != 0
            || slot.has(flag::RX_SHUT)
            || self.channel_of(slot).says_end(1 - slot.side())
            || self.keeps_error()
    }

    /// What the kernel has of this connection beside its ring: as poll(2) tells it of all that may
    /// be asked of.
    ///
    /// Where that is room and no more, what the kernel last reported is dealt with. A receive that
    /// finds nothing sees to that as well; but a program that reads what it was told of, and no
    /// further, would have the kernel asked at every event.
    #[must_use]
    pub fn ask_beside_ring(self) -> i16 {
        let ask = || {
            sys::poll(self.fd(), libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP | libc::POLLPRI, 0)
        };
        let (got, attention) = (ask(), &self.slot().attention);
        if got & !libc::POLLOUT != 0 || attention.load(Relaxed) & attention::KERNEL == 0 {
            return got;
        }
        // Whoever receives meanwhile waits: he would take what was reported for looked at.
        let Some(_held) = self.slot().rx.lock.try_lock(self.ticket()) else { return got };
        attention.fetch_and(!attention::KERNEL, SeqCst);
        // What came in between was reported before, and would be forgotten.
        let got = ask();
        if got & !libc::POLLOUT != 0 {
            attention.fetch_or(attention::KERNEL, SeqCst);
        }
        got
    }

    /// Has the other end ended, or its direction, or said that it will?
    #[must_use]
    #[inline]
    pub fn peer_has_ended(self) -> bool {
        self.incoming().eof().load(Acquire) != NO_EOF
            || self.channel().has_ended(1 - self.slot().side())
    }

    /// On TCP again: had all that has come by now come when the ring's end was `tail`? (Its lower
    /// 52 bits: a reader that goes back has what it has not read sent again.) What comes after a
    /// receive that found no more had not come, for the program: it goes by that (epoll(7)). `dry`:
    /// what [`dry`](crate::ledger::Slot::dry) was when the program was told of `tail`.
    #[must_use]
    pub fn had_come(self, tail: u64, dry: u64) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if phase == 0 || phase & 1 == 1 || direction.epoch().load(Acquire) != phase {
            return false;
        }
        let come = self.come_by_tcp();
        let since = self.slot().dry.load(Relaxed);
        if since != dry && come.wrapping_sub(since) & DRY_AT != 0 {
            return false;
        }
        direction.switch(phase).checked(|record| record.epoch == phase).is_ok_and(|record| {
            let again = tail.wrapping_sub(record.ring) << 12 >> 12;
            again <= 1 << 30 && come.wrapping_sub(record.tcp) <= again
        })
    }

    /// On TCP: how much has come so far, whether or not it was received.
    #[must_use]
    pub fn come_by_tcp(self) -> u64 {
        let come = self.slot().rx.received.load(Relaxed) + kernel::readable(self.fd());
        // Of what follows an urgent byte the kernel says nothing there, until that is read.
        let counts = self.may_be_urgent() && self.slot().has(flag::COUNTED);
        let facts = counts.then(|| kernel::facts(self.fd(), self.slot().has(flag::CONNECTED)));
        facts.and_then(Result::ok).map_or(come, |facts| facts.arrived.max(come))
    }

    /// The line in which the writer says what there is: for prefetching only.
    #[must_use]
    #[inline]
    pub fn writers_line(self) -> *const u8 {
        std::ptr::from_ref(self.incoming().tail()).cast()
    }

    /// Settles what stands between the program and its bytes without taking any: enters switches
    /// that are due, throws away tokens of an empty ring. Afterwards a readable kernel socket means
    /// readable bytes, end-of-file or an error. True if there is something to receive.
    #[must_use]
    pub fn tidy(self) -> bool {
        self.tidy_for(Sweeper::Other)
    }

    /// [`Self::tidy`] by the only one who sleeps on this socket: it arms before it sleeps again.
    #[must_use]
    pub fn tidy_before_sleep(self) -> bool {
        self.tidy_for(Sweeper::ArmsNext)
    }

    fn tidy_for(self, sweeper: Sweeper) -> bool {
        let slot = self.slot();
        // What a receive has begun that waits for this handler is looked at anew.
        let Ok(_held) = self.receive_lock_unless_interrupted() else { return true };
        let nowhere = [];
        let mut none = Sink::new(&nowhere, false);
        for _ in 0..8 {
            // SAFETY: `none` has no buffers: nothing is stored.
            match unsafe { self.step(&mut none, sweeper) } {
                Err(Corrupt) => {
                    self.break_off(Reason::Corrupt);
                    return true;
                }
                Ok(Step::Done(Take::Nothing)) => {
                    if !self.rx_in_ring() {
                        let reported = sys::poll(self.fd(), libc::POLLIN | libc::POLLRDHUP, 0);
                        match reported {
                            0 => return false,
                            // Came just now: data, or the token of a switch that came just now.
                            libc::POLLIN => continue,
                            _ => return true,
                        }
                    }
                    if slot.rx.frozen.load(Relaxed) == 0 {
                        if let Swept::Tokens(1..) = self.sweep(sweeper)
                            && sys::poll(self.fd(), libc::POLLRDHUP, 0) != 0
                        {
                            // FIN stood behind it.
                            slot.attention.fetch_or(attention::KERNEL, Relaxed);
                            continue;
                        }
                        if self.has_news(self.incoming()) {
                            continue;
                        }
                    }
                    return false;
                }
                Ok(Step::Done(Take::Error(errno))) => {
                    self.keep_error(errno);
                    return true;
                }
                Ok(Step::Done(_)) => return true,
                Ok(Step::Again) => {
                    let there = if self.rx_in_ring() {
                        self.ring_has_bytes()
                    } else {
                        kernel::readable(self.fd()) > 0 && self.switch_is_far()
                    };
                    if there {
                        return true;
                    }
                }
            }
        }
        true
    }

    /// In the ring: are there bytes before the end of this phase?
    pub(super) fn ring_has_bytes(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let (phase, head) = (rx.phase.load(Relaxed), rx.head.load(Relaxed));
        if rx.frozen.load(Relaxed) != 0 {
            return false;
        }
        match self.epoch(direction) {
            Ok(epoch) if epoch > phase => {
                self.record(direction, epoch).is_ok_and(|record| record.ring != head)
            }
            _ => direction.tail().load(Acquire) != head,
        }
    }

    /// On TCP: is the next byte data?
    fn switch_is_far(self) -> bool {
        let (direction, rx) = (self.incoming(), &self.slot().rx);
        let phase = rx.phase.load(Relaxed);
        if !self.live() || direction.epoch().load(Acquire) <= phase {
            return true;
        }
        self.record(direction, phase + 1).is_ok_and(|record| record.tcp > rx.received.load(Relaxed))
    }

    /// Has nothing come by a ring yet?
    #[must_use]
    pub fn was_never_in_ring(self) -> bool {
        self.slot().rx.phase.load(Relaxed) == 0
    }

    /// Are bytes that were in the ring on their way to TCP? They were told of, perhaps, and cannot
    /// be received at this moment.
    #[must_use]
    #[inline]
    pub fn is_switching(self) -> bool {
        if self.rx_in_ring() {
            let (direction, rx) = (self.incoming(), &self.slot().rx);
            let leaving = rx.frozen.load(Relaxed) != 0
                || direction.epoch().load(Acquire) != rx.phase.load(Relaxed);
            leaving && direction.tail().load(Acquire) != rx.head.load(Relaxed)
        } else {
            self.resent_bytes_are_due()
        }
    }

    /// Has none of the bytes of [`Self::is_switching`] come yet? They are to be told of as long as
    /// the kernel says nothing of them. A receive waits for them.
    #[must_use]
    pub fn is_between_carriers(self) -> bool {
        self.is_switching() && (self.rx_in_ring() || kernel::readable(self.fd()) == 0)
    }
}
