//! Two ends in one process that carry messages to each other without libfabric: for tests and
//! fuzzing, which write at one end what they like.

use super::link::{Lost, Wire};
use crate::loan::Loan;
use crate::ring::{Held, Region};
use crate::wire::MESSAGE;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::any::Any;
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
struct Flow {
    /// Each with the end of it that lies elsewhere.
    messages: VecDeque<(Vec<u8>, Option<Loan>)>,
    /// What was lent, and is not needed any more …
    done: Vec<Loan>,
    /// … so often so far.
    count: u64,
    /// The other end is no more.
    gone: bool,
}

#[derive(Debug, Default)]
struct Way(Mutex<Flow>);

impl Way {
    fn get(&self) -> MutexGuard<'_, Flow> {
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
    beside: Option<Arc<dyn Any + Send + Sync>>,
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
            beside: None,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    };
    Ok([end(&one, &two, [0, 1])?, end(&two, &one, [1, 0])?])
}

impl End {
    /// Lets go of this with the next thing that was lent and comes back.
    #[must_use]
    pub fn keeping(mut self, beside: Arc<dyn Any + Send + Sync>) -> Self {
        self.beside = Some(beside);
        self
    }

    /// Writes bytes as they are. False: the other end takes too little.
    #[must_use]
    pub fn write(&self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= MESSAGE;
        fits && self.put(bytes, None).is_ok()
    }

    fn put(&self, bytes: &[u8], loan: Option<Loan>) -> Result<(), Option<Loan>> {
        let mut there = self.there.get();
        if there.messages.len() >= ROOM {
            return Err(loan);
        }
        there.messages.push_back((bytes.to_vec(), loan));
        self.ring();
        Ok(())
    }

    fn ring(&self) {
        // A full counter has been rung.
        let _ = rustix::io::write(&*self.other_bell, &1u64.to_ne_bytes());
    }

    /// The next message as it is. What of it was lent is read only now.
    #[must_use]
    pub fn read(&self) -> Option<Vec<u8>> {
        let mut here = self.here.get();
        let (mut bytes, loan) = here.messages.pop_front()?;
        if let Some(loan) = loan {
            let own = bytes.len();
            let lent = loan.held().map_or(0, Held::len);
            bytes.resize(own + lent, 0);
            if let Some(held) = loan.held() {
                held.copy_to(&mut bytes[own..]);
            }
            here.count += 1;
            here.done.push(loan);
            self.ring();
        }
        Some(bytes)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut there = self.there.get();
        there.gone = true;
        // Nothing that was lent is read after this.
        let all = std::mem::take(&mut there.messages);
        there.messages = all.into_iter().filter(|(_, loan)| loan.is_none()).collect();
        there.done.clear();
        drop(there);
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
        self.there.get().messages.len()
    }

    fn send(&mut self, index: u32, len: usize) -> Result<bool, Lost> {
        let bytes = self.buffer(index).get(..len).unwrap_or_default().to_vec();
        let sent = self.write(&bytes);
        if sent {
            self.free.push(index);
        }
        Ok(sent)
    }

    fn pieces(&self) -> usize {
        3
    }

    fn takes(&self, region: &Arc<Region>) -> bool {
        region.is_steady()
    }

    fn send_with(&mut self, index: u32, len: usize, loan: Loan) -> Result<Option<Loan>, Lost> {
        let bytes = self.buffer(index).get(..len).unwrap_or_default().to_vec();
        match self.put(&bytes, Some(loan)) {
            Ok(()) => {
                self.free.push(index);
                Ok(None)
            }
            Err(loan) => Ok(loan),
        }
    }

    fn oldest(&self) -> Option<u64> {
        let there = self.there.get();
        there.messages.iter().any(|(_, loan)| loan.is_some()).then_some(there.count)
    }

    fn look(&mut self) -> Result<(), Lost> {
        let done = std::mem::take(&mut self.there.get().done);
        for loan in done {
            loan.settle(self.beside.take().into_iter().collect());
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(u32, usize)>, Lost> {
        self.look()?;
        let Some(&index) = self.room.last() else { return Ok(None) };
        // It may not have been rung.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
        let Some(bytes) = self.read() else {
            let gone = self.here.get().gone;
            return if gone { Err(Lost("the other end is gone".into())) } else { Ok(None) };
        };
        self.room.pop();
        self.buffer(index)[..bytes.len()].copy_from_slice(&bytes);
        Ok(Some((index, bytes.len())))
    }

    fn has_more(&self) -> bool {
        !self.here.get().messages.is_empty()
    }

    fn give_back(&mut self, index: u32) -> Result<(), Lost> {
        self.room.push(index);
        Ok(())
    }

    fn may_sleep(&mut self) -> bool {
        // One after the other: the other end locks the same two.
        let settled = self.there.get().done.is_empty();
        let here = self.here.get();
        settled && here.messages.is_empty() && !here.gone
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn id(&self) -> usize {
        self.id
    }
}
