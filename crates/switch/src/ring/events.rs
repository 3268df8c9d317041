//! Who tells whom when: publishing what was completed, interrupts, and kicks.

use super::broken::Broken;
use super::memory::Memory;
use super::split::Ring;
use std::sync::atomic::{Ordering, fence};

/// In the available ring's flags: the driver does not want to be told.
const NO_INTERRUPT: u16 = 1;
/// In the used ring's flags: the device does not want to be told.
const NO_NOTIFY: u16 = 1;

impl Ring {
    /// Tells the guest of everything that was completed. True where it wants an interrupt for it.
    #[inline]
    #[must_use]
    pub fn publish(&mut self, memory: &Memory) -> bool {
        self.give_back_settled(memory);
        if self.done == self.published {
            return false;
        }
        let was = std::mem::replace(&mut self.published, self.done);
        // SAFETY: the used ring's index. Release: the entries and the frames come before it.
        unsafe { self.used.u16(2) }.store(self.done.to_le(), Ordering::Release);
        if let Some(guest) = self.layout.used_log {
            memory.mark(guest, 4);
        }
        // Pairs with the driver's fence between arming and looking again.
        fence(Ordering::SeqCst);
        if self.layout.event_idx {
            let offset = 4 + 2 * usize::from(self.layout.size);
            // SAFETY: `used_event`, the word behind the available ring, which the part holds.
            let event = u16::from_le(unsafe { self.available.u16(offset) }.load(Ordering::Relaxed));
            // vring_need_event (linux/virtio_ring.h)
            self.done.wrapping_sub(event).wrapping_sub(1) < self.done.wrapping_sub(was)
        } else {
            // SAFETY: the available ring's flags.
            let flags = u16::from_le(unsafe { self.available.u16(0) }.load(Ordering::Relaxed));
            flags & NO_INTERRUPT == 0
        }
    }

    /// Asks the guest to kick when it makes something available. True where something waits
    /// already, so that no kick will come for it.
    ///
    /// # Errors
    /// [`Broken::AvailableIndex`].
    pub fn arm(&mut self, memory: &Memory) -> Result<bool, Broken> {
        self.ask(memory, self.next, 0);
        // Pairs with the driver's fence between publishing and looking whether to kick.
        fence(Ordering::SeqCst);
        Ok(self.waiting_now()? > 0)
    }

    /// Asks the guest not to kick: by a flag, or, with an event index, by one that it has passed
    /// (it then kicks once in 65536 entries).
    pub fn mute(&self, memory: &Memory) {
        self.ask(memory, self.next.wrapping_sub(1), NO_NOTIFY);
    }

    /// The same once the guest has kicked: it has passed the event index that was asked for.
    pub fn mute_kicked(&self, memory: &Memory) {
        if !self.layout.event_idx {
            self.mute(memory);
        }
    }

    /// Tells the guest when to kick: at an entry, where that was agreed on, or by flags.
    fn ask(&self, memory: &Memory, entry: u16, flags: u16) {
        let (offset, what) = if self.layout.event_idx {
            (4 + 8 * usize::from(self.layout.size), entry)
        } else {
            (0, flags)
        };
        // SAFETY: `avail_event`, the word behind the used ring, or the used ring's flags: the part
        // holds both.
        unsafe { self.used.u16(offset) }.store(what.to_le(), Ordering::Relaxed);
        if let Some(guest) = self.layout.used_log {
            memory.mark(guest.saturating_add(offset as u64), 2);
        }
    }
}
