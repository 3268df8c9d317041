//! One connection: its endpoint, the queue of its completions, and its buffers.

use super::address::with_address;
use super::fabric::{Fabric, Info};
use super::send::Lent;
use super::{close, descriptor, has};
use crate::hosts::link::{Lost, Wire};
use crate::loan::Loan;
use crate::ring::Region;
use crate::wire::MESSAGE;
use ginnel_fabric_bindings as b;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::Arc;

/// Buffers to send from, and as many to receive into.
pub const BUFFERS: usize = 8;
const BYTES: usize = 2 * BUFFERS * MESSAGE;
/// Completions that are taken at once.
const BATCH: usize = 16;

/// A connection. It is closed when it is dropped.
#[derive(Debug)]
pub struct Connection {
    pub(super) endpoint: *mut b::fid_ep,
    completions: *mut b::fid_cq,
    /// The buffers as the device knows them; null where it need not.
    registered: *mut b::fid_mr,
    buffers: *mut u8,
    wait: c_int,
    /// Those that libfabric has now …
    pub(super) lent: [bool; 2 * BUFFERS],
    /// … and what is lent to messages in them.
    pub(super) lent_to: [Option<Lent>; BUFFERS],
    /// How many were lent something so far.
    pub(super) loans: u64,
    /// Pieces of machines' memory that may be in one message.
    pieces: usize,
    /// Those that can be sent from.
    free: Vec<u32>,
    received: VecDeque<(u32, usize)>,
    /// It was found lost when nobody had asked.
    lost: Option<Lost>,
    pub(super) fabric: Arc<Fabric>,
}

// SAFETY: opened with FI_THREAD_SAFE, and its own memory is its alone.
unsafe impl Send for Connection {}

