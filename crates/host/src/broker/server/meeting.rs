//! Both processes of a pair are told where their ends meet.

use super::Broker;
use super::messages::{READS, give, say};
use crate::broker::matching::{End, Introduced, Pair};
use crate::broker::{lines, memory};
use ginnel_daemon::log;
use ginnel_tcp::broker::{Answer, Verdict};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// After a wait for another process that was in vain, a thread waits for none for so long.
const REST: Duration = Duration::from_secs(1);

impl Broker {
    /// Gives both processes of a new pair its memory, and tells them where their ends meet. What is
    /// to meet there meanwhile is told after that: a process that has not got the memory could not.
    /// False where the first end could not be told.
    pub(super) fn introduce(&self, pair: &Pair, waits_from: &mut Instant) -> bool {
        let memory = match memory::make(self.limits.memory) {
            Ok(memory) => memory,
            Err(error) => {
                self.line(|| log!(Warning, "no_memory", why = format!("{error:#}")));
                self.come_to_nothing(pair, Verdict::NoMemory, &[pair.first, pair.second]);
                return true;
            }
        };
        // Where there are none, the two wake each other over TCP.
        let [one, other] = lines::make().unwrap_or_default();
        let beside = [&one, &other].map(|ends| lines::beside(memory.as_fd(), ends));
        let told = self.meet(pair, |side, socket, answer| {
            let waits = side == 1 || Instant::now() >= *waits_from;
            let until = Instant::now() + if waits { READS } else { Duration::ZERO };
            let given = give(socket, answer, &beside[side], until);
            if given == Err(Errno::AGAIN) && side == 0 && waits {
                *waits_from = Instant::now() + REST;
            }
            given
        });
        match told {
            Ok(()) => {}
            // Who has not read all that was said before hears it behind that, and may ask again: it
            // would take a broker that says nothing for one that stands still.
            Err(0) => {
                self.come_to_nothing(pair, Verdict::Nobody, &[pair.first]);
                return false;
            }
            Err(_) => {
                self.say_ended(pair.first.client, pair.id);
                self.come_to_nothing(pair, Verdict::Nobody, &[pair.second]);
                return true;
            }
        }
        let (first, second) = (pair.first.client, pair.second.client);
        self.line(|| log!(Info, "paired", pair = pair.id, first = first, second = second));
        let Introduced { has_ended, queued } = self.state().matching.introduced(pair.id);
        if has_ended {
            // The word of that went out before the memory, perhaps, and was of a pair that nobody
            // knew.
            self.say_ended(first, pair.id);
            self.say_ended(second, pair.id);
        }
        for pair in queued {
            if has_ended {
                self.come_to_nothing(&pair, Verdict::Nobody, &[pair.first, pair.second]);
            } else if self.meet(&pair, |_, socket, answer| say(socket, answer)) == Err(0) {
                self.refuse(pair.second.client, Verdict::Nobody, pair.second.number);
            }
        }
        true
    }

    /// Tells both processes where their ends meet: by `tell`, which is given a side, its process's
    /// connection, and what is to be said.
    ///
    /// # Errors
    /// Which of the two could not be told: 0, the one that waited, and then the other was told of
    /// nothing yet; or 1.
    pub(super) fn meet(
        &self,
        pair: &Pair,
        mut tell: impl FnMut(usize, BorrowedFd<'_>, &Answer) -> Result<(), Errno>,
    ) -> Result<(), u8> {
        let meeting = ginnel_region::sys::random_u64().max(1);
        for (side, end) in [(0, &pair.first), (1, &pair.second)] {
            let socket = self.state().sockets.get(&end.client).cloned();
            let answer =
                Answer { verdict: Verdict::Meet, side, number: end.number, pair: pair.id, meeting };
            if socket.is_none_or(|socket| tell(side.into(), socket.as_fd(), &answer).is_err()) {
                return Err(side);
            }
        }
        Ok(())
    }

    /// A new pair is none after all: these ends hear why, and so do those that were to meet there.
    fn come_to_nothing(&self, pair: &Pair, verdict: Verdict, ends: &[End]) {
        let queued = if pair.is_new { self.state().matching.undo(pair.id) } else { Vec::new() };
        for end in ends {
            self.refuse(end.client, verdict, end.number);
        }
        for end in queued.iter().flat_map(|pair| [pair.first, pair.second]) {
            self.refuse(end.client, Verdict::Nobody, end.number);
        }
    }
}
