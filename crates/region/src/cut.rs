//! Files that are cut short while they are mapped.
//!
//! Whoever owns a file may truncate it. Another process that has it mapped gets SIGBUS at its next
//! touch of what is gone (mmap(2)), which ends it. A command that looks at files of other users
//! puts zeroes in place of such pages, and goes on: zeroes name no process and no connection.

use crate::sys;
use libc::{c_int, c_void, siginfo_t};
use syscalls::Sysno;

/// A page, bytes.
const PAGE: usize = 4096;

/// From now on this process reads zeroes where a file that it has mapped was cut short.
pub fn survive() {
    // SAFETY: all zeroes is a valid action; the handler has the shape that SA_SIGINFO asks for, and
    // makes system calls alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = libc::SA_SIGINFO;
        action.sa_sigaction = put_zeroes as *const () as usize;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn put_zeroes(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives a valid record.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as usize & !(PAGE - 1)) };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let arguments =
        [at, PAGE, (libc::PROT_READ | libc::PROT_WRITE) as usize, flags as usize, usize::MAX, 0];
    // SAFETY: the page is one of a file's that has none there any more: nobody loses anything by
    // it.
    let put = code == libc::BUS_ADRERR && unsafe { sys::raw(Sysno::mmap, arguments) }.is_ok();
    if !put {
        // Something else: it ends the process, when the instruction is tried again.
        // SAFETY: the default action.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_was_cut_off_is_zeroes() {
        let path = std::env::temp_dir().join(format!("ginnel-cut-{:x}", sys::random_u64()));
        std::fs::write(&path, [7u8; 3 * PAGE]).expect("written");
        let file = std::fs::File::options().read(true).write(true).open(&path).expect("there");
        let at = sys::map_shared(file.as_raw_fd(), 3 * PAGE, true).expect("mapped");
        survive();
        file.set_len(PAGE as u64).expect("cut");
        // SAFETY: inside the map.
        let byte = |offset: usize| unsafe { at.add(offset).read_volatile() };
        assert_eq!([0, PAGE - 1, PAGE, 3 * PAGE - 1].map(byte), [7, 7, 0, 0]);
        // SAFETY: the map is this function's.
        unsafe { sys::unmap(at, 3 * PAGE) };
        std::fs::remove_file(path).expect("removed");
    }
}
