//! A segment that other kernels have too. In a virtual machine it comes through the guest driver
//! (`driver/ginnel.h`), or, where root has no driver, through sysfs, which maps it uncached and has
//! no doorbells; on the host as a descriptor, from `ginneld`.

use crate::{Error, header::MAGIC, sys};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use syscalls::Sysno;

/// Version of the driver's interface that this program speaks.
pub const INTERFACE: u32 = 1;

/// In [`Info::flags`].
const DOORBELLS: u32 = 1;

/// What the driver says of a device (`struct ginnel_info`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Info {
    version: u32,
    flags: u32,
    peer: u32,
    vectors: u32,
    size: u64,
}

/// `struct ginnel_watch`.
#[repr(C)]
struct Watch {
    offset: u64,
    vector: u32,
    reserved: u32,
}

/// `struct ginnel_secret`.
#[repr(C)]
struct Secret {
    fd: i32,
    side: u8,
    connected: u8,
    reserved: [u8; 2],
    nonces: [u64; 2],
    secret: u64,
}

const _: () =
    assert!(size_of::<Info>() == 24 && size_of::<Watch>() == 16 && size_of::<Secret>() == 32);

/// `_IOC(dir, 0xb6, number, size)` (ioctl(2)).
const fn command(direction: usize, number: usize, size: usize) -> usize {
    direction << 30 | size << 16 | 0xb6 << 8 | number
}

const GINNEL_INFO: usize = command(2, 1, size_of::<Info>());
const GINNEL_WATCH: usize = command(1, 2, size_of::<Watch>());
const GINNEL_RING: usize = command(0, 3, 0);
const GINNEL_SECRET: usize = command(3, 4, size_of::<Secret>());

/// How a segment came into this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file of this kernel.
    File,
    /// The guest driver's device: this machine's peer id, and how many vectors can be watched (0:
    /// no doorbells).
    Device {
        /// Id among the segment's peers.
        peer: u16,
        /// Interrupts.
        vectors: u16,
    },
    /// The PCI device's memory, by sysfs, without doorbells: this machine's peer id, where the
    /// device's register can be read.
    Bar {
        /// Id among the segment's peers.
        peer: Option<u16>,
    },
    /// Memory that `ginneld` gave to this process of the host, which is peer 0; how many vectors of
    /// the host can be waited for.
    Host {
        /// Doorbells of its own.
        vectors: u16,
    },
    /// Memory that the broker gave to this process and one other.
    Pair,
}

fn failed(doing: &'static str) -> impl Fn(i32) -> Error {
    move |errno| Error::System { doing, errno }
}

/// Source and size of an open file that is not a regular one, or lies in sysfs. `None`: a regular
/// file.
pub(crate) fn look(
    path: &Path,
    fd: i32,
    stat: &libc::stat,
) -> Result<Option<(Source, u64)>, Error> {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG if is_sysfs(fd) => Ok(Some((
            Source::Bar { peer: position(path) },
            u64::try_from(stat.st_size).unwrap_or(0),
        ))),
        libc::S_IFREG => Ok(None),
        libc::S_IFCHR => {
            let mut info = Info::default();
            // SAFETY: the command writes as many bytes as the value has. Any other driver's answer
            // is an error.
            unsafe {
                sys::raw(Sysno::ioctl, [fd as usize, GINNEL_INFO, &raw mut info as usize, 0, 0, 0])
            }
            .map_err(|errno| {
                if errno == libc::ENODEV {
                    failed("ask the guest driver")(errno)
                } else {
                    Error::Foreign
                }
            })?;
            if info.version != INTERFACE {
                return Err(Error::Driver { theirs: info.version, ours: INTERFACE });
            }
            let vectors = if info.flags & DOORBELLS != 0 {
                u16::try_from(info.vectors).unwrap_or(u16::MAX)
            } else {
                0
            };
            Ok(Some((
                Source::Device { peer: u16::try_from(info.peer).unwrap_or(u16::MAX), vectors },
                info.size,
            )))
        }
        _ => Err(Error::Foreign),
    }
}

fn is_sysfs(fd: i32) -> bool {
    const SYSFS_MAGIC: i64 = 0x6265_6572;
    // SAFETY: all zeroes is a valid `statfs`.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable and has the kernel's shape on 64-bit Linux.
    let asked =
        unsafe { sys::raw(Sysno::fstatfs, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0]) };
    asked.is_ok() && stat.f_type as i64 == SYSFS_MAGIC
}

/// Lets an open file of the driver's device become readable when an interrupt of `vector` finds the
/// word at `offset` other than zero.
///
/// # Errors
/// The `errno`.
pub fn watch(fd: i32, offset: u64, vector: u16) -> sys::Result<()> {
    let watch = Watch { offset, vector: vector.into(), reserved: 0 };
    // SAFETY: the command reads as many bytes as the value has.
    unsafe {
        sys::raw(Sysno::ioctl, [fd as usize, GINNEL_WATCH, &raw const watch as usize, 0, 0, 0])
    }
    .map(drop)
}

/// Rings a vector of a peer through an open file of the driver's device. Whether anybody is there
/// is not known.
///
/// # Errors
/// The `errno`: ENODEV once the device is gone.
pub fn ring(fd: i32, peer: u16, vector: u16) -> sys::Result<()> {
    let bell = usize::from(peer) << 16 | usize::from(vector);
    // SAFETY: the argument is a number.
    unsafe { sys::raw(Sysno::ioctl, [fd as usize, GINNEL_RING, bell, 0, 0, 0]) }.map(drop)
}

