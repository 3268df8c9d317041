//! Closing what others have sent, in a thread of its own.
//!
//! The last close of a file may wait as long as somebody else likes: a FUSE file's for its daemon,
//! a socket's with SO_LINGER for its peer, a large memfd's until its pages are freed. A front end
//! may pass any of them. So the thread that moves frames closes nothing that it was sent but
//! eventfds, and unmaps nothing: it hands everything to the closer of the port. Each port has its
//! own, since one that waits for ever must hold up that port alone.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Closes things one after the other. Its thread lives as long as there are any.
#[derive(Default)]
pub struct Closer(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    things: VecDeque<Box<dyn Any + Send>>,
    /// A thread is there, and has taken at most one thing out.
    runs: bool,
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Closer({})", self.waiting())
    }
}

impl Closer {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it dropped by the thread.
    pub fn close(self: &Arc<Self>, thing: impl Any + Send) {
        self.queue().things.push_back(Box::new(thing));
        self.go_on();
    }

    /// Starts the thread, if there is something for it. Where no thread can be had, everything
    /// waits until the next call.
    pub fn go_on(self: &Arc<Self>) {
        let mut queue = self.queue();
        if queue.runs || queue.things.is_empty() {
            return;
        }
        let this = Arc::clone(self);
        let named = std::thread::Builder::new().name("close".into());
        queue.runs = named.spawn(move || this.run()).is_ok();
    }

    fn run(&self) {
        loop {
            let mut queue = self.queue();
            let Some(thing) = queue.things.pop_front() else {
                queue.runs = false;
                return;
            };
            drop(queue);
            drop(thing);
        }
    }

    /// How many things are not closed yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let queue = self.queue();
        queue.things.len() + usize::from(queue.runs)
    }
}

/// A descriptor that a front end sent. Wherever it is dropped, a closer closes it.
#[derive(Debug)]
pub struct Received {
    /// Always there, until it is taken or dropped.
    descriptor: Option<OwnedFd>,
    closer: Arc<Closer>,
}

impl Received {
    /// From the socket.
    #[must_use]
    pub fn new(descriptor: OwnedFd, closer: &Arc<Closer>) -> Self {
        Self { descriptor: Some(descriptor), closer: Arc::clone(closer) }
    }

    /// Who closes it.
    #[must_use]
    pub fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    /// The descriptor of an eventfd, whose close never waits; `None` where it is something else.
    /// (Whoever waits for something else, or writes to it, might wait for ever.)
    #[must_use]
    pub fn into_eventfd(mut self) -> Option<OwnedFd> {
        let link = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
        let is = std::fs::read_link(link).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventfd]");
        if is { self.descriptor.take() } else { None }
    }
}

impl AsFd for Received {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.descriptor {
            Some(descriptor) => descriptor.as_fd(),
            None => unreachable!("it is taken only by whoever consumes this"),
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            self.closer.close(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    /// Whose drop waits until the other end is gone.
    struct Stuck(Receiver<()>);

    impl Drop for Stuck {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_waits_to_be_closed_holds_up_nobody() {
        let closer = Arc::new(Closer::default());
        let (release, waits) = channel();
        closer.close(Stuck(waits));
        closer.close(7);
        assert!(closer.waiting() >= 1, "it came back although the first is not closed");
        drop(release);
        let until = Instant::now() + Duration::from_secs(20);
        while closer.waiting() > 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        // And begins again.
        closer.close(7);
    }
}
