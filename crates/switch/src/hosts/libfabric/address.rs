//! Addresses of hosts as the system has them.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};

/// Where something is, as the system has it.
#[repr(C)]
union Address {
    four: libc::sockaddr_in,
    six: libc::sockaddr_in6,
}

/// Reads an address.
///
/// # Safety
/// `at` is null, or readable for `len` bytes.
pub(super) unsafe fn read_address(at: *const c_void, len: usize) -> Option<SocketAddr> {
    if at.is_null() || len < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: the caller's promise; the shortest address is that long.
    let four: libc::sockaddr_in = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
    match c_int::from(four.sin_family) {
        libc::AF_INET => {
            let ip = IpAddr::from(four.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip, u16::from_be(four.sin_port)))
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the caller's promise, and the length was looked at.
            let six = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = IpAddr::from(six.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.to_canonical(), u16::from_be(six.sin6_port)))
        }
        _ => None,
    }
}

/// An address in memory that libfabric can free, and its length.
pub(super) fn allocate(address: SocketAddr) -> Result<(*mut c_void, usize), String> {
    let (bytes, len) = system_address(address);
    // SAFETY: as many bytes as are written.
    unsafe {
        let to = libc::malloc(size_of::<Address>()).cast::<Address>();
        if to.is_null() {
            return Err("no memory".into());
        }
        to.write(bytes);
        Ok((to.cast(), len))
    }
}

fn system_address(address: SocketAddr) -> (Address, usize) {
    // SAFETY: numbers, for which zero is a value.
    let mut to: Address = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(address) => {
            to.four = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            (to, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            to.six = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            (to, size_of::<libc::sockaddr_in6>())
        }
    }
}

/// Runs `with` on an address as the system has it.
pub(super) fn with_address<T>(address: SocketAddr, with: impl FnOnce(*const c_void) -> T) -> T {
    let (address, _) = system_address(address);
    with((&raw const address).cast())
}
