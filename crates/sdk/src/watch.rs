//! The descriptor of an object on which many sleep: one for each handle, for a program's own poll
//! or epoll. It stands in the object's list as a sleeper does.

use crate::joined::Inner;
use crate::presence::Presence;
use crate::sleeper::Sleeper;
use crate::waitlist::{Place, Waitlist};
use crate::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// What a handle has of it: nothing before somebody asks for the descriptor.
#[derive(Default)]
pub(crate) struct Watch(OnceLock<Mutex<Armed>>);

struct Armed {
    sleeper: Sleeper,
    place: Place<'static>,
}

impl Watch {
    fn armed(&self) -> Option<MutexGuard<'_, Armed>> {
        let armed = self.0.get()?;
        Some(armed.lock().unwrap_or_else(|broken| broken.into_inner()))
    }

    /// The descriptor, made at the first call, and readable then: a call before may have found
    /// nothing, and nobody was asked to wake this.
    pub fn descriptor(&self, inner: &'static Inner, list: Waitlist) -> Result<BorrowedFd<'_>> {
        let presence = &inner.presence;
        presence.check()?;
        if self.0.get().is_none() {
            let (sleeper, place) = (Sleeper::new(presence)?, Place::new(list, presence));
            sleeper.arm_at_once(presence, &place);
            if let Err(late) = self.0.set(Mutex::new(Armed { sleeper, place })) {
                late.into_inner().unwrap_or_else(|broken| broken.into_inner()).retire(presence);
            }
        }
        let fd = self.armed().map(|armed| armed.sleeper.as_fd().as_raw_fd());
        // It is open for as long as the handle is there.
        fd.map(crate::raw::borrow).ok_or(Error::WouldBlock)
    }

    /// A call has found nothing: has the descriptor tell when another is worth it, and looks once
    /// more.
    pub fn arm<T>(&self, presence: &Presence, attempt: impl FnOnce() -> Option<T>) -> Option<T> {
        let armed = self.armed()?;
        armed.sleeper.arm(presence, &armed.place);
        let found = attempt();
        if found.is_some() {
            armed.sleeper.again(presence, &armed.place);
        }
        found
    }

    /// The handle is dropped.
    pub fn retire(&mut self, presence: &Presence) {
        // A child of fork touches nothing of its parent's.
        let armed = self.0.take().filter(|_| presence.check().is_ok());
        if let Some(armed) = armed {
            armed.into_inner().unwrap_or_else(|broken| broken.into_inner()).retire(presence);
        }
    }
}

impl Armed {
    fn retire(self, presence: &Presence) {
        if presence.check_all().is_ok() {
            self.sleeper.disarm(presence, &self.place);
        }
        self.sleeper.retire(presence);
    }
}