impl Connection {
    /// Opens one that is to call or to answer, ready to receive.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(fabric: &Arc<Fabric>, info: &Info) -> Result<Self, String> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which nothing else has.
        let buffers = unsafe { mmap_anonymous(null_mut(), BYTES, prot, MapFlags::PRIVATE) };
        let buffers = buffers.map_err(|errno| format!("no memory: {errno}"))?.cast();
        let mut this = Self {
            endpoint: null_mut(),
            completions: null_mut(),
            registered: null_mut(),
            buffers,
            wait: -1,
            lent: [false; 2 * BUFFERS],
            lent_to: [const { None }; BUFFERS],
            loans: 0,
            // SAFETY: the structure is whole.
            pieces: unsafe { (*(*info.get()).tx_attr).iov_limit }.saturating_sub(1),
            free: (0..BUFFERS as u32).rev().collect(),
            received: VecDeque::new(),
            lost: None,
            fabric: Arc::clone(fabric),
        };
        this.set_up(info)?;
        for index in BUFFERS..2 * BUFFERS {
            this.post(index as u32).map_err(|lost| lost.0)?;
        }
        Ok(this)
    }

    fn set_up(&mut self, info: &Info) -> Result<(), String> {
        let (fabric, library) = (Arc::clone(&self.fabric), self.fabric.library);
        let mut attr = b::fi_cq_attr {
            size: 2 * BUFFERS,
            flags: 0,
            format: b::FI_CQ_FORMAT_MSG,
            wait_obj: b::FI_WAIT_FD,
            signaling_vector: 0,
            wait_cond: b::FI_CQ_COND_NONE,
            wait_set: null_mut(),
        };
        // SAFETY: objects are open, or were just opened; whatever is written to is ours, and what
        // was opened is closed with `self`.
        unsafe {
            let domain = fabric.domain;
            let open = has((*(*domain).ops).endpoint)?;
            let done = open(domain, info.get(), &raw mut self.endpoint, null_mut());
            library.check(done, "no endpoint")?;
            let open = has((*(*domain).ops).cq_open)?;
            let done = open(domain, &raw mut attr, &raw mut self.completions, null_mut());
            library.check(done, "no queue of completions")?;
            self.wait = descriptor(library, &raw mut (*self.completions).fid)?;
            if (*(*info.get()).domain_attr).mr_mode & b::FI_MR_LOCAL as c_int != 0 {
                let register = has((*(*domain).mr).reg)?;
                let access = u64::from(b::FI_SEND | b::FI_RECV);
                let (domain, buffers) = (&raw mut (*domain).fid, self.buffers.cast());
                let to = &raw mut self.registered;
                let done = register(domain, buffers, BYTES, access, 0, 0, 0, to, null_mut());
                library.check(done, "memory cannot be registered (see ulimit -l)")?;
            }
            let endpoint = &raw mut (*self.endpoint).fid;
            let bind = has((*(*endpoint).ops).bind)?;
            let done = bind(endpoint, &raw mut (*fabric.events).fid, 0);
            library.check(done, "no events of the endpoint")?;
            let both = u64::from(b::FI_TRANSMIT | b::FI_RECV);
            let done = bind(endpoint, &raw mut (*self.completions).fid, both);
            library.check(done, "no completions of the endpoint")?;
            let control = has((*(*endpoint).ops).control)?;
            let done = control(endpoint, b::FI_ENABLE as c_int, null_mut());
            library.check(done, "the endpoint cannot be used")
        }
    }

    /// By which [`super::Event`]s name it.
    #[must_use]
    pub fn id(&self) -> usize {
        // Its first field is its `fid` (rdma/fi_endpoint.h), which events have.
        self.endpoint as usize
    }

    /// Calls another host.
    ///
    /// # Errors
    /// That it cannot be reached.
    pub fn call(&self, to: SocketAddr, data: &[u8]) -> Result<(), String> {
        // SAFETY: the endpoint is open; what is handed over is read before the call returns.
        let done = with_address(to, |address| unsafe {
            let connect = has((*(*self.endpoint).cm).connect)?;
            Ok::<_, String>(connect(self.endpoint, address, data.as_ptr().cast(), data.len()))
        });
        self.fabric.library.check(done?, "it cannot be called")
    }

    /// Answers a call.
    ///
    /// # Errors
    /// That whoever called is gone.
    pub fn answer(&self, data: &[u8]) -> Result<(), String> {
        // SAFETY: as above.
        let done = unsafe {
            let accept = has((*(*self.endpoint).cm).accept)?;
            accept(self.endpoint, data.as_ptr().cast(), data.len())
        };
        self.fabric.library.check(done, "it cannot be answered")
    }

    /// Where a buffer is.
    pub(super) fn place(&self, index: u32) -> *mut u8 {
        assert!((index as usize) < 2 * BUFFERS);
        // SAFETY: within the mapping.
        unsafe { self.buffers.add(index as usize * MESSAGE) }
    }

    /// A buffer that libfabric does not have.
    pub(super) fn own(&mut self, index: u32) -> &mut [u8] {
        if self.lent.get(index as usize) != Some(&false) {
            return &mut [];
        }
        // SAFETY: the buffer is ours as long as it is not lent, which takes `self` as well.
        unsafe { std::slice::from_raw_parts_mut(self.place(index), MESSAGE) }
    }

    /// What goes along with every buffer.
    pub(super) fn descriptor(&self) -> *mut c_void {
        // SAFETY: registered memory is open as long as `self`.
        if self.registered.is_null() { null_mut() } else { unsafe { (*self.registered).mem_desc } }
    }

    /// Gives libfabric a buffer to receive into.
    fn post(&mut self, index: u32) -> Result<(), Lost> {
        let (at, descriptor) = (self.place(index), self.descriptor());
        let context = index as usize as *mut c_void;
        self.lent[index as usize] = true;
        // SAFETY: an open endpoint; the buffer was ours, and is libfabric's from here on. The
        // context is a number that nobody follows: FI_CONTEXT was not agreed on.
        let done = unsafe {
            let receive = has((*(*self.endpoint).msg).recv).map_err(Lost)?;
            receive(self.endpoint, at.cast(), MESSAGE, descriptor, b::fi_addr_t::MAX, context)
        };
        if done == 0 {
            return Ok(());
        }
        self.lent[index as usize] = false;
        Err(Lost(format!("it cannot receive: {}", self.fabric.library.error(done as i64))))
    }

    /// Takes what is completed.
    fn read(&mut self) -> Result<(), Lost> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let none = b::fi_cq_msg_entry { op_context: null_mut(), flags: 0, len: 0 };
        let mut entries = [none; BATCH];
        // SAFETY: the queue is open, and of this format; there is room for as many as is said.
        let count = unsafe {
            let read = has((*(*self.completions).ops).read).map_err(Lost)?;
            read(self.completions, entries.as_mut_ptr().cast(), BATCH)
        };
        if count == -(b::FI_EAGAIN as isize) {
            return Ok(());
        }
        let Ok(count) = usize::try_from(count) else { return Err(self.failure(count)) };
        for entry in entries.iter().take(count) {
            let index = entry.op_context as usize;
            let Some(lent) = self.lent.get_mut(index).filter(|lent| **lent) else {
                return Err(Lost("a completion of nothing".into()));
            };
            *lent = false;
            if index < BUFFERS {
                self.free.push(index as u32);
                if let Some(lent) = self.lent_to[index].take() {
                    lent.settle();
                }
            } else {
                self.received.push_back((index as u32, entry.len.min(MESSAGE)));
            }
        }
        Ok(())
    }

    fn failure(&self, number: isize) -> Lost {
        let library = self.fabric.library;
        if number != -(b::FI_EAVAIL as isize) {
            return Lost(library.error(number as i64));
        }
        // SAFETY: numbers and pointers, for which zero is a value.
        let mut entry: b::fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open; the entry is ours.
        let got = unsafe {
            let read = (*(*self.completions).ops).readerr;
            read.map(|read| read(self.completions, &raw mut entry, 0))
        };
        match got {
            // What was on its way when the connection ended.
            Some(got) if got > 0 && entry.err == b::FI_ECANCELED as c_int => {
                Lost("the connection has ended".into())
            }
            Some(got) if got > 0 => Lost(library.error(entry.err)),
            _ => Lost("it failed".into()),
        }
    }
}

