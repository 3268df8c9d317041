//! The calls of bpf(2) that the prover makes, and no others: `linux/bpf.h`, `union bpf_attr`.
//!
//! Each call has a `repr(C)` structure of its own here, the head of that union. The kernel takes
//! what is missing at its end for zeroes. Rules for what is unsafe below: a structure lives until
//! its call returns, and so does all memory whose address it holds.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const ITER_CREATE: libc::c_long = 33;

/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_TRACE_ITER`.
const TRACE_ITER: u32 = 28;

/// One instruction: `struct bpf_insn` (RFC 9669, section 3).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What is done.
    pub opcode: u8,
    /// Destination register in the low four bits, source in the high four.
    pub registers: u8,
    /// Offset of a jump, in instructions, or of memory, in bytes.
    pub offset: i16,
    /// A constant.
    pub constant: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// Makes the call `command`; the descriptor that it returns (with O_CLOEXEC, as all of bpf(2)'s).
fn open<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attributes` is readable for its size; the callers below keep alive what it points
    // to.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel made this descriptor just now, for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads a program that an iterator runs; `target`: the type of `bpf_iter_…` in the kernel's own
/// type information. `log`: the verifier's words, where it refuses.
///
/// # Errors
/// bpf(2)'s.
pub fn load_iterator(program: &[Instruction], target: u32, log: &mut [u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        prog_type: u32,
        instructions: u32,
        program: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        line_info_rec_size: u32,
        line_info: u64,
        line_info_cnt: u32,
        attach_btf_id: u32,
    }
    let attributes = Attributes {
        prog_type: TRACING,
        instructions: u32::try_from(program.len()).map_err(io::Error::other)?,
        program: program.as_ptr() as u64,
        // Of the words that the kernel knows, the one that holds for MIT OR Apache-2.0
        // (`Documentation/process/license-rules.rst`); bpf_seq_write asks for one.
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).map_err(io::Error::other)?,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"ginnel_numbers\0\0",
        prog_ifindex: 0,
        expected_attach_type: TRACE_ITER,
        prog_btf_fd: 0,
        func_info_rec_size: 0,
        func_info: 0,
        func_info_cnt: 0,
        line_info_rec_size: 0,
        line_info: 0,
        line_info_cnt: 0,
        attach_btf_id: target,
    };
    open(PROG_LOAD, &attributes)
}

/// Ties a program of [`load_iterator`] to the files of one process (Linux 6.1).
///
/// # Errors
/// bpf(2)'s: E2BIG or EINVAL from an older kernel.
pub fn link_to_process(program: BorrowedFd<'_>, pid: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        prog_fd: i32,
        target_fd: u32,
        attach_type: u32,
        flags: u32,
        info: u64,
        info_len: u32,
        padding: u32,
    }
    // union bpf_iter_link_info: a thread, a process, a descriptor of one.
    let info: [u32; 4] = [0, pid, 0, 0];
    let attributes = Attributes {
        prog_fd: program.as_raw_fd(),
        target_fd: 0,
        attach_type: TRACE_ITER,
        flags: 0,
        info: info.as_ptr() as u64,
        info_len: size_of_val(&info) as u32,
        padding: 0,
    };
    open(LINK_CREATE, &attributes)
}

/// Begins one walk of an iterator. Reading the descriptor to its end runs the program.
///
/// # Errors
/// bpf(2)'s.
pub fn begin(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        link_fd: i32,
        flags: u32,
    }
    open(ITER_CREATE, &Attributes { link_fd: link.as_raw_fd(), flags: 0 })
}
