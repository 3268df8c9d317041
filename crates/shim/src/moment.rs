//! The moment that a switch of carriers may take.

use crate::options;
use core::sync::atomic::{AtomicU64, Ordering};
use ginnel_region::sys;
use ginnel_tcp::Endpoint;

/// A moment to wait for bytes that change carriers: half a millisecond, yielding, then up to a
/// quarter of a second, asleep. Once for each switch: the other end may have stopped in the middle
/// of it, or mean harm.
#[derive(Default)]
pub struct Moment(u64);

/// Switches that were waited for in vain, by connection.
static IN_VAIN: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// The switch that `endpoint` is in, and the word that has it where it was waited for in vain.
fn switch(endpoint: Endpoint<'_>) -> (u64, &'static AtomicU64) {
    let cookie = endpoint.slot().cookie.load(Ordering::Relaxed);
    let switch = (cookie << 24) ^ endpoint.slot().rx.phase.load(Ordering::Relaxed) | 1 << 63;
    (switch, &IN_VAIN[(cookie % 256) as usize])
}

/// Does `endpoint` have bytes that change carriers at this moment, and for which a receive waits?
/// Whoever is told of it is to be told of them, too. Asks the kernel.
pub fn brings_bytes(endpoint: Endpoint<'_>) -> bool {
    let is_in_vain = || {
        let (switch, in_vain) = switch(endpoint);
        in_vain.load(Ordering::Relaxed) == switch
    };
    endpoint.is_between_carriers() && !is_in_vain() && !options::waits_for_more(endpoint.fd())
}

impl Moment {
    /// Waits a little. False once the moment is over.
    pub fn passes(&mut self, endpoint: Endpoint<'_>) -> bool {
        const AWAKE: u64 = 500_000;
        const LENGTH: u64 = 250_000_000;
        let (switch, in_vain) = switch(endpoint);
        let now = sys::monotonic_ns();
        if self.0 == 0 {
            if in_vain.load(Ordering::Relaxed) == switch {
                return false;
            }
            self.0 = now;
        }
        if now - self.0 < AWAKE {
            sys::yield_now();
        } else {
            sys::sleep_ms(1);
        }
        let over = now - self.0 >= LENGTH;
        if over {
            in_vain.store(switch, Ordering::Relaxed);
        }
        !over
    }
}