impl Wire for Connection {
    fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    fn untake(&mut self, index: u32) {
        self.free.push(index);
    }

    fn buffer(&mut self, index: u32) -> &mut [u8] {
        self.own(index)
    }

    fn sending(&self) -> usize {
        self.lent[..BUFFERS].iter().filter(|lent| **lent).count()
    }

    fn send(&mut self, index: u32, len: usize) -> Result<bool, Lost> {
        self.send_own(index, len)
    }

    fn pieces(&self) -> usize {
        self.pieces
    }

    /// What a device knows stays in memory, whatever becomes of its file.
    fn takes(&self, region: &Arc<Region>) -> bool {
        match self.fabric.registers() {
            true => self.fabric.known(region).is_some(),
            false => region.is_steady(),
        }
    }

    fn send_with(&mut self, index: u32, len: usize, loan: Loan) -> Result<Option<Loan>, Lost> {
        self.send_lent(index, len, loan)
    }

    fn oldest(&self) -> Option<u64> {
        self.lent_to.iter().flatten().map(|lent| lent.number).min()
    }

    fn look(&mut self) -> Result<(), Lost> {
        self.read()
    }

    fn receive(&mut self) -> Result<Option<(u32, usize)>, Lost> {
        if self.received.is_empty() {
            self.read()?;
        }
        Ok(self.received.pop_front())
    }

    fn has_more(&self) -> bool {
        !self.received.is_empty()
    }

    fn give_back(&mut self, index: u32) -> Result<(), Lost> {
        let is_own = self.lent.get(index as usize) == Some(&false);
        assert!(is_own && index as usize >= BUFFERS);
        self.post(index)
    }

    fn may_sleep(&mut self) -> bool {
        let free = self.free.len();
        // SAFETY: the queue is open.
        let may = unsafe { self.fabric.try_wait(&raw mut (*self.completions).fid) };
        // It may have taken back that there is something: from here on it is told anew.
        if self.lost.is_none() {
            self.lost = self.read().err();
        }
        may && self.lost.is_none() && self.received.is_empty() && self.free.len() == free
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn id(&self) -> usize {
        Connection::id(self)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the queue of completions, which is as long as this.
        unsafe { BorrowedFd::borrow_raw(self.wait) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: each is open or null, and is closed once. Once the endpoint is closed libfabric
        // has no buffer any more; what was lent is given back after that, as fields are dropped.
        unsafe {
            if !self.endpoint.is_null() {
                close(&raw mut (*self.endpoint).fid);
            }
            if !self.completions.is_null() {
                close(&raw mut (*self.completions).fid);
            }
            if !self.registered.is_null() {
                close(&raw mut (*self.registered).fid);
            }
            // Nothing is left to be done where that fails.
            let _ = munmap(self.buffers.cast(), BYTES);
        }
    }
}
