//! What the daemon sees of the connections in a segment: it carries none of them, and knows only
//! what the peers have written there.

use crate::log;
use crate::segment::Segment;
use ginnel_tcp::census::{Census, census};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The least time between two looks, however many ask: one into a large segment that is full of
/// channels takes tens of milliseconds (`ginnel_tcp::census`).
const PAUSE: Duration = Duration::from_secs(1);

/// The last look into a segment's memory.
#[derive(Debug, Default)]
pub struct Seen {
    /// What was there.
    pub census: Census,
    /// Bytes a second since the look before.
    pub rate: u64,
    at: Option<Instant>,
}

impl Segment {
    /// Looks at the segment's connections, unless that was done just before.
    pub(crate) fn look(&mut self) {
        let now = Instant::now();
        let since = self.seen.at.map(|at| now - at);
        if since.is_some_and(|since| since < PAUSE) {
            return;
        }
        match census(self.memory.as_fd(), self.config.size) {
            Ok(census) => {
                let new = census.carried_ever.saturating_sub(self.seen.census.carried_ever);
                let millis = since.map_or(0, |since| since.as_millis());
                let rate = u128::from(new).saturating_mul(1000).checked_div(millis).unwrap_or(0);
                self.seen = Seen { census, rate: u64::try_from(rate).unwrap_or(u64::MAX), at: Some(now) };
            }
            Err(error) => {
                log!(Error, "segment_unreadable", segment = self.name, why = error);
                self.seen.at = Some(now);
            }
        }
    }
}
