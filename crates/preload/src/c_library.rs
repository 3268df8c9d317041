//! Whether the C library that a program's dynamic linker will load can have the preloaded library
//! too.
//!
//! A library says which versions of glibc's symbols it needs (DT_VERNEED), and a C library which
//! ones it has (DT_VERDEF; the Linux Standard Base, "Symbol Versioning"). A dynamic linker that
//! misses one of them refuses to start the program. glibc's lies in one directory with its C
//! library.

use crate::{File, Name, Unreachable, file_name};
use ginnel_region::sys;
use std::ffi::CStr;

/// Of the system's own programs.
const SYSTEM: &CStr = if cfg!(target_arch = "aarch64") {
    c"/lib/ld-linux-aarch64.so.1"
} else {
    c"/lib64/ld-linux-x86-64.so.2"
};

/// musl's, where the system's programs are for that.
const MUSLS: &CStr = if cfg!(target_arch = "aarch64") {
    c"/lib/ld-musl-aarch64.so.1"
} else {
    c"/lib/ld-musl-x86_64.so.1"
};

/// As many links to a dynamic linker are followed.
const LINKS: usize = 8;

/// No file has more program headers, entries in its dynamic section, or versions than this.
const MOST: u64 = 512;

/// Nothing that is looked for lies so far behind a file's begin: sums of places do not overflow.
const FAR: u64 = 1 << 40;

/// Is that the name of glibc's dynamic linker?
pub(super) fn is_glibcs_linker(file_name: &[u8]) -> bool {
    // ld-2.31.so: what the others are links to, before 2.34.
    [&b"ld-linux"[..], b"ld.so", b"ld64.so", b"ld-2."]
        .iter()
        .any(|linker| file_name.starts_with(linker))
}

/// Why a program of the system's cannot have `library`; `None` if it can.
pub(super) fn of_system(library: Option<&CStr>) -> Option<Unreachable> {
    library?;
    let mut buffer: Name = [0; 256];
    match real_name(SYSTEM, &mut buffer) {
        Some(linker) => beside(linker, library),
        None if sys::openat(libc::AT_FDCWD, MUSLS, libc::O_PATH, 0).map(sys::close).is_ok() => {
            Some(musl(library))
        }
        None => Some(Unreachable::OtherLibrary),
    }
}

/// What is to be said of a program for musl.
pub(super) fn musl(library: Option<&CStr>) -> Unreachable {
    if library.is_some_and(super::has_musl) { Unreachable::Musl } else { Unreachable::MuslAlone }
}

/// Why a program that names `linker` as its dynamic linker cannot have `library`; `None` if it can.
pub(super) fn of_linker(linker: &CStr, library: Option<&CStr>) -> Option<Unreachable> {
    let mut buffer: Name = [0; 256];
    if is_musls(linker.to_bytes()) {
        return Some(musl(library));
    }
    if !is_glibcs_linker(file_name(linker)) {
        return Some(Unreachable::OtherLibrary);
    }
    // Where there is none, the program will not be executed.
    beside(real_name(linker, &mut buffer)?, library)
}

fn is_musls(name: &[u8]) -> bool {
    [&b"ld-musl"[..], b"libc.musl"]
        .iter()
        .any(|musl| name.windows(musl.len()).any(|part| part == *musl))
}

/// Compares `library` with the C library in the directory of `linker`, which is no link.
fn beside(linker: &CStr, library: Option<&CStr>) -> Option<Unreachable> {
    // A program for glibc, run by musl: what it has of glibc's functions comes from yet another
    // library.
    if is_musls(file_name(linker)) {
        return Some(Unreachable::MuslAlone);
    }
    let needed = match newest(library?, Table::Needed) {
        Newest::Minor(minor) => minor,
        Newest::Unclear => return None,
        Newest::NoFile => return Some(Unreachable::NoSuchFile),
    };
    let mut buffer: Name = [0; 256];
    match newest(sibling(linker, b"libc.so.6", &mut buffer)?, Table::Defined) {
        Newest::Minor(minor) => (minor < needed).then_some(Unreachable::OlderGlibc),
        Newest::Unclear => None,
        Newest::NoFile => Some(Unreachable::OtherLibrary),
    }
}

/// The name of what a path's last link leads to; `None` where there is nothing, or names are too
/// long.
fn real_name<'a>(path: &CStr, buffer: &'a mut Name) -> Option<&'a CStr> {
    buffer.get_mut(..path.count_bytes())?.copy_from_slice(path.to_bytes());
    for _ in 0..LINKS {
        let name = CStr::from_bytes_until_nul(buffer).ok()?;
        let mut target: Name = [0; 256];
        match sys::read_link(name, &mut target) {
            Ok(len) if len < target.len() => {
                let mut joint: Name = [0; 256];
                sibling(name, target.get(..len)?, &mut joint)?;
                *buffer = joint;
            }
            Err(libc::EINVAL) => return CStr::from_bytes_until_nul(buffer).ok(),
            _ => return None,
        }
    }
    None
}

/// `name` as it is meant in the directory of `path`; `None` where it is too long.
fn sibling<'a>(path: &CStr, name: &[u8], buffer: &'a mut Name) -> Option<&'a CStr> {
    let folder =
        if name.starts_with(b"/") { 0 } else { path.count_bytes() - file_name(path).len() };
    buffer.get_mut(..folder)?.copy_from_slice(path.to_bytes().get(..folder)?);
    buffer.get_mut(folder..folder + name.len())?.copy_from_slice(name);
    *buffer.get_mut(folder + name.len())? = 0;
    CStr::from_bytes_until_nul(buffer).ok()
}

