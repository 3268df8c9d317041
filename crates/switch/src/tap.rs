//! A tap device of the host's kernel as a port (Linux, Documentation/networking/tuntap): the way
//! to the host's network, by an address on the device itself or by a bridge.

#![allow(unsafe_code, reason = "two requests of ioctl(2) that no library offers")]

use crate::wire::{HEADER, features};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Setter, Updater, ioctl, opcode};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const TUNSETIFF: u32 = opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: u32 = opcode::write::<u32>(b'T', 208);
const TUNSETVNETHDRSZ: u32 = opcode::write::<i32>(b'T', 216);
const TAP: u16 = 2;
const NO_PI: u16 = 0x1000;
const VNET_HDR: u16 = 0x4000;
/// TUN_F_CSUM, _TSO4, _TSO6, _TSO_ECN.
const OFFLOADS: u32 = 1 | 2 | 4 | 8;

/// `struct ifreq`, as far as it is used here.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// The device.
#[derive(Debug)]
pub struct Tap(OwnedFd);

impl Tap {
    /// What it takes, as a guest's card would say it.
    pub const AGREED: u64 = features::GUEST_CSUM
        | features::GUEST_TSO4
        | features::GUEST_TSO6
        | features::GUEST_ECN
        | features::VERSION_1;

    /// Opens a device of this name, which is made if there is none (for as long as it is open).
    ///
    /// # Errors
    /// Those of the system: whoever is not root needs one that was made for it
    /// (`ip tuntap add NAME mode tap user USER`).
    pub fn open(name: &str) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let tap = open("/dev/net/tun", flags, Mode::empty())?;
        let mut request = Request { name: [0; 16], flags: TAP | NO_PI | VNET_HDR, rest: [0; 22] };
        let room = request.name.get_mut(..name.len()).filter(|room| room.len() < 16);
        room.ok_or_else(|| io::Error::other("longer than an interface's name can be"))?
            .copy_from_slice(name.as_bytes());
        // SAFETY: the request takes a `struct ifreq`, and writes the name back into it.
        unsafe { ioctl(&tap, Updater::<TUNSETIFF, Request>::new(&mut request)) }?;
        // SAFETY: the request takes the address of a number.
        unsafe { ioctl(&tap, Setter::<TUNSETVNETHDRSZ, i32>::new(HEADER as i32)) }?;
        let tap = Self(tap);
        tap.take(OFFLOADS)?;
        Ok(tap)
    }

    /// Of what the kernel sends it is given this with work left to do, by its bits (TUN_F_CSUM and
    /// so on): checksums to complete, segments to cut. The kernel does the rest itself.
    ///
    /// # Errors
    /// The `errno` of ioctl(2): it does not know one of them.
    pub fn take(&self, offloads: u32) -> Result<(), Errno> {
        // SAFETY: the request takes the number itself, in the place of an address.
        unsafe {
            let set = rustix::ioctl::IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads as usize);
            ioctl(&self.0, set)
        }
    }

    /// The next frame behind its header; `None` where there is none now.
    ///
    /// # Errors
    /// The `errno` of read(2).
    pub fn read(&self, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        match rustix::io::read(&self.0, into) {
            Ok(len) => Ok(Some(len)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Gives it a frame behind its header. False where it does not take it: its queue is full, or
    /// it is down.
    #[must_use]
    pub fn write(&self, frame: &[u8]) -> bool {
        rustix::io::write(&self.0, frame).is_ok_and(|len| len == frame.len())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
