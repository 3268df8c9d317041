//! What the daemon sees of the connections in a segment: it carries none of them, and knows only
//! what the peers have written there.

use ginnel_daemon::log;
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

impl Seen {
    /// Looks at the connections of segment `name` in its memory of `size` bytes, unless that was
    /// done just before.
    pub(crate) fn look(&mut self, name: &str, memory: impl AsFd, size: u64) {
        let now = Instant::now();
        let since = self.at.map(|at| now - at);
        if since.is_some_and(|since| since < PAUSE) {
            return;
        }
        match census(memory.as_fd(), size) {
            Ok(census) => {
                let new = census.carried_ever.saturating_sub(self.census.carried_ever);
                let millis = since.map_or(0, |since| since.as_millis());
                let rate = u128::from(new).saturating_mul(1000).checked_div(millis).unwrap_or(0);
                *self =
                    Self { census, rate: u64::try_from(rate).unwrap_or(u64::MAX), at: Some(now) };
            }
            Err(error) => {
                log!(Error, "segment_unreadable", segment = name, why = error);
                self.at = Some(now);
            }
        }
    }
}
