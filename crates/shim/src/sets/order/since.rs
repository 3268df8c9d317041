//! Since when a registration has something to report, as its ring and its writer say.

use crate::sets::Registration;
use crate::sets::edges::{BYTES, channel, key};
use ginnel_tcp::Endpoint;

impl Registration {
    /// `now`: a time before which all had come that has come by now.
    pub(super) fn ask_for_order(&mut self, now: u64) {
        if self.turn.asked {
            return;
        }
        if let Some(endpoint) = self.endpoint().filter(|endpoint| endpoint.receives_by_ring()) {
            self.turn.asked = true;
            if endpoint.ask_for_order() {
                self.turn.unsaid = (now, key(endpoint) & BYTES);
            }
        }
    }

    /// Is it looked at here, and its bytes come by a ring?
    pub(in crate::sets) fn reads_ring(&self) -> bool {
        self.hot && self.endpoint().is_some_and(Endpoint::receives_by_ring)
    }

    /// Since when there is something in its ring, or it is registered as it is.
    pub(in crate::sets) fn since(&self, endpoint: Endpoint<'_>, now: u64) -> u64 {
        self.says_since(endpoint, now).unwrap_or(now).min(now).max(self.turn.since)
    }

    /// [`Self::since`], or [`LATE`].
    #[inline]
    pub(super) fn since_or_late(&mut self, endpoint: Endpoint<'_>, now: u64) -> u64 {
        match self.stamped(endpoint, now) {
            // A writer whose clock is ahead, as another machine's may be, seems always late.
            Some(since) if since.wrapping_add(BLUR) > now => {
                self.turn.left_before(self.untold_from(endpoint), now).unwrap_or(LATE)
            }
            // (What was there when its writer was asked is not late, though that was just now.)
            said => said.or_else(|| self.was_there(endpoint)).unwrap_or(now).max(self.turn.since),
        }
    }

    /// Edge-triggered: up to where it was told of, if it was.
    fn told_up_to(&self) -> Option<u64> {
        (self.wants(libc::EPOLLET) && self.told() != u64::MAX).then(|| self.told() & BYTES)
    }

    /// The kernel tells of it. `twice`: a ring told of it in this wait. What was told of in a wait
    /// before has its place behind who was not.
    pub(in crate::sets) fn is_ready_since(
        &mut self,
        endpoint: Endpoint<'_>,
        now: u64,
        twice: bool,
    ) {
        self.turn.said = self.says_since(endpoint, now).is_some();
        let since = match (twice, self.turn.listed) {
            // The ring knew its place.
            (true, _) if !self.turn.first => return,
            (false, listed @ 1..) => listed,
            _ => self.since(endpoint, now),
        };
        self.turn.was_ready(since);
    }

    /// Where that begins which was neither told of, where edges are told, nor read.
    fn untold_from(&self, endpoint: Endpoint<'_>) -> u64 {
        self.told_up_to().unwrap_or_else(|| endpoint.unread_from()) & BYTES
    }

    /// The same, as its writer says, or as was seen when that was asked for it. Edge-triggered,
    /// what was told of and left there does not count.
    fn says_since(&self, endpoint: Endpoint<'_>, now: u64) -> Option<u64> {
        self.stamped(endpoint, now).or_else(|| self.was_there(endpoint))
    }

    fn stamped(&self, endpoint: Endpoint<'_>, now: u64) -> Option<u64> {
        match self.told_up_to().or_else(|| self.empty_at(endpoint)) {
            Some(told) => endpoint.filled_behind(told, now),
            None => endpoint.filled_since(now),
        }
    }

    /// Where the ring ended when a wait found it empty, if that is known of this channel's.
    fn empty_at(&self, endpoint: Endpoint<'_>) -> Option<u64> {
        let clean = self.turn.clean;
        (clean != u64::MAX && clean & !BYTES == channel(endpoint)).then_some(clean & BYTES)
    }

    /// All that has come was read. Since when is it in the list all the same, for what came since a
    /// wait last found it empty, or told of it?
    pub(super) fn came_and_was_read(&self, endpoint: Endpoint<'_>, now: u64) -> Option<u64> {
        let from = self.told_up_to().or_else(|| self.empty_at(endpoint))?;
        let (read, came) = (endpoint.unread_from() & BYTES, key(endpoint) & BYTES);
        let since = (read == came && read != from).then(|| endpoint.filled_behind(from, now))?;
        since.map(|since| since.min(now).max(self.turn.since).max(1))
    }

    fn was_there(&self, endpoint: Endpoint<'_>) -> Option<u64> {
        self.turn.came_before(self.untold_from(endpoint))
    }
}

/// Its writer says that this came after the pass had begun.
pub(super) const LATE: u64 = u64::MAX;

/// A stamp says that much less than it could, ticks.
const BLUR: u64 = 32;
