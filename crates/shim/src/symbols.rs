//! Finding the functions that this library stands before, by the symbol tables of the loaded
//! libraries (ELF gABI, chapter 5; the GNU hash table and `.gnu.version` as glibc's `dl-lookup.c`
//! reads them).
//!
//! `dlsym` would do, but takes memory before glibc 2.34. An allocator that opens files while it
//! sets itself up (jemalloc does, by `syscall`) comes here with its own lock held, and would wait
//! for itself for ever. Here nothing is allocated, and no lock is taken but the loader's.
use core::ffi::CStr;
use core::mem::size_of;
use core::ops::Range;
use core::ptr;
use libc::{Elf64_Phdr, Elf64_Sym, c_int, c_void, dl_phdr_info};

/// `st_info`: what a symbol stands for.
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;

/// A search through the libraries that come after this one, or through all and the program.
struct Search<'a> {
    name: &'a CStr,
    hash: u32,
    kind: u8,
    /// This library came by, or need not.
    passed: bool,
    /// `None`: go on looking.
    found: Option<*mut c_void>,
    /// The object that was looked at last: its addresses.
    within: Range<usize>,
}

/// What `dlsym(RTLD_NEXT, name)` finds, called from this library. Null: nothing, or nothing that
/// can be said without the loader (indirect functions).
#[must_use]
pub fn next(name: &CStr) -> *mut c_void {
    search(name, STT_FUNC, false)
}

/// Where the variable is that everybody means by this name: a program may have it in place of the
/// library that defines it. Null: there is none.
#[must_use]
pub fn variable(name: &CStr) -> *mut c_void {
    search(name, STT_OBJECT, true)
}

fn search(name: &CStr, kind: u8, passed: bool) -> *mut c_void {
    let mut search = Search::new(name, kind, passed);
    search.run();
    search.found.unwrap_or(ptr::null_mut())
}

impl<'a> Search<'a> {
    fn new(name: &'a CStr, kind: u8, passed: bool) -> Self {
        Self { name, hash: hash(name), kind, passed, found: None, within: 0..0 }
    }

    fn run(&mut self) {
        // SAFETY: the callback takes what it is given as `dl_iterate_phdr` promises it, and the
        // search outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(self).cast()) };
    }
}

/// The addresses of glibc; none where the C library is another. A function outside is of a library
/// that stands before it.
#[must_use]
pub fn glibc() -> Range<usize> {
    let mut search = Search::new(c"gnu_get_libc_version", STT_FUNC, false);
    search.run();
    if search.found.is_some_and(|found| !found.is_null()) { search.within } else { 0..0 }
}

/// The GNU hash of a symbol's name.
fn hash(name: &CStr) -> u32 {
    name.to_bytes()
        .iter()
        .fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

unsafe extern "C" fn look(info: *mut dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: as `search` calls it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: the loader's own table of this object.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let span = |header: &Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    };
    if !search.passed {
        let here = (look as *const ()).addr();
        search.passed = loaded().any(|header| span(header).contains(&here));
        return 0;
    }
    // SAFETY: takes a number only.
    if base as u64 == unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } {
        // The kernel's own, which may have another kind of table, and nothing that is searched for
        // here.
        return 0;
    }
    search.within = loaded()
        .map(span)
        .reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
        .unwrap_or(0..0);
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
        return 0;
    };
    let dynamic = base.wrapping_add(dynamic.p_vaddr as usize);
    // SAFETY: a loaded object's dynamic section, where its header says that it is.
    search.found = unsafe { Tables::of(base, dynamic).and_then(|tables| tables.find(search)) };
    c_int::from(search.found.is_some())
}

/// The tables of a loaded object.
struct Tables {
    base: usize,
    symbols: *const Elf64_Sym,
    strings: *const u8,
    hashes: *const u32,
    versions: *const u16,
}

