//! Calls that one library makes of another by its table of such calls (the procedure linkage
//! table): looked up, and led elsewhere.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

const DT_JMPREL: i64 = 23;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;

/// A function's name, and what is to be called instead.
pub type Instead = (&'static CStr, *mut c_void);

struct Wanted<'a> {
    library: &'a [u8],
    instead: &'a [Instead],
    is_done: bool,
}

/// Leads the calls that the library of this file name makes elsewhere. True: all of them; false:
/// none, as it is not there, does not make one of them in this way, or cannot be written any more.
///
/// # Safety
/// Each is a function of the type of the one that it stands for, and as good to the library.
pub unsafe fn redirect(library: &CStr, instead: &[Instead]) -> bool {
    let mut wanted = Wanted { library: library.to_bytes(), instead, is_done: false };
    // SAFETY: `each` is called within, with `wanted`.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut wanted).cast()) };
    wanted.is_done
}

unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    wanted: *mut c_void,
) -> c_int {
    // SAFETY: what `redirect` hands on, and what the loader says.
    let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the loader's: a terminated name.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    if name.rsplit(|byte| *byte == b'/').next() != Some(wanted.library) {
        return 0;
    }
    // SAFETY: a library that is loaded, and stays so while the loader goes through all of them.
    wanted.is_done = unsafe { redirect_in(info, wanted.instead) }.is_some();
    1
}

/// # Safety
/// As for [`redirect`]; the library is loaded.
unsafe fn redirect_in(info: &libc::dl_phdr_info, instead: &[Instead]) -> Option<()> {
    let base = info.dlpi_addr;
    // SAFETY: the loader's table.
    let parts = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let part = |kind| parts.iter().find(|part| part.p_type == kind);
    let sealed = part(libc::PT_GNU_RELRO).map_or(0..0, |part| {
        let from = base + part.p_vaddr;
        from..from + part.p_memsz
    });
    let dynamic = (base + part(libc::PT_DYNAMIC)?.p_vaddr) as *const [i64; 2];
    let value = |tag: i64| {
        // SAFETY: the table ends with a zero.
        let entries = (0..).map(|at| unsafe { *dynamic.add(at) }).take_while(|entry| entry[0] != 0);
        entries.into_iter().find(|entry| entry[0] == tag).map(|entry| entry[1].cast_unsigned())
    };
    let calls = value(DT_JMPREL)? as *const libc::Elf64_Rela;
    let count = value(DT_PLTRELSZ)? as usize / size_of::<libc::Elf64_Rela>();
    let symbols = value(DT_SYMTAB)? as *const libc::Elf64_Sym;
    let names = value(DT_STRTAB)? as *const libc::c_char;
    let slot = |wanted: &CStr| {
        // SAFETY: the library's table of calls, which the loader has followed already.
        let call = (0..count).map(|at| unsafe { &*calls.add(at) }).find(|call| {
            // SAFETY: as above: its symbol, and that one's name.
            let name = unsafe {
                let symbol = &*symbols.add((call.r_info >> 32) as usize);
                CStr::from_ptr(names.add(symbol.st_name as usize))
            };
            name == wanted
        })?;
        let at = base + call.r_offset;
        // What the loader has made unwritable is left alone.
        (!sealed.contains(&at)).then_some(at as *mut *mut c_void)
    };
    let slots: Option<Vec<_>> = instead.iter().map(|(name, _)| slot(name)).collect();
    for (slot, (_, function)) in slots?.into_iter().zip(instead) {
        // SAFETY: an aligned word of the library's writable data, which calls read.
        unsafe { AtomicPtr::from_ptr(slot) }.store(*function, Ordering::Release);
    }
    Some(())
}
