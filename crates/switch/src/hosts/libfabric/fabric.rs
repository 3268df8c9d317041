//! What connections are made in: fabric, domain, the queue of events, and the endpoint that hears
//! calls.

use super::address::{allocate, read_address};
use super::known::Known;
use super::{Library, close, descriptor, has};
use crate::config::Provider;
use ginnel_fabric_bindings as b;
use std::ffi::{CStr, CString, c_int};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{null, null_mut};
use std::sync::{Arc, RwLock};

/// libfabric 1.17's interface: Debian 12's, which later ones have, too.
const VERSION: u32 = 1 << 16 | 17;
/// Bytes that come with a call or an answer at most.
const DATA: usize = 256;

/// `struct fi_eq_cm_entry` with room for what comes along.
#[repr(C)]
struct CmEntry {
    fid: *mut b::fid,
    info: *mut b::fi_info,
    data: [u8; DATA],
}

/// An information structure of libfabric's.
#[derive(Debug)]
pub struct Info(*mut b::fi_info);

// SAFETY: plain memory that only its owner uses.
unsafe impl Send for Info {}

impl Info {
    /// Where a call comes from.
    #[must_use]
    pub fn caller(&self) -> Option<SocketAddr> {
        // SAFETY: the structure is whole; `dest_addr` is null or as long as it says.
        unsafe { read_address((*self.0).dest_addr.cast_const(), (*self.0).dest_addrlen) }
    }

    pub(super) fn get(&self) -> *mut b::fi_info {
        self.0
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        if let Ok(library) = Library::get() {
            // SAFETY: it was given by getinfo, dupinfo or with an event, and is freed once.
            unsafe { (library.freeinfo)(self.0) };
        }
    }
}

/// What has happened to connections.
#[derive(Debug)]
pub enum Event {
    /// Somebody calls.
    Called {
        /// To be answered with.
        info: Info,
        /// What came along.
        data: Vec<u8>,
    },
    /// A connection is there.
    Connected {
        /// [`super::Connection::id`].
        id: usize,
        /// What came along with the answer to a call.
        data: Vec<u8>,
    },
    /// A connection ended, or never was.
    Ended {
        /// [`super::Connection::id`].
        id: usize,
        /// Why.
        why: String,
    },
}

/// The fabric: all that a host has open once.
#[derive(Debug)]
pub struct Fabric {
    pub(super) library: &'static Library,
    /// Of this host's own address.
    info: Info,
    pub(super) fabric: *mut b::fid_fabric,
    pub(super) domain: *mut b::fid_domain,
    pub(super) events: *mut b::fid_eq,
    calls: *mut b::fid_pep,
    wait: c_int,
    /// Machines' memory that devices know.
    pub(super) known: RwLock<Vec<Arc<Known>>>,
}

// SAFETY: opened with FI_THREAD_SAFE: libfabric locks what needs it (fi_domain(3)). The structure
// itself does not change.
unsafe impl Send for Fabric {}
// SAFETY: as above.
unsafe impl Sync for Fabric {}

