//! Programs without a dynamic linker, which `LD_PRELOAD` does not reach: `ginnel-go-loader` is
//! executed in their place, has the library preloaded, and calls [`ginnel_go_load`]. That maps the
//! program where the kernel would, replaces its functions, gives it the stack that the kernel made,
//! and goes to its entry. Where any of this cannot be, the loader executes the program itself.

use super::image::{self, Image};
use super::{exe, take_over};
use crate::{loader, next};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use ginnel_region::{PAGE, sys};
use libc::{Elf64_Ehdr, Elf64_Phdr};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use syscalls::Sysno;

/// Maps what is to be loaded, and gives it back if nothing comes of it.
struct Mapped {
    headers: Vec<Elf64_Phdr>,
    spans: Vec<(usize, usize)>,
    entry: usize,
    /// Where the program headers are in memory.
    table: usize,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for (at, len) in self.spans.drain(..) {
            // SAFETY: mapped by `map`, and not used yet.
            unsafe { sys::unmap(at as *mut u8, len) };
        }
    }
}

/// By the loader: becomes the program at `path`, with the stack that the kernel made, which begins
/// at `stack` with the number of arguments. Returns only where it cannot; then the loader executes
/// it.
///
/// # Safety
/// Called by a process of one thread from its `main`; `path` is a string of its environment.
#[unsafe(no_mangle)]
unsafe extern "C" fn ginnel_go_load(path: *const c_char, stack: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let loaded = match sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0) {
        Ok(fd) => {
            let loaded = load(fd);
            sys::close(fd);
            loaded
        }
        Err(_) => Err("its file cannot be read"),
    };
    match loaded {
        Ok(mapped) => {
            // SAFETY: the caller's promise.
            unsafe { tell(stack, path.as_ptr(), &mapped) };
            let entry = mapped.entry;
            core::mem::forget(mapped);
            // SAFETY: the program's own entry, with what the kernel gives a new program. Nothing of
            // this thread's frames is needed any more.
            unsafe { enter(stack, entry) }
        }
        Err(why) => {
            loader::note_not_loaded();
            super::leave_alone(why);
            -1
        }
    }
}

/// Maps the program in the open file `fd`, and replaces its functions.
fn load(fd: i32) -> Result<Mapped, &'static str> {
    if crate::runtime::attachment().is_none() {
        return Err("nothing is carried");
    }
    let file = file_of(fd).ok_or("its file has no name")?;
    let mapped = map(fd)?;
    let image = Image::new(0, mapped.headers.clone());
    exe::set(file);
    take_over(&image, fd, mapped.entry)?;
    Ok(mapped)
}

/// The path of an open file, as the kernel gives it for a program.
fn file_of(fd: i32) -> Option<CString> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    CString::new(path.as_os_str().as_bytes()).ok().filter(|path| path.to_bytes().starts_with(b"/"))
}

/// Maps the program's segments where they belong.
fn map(fd: i32) -> Result<Mapped, &'static str> {
    /// For this processor.
    const MACHINE: u16 = 62;
    let header: Elf64_Ehdr = image::read(fd, 0).ok_or("it is cut off")?;
    let fits = header.e_ident.starts_with(b"\x7fELF\x02\x01")
        && header.e_type == libc::ET_EXEC
        && header.e_machine == MACHINE
        && usize::from(header.e_phentsize) == size_of::<Elf64_Phdr>();
    if !fits {
        return Err("it is no program of the usual kind");
    }
    let at =
        |index: u16| header.e_phoff.checked_add(u64::from(index) * size_of::<Elf64_Phdr>() as u64);
    let headers = (0..header.e_phnum).map(|index| image::read::<Elf64_Phdr>(fd, at(index)?));
    let headers = headers.collect::<Option<Vec<_>>>().ok_or("it is cut off")?;
    if headers.iter().any(|header| header.p_type == libc::PT_INTERP) {
        return Err("it has a dynamic linker");
    }
    let table = headers.iter().find(|part| {
        part.p_type == libc::PT_LOAD
            && (part.p_offset..part.p_offset.saturating_add(part.p_filesz))
                .contains(&header.e_phoff)
    });
    let table = table.map_or(0, |part| part.p_vaddr + (header.e_phoff - part.p_offset)) as usize;
    let mut mapped = Mapped { headers, spans: Vec::new(), entry: header.e_entry as usize, table };
    for part in mapped
        .headers
        .clone()
        .iter()
        .filter(|part| part.p_type == libc::PT_LOAD && part.p_memsz != 0)
    {
        mapped.segment(fd, part).ok_or("its addresses are taken")?;
    }
    Ok(mapped)
}

