//! What this process has of the segment. A child of fork has what it inherits: its parent's maps.
//! It joins the segment anew, as a process of its own, and enters itself as one that has them
//! attached; where it was made by fork(3), before its parent's call returns (`fork.rs`).

use crate::caller;
use crate::kernel::Result;
use ginnel::Segment;
use ginnel::sysv::{Attachment, Caller, No, Space};
use ginnel_region::sys;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A lock of this process's threads that fork can take before, and give back in both after. It is
/// held for moments, by threads whose signals wait.
pub(crate) struct Alone<T> {
    taken: AtomicBool,
    pub value: UnsafeCell<T>,
}

// SAFETY: the value is reached by who has the lock alone.
unsafe impl<T: Send> Sync for Alone<T> {}

impl<T> Alone<T> {
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub fn take(&self) {
        while self
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            sys::yield_now();
        }
    }

    pub fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    pub fn lock(&self) -> AloneGuard<'_, T> {
        self.take();
        AloneGuard(self)
    }
}

pub(crate) struct AloneGuard<'a, T>(&'a Alone<T>);

impl<T> Deref for AloneGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for AloneGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for AloneGuard<'_, T> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A segment that is attached at a place.
pub(crate) struct Attached {
    pub at: usize,
    pub len: usize,
    /// Where its first byte lies in the segment's own map.
    pub own: usize,
    pub id: i32,
    /// None where the segment has no record of it: a child of fork found no room.
    pub record: Option<Attachment>,
}

/// This process's part.
pub(crate) struct Process {
    pid: u32,
    joined: Option<Joined>,
}

pub(crate) struct Joined {
    pub space: Space,
    pub path: PathBuf,
}

static CURRENT: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static BEGINNING: Alone<()> = Alone::new(());
pub(crate) static ATTACHED: Alone<Vec<Attached>> = Alone::new(Vec::new());
/// Descriptors of the segment's.
pub(crate) static DESCRIPTORS: Alone<Vec<i32>> = Alone::new(Vec::new());

/// What is attached in this process.
pub(crate) fn attached() -> AloneGuard<'static, Vec<Attached>> {
    ATTACHED.lock()
}

/// Is all of that entered in the segment?
pub(crate) fn attached_all() -> bool {
    attached().iter().all(|attached| attached.record.is_some())
}

pub(crate) fn current() -> Option<&'static Process> {
    // SAFETY: null, or from a box that was leaked; Acquire pairs with the store in `process`.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

impl Process {
    pub fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }
}

pub(crate) fn is_own(process: &Process) -> bool {
    // Where it joined, the segment's own mark says so: without a system call.
    process
        .joined
        .as_ref()
        .map_or_else(|| process.pid == sys::pid(), |joined| joined.space.is_own())
}

/// This process's number. Asked for by who has [`joined`].
pub(crate) fn pid() -> u32 {
    current().filter(|process| is_own(process)).map_or_else(sys::pid, |process| process.pid)
}

/// Who calls.
pub(crate) fn caller() -> Caller {
    caller::of(pid())
}

/// The segment's objects, if this process is there, or can come there. Signals wait meanwhile.
pub(crate) fn joined() -> Option<&'static Joined> {
    if let Some(process) = current().filter(|process| is_own(process)) {
        return process.joined.as_ref();
    }
    let _alone = BEGINNING.lock();
    if let Some(process) = current().filter(|process| is_own(process)) {
        return process.joined.as_ref();
    }
    close_parents();
    let parents = current().and_then(|parent| Some(parent.joined.as_ref()?.path.as_path()));
    let process = Box::leak(Box::new(Process { pid: sys::pid(), joined: join(parents) }));
    CURRENT.store(process, Ordering::Release);
    inherit(process.joined.as_ref());
    process.joined.as_ref()
}

/// The same, if this process has joined it before: signals need not wait.
pub(crate) fn joined_before() -> Option<&'static Joined> {
    current().filter(|process| is_own(process)).and_then(Process::joined)
}

/// `parents`: where the parent is. A child that has another user's segment as its own has none of
/// its parent's objects there; what its numbers stand for there is somebody else's.
fn join(parents: Option<&Path>) -> Option<Joined> {
    // As the library for sockets takes it.
    if std::env::var_os("GINNEL_OFF").is_some() {
        return None;
    }
    ginnel::descriptors::listen(spare);
    match Segment::own() {
        Ok(segment) if parents.is_some_and(|parents| parents != segment.path()) => {
            say(
                "its parent was another user: its System V objects are out of this process's reach",
            );
            None
        }
        Ok(segment) => Some(Joined { path: segment.path().to_owned(), space: Space::new(segment) }),
        Err(error) => {
            say(&format!("{error}; System V shared memory and semaphores stay in the kernel"));
            None
        }
    }
}

/// Enters this process as one that has attached what its parent had.
fn inherit(joined: Option<&Joined>) {
    let (caller, parent) = (caller(), sys::parent());
    for attached in attached().iter_mut() {
        // The parent's own record is not this process's to end.
        std::mem::forget(attached.record.take());
        let memory = joined.and_then(|joined| joined.space.memory(attached.id).ok());
        attached.record = memory.and_then(|memory| memory.attach(&caller).ok());
        if let Some(record) = &attached.record {
            record.begun(parent);
        }
    }
}

/// Tells the library that is preloaded for sockets, where it is there, that a descriptor is not the
/// program's to close.
fn spare(fd: i32, made: bool) {
    type Spare = extern "C" fn(i32, i32);
    static SPARE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
    static LOOKED: AtomicBool = AtomicBool::new(false);
    if !LOOKED.swap(true, Ordering::AcqRel) {
        // SAFETY: a terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ginnel_shim_spare".as_ptr()) };
        SPARE.store(found, Ordering::Release);
    }
    let found = SPARE.load(Ordering::Acquire);
    if !found.is_null() {
        // SAFETY: the function of that name has this type (`crates/shim`).
        let spare = unsafe { std::mem::transmute::<*mut libc::c_void, Spare>(found) };
        spare(fd, made.into());
    }
    let mut descriptors = DESCRIPTORS.lock();
    descriptors.retain(|&other| other != fd);
    if made {
        descriptors.push(fd);
    }
}

/// In a child of fork: closes what its parent had open.
fn close_parents() {
    let parents = std::mem::take(&mut *DESCRIPTORS.lock());
    for fd in parents {
        spare(fd, false);
        sys::close(fd);
    }
}

/// Says something once.
pub(crate) fn say(text: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let _ = sys::write(2, format!("ginnel: {text}\n").as_bytes());
    }
}

/// What a call that is not carried gives: the kernel's answer, where it is for the kernel.
pub(crate) fn or_kernel<T>(
    answer: std::result::Result<T, No>,
    kernel: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match answer {
        Ok(value) => Ok(value),
        Err(No::Errno(errno)) => Err(errno),
        Err(No::Kernel(error)) => {
            say(&format!("{error}; this one stays in the kernel (sysvipc(7))"));
            kernel()
        }
    }
}

/// Ends a record.
pub(crate) fn end(record: Option<Attachment>, caller: &Caller) {
    if let Some(record) = record {
        record.end(caller);
    }
}