/// The newest `GLIBC_2.MINOR` of a table of versions.
#[derive(Debug, PartialEq, Eq)]
enum Newest {
    Minor(u64),
    /// There is no such file.
    NoFile,
    /// It may not be read now, or is not understood.
    Unclear,
}

#[derive(Clone, Copy)]
enum Table {
    Needed,
    Defined,
}

fn newest(path: &CStr, table: Table) -> Newest {
    match sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK, 0) {
        Ok(fd) => {
            let minor = Versions::of(fd, table).and_then(|mut versions| versions.newest());
            sys::close(fd);
            minor.map_or(Newest::Unclear, Newest::Minor)
        }
        Err(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EACCES) => Newest::NoFile,
        // No descriptor is left, say: the other program may have one.
        Err(_) => Newest::Unclear,
    }
}

/// A table of versions of an ELF file, and where their names are.
struct Versions {
    table: Table,
    entries: File,
    names: File,
    at: u64,
    count: u64,
    strings: u64,
}

/// Fields of program headers, and kinds of them and of entries of the dynamic section (elf(5)).
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERNEED: u64 = 0x6fff_fffe;

impl Versions {
    fn of(fd: i32, table: Table) -> Option<Self> {
        let mut file = File::new(fd);
        // 64-bit, little-endian, as this program is.
        if !file.holds(0, b"\x7fELF\x02\x01") {
            return None;
        }
        let (mut dynamic, which) =
            (segments(&mut file).find(|part| part.kind == PT_DYNAMIC)?, table.tag());
        let (mut at, mut count, mut strings) = (None, 0, None);
        dynamic.size = dynamic.size.min(MOST * 16);
        for place in (0..dynamic.size / 16).map(|index| dynamic.offset + index * 16) {
            match (file.number(place, 8)?, file.number(place + 8, 8)?) {
                (0, _) => break,
                (DT_STRTAB, address) => strings = Some(address),
                (tag, address) if tag == which => at = Some(address),
                // The tag for the number of them is the next one.
                (tag, number) if tag == which + 1 => count = number,
                _ => {}
            }
        }
        let (at, strings) = (at?, strings?);
        let mut place = |address: u64| {
            let holds = |part: &Segment| {
                part.kind == PT_LOAD && address.wrapping_sub(part.address) < part.size
            };
            let part = segments(&mut file).find(holds)?;
            part.offset.checked_add(address - part.address).filter(|at| *at < FAR)
        };
        let (at, strings) = (place(at)?, place(strings)?);
        Some(Self {
            table,
            entries: file,
            names: File::new(fd),
            at,
            count: count.min(MOST),
            strings,
        })
    }

    /// The newest of all versions that count; `None` if none does, or the file is cut off.
    fn newest(&mut self) -> Option<u64> {
        let (mut at, mut newest) = (self.at, None);
        for _ in 0..self.count {
            // Where the first of its names is, how many count here, and where the next entry is.
            let (first, names, next) = match self.table {
                Table::Defined => {
                    (self.entries.number(at + 12, 4)?, 1, self.entries.number(at + 16, 4)?)
                }
                Table::Needed => (
                    self.entries.number(at + 8, 4)?,
                    self.entries.number(at + 2, 2)?,
                    self.entries.number(at + 12, 4)?,
                ),
            };
            let mut place = at + first;
            for _ in 0..names {
                let (name, after) = match self.table {
                    Table::Defined => (self.entries.number(place, 4)?, 0),
                    Table::Needed => {
                        (self.entries.number(place + 8, 4)?, self.entries.number(place + 12, 4)?)
                    }
                };
                newest = newest.max(self.minor(name));
                place += after;
            }
            at += next;
        }
        newest
    }

    /// The minor of the version so called; `None` if it is no version of glibc's.
    fn minor(&mut self, name: u64) -> Option<u64> {
        let at = self.strings + name;
        // What came with 2.36; later marks of this kind with 2.42.
        if self.names.holds(at, b"GLIBC_ABI_") {
            return Some(if self.names.holds(at, b"GLIBC_ABI_DT_RELR\0") { 36 } else { 42 });
        }
        if !self.names.holds(at, b"GLIBC_2.") {
            return None;
        }
        let mut digits = (8..12).map_while(|place| {
            self.names.number(at + place, 1).filter(|byte| (48..58).contains(byte))
        });
        digits.next().map(|first| digits.fold(first - 48, |sum, digit| sum * 10 + digit - 48))
    }
}

impl Table {
    fn tag(self) -> u64 {
        match self {
            Self::Needed => DT_VERNEED,
            Self::Defined => DT_VERDEF,
        }
    }
}

/// A part of a file: a program header.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

/// The parts of an ELF file, as far as they can be read.
fn segments(file: &mut File) -> impl Iterator<Item = Segment> {
    let (table, count) = (file.number(32, 8).unwrap_or(FAR), file.number(56, 2).unwrap_or(0));
    let headers = (0..count.min(MOST)).map(move |index| table.min(FAR) + index * super::HEADER);
    let segments = headers.map_while(|header| {
        let mut field = |offset| file.number(header + offset, if offset == 0 { 4 } else { 8 });
        Some(Segment { kind: field(0)?, offset: field(8)?, address: field(16)?, size: field(32)? })
    });
    segments.filter(|part| part.offset < FAR)
}

#[cfg(test)]
#[path = "c_library/tests.rs"]
mod tests;
