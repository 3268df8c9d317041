//! What the service thread knows of the connections that wait: when each is handed in, and what the
//! broker's answers change.

use super::{ANY_WANTED, BROKER, KNOWN, SOCKET, WANTED, hang_up};
use crate::service::pairs::pair_of;
use crate::service::{BROKER_DATA, control, look_often, with_endpoint};
use crate::uncounted;
use core::sync::atomic::{AtomicU64, Ordering};
use ginnel_region::sys;
use ginnel_tcp::broker::{self, Answer, Beside, Heard, Question, Verdict};
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::pairs::Pair;
use ginnel_tcp::{Attachment, Endpoint};

/// Until then no broker is looked for, monotonic nanoseconds.
pub(super) static ABSENT_UNTIL: AtomicU64 = AtomicU64::new(0);

/// Until then the thread looks often whether ends meet in a pair's memory, monotonic nanoseconds.
pub(super) static MEETING_UNTIL: AtomicU64 = AtomicU64::new(0);

const MS: u64 = 1_000_000;

/// How long to do without a broker that is not there, or turns this process away.
pub(super) const ABSENCE: u64 = 10_000 * MS;

/// How long to do without one that does not answer in time, the first time, and each time twice as
/// long.
const SILENCE: u64 = 1_000 * MS;

/// How soon to try again after a connection to it was lost.
const LOST: u64 = 500 * MS;

/// How long the broker may take to read a socket that it was handed.
const READS: u64 = 500 * MS;

/// How long it may then take to say that nobody came. (It waits five seconds.)
const WAITS: u64 = 10_000 * MS;

/// How long an answer may wait until the connection can take the step.
const MEETS: u64 = 2000 * MS;

/// Pauses before the connection is handed in once more.
const PAUSES: [u64; 5] = [0, 1_000 * MS, 5_000 * MS, 30_000 * MS, 120_000 * MS];

/// Questions that are under way at once.
const AT_ONCE: usize = 32;

/// A connection that waits.
struct Ask {
    index: u32,
    cookie: u64,
    /// The number of the question that is under way.
    number: u64,
    /// Under way: until when the next word of the broker is to come. Else: when to ask.
    at: u64,
    under_way: bool,
    /// How often in a row it could not be handed in.
    refused: u32,
    pauses: core::slice::Iter<'static, u64>,
}

impl Ask {
    fn is_due(&self, now: u64) -> bool {
        !self.under_way && self.at <= now
    }
}

/// A connection whose other end was found.
struct Met {
    index: u32,
    cookie: u64,
    pair: &'static Pair,
    meeting: u64,
    side: u8,
    until: u64,
}

/// What the thread knows of all that.
pub(in crate::service) struct Asks {
    waiting: Vec<Ask>,
    met: Vec<Met>,
    last: u64,
    /// Not before that is a broker connected to.
    not_before: u64,
    /// Not before that is anything asked: this process could not have a pair's memory.
    refuses_until: u64,
    /// How long to do without it when it does not answer next.
    silence: u64,
}

impl Asks {
    /// At the thread's start: what an earlier one has asked is asked anew.
    pub(in crate::service) fn new(attachment: &Attachment) -> Self {
        hang_up(attachment);
        for index in KNOWN.ones(0) {
            WANTED.set(index);
            ANY_WANTED.store(true, Ordering::Relaxed);
        }
        Self {
            waiting: Vec::new(),
            met: Vec::new(),
            last: 0,
            not_before: 0,
            refuses_until: 0,
            silence: SILENCE,
        }
    }

    /// Does what is due. When to do so again, monotonic nanoseconds.
    pub(in crate::service) fn tend(&mut self, attachment: &'static Attachment) -> u64 {
        if ANY_WANTED.swap(false, Ordering::AcqRel) {
            self.note(attachment);
        }
        if SOCKET.load(Ordering::Relaxed) >= 0 {
            self.hear(attachment);
        }
        if self.waiting.is_empty() && self.met.is_empty() {
            return u64::MAX;
        }
        let now = sys::monotonic_ns();
        self.meet(now);
        self.ask(attachment, now);
        let next = self.waiting.iter().map(|ask| ask.at).min().unwrap_or(u64::MAX);
        // One that could not be met, or asked for, is tried again soon.
        let soonest = now + MS;
        if self.met.is_empty() { next.max(soonest) } else { soonest }
    }