impl Mapped {
    fn segment(&mut self, fd: i32, part: &Elf64_Phdr) -> Option<()> {
        let page = |address: u64| {
            usize::try_from(address).ok().map(|address| address & !(PAGE as usize - 1))
        };
        let mut access = 0;
        for (flag, allowed) in [
            (libc::PF_R, libc::PROT_READ),
            (libc::PF_W, libc::PROT_WRITE),
            (libc::PF_X, libc::PROT_EXEC),
        ] {
            if part.p_flags & flag != 0 {
                access |= allowed;
            }
        }
        let start = page(part.p_vaddr)?;
        let offset = page(part.p_offset)?;
        let of_file = part.p_vaddr.checked_add(part.p_filesz)? as usize;
        let end = (part.p_vaddr.checked_add(part.p_memsz)? as usize)
            .checked_next_multiple_of(PAGE as usize)?;
        if part.p_vaddr % PAGE != part.p_offset % PAGE || start == 0 || part.p_filesz > part.p_memsz
        {
            return None;
        }
        let mapped = of_file.checked_next_multiple_of(PAGE as usize)?;
        if part.p_filesz != 0 {
            self.map(start, mapped - start, access, libc::MAP_PRIVATE, fd, offset)?;
        }
        let zeroes = if part.p_filesz == 0 { start } else { mapped };
        if zeroes < end {
            self.map(zeroes, end - zeroes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        }
        if part.p_memsz > part.p_filesz && part.p_filesz != 0 && of_file < mapped {
            if access & libc::PROT_WRITE == 0 {
                return None;
            }
            // SAFETY: the rest of the last page of a private, writable map of this function's.
            unsafe {
                core::ptr::with_exposed_provenance_mut::<u8>(of_file)
                    .write_bytes(0, mapped - of_file)
            };
        }
        Some(())
    }

    fn map(
        &mut self,
        at: usize,
        len: usize,
        access: c_int,
        flags: c_int,
        fd: i32,
        offset: usize,
    ) -> Option<()> {
        let flags = (flags | libc::MAP_FIXED_NOREPLACE) as usize;
        // SAFETY: nothing that is mapped is replaced.
        let got = unsafe {
            sys::raw(Sysno::mmap, [at, len, access as usize, flags, fd as usize, offset])
        }
        .ok()?;
        self.spans.push((got, len));
        // A kernel before 4.17 takes the address for a wish.
        (got == at).then_some(())
    }
}

/// Changes what the kernel left on the stack into what it would have left for the program: the
/// loader's word goes, and the program's own headers and entry are named.
///
/// # Safety
/// `stack` is where the kernel put the number of arguments.
unsafe fn tell(stack: *mut usize, path: *const c_char, program: &Mapped) {
    // SAFETY: the kernel's layout (System V ABI, "Process Initialization"): the arguments, a null
    // pointer, the environment, a null pointer, pairs of a type and a value up to AT_NULL.
    unsafe {
        let mut at = stack.add(stack.read() + 2);
        let mut other = at;
        while at.read() != 0 {
            let entry = CStr::from_ptr(core::ptr::with_exposed_provenance(at.read())).to_bytes();
            let is_ours = entry
                .strip_prefix(ginnel_preload::BY_LOADER.to_bytes())
                .is_some_and(|rest| rest.starts_with(b"="));
            if !is_ours {
                other = at;
            } else if other != at || at.add(1).read() != 0 {
                // Another of its entries, once more: Go throws away what it has already, and the C
                // library finds the pairs where they were.
                at.write(if other == at { at.add(1).read() } else { other.read() });
            }
            at = at.add(1);
        }
        at = at.add(1);
        loop {
            let kind = at.read() as u64;
            let value = match kind {
                libc::AT_PHDR => program.table,
                libc::AT_PHNUM => program.headers.len(),
                libc::AT_ENTRY => program.entry,
                libc::AT_BASE => 0,
                libc::AT_EXECFN => path.expose_provenance(),
                libc::AT_NULL => return,
                _ => at.add(1).read(),
            };
            at.add(1).write(value);
            at = at.add(2);
        }
    }
}

/// Goes to a program's entry.
#[unsafe(naked)]
unsafe extern "C" fn enter(_stack: *mut usize, _entry: usize) -> ! {
    naked_asm!("mov rsp, rdi", "xor edx, edx", "xor ebp, ebp", "jmp rsi")
}

/// Executes `path` as it is: by the loader, where nothing came of loading. Goes through the
/// library's own hook, which hands over what has to be.
#[unsafe(no_mangle)]
unsafe extern "C" fn ginnel_go_execute(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    loader::note_not_loaded();
    // SAFETY: the caller's promise, as for `execve`.
    unsafe { crate::hooks::execute(path, argv, envp) };
    next::errno()
}
