//! How readers see at once that the server has ended, however it ended.
//!
//! A thread that lives as long as the server owns a robust futex in the cache's memory
//! (set_robust_list(2)). When the thread ends, the kernel sets a bit in that word, by SIGKILL too,
//! and before it closes the process's sockets: so nobody can listen on the server's addresses, and
//! be told something newer there, while a reader still believes the old memory.
//!
//! The only file beside [`memory`](crate::memory) with unsafe code: the list that the kernel walks
//! is given to it by address.

use crate::layout::header;
use crate::memory::Memory;
use crate::reader::OWNER_DIED;
use crate::sync::Ordering;
use std::io;
use std::sync::mpsc;

/// `struct robust_list` of linux/futex.h.
#[repr(C)]
struct Entry {
    next: *const Entry,
}

/// `struct robust_list_head`.
#[repr(C)]
struct Head {
    list: Entry,
    /// From an entry to its futex, bytes.
    futex_offset: libc::c_long,
    pending: *const Entry,
}

/// Starts the thread by whose end readers see the server's.
///
/// # Errors
/// Those of making a thread, and of set_robust_list(2).
pub fn hold(memory: &Memory) -> io::Result<()> {
    let memory = memory.keep();
    let (tell, told) = mpsc::sync_channel(1);
    let work = move || {
        let _ = tell.send(own(&memory));
        loop {
            std::thread::park();
        }
    };
    std::thread::Builder::new().name("life".into()).spawn(work)?;
    told.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Makes the calling thread, which must not end before the process does, the word's owner.
fn own(memory: &Memory) -> io::Result<()> {
    let word = &memory.words()[header::LIFE];
    word.store(
        u64::from(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()),
        Ordering::Release,
    );
    let half = if cfg!(target_endian = "big") { size_of::<u32>() } else { 0 };
    let futex = std::ptr::from_ref(word).addr() + half;
    let entry = Box::leak(Box::new(Entry { next: std::ptr::null() }));
    let list = Entry { next: std::ptr::from_ref(entry) };
    let futex_offset =
        futex.wrapping_sub(std::ptr::from_ref(entry).addr()).cast_signed() as libc::c_long;
    let head = Box::leak(Box::new(Head { list, futex_offset, pending: std::ptr::null() }));
    // The list ends where it begins.
    entry.next = std::ptr::from_ref(&head.list);
    // SAFETY: head and entry are laid out as linux/futex.h says and are never freed. The futex that
    // they lead to lies in `memory`, which the caller keeps mapped for good. The C library's list
    // for this thread, which this replaces, is empty: the thread takes no robust mutex.
    let done = unsafe {
        libc::syscall(libc::SYS_set_robust_list, std::ptr::from_ref(head), size_of::<Head>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tells readers that the server ends, for a server that does so in order.
pub fn end(memory: &Memory) {
    for words in memory.each() {
        words[header::LIFE].fetch_or(OWNER_DIED, Ordering::Release);
    }
}