impl Tables {
    /// # Safety
    /// A loaded object's address and that of its dynamic section.
    unsafe fn of(base: usize, dynamic: usize) -> Option<Self> {
        const DT_NULL: u64 = 0;
        const DT_STRTAB: u64 = 5;
        const DT_SYMTAB: u64 = 6;
        const DT_GNU_HASH: u64 = 0x6fff_fef5;
        const DT_VERSYM: u64 = 0x6fff_fff0;
        let mut place = ptr::with_exposed_provenance::<[u64; 2]>(dynamic);
        let [mut symbols, mut strings, mut hashes, mut versions] = [0usize; 4];
        // SAFETY: the section ends with DT_NULL.
        while let [tag, value] = unsafe { place.read() }
            && tag != DT_NULL
        {
            // The loader has made addresses of them, but not where the section is read-only.
            let value = value as usize;
            let address = if value < base { base.wrapping_add(value) } else { value };
            match tag {
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_GNU_HASH => hashes = address,
                DT_VERSYM => versions = address,
                _ => {}
            }
            // SAFETY: not beyond DT_NULL.
            place = unsafe { place.add(1) };
        }
        (symbols != 0 && strings != 0).then(|| Self {
            base,
            symbols: ptr::with_exposed_provenance(symbols),
            strings: ptr::with_exposed_provenance(strings),
            hashes: ptr::with_exposed_provenance(hashes),
            versions: ptr::with_exposed_provenance(versions),
        })
    }

    /// The address of what is searched for, of its default version; `None` where it is not here,
    /// and null where only the loader can say.
    ///
    /// # Safety
    /// The tables are those of a loaded object.
    unsafe fn find(&self, search: &Search<'_>) -> Option<*mut c_void> {
        let (name, hash) = (search.name, search.hash);
        if self.hashes.is_null() {
            // An older kind of table.
            return Some(ptr::null_mut());
        }
        // SAFETY: the shape of a GNU hash table: four numbers, the filter's words, a chain's begin
        // for each bucket, and a hash for each symbol from `first` on, of which the last in a chain
        // is odd. Its numbers of symbols are good for the tables of symbols, strings and versions.
        unsafe {
            let [buckets, first, words, _shift] = self.hashes.cast::<[u32; 4]>().read();
            if buckets == 0 {
                return None;
            }
            let chains = self.hashes.add(4 + words as usize * (size_of::<usize>() / 4));
            let mut index = chains.add((hash % buckets) as usize).read();
            if index < first {
                return None;
            }
            loop {
                let other = chains.add((buckets + index - first) as usize).read();
                if other | 1 == hash | 1 && self.is(index, name) {
                    return Some(self.address(index, search.kind));
                }
                if other & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// Is symbol `index` the default version of `name`, defined here?
    ///
    /// # Safety
    /// There is a symbol of that number.
    unsafe fn is(&self, index: u32, name: &CStr) -> bool {
        /// In `.gnu.version`: not the default version. 0: not for others.
        const HIDDEN: u16 = 0x8000;
        const LOCAL: u16 = 0;
        // SAFETY: the caller's promise; names end with a zero byte.
        unsafe {
            let symbol = &*self.symbols.add(index as usize);
            let version =
                if self.versions.is_null() { 1 } else { self.versions.add(index as usize).read() };
            symbol.st_shndx != 0
                && version != LOCAL
                && version & HIDDEN == 0
                && CStr::from_ptr(self.strings.add(symbol.st_name as usize).cast()) == name
        }
    }

    /// The address of symbol `index`; null where it is of another kind, as an indirect function,
    /// whose address its resolver knows.
    ///
    /// # Safety
    /// There is a symbol of that number.
    unsafe fn address(&self, index: u32, kind: u8) -> *mut c_void {
        // SAFETY: the caller's promise.
        let symbol = unsafe { &*self.symbols.add(index as usize) };
        if symbol.st_info & 0xf == kind {
            ptr::with_exposed_provenance_mut(self.base.wrapping_add(symbol.st_value as usize))
        } else {
            ptr::null_mut()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dlsym_finds_is_found() {
        let names = [
            c"read",
            c"send",
            c"epoll_wait",
            c"poll",
            c"fopen",
            c"popen",
            c"pthread_create",
            c"syscall",
            c"execve",
            c"recvmsg",
            c"close",
        ];
        for name in names {
            // SAFETY: a terminated name.
            let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            assert!(!expected.is_null(), "{name:?}");
            assert_eq!(next(name), expected, "{name:?}");
        }
    }

    #[test]
    fn variables_are_found() {
        // SAFETY: a terminated name.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"environ".as_ptr()) };
        assert!(!expected.is_null());
        assert_eq!(variable(c"environ"), expected);
        assert!(variable(c"recv").is_null());
        assert!(variable(c"ginnel_no_such_variable").is_null());
    }

    #[test]
    fn glibcs_functions_are_known() {
        let glibc = glibc();
        assert!(glibc.contains(&next(c"recv").addr()));
        assert!(!glibc.contains(&(glibcs_functions_are_known as *const ()).addr()));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for name in [c"ginnel_no_such_function", c"", c"x"] {
            assert!(next(name).is_null(), "{name:?}");
        }
    }
}
