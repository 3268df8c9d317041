//! How much of others' files may be mapped. Address space is finite, and a file of holes costs its
//! owner nothing: without a limit one port could map so much that nobody else's memory finds a
//! place, and that the next allocation fails, which ends the process.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that may be mapped, and how many are.
#[derive(Debug)]
pub struct Room {
    limit: u64,
    used: AtomicU64,
}

/// A part of a room. It is given back when this is dropped.
#[derive(Debug)]
pub struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    /// Of so many bytes.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    /// Half of what this process can map: of its addresses, or of its RLIMIT_AS.
    #[must_use]
    pub fn half_of_all() -> u64 {
        // The stack lies near the end of the addresses, which is a power of two.
        let here = 0u8;
        let end = std::ptr::from_ref(&here).addr().next_power_of_two() as u64;
        end.min(getrlimit(Resource::As).current.unwrap_or(u64::MAX)) / 2
    }

    /// How many bytes there are in all.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes so many. `None` where so many are not left.
    #[must_use]
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<Taken> {
        let more = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Taken { room: Arc::clone(self), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_there_is() {
        let room = Room::new(10);
        let six = room.take(6).expect("room");
        assert!(room.take(5).is_none() && room.take(u64::MAX).is_none() && room.left() == 4);
        let _four = room.take(4).expect("room");
        drop(six);
        assert!(room.take(7).is_none() && room.take(6).is_some());
        assert!(Room::half_of_all() >= 1 << 35, "{:#x}", Room::half_of_all());
    }
}