impl Fabric {
    /// Opens everything and listens at `listen`.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(provider: Provider, listen: SocketAddr) -> Result<Self, String> {
        super::cache::check(provider)?;
        let library = Library::get()?;
        let info = own_info(library, provider, listen)?;
        let (fabric, domain, events, calls) = (null_mut(), null_mut(), null_mut(), null_mut());
        let (wait, known) = (-1, RwLock::default());
        let mut this = Self { library, info, fabric, domain, events, calls, wait, known };
        let info = this.info.get();
        // SAFETY: tables and structures are those of the objects that were just opened, which
        // `this` closes if anything fails; every pointer that is written to is ours.
        unsafe {
            let done = (library.fabric)((*info).fabric_attr, &raw mut this.fabric, null_mut());
            library.check(done, "no fabric")?;
            let domain = has((*(*this.fabric).ops).domain)?;
            let done = domain(this.fabric, info, &raw mut this.domain, null_mut());
            library.check(done, "no domain")?;
            let mut attr = b::fi_eq_attr {
                size: 0,
                flags: 0,
                wait_obj: b::FI_WAIT_FD,
                signaling_vector: 0,
                wait_set: null_mut(),
            };
            let open = has((*(*this.fabric).ops).eq_open)?;
            let done = open(this.fabric, &raw mut attr, &raw mut this.events, null_mut());
            library.check(done, "no queue of events")?;
            this.wait = descriptor(library, &raw mut (*this.events).fid)?;
            let open = has((*(*this.fabric).ops).passive_ep)?;
            let done = open(this.fabric, info, &raw mut this.calls, null_mut());
            library.check(done, "no endpoint for calls")?;
            let calls = &raw mut (*this.calls).fid;
            let bind = has((*(*calls).ops).bind)?;
            let done = bind(calls, &raw mut (*this.events).fid, 0);
            library.check(done, "no events of calls")?;
            let listen = has((*(*this.calls).cm).listen)?;
            library.check(listen(this.calls), "cannot listen")?;
        }
        Ok(this)
    }

    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    /// For a connection to `to`.
    ///
    /// # Errors
    /// That there is no memory.
    pub fn info_for(&self, to: SocketAddr) -> Result<Info, String> {
        // SAFETY: a whole structure; it is copied with all that it points to.
        let copy = Info(unsafe { (self.library.dupinfo)(self.info.get()) });
        if copy.0.is_null() {
            return Err("no memory".into());
        }
        // SAFETY: the copy is ours alone; its own address is as long as it says. What is put into
        // `dest_addr` is freed with it (by free(3)).
        unsafe {
            let own = read_address((*copy.0).src_addr.cast_const(), (*copy.0).src_addrlen);
            // From this host's address, and any port: else the other host takes it for a stranger.
            let own = own.map(|own| SocketAddr::new(own.ip(), 0)).ok_or("no address of its own")?;
            libc::free((*copy.0).src_addr);
            ((*copy.0).src_addr, (*copy.0).src_addrlen) = allocate(own)?;
            ((*copy.0).dest_addr, (*copy.0).dest_addrlen) = allocate(to)?;
        }
        Ok(copy)
    }

    /// Turns a call away.
    pub fn reject(&self, info: &Info) {
        // SAFETY: the handle came with the call, and is used once: the caller has `info` no more.
        unsafe {
            if let Some(reject) = (*(*self.calls).cm).reject {
                // Whoever called may be gone.
                let _ = reject(self.calls, (*info.get()).handle, null(), 0);
            }
        }
    }

    /// What has happened; `None`: nothing more.
    ///
    /// # Errors
    /// That nothing can be known any more.
    pub fn event(&self) -> Result<Option<Event>, String> {
        let (mut kind, mut entry) =
            (0, CmEntry { fid: null_mut(), info: null_mut(), data: [0; DATA] });
        // SAFETY: the queue is open; the entry has the room that is said.
        let len = unsafe {
            let read = has((*(*self.events).ops).read)?;
            let room = size_of::<CmEntry>();
            read(self.events, &raw mut kind, (&raw mut entry).cast(), room, 0)
        };
        let error = |number: u32| -(number as isize);
        if len == error(b::FI_EAGAIN) {
            return Ok(None);
        }
        if len == error(b::FI_EAVAIL) {
            return self.failure();
        }
        let head = size_of::<CmEntry>() - DATA;
        let Some(len) = usize::try_from(len).ok().and_then(|len| len.checked_sub(head)) else {
            return Err(format!("events cannot be read: {}", self.library.error(len as i64)));
        };
        let data = entry.data[..len.min(DATA)].to_vec();
        let id = entry.fid as usize;
        Ok(Some(match kind {
            b::FI_CONNREQ if !entry.info.is_null() => {
                Event::Called { info: Info(entry.info), data }
            }
            b::FI_CONNECTED => Event::Connected { id, data },
            b::FI_SHUTDOWN => Event::Ended { id, why: "the other host has closed it".into() },
            // Of nothing that was asked for: the next one may be.
            _ => Event::Ended { id: 0, why: String::new() },
        }))
    }

    /// What has failed.
    fn failure(&self) -> Result<Option<Event>, String> {
        // SAFETY: numbers and pointers, for which zero is a value. An error buffer of no bytes is
        // none (fi_eq(3)).
        let mut entry: b::fi_eq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open; the entry is ours.
        let len = unsafe {
            let read = has((*(*self.events).ops).readerr)?;
            read(self.events, &raw mut entry, 0)
        };
        if len < 0 {
            let again = len == -(b::FI_EAGAIN as isize);
            return if again { Ok(None) } else { Err("errors cannot be read".into()) };
        }
        let why = self.library.error(entry.err);
        Ok(Some(Event::Ended { id: entry.fid as usize, why }))
    }

    /// May one sleep until [`Self::as_fd`] can be read? Else there are events.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        // SAFETY: the queue is open.
        unsafe { self.try_wait(&raw mut (*self.events).fid) }
    }

    /// # Safety
    /// An open object of this fabric's that was opened with FI_WAIT_FD.
    pub(super) unsafe fn try_wait(&self, object: *mut b::fid) -> bool {
        let mut objects = [object];
        // SAFETY: the caller's promise.
        unsafe {
            let Some(try_wait) = (*(*self.fabric).ops).trywait else { return false };
            try_wait(self.fabric, objects.as_mut_ptr(), 1) == 0
        }
    }
}

