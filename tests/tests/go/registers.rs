//! A processor or kernel that does not let programs set FS (FSGSBASE, bit 1 of AT_HWCAP2). A
//! program's words about its machine lie on its stack when it begins: there the bit is cleared.

use super::{command, stand};
use ginnel_tests::go::{CGO, KINDS, program};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The next time the process has executed something; its other signals reach it meanwhile.
fn executed(pid: i32) {
    let (mut status, mut signal) = (0, None::<i32>);
    loop {
        if let Some(signal) = signal {
            // SAFETY: touches no memory of this process; the child is this thread's, and stopped.
            unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) };
        }
        // SAFETY: the status is a local variable.
        let seen = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        assert!(seen == pid && libc::WIFSTOPPED(status), "it ended: {status:#x}");
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => return,
            other => signal = Some(other),
        }
    }
}

/// Clears the bit: on the stack lie the count of arguments, these, the environment, then pairs of
/// words.
fn hide(pid: i32) {
    let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"));
    let memory = memory.expect("whoever traces may");
    let word = |at: u64| {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, at).expect("a stack");
        u64::from_ne_bytes(bytes)
    };
    let state = std::fs::read_to_string(format!("/proc/{pid}/syscall")).expect("it is stopped");
    let top = state.split_whitespace().rev().nth(1).and_then(|word| word.strip_prefix("0x"));
    let top = u64::from_str_radix(top.expect("a stack pointer"), 16).expect("a number");
    let mut at = top + 8 * (2 + word(top));
    while word(at) != 0 {
        at += 8;
    }
    at += 8;
    while word(at) != libc::AT_HWCAP2 {
        assert!(word(at) != libc::AT_NULL, "this kernel says nothing of FSGSBASE");
        at += 16;
    }
    memory.write_all_at(&(word(at + 8) & !2).to_ne_bytes(), at + 8).expect("a stack");
}

/// `ginnel run` executes the program, or for a static one what loads it: that is told so.
fn without_fsgsbase(run: &mut Command) -> &mut Command {
    let traced = || {
        // SAFETY: touches no memory.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call.
    unsafe { run.pre_exec(traced) }
}

#[test]
fn where_programs_may_not_set_fs_those_without_cgo_are_left_alone() {
    for kind in KINDS {
        let Some(program) = program(kind) else { continue };
        let stand = stand("go-fsgsbase", &[("GINNEL_VERBOSE", "1")]);
        let mut run = command(&stand, &program, &["echo", "4", "300"]);
        let running = stand.start(without_fsgsbase(&mut run));
        let pid = running.id().cast_signed();
        executed(pid);
        // SAFETY: touches no memory of this process; the child is this thread's, and stopped.
        unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, 0) };
        executed(pid);
        hide(pid);
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) };
        let done = running.finish();
        assert!(done.success() && done.stdout.ends_with("OK\n"), "{done}");
        let carried = stand.report().sum("ring_in") > 0;
        assert_eq!(carried, kind == CGO, "{}: {done}", program.display());
        assert_eq!(done.stderr.contains("does not let programs set FS"), !carried, "{done}");
    }
}
