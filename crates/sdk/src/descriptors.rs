//! Which descriptors are this library's own, told to who asked: the one that is preloaded into
//! unmodified programs has them spared where the program closes whatever it finds.

use ginnel_region::sys;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;

/// Told of a descriptor that was made (true), or is about to be closed (false).
static LISTENER: OnceLock<fn(i32, bool)> = OnceLock::new();

/// Has `listener` told from here on.
pub fn listen(listener: fn(i32, bool)) {
    let _ = LISTENER.set(listener);
}

pub(crate) fn tell(fd: i32, made: bool) {
    if let Some(listener) = LISTENER.get() {
        listener(fd, made);
    }
}

/// A descriptor of this library's, where somebody listens out of the program's way.
pub(crate) struct Own(OwnedFd);

impl Own {
    pub fn new(fd: OwnedFd) -> Self {
        if LISTENER.get().is_none() {
            return Self(fd);
        }
        let fd = sys::move_high(fd.into_raw_fd());
        tell(fd, true);
        Self(crate::raw::owned(fd))
    }
}

impl std::ops::Deref for Own {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        tell(self.0.as_raw_fd(), false);
    }
}
