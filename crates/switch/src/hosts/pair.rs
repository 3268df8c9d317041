//! Two ends in one process that carry messages to each other without libfabric: for tests and
//! fuzzing, which write at one end what they like.

use super::link::{Lost, Wire};
use super::message::MESSAGE;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages that are on their way to one end at most.
const ROOM: usize = 8;
/// Buffers to send from, and as many to receive into.
const BUFFERS: u32 = 4;

/// What is on its way to one end.
#[derive(Debug, Default)]
struct Way(Mutex<(VecDeque<Vec<u8>>, bool)>);

impl Way {
    fn get(&self) -> MutexGuard<'_, (VecDeque<Vec<u8>>, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end.
#[derive(Debug)]
pub struct End {
    here: Arc<Way>,
    there: Arc<Way>,
    /// Rung by the other end …
    bell: Arc<OwnedFd>,
    /// … which this one rings.
    other_bell: Arc<OwnedFd>,
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    room: Vec<u32>,
    id: usize,
}

/// Both ends.
///
/// # Errors
/// The `errno` of eventfd(2).
pub fn pair() -> Result<[End; 2], Errno> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let (one, two) = (Arc::<Way>::default(), Arc::<Way>::default());
    let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new);
    let bells = [bell()?, bell()?];
    let end = |here: &Arc<Way>, there: &Arc<Way>, [own, other]: [usize; 2]| {
        Ok(End {
            here: Arc::clone(here),
            there: Arc::clone(there),
            bell: Arc::clone(&bells[own]),
            other_bell: Arc::clone(&bells[other]),
            buffers: (0..2 * BUFFERS).map(|_| vec![0; MESSAGE]).collect(),
            free: (0..BUFFERS).collect(),
            room: (BUFFERS..2 * BUFFERS).collect(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    };
    Ok([end(&one, &two, [0, 1])?, end(&two, &one, [1, 0])?])
}

impl End {
    /// Writes bytes as they are. False: the other end takes too little.
    #[must_use]
    pub fn write(&self, bytes: &[u8]) -> bool {
        let mut there = self.there.get();
        let fits = there.0.len() < ROOM && bytes.len() <= MESSAGE;
        if fits {
            there.0.push_back(bytes.to_vec());
            self.ring();
        }
        fits
    }

    fn ring(&self) {
        // A full counter has been rung.
        let _ = rustix::io::write(&*self.other_bell, &1u64.to_ne_bytes());
    }

    /// The next message as it is.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u8>> {
        self.here.get().0.pop_front()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.there.get().1 = true;
        self.ring();
    }
}

impl Wire for End {
    fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    fn untake(&mut self, index: u32) {
        self.free.push(index);
    }

    fn buffer(&mut self, index: u32) -> &mut [u8] {
        self.buffers.get_mut(index as usize).map_or(&mut [], |buffer| buffer.as_mut_slice())
    }

    fn sending(&self) -> usize {
        // As many as the other end has not taken.
        self.there.get().0.len()
    }

    fn send(&mut self, index: u32, len: usize) -> Result<bool, Lost> {
        let bytes = self.buffer(index).get(..len).unwrap_or_default().to_vec();
        let sent = self.write(&bytes);
        if sent {
            self.free.push(index);
        }
        Ok(sent)
    }

    fn look(&mut self) -> Result<(), Lost> {
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(u32, usize)>, Lost> {
        let Some(&index) = self.room.last() else { return Ok(None) };
        // It may not have been rung.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        let Some(bytes) = self.read() else {
            let gone = self.here.get().1;
            return if gone { Err(Lost("the other end is gone".into())) } else { Ok(None) };
        };
        self.room.pop();
        self.buffer(index)[..bytes.len()].copy_from_slice(&bytes);
        Ok(Some((index, bytes.len())))
    }

    fn has_more(&self) -> bool {
        !self.here.get().0.is_empty()
    }

    fn give_back(&mut self, index: u32) -> Result<(), Lost> {
        self.room.push(index);
        Ok(())
    }

    fn may_sleep(&mut self) -> bool {
        let here = self.here.get();
        here.0.is_empty() && !here.1
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn id(&self) -> usize {
        self.id
    }
}