impl AsFd for Fabric {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the queue of events, which is as long as this.
        unsafe { BorrowedFd::borrow_raw(self.wait) }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // Nobody sends from it any more.
        drop(std::mem::take(&mut self.known));
        // SAFETY: each is open or null; connections, which have this fabric in common, are gone.
        unsafe {
            if !self.calls.is_null() {
                close(&raw mut (*self.calls).fid);
            }
            if !self.events.is_null() {
                close(&raw mut (*self.events).fid);
            }
            if !self.domain.is_null() {
                close(&raw mut (*self.domain).fid);
            }
            if !self.fabric.is_null() {
                close(&raw mut (*self.fabric).fid);
            }
        }
    }
}

/// What libfabric says of this host's address with this provider.
fn own_info(library: &Library, provider: Provider, listen: SocketAddr) -> Result<Info, String> {
    // SAFETY: null asks for an empty structure.
    let hints = Info(unsafe { (library.dupinfo)(null()) });
    if hints.0.is_null() {
        return Err("no memory".into());
    }
    let text = |text: String| CString::new(text).map_err(|_| "a zero byte".to_owned());
    let (node, service) = (text(listen.ip().to_string())?, text(listen.port().to_string())?);
    let mut found = null_mut();
    // SAFETY: an empty structure comes with all its parts; texts are terminated, and libfabric
    // frees the copy of the name.
    let done = unsafe {
        let hints = &mut *hints.0;
        hints.caps = b::FI_MSG.into();
        hints.addr_format = if listen.is_ipv4() { b::FI_SOCKADDR_IN } else { b::FI_SOCKADDR_IN6 };
        (*hints.ep_attr).type_ = b::FI_EP_MSG;
        let domain = &mut *hints.domain_attr;
        domain.threading = b::FI_THREAD_SAFE;
        // What can be done if it is wanted; verbs wants all of it.
        domain.mr_mode =
            (b::FI_MR_LOCAL | b::FI_MR_VIRT_ADDR | b::FI_MR_ALLOCATED | b::FI_MR_PROV_KEY) as c_int;
        (*hints.fabric_attr).prov_name = libc::strdup(provider.name().as_ptr());
        let flags = b::FI_SOURCE | b::FI_NUMERICHOST;
        (library.getinfo)(VERSION, node.as_ptr(), service.as_ptr(), flags, hints, &raw mut found)
    };
    let name = provider.name().to_string_lossy();
    library.check(done, &format!("provider {name} has nothing at {listen}"))?;
    // The first is the best (fi_getinfo(3)); the others go with it.
    Ok(Info(found))
}

/// The provider's name, for libfabric.
impl Provider {
    fn name(self) -> &'static CStr {
        match self {
            Self::Tcp => c"tcp",
            Self::Verbs => c"verbs",
        }
    }
}