/// The secret of the connection of which this process holds the socket `fd`, as the driver makes it
/// (`driver/ginnel.h`, GINNEL_SECRET) for that `side` of a channel.
///
/// # Errors
/// The `errno`: ENOTTY from a driver that cannot, EINVAL where it is no TCP connection.
pub fn secret(
    device: i32,
    fd: i32,
    side: u8,
    connected: bool,
    nonces: [u64; 2],
) -> sys::Result<u64> {
    let mut secret =
        Secret { fd, side, connected: u8::from(connected), reserved: [0; 2], nonces, secret: 0 };
    // SAFETY: the command reads and writes as many bytes as the value has.
    unsafe {
        sys::raw(Sysno::ioctl, [device as usize, GINNEL_SECRET, &raw mut secret as usize, 0, 0, 0])
    }?;
    Ok(secret.secret)
}

/// Can the driver of this device make secrets? One of before cannot.
#[must_use]
pub fn makes_secrets(device: i32) -> bool {
    // No descriptor has this number, which only a driver that looks at it says.
    secret(device, -1, 0, false, [0; 2]) == Err(libc::EBADF)
}

/// An ivshmem device as sysfs shows it.
#[derive(Debug, Clone)]
pub struct PciDevice {
    /// Its directory.
    pub directory: PathBuf,
    /// The driver that is bound to it.
    pub driver: Option<String>,
    /// Bytes of its memory.
    pub size: u64,
}

/// Every ivshmem device of this machine, in the order of their addresses.
#[must_use]
pub fn pci_devices() -> Vec<PciDevice> {
    let entries = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let is = |directory: &Path, name: &str, id: &str| {
        std::fs::read_to_string(directory.join(name)).is_ok_and(|text| text.trim() == id)
    };
    let mut devices: Vec<PciDevice> = entries
        .map(|entry| entry.path())
        .filter(|path| is(path, "vendor", "0x1af4") && is(path, "device", "0x1110"))
        .map(|directory| PciDevice {
            driver: std::fs::read_link(directory.join("driver"))
                .ok()
                .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())),
            size: std::fs::metadata(directory.join("resource2")).map_or(0, |meta| meta.len()),
            directory,
        })
        .collect();
    devices.sort_by(|a, b| a.directory.cmp(&b.directory));
    devices
}

/// The devices of the guest driver, `/dev/ginnel0` and so on.
#[must_use]
pub fn driver_devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/ginnel").into_iter().flatten().flatten();
    let mut devices: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Some((name.strip_prefix("ginnel")?.parse().ok()?, Path::new("/dev").join(&name)))
        })
        .collect();
    devices.sort();
    devices.into_iter().map(|(_, path)| path).collect()
}

/// The segment that a program of this user is to use in this machine: the first device of the
/// driver that may be read and written, else, for root, the first ivshmem device without a driver
/// that holds a segment. `None`: no such machine.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let allowed = |path: &PathBuf| {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: a terminated string.
        unsafe {
            libc::faccessat(
                libc::AT_FDCWD,
                name.as_ptr(),
                libc::R_OK | libc::W_OK,
                libc::AT_EACCESS,
            ) == 0
        }
    };
    driver_devices().into_iter().find(allowed).or_else(|| {
        let free =
            pci_devices().into_iter().filter(|device| device.driver.is_none() && device.size > 0);
        free.map(|device| enabled(&device)).find(|bar| allowed(bar) && holds_segment(bar))
    })
}

/// The file of a device's memory; the device answers to its addresses from now on, as it does for a
/// driver.
fn enabled(device: &PciDevice) -> PathBuf {
    let enable = device.directory.join("enable");
    if std::fs::read_to_string(&enable).is_ok_and(|text| text.trim() == "0") {
        let _ = std::fs::write(&enable, "1");
    }
    device.directory.join("resource2")
}

/// Does the memory begin as segments do?
fn holds_segment(bar: &Path) -> bool {
    // SAFETY: aligned, in the page; atomics may be shared with anybody who uses the same memory.
    first_page(bar, |base| unsafe { &*base.cast::<AtomicU64>() }.load(Relaxed)) == Some(MAGIC)
}

/// The device's register IVPosition, beside its memory (QEMU, `docs/specs/ivshmem-spec`): the peer
/// id; 0 on a device that has none.
fn position(bar: &Path) -> Option<u16> {
    let registers = bar.with_file_name("resource0");
    // SAFETY: aligned, in the page; a register is read in one access of its width.
    let position =
        first_page(&registers, |base| unsafe { base.cast::<u32>().add(2).read_volatile() })?;
    u16::try_from(position).ok().filter(|&peer| peer != 0)
}

/// What `look` finds at the start of a device's memory or registers.
fn first_page<T>(file: &Path, look: impl FnOnce(*mut u8) -> T) -> Option<T> {
    let name = CString::new(file.as_os_str().as_bytes()).ok()?;
    let fd = sys::openat(libc::AT_FDCWD, &name, libc::O_RDWR, 0).ok()?;
    let mapped = sys::map_shared(fd, 4096, false);
    sys::close(fd);
    let base = mapped.ok()?;
    let found = look(base);
    // SAFETY: the map is this function's own.
    unsafe { sys::unmap(base, 4096) };
    Some(found)
}
