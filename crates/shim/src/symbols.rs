//! Finding the functions that this library stands before, by the symbol tables of the loaded libraries (ELF gABI, chapter 5; the GNU hash table and `.gnu.version`
//! as glibc's `dl-lookup.c` reads them).
//!
//! `dlsym` would do, but takes memory before glibc 2.34. An allocator that opens files while it sets itself up (jemalloc does, by `syscall`) comes here with its own lock
//! held, and would wait for itself for ever. Here nothing is allocated, and no lock is taken but the loader's.
use core::ffi::CStr;
use core::mem::size_of;
use core::ptr;
use libc::{Elf64_Phdr, Elf64_Sym, c_int, c_void, dl_phdr_info};

/// A search through the libraries that come after this one.
struct Search<'a> {
    name: &'a CStr,
    hash: u32,
    passed: bool,
    /// `None`: go on looking.
    found: Option<*mut c_void>,
}

/// What `dlsym(RTLD_NEXT, name)` finds, called from this library. Null: nothing, or nothing that can be said without the loader (indirect functions).
#[must_use]
pub fn next(name: &CStr) -> *mut c_void {
    let mut search = Search { name, hash: hash(name), passed: false, found: None };
    // SAFETY: the callback takes what it is given as `dl_iterate_phdr` promises it, and the search outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found.unwrap_or(ptr::null_mut())
}

/// Is there a function of glibc's at this address, and not one of a library that stands before it?
#[must_use]
pub fn is_glibcs(address: *const c_void) -> bool {
    let known = next(c"gnu_get_libc_version");
    let object = |address: *const c_void| {
        // SAFETY: plain data.
        let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: the loader writes there what it knows of the address.
        (unsafe { libc::dladdr(address, &raw mut found) } != 0).then_some(found.dli_fbase)
    };
    !known.is_null() && object(known).is_some_and(|base| object(address) == Some(base))
}

/// The GNU hash of a symbol's name.
fn hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

unsafe extern "C" fn look(info: *mut dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: as `next` calls it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: the loader's own table of this object.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    if !search.passed {
        let here = (look as *const ()).addr();
        let holds = |header: &Elf64_Phdr| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            header.p_type == libc::PT_LOAD && (start..start.wrapping_add(header.p_memsz as usize)).contains(&here)
        };
        search.passed = headers.iter().any(holds);
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return 0 };
    let dynamic = base.wrapping_add(dynamic.p_vaddr as usize);
    // SAFETY: a loaded object's dynamic section, where its header says that it is.
    search.found = unsafe { Tables::of(base, dynamic).and_then(|tables| tables.find(search.name, search.hash)) };
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

    /// The address of the function `name`, of its default version; `None` where it is not here, and null where only the loader can say.
    ///
    /// # Safety
    /// The tables are those of a loaded object.
    unsafe fn find(&self, name: &CStr, hash: u32) -> Option<*mut c_void> {
        if self.hashes.is_null() {
            // An older kind of table.
            return Some(ptr::null_mut());
        }
        // SAFETY: the shape of a GNU hash table: four numbers, the filter's words, a chain's begin for each bucket, and a hash for each symbol from `first` on, of which
        // the last in a chain is odd. Its numbers of symbols are good for the tables of symbols, strings and versions.
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
                    return Some(self.address(index));
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
            let version = if self.versions.is_null() { 1 } else { self.versions.add(index as usize).read() };
            symbol.st_shndx != 0
                && version != LOCAL
                && version & HIDDEN == 0
                && CStr::from_ptr(self.strings.add(symbol.st_name as usize).cast()) == name
        }
    }

    /// The address of symbol `index`; null for an indirect function, whose address its resolver knows.
    ///
    /// # Safety
    /// There is a symbol of that number.
    unsafe fn address(&self, index: u32) -> *mut c_void {
        const STT_FUNC: u8 = 2;
        // SAFETY: the caller's promise.
        let symbol = unsafe { &*self.symbols.add(index as usize) };
        if symbol.st_info & 0xf == STT_FUNC {
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
    fn glibcs_functions_are_known() {
        assert!(is_glibcs(next(c"recv")));
        assert!(!is_glibcs((is_glibcs as fn(_) -> _ as *const ()).cast()));
        assert!(!is_glibcs(ptr::null()));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for name in [c"ginnel_no_such_function", c"", c"x"] {
            assert!(next(name).is_null(), "{name:?}");
        }
    }
}
