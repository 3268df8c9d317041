//! The moment that a switch of carriers may take.

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

impl Moment {
    /// Waits a little. False once the moment is over.
    pub fn passes(&mut self, endpoint: Endpoint<'_>) -> bool {
        const AWAKE: u64 = 500_000;
        const LENGTH: u64 = 250_000_000;
        let cookie = endpoint.slot().cookie.load(Ordering::Relaxed);
        let switch = (cookie << 24) ^ endpoint.slot().rx.phase.load(Ordering::Relaxed) | 1 << 63;
        let in_vain = &IN_VAIN[(cookie % 256) as usize];
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
