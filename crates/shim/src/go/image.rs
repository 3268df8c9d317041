//! The main program as it lies in memory: which addresses are its own, and where its sections are.

use core::ffi::c_int;
use core::ops::Range;
use ginnel_region::sys;
use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Shdr};
use std::mem::{MaybeUninit, size_of};

/// A program's parts in memory. Its addresses are in the file's terms plus `base`.
pub struct Image {
    /// What is added to the file's addresses.
    pub base: usize,
    headers: Vec<Elf64_Phdr>,
}

/// `n_type` of Go's build id (cmd/internal/buildid, `ELF_NOTE_GOBUILDID_TAG`).
const GO_BUILD_ID: u32 = 4;

impl Image {
    /// A program whose segments are mapped as `headers` say.
    pub fn new(base: usize, headers: Vec<Elf64_Phdr>) -> Self {
        Self { base, headers }
    }

    /// The program that this process was started with.
    pub fn of_process() -> Option<Self> {
        extern "C" fn first(
            info: *mut libc::dl_phdr_info,
            _: usize,
            found: *mut libc::c_void,
        ) -> c_int {
            // SAFETY: the loader's own entry, and the place that the caller below passes.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<Image>>()) };
            // SAFETY: the loader's table of this object.
            let headers = unsafe {
                core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum))
            };
            *found = Some(Image { base: info.dlpi_addr as usize, headers: headers.to_vec() });
            1
        }
        let mut found: Option<Self> = None;
        // SAFETY: the callback takes what it is given as `dl_iterate_phdr` promises it.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut found).cast()) };
        found
    }

    /// Does it say that Go's linker made it? Costs nothing where it does not.
    pub fn has_go_note(&self) -> bool {
        self.headers.iter().filter(|header| header.p_type == libc::PT_NOTE).any(|header| {
            let Some(mut notes) = self
                .bytes(self.base.wrapping_add(header.p_vaddr as usize), header.p_filesz as usize)
            else {
                return false;
            };
            while let Some(([name, value, kind], rest)) = words(notes) {
                if kind == GO_BUILD_ID && rest.starts_with(b"Go\0") {
                    return true;
                }
                let skip = (name as usize)
                    .next_multiple_of(4)
                    .saturating_add((value as usize).next_multiple_of(4));
                notes = rest.get(skip..).unwrap_or_default();
            }
            false
        })
    }

    /// Does it name a dynamic linker?
    pub fn is_dynamic(&self) -> bool {
        self.headers.iter().any(|header| header.p_type == libc::PT_INTERP)
    }

    /// Where its code is.
    pub fn code(&self) -> Range<usize> {
        let code = self.loaded(libc::PF_X).map(|(_, span)| span);
        code.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or(0..0)
    }

    /// The parts of its file that are mapped with all of `flags`, and where.
    pub fn loaded(&self, flags: u32) -> impl Iterator<Item = (&Elf64_Phdr, Range<usize>)> {
        let wanted = move |header: &&Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & flags == flags
        };
        self.headers.iter().filter(wanted).map(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            (header, start..start.saturating_add(header.p_filesz as usize))
        })
    }

    /// The `len` bytes at `at`: none where they are not of the program's file.
    pub fn bytes(&self, at: usize, len: usize) -> Option<&'static [u8]> {
        let end = at.checked_add(len)?;
        let inside = self.loaded(libc::PF_R).any(|(_, span)| span.start <= at && end <= span.end);
        // SAFETY: mapped readable as long as the process lives; what is read there (tables, code)
        // does not change once the loader is through with it.
        inside.then(|| unsafe {
            core::slice::from_raw_parts(core::ptr::with_exposed_provenance(at), len)
        })
    }

    /// The word at `at`.
    pub fn word(&self, at: usize) -> Option<usize> {
        self.bytes(at, 8).and_then(|bytes| bytes.try_into().ok()).map(usize::from_le_bytes)
    }

    /// Where the section of one of these names lies in memory, as the program's file `fd` says.
    pub fn section(&self, fd: i32, names: &[&[u8]]) -> Option<Range<usize>> {
        const SIZE: usize = size_of::<Elf64_Shdr>();
        /// Linkers' tables of names are far shorter.
        const MOST: usize = 64 << 10;
        let header: Elf64_Ehdr = read(fd, 0)?;
        if usize::from(header.e_shentsize) != SIZE {
            return None;
        }
        let sections = bytes(fd, header.e_shoff, usize::from(header.e_shnum).checked_mul(SIZE)?)?;
        let section = |index: usize| {
            let part = sections.get(index.checked_mul(SIZE)?..)?.get(..SIZE)?;
            // SAFETY: as many bytes as the table's entry has, for which all bytes are valid.
            Some(unsafe { part.as_ptr().cast::<Elf64_Shdr>().read_unaligned() })
        };
        let strings = section(header.e_shstrndx.into())?;
        let strings =
            bytes(fd, strings.sh_offset, usize::try_from(strings.sh_size).ok()?.min(MOST))?;
        (0..header.e_shnum.into()).find_map(|index| {
            let found = section(index)?;
            let name = strings.get(found.sh_name as usize..)?.split(|byte| *byte == 0).next()?;
            let start = self.base.wrapping_add(found.sh_addr as usize);
            let span = start..start.checked_add(found.sh_size as usize)?;
            names.contains(&name).then_some(span)
        })
    }
}

/// So many bytes of the file.
fn bytes(fd: i32, at: u64, len: usize) -> Option<Vec<u8>> {
    /// No linker makes a longer table.
    const MOST: usize = 1 << 20;
    let mut bytes = vec![0; len.min(MOST)];
    (sys::pread(fd, &mut bytes, at).ok()? == len).then_some(bytes)
}

/// The first three words of `bytes`, and what follows.
fn words(bytes: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (first, rest) = bytes.split_at_checked(12)?;
    let mut words = first.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
    Some(([words.next()?, words.next()?, words.next()?], rest))
}

/// Reads one of the file's tables.
pub fn read<T: Copy>(fd: i32, at: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: as many bytes as the value has, and nobody else's.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    let whole = sys::pread(fd, bytes, at).is_ok_and(|read| read == size_of::<T>());
    // SAFETY: used with the plain tables of elf(5), for which all bytes are valid.
    whole.then(|| unsafe { value.assume_init() })
}
