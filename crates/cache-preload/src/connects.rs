//! Notices connections to the ports of caches.
//!
//! libmemcached connects anew without telling. A handle's proof that its connection leads to the
//! server whose memory is read ([`handles`](crate::handles)) holds as long as no connection was
//! made to that port, by whomever in this process.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each port of a cache, and one more for all unix sockets.
static WATCHED: [AtomicU64; 1025] = [const { AtomicU64::new(0) }; 1025];
/// Bit number of unix sockets.
pub const UNIX: usize = 1 << 16;
/// Connections that were made, or tried, to what is watched.
static MADE: AtomicU64 = AtomicU64::new(0);

fn word(port: usize) -> Option<&'static AtomicU64> {
    WATCHED.get(port / 64)
}

/// Counts connections to this port from now on.
pub fn watch(port: usize) {
    if let Some(word) = word(port) {
        word.fetch_or(1 << (port % 64), Ordering::SeqCst);
    }
}

/// Returns how many were made so far.
pub fn made() -> u64 {
    MADE.load(Ordering::SeqCst)
}

/// Notes that a connection to an address is about to be made.
///
/// # Safety
/// `address` is null or readable for `length` bytes.
pub unsafe fn note(address: *const libc::sockaddr, length: libc::socklen_t) {
    if address.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return;
    }
    // SAFETY: so many bytes are readable.
    let family = c_int::from(unsafe { (&raw const (*address).sa_family).read_unaligned() });
    let port = match family {
        libc::AF_UNIX => UNIX,
        // Both have the port behind the family (ip(7), ipv6(7)).
        libc::AF_INET | libc::AF_INET6 if length >= 4 => {
            // SAFETY: four bytes are readable.
            let port = unsafe { address.cast::<[u8; 4]>().read_unaligned() };
            usize::from(u16::from_be_bytes([port[2], port[3]]))
        }
        _ => return,
    };
    if word(port).is_some_and(|word| word.load(Ordering::SeqCst) >> (port % 64) & 1 == 1) {
        MADE.fetch_add(1, Ordering::SeqCst);
    }
}

/// The next library's connect(2).
///
/// # Safety
/// That of connect(2).
pub unsafe fn next(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    type Connect = unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int;
    static NEXT: OnceLock<Option<Connect>> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        // SAFETY: a C string; what the C library has under this name is of this type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, c"connect".as_ptr());
            std::mem::transmute::<*mut std::ffi::c_void, Option<Connect>>(found)
        }
    });
    match next {
        // SAFETY: the caller's promises are handed on.
        Some(connect) => unsafe { connect(socket, address, length) },
        // SAFETY: numbers, and a pointer that only the kernel looks at.
        None => unsafe { libc::syscall(libc::SYS_connect, socket, address, length) as c_int },
    }
}