    fn note(&mut self, attachment: &Attachment) {
        for index in WANTED.ones(0) {
            WANTED.unset(index);
            let cookie = attachment.ledger.slot(index).cookie.load(Ordering::Acquire);
            self.waiting.retain(|ask| ask.index != index);
            self.waiting.push(Ask {
                index,
                cookie,
                number: 0,
                at: 0,
                under_way: false,
                refused: 0,
                pauses: PAUSES.iter(),
            });
        }
    }

    /// Hands in what is due.
    fn ask(&mut self, attachment: &'static Attachment, now: u64) {
        let is_wanted = |ask: &Ask| {
            let slot = attachment.ledger.slot(ask.index);
            let (is_same, in_pair) =
                (slot.cookie.load(Ordering::Acquire) == ask.cookie, slot.has(flag::PAIR));
            // In a pair's memory as well: it may wait there in vain.
            let waits = slot.stage() == Stage::Published;
            if is_same && !waits && !in_pair {
                // It has left the segment, say (`ginnel detach`), and may wait there once more.
                KNOWN.unset(ask.index);
            }
            is_same && waits
        };
        if self.waiting.iter().any(|ask| ask.under_way && ask.at <= now) {
            // It stands still, perhaps with sockets that are to be closed.
            self.not_before = now + self.silence;
            ABSENT_UNTIL.store(self.not_before, Ordering::Relaxed);
            self.silence = (2 * self.silence).min(ABSENCE);
            self.lost(attachment, now);
        }
        self.waiting.retain(is_wanted);
        let under_way = self.waiting.iter().filter(|ask| ask.under_way).count();
        let mut room = AT_ONCE.saturating_sub(under_way);
        if !self.waiting.iter().any(|ask| ask.is_due(now)) {
            return;
        }
        if now < self.refuses_until || !self.is_connected(attachment, now) {
            let later = self.not_before.max(self.refuses_until).max(now + 100 * MS);
            self.waiting.iter_mut().filter(|ask| ask.is_due(now)).for_each(|ask| ask.at = later);
            return;
        }
        let socket = SOCKET.load(Ordering::Relaxed);
        for ask in self.waiting.iter_mut().filter(|ask| ask.is_due(now)) {
            if room == 0 {
                ask.at = now + 5 * MS;
                continue;
            }
            room -= 1;
            self.last += 1;
            let number = self.last;
            let hand_in = |endpoint: Endpoint<'static>| {
                if endpoint.is_in_pair() && uncounted::end_now(endpoint) && endpoint.come_back() {
                    endpoint.progress(false);
                }
                let connected = endpoint.slot().has(flag::CONNECTED);
                endpoint.may_meet_by_broker()
                    && broker::ask(socket, &Question { connected, number }, endpoint.fd()).is_ok()
            };
            let asked = with_endpoint(ask.index, hand_in) == Some(true);
            // Seldom where that lasts: other processes have it too, say.
            ask.refused = if asked { 0 } else { (ask.refused + 1).min(10) };
            (ask.number, ask.under_way, ask.at) =
                (number, asked, now + if asked { READS } else { (5 * MS) << ask.refused });
        }
    }

    fn is_connected(&self, attachment: &Attachment, now: u64) -> bool {
        if SOCKET.load(Ordering::Relaxed) >= 0 {
            return true;
        }
        let Some(path) = attachment.settings.broker.as_deref().filter(|_| now >= self.not_before)
        else {
            return false;
        };
        let Some(socket) = broker::connect(path) else { return false };
        let socket = sys::move_high(socket.take());
        attachment.node.own(socket);
        BROKER.fetch_add(1, Ordering::Relaxed);
        SOCKET.store(socket, Ordering::Release);
        control(libc::EPOLL_CTL_ADD, socket, (libc::EPOLLIN | libc::EPOLLRDHUP) as u32, BROKER_DATA)
    }

    /// The broker has gone. What it was asked is asked again.
    fn lost(&mut self, attachment: &Attachment, now: u64) {
        hang_up(attachment);
        self.not_before = self.not_before.max(now + LOST);
        for ask in self.waiting.iter_mut().filter(|ask| ask.under_way) {
            (ask.under_way, ask.at) = (false, self.not_before);
        }
    }

    fn hear(&mut self, attachment: &'static Attachment) {
        loop {
            match broker::hear(SOCKET.load(Ordering::Relaxed)) {
                Heard::Nothing => return,
                Heard::Gone => return self.lost(attachment, sys::monotonic_ns()),
                Heard::Answer(answer, beside) => self.heed(attachment, answer, beside),
            }
        }
    }

    fn heed(&mut self, attachment: &'static Attachment, answer: Answer, beside: Beside) {
        let now = sys::monotonic_ns();
        if answer.verdict == Verdict::Ended {
            let broker = BROKER.load(Ordering::Relaxed);
            let mut pairs = attachment.pairs.all();
            if let Some(pair) = pairs.find(|pair| (pair.broker, pair.id) == (broker, answer.pair)) {
                pair.ended.store(true, Ordering::Release);
            }
            return;
        }
        // Also where nobody waits for it any more: later answers count on its being here.
        let pair = (answer.verdict == Verdict::Meet)
            .then(|| pair_of(attachment, &answer, beside))
            .flatten();
        if answer.verdict == Verdict::Meet && pair.is_none() {
            // Else the broker would send the two there again, for each later connection. What keeps
            // this process from having the memory may last, and the other one has it in vain each
            // time: for a while nothing is asked, of connections that wait already as of new ones.
            broker::part(SOCKET.load(Ordering::Relaxed), answer.pair);
            self.refuses_until = now + ABSENCE;
            ABSENT_UNTIL.store(self.refuses_until, Ordering::Relaxed);
        }
        if answer.verdict == Verdict::TooMany && answer.number == 0 {
            self.not_before = now + ABSENCE;
        }
        let Some(at) =
            self.waiting.iter().position(|ask| ask.under_way && ask.number == answer.number)
        else {
            return;
        };
        let Some(ask) = self.waiting.get_mut(at) else { return };
        self.silence = SILENCE;
        if answer.verdict == Verdict::Waits {
            ask.at = now + WAITS;
            return;
        }
        if let Some(reason) = reason_of(answer.verdict) {
            let slot = attachment.ledger.slot(ask.index);
            if slot.cookie.load(Ordering::Acquire) == ask.cookie && slot.stage() == Stage::Published
            {
                slot.set_reason(reason);
            }
        }
        if let Some(pair) = pair {
            let (index, cookie) = (ask.index, ask.cookie);
            let Answer { meeting, side, .. } = answer;
            self.met.push(Met { index, cookie, pair, meeting, side, until: now + MEETS });
        }
        let again = matches!(
            answer.verdict,
            Verdict::Meet
                | Verdict::Nobody
                | Verdict::OtherNetwork
                | Verdict::TooMany
                | Verdict::TooManyPairs
                | Verdict::NoMemory
        );
        match ask.pauses.next().filter(|_| again) {
            // Where the ends were found it is asked again only if they do not meet after all.
            Some(pause) => {
                (ask.under_way, ask.at) =
                    (false, now + (*pause).max(if pair.is_some() { 2 * MEETS } else { 0 }))
            }
            None => drop(self.waiting.swap_remove(at)),
        }
    }

    /// Has connections meet whose other ends were found.
    fn meet(&mut self, now: u64) {
        self.met.retain(|met| {
            let step = |endpoint: Endpoint<'static>| {
                let slot = endpoint.slot();
                if slot.cookie.load(Ordering::Acquire) != met.cookie
                    || slot.stage() != Stage::Published
                    || slot.has(flag::PAIR)
                {
                    return true;
                }
                if !uncounted::end_now(endpoint)
                    || !endpoint.meet_in(met.pair, met.meeting, met.side)
                {
                    return false;
                }
                MEETING_UNTIL.store(now + 2 * MEETS, Ordering::Relaxed);
                endpoint.progress(false);
                look_often();
                true
            };
            now < met.until && with_endpoint(met.index, step) == Some(false)
        });
    }
}

fn reason_of(verdict: Verdict) -> Option<Reason> {
    match verdict {
        Verdict::Meet | Verdict::Waits | Verdict::Ended | Verdict::OneProcess => None,
        Verdict::Nobody => Some(Reason::NoPeer),
        Verdict::Unreadable => Some(Reason::BrokerUnreadable),
        Verdict::TooMany | Verdict::TooManyPairs => Some(Reason::BrokerLimit),
        Verdict::NoMemory => Some(Reason::NoMemory),
        Verdict::OtherNetwork => Some(Reason::BrokerNetwork),
    }
}
