//! Programs in C of this folder, plainly and carried.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// What `make product` built.
pub fn product(name: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let file = target.join("release").join(name);
    assert!(file.is_file(), "{}: make product first", file.display());
    file
}

pub fn place() -> tempfile::TempDir {
    let base = ["/dev/shm", "/tmp"].into_iter().find(|base| Path::new(base).is_dir());
    tempfile::tempdir_in(base.expect("a place")).expect("a directory")
}

/// Has a command, and all that it starts, be ended with its group; itself also where this thread is
/// gone before. (What a program forks ends itself with its parent.)
fn in_a_group(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    let dies_with_us = || {
        // SAFETY: no memory is passed.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: one system call.
    unsafe { command.process_group(0).pre_exec(dies_with_us) }
}

/// Has a child ended? It is waited for later.
fn has_ended(child: u32) -> bool {
    // SAFETY: all zeroes is a valid value; room for it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, child, &raw mut info, how) == 0 && info.si_pid() != 0
    }
}

/// Ends a group of processes, whose first was not waited for yet.
fn end(group: u32) {
    // SAFETY: no memory is passed. The group is of processes that this one started.
    unsafe { libc::kill(-group.cast_signed(), libc::SIGKILL) };
}

/// Runs a command that is ended, and has failed, after so many seconds. Nothing that it started
/// goes on after that.
pub fn ran(command: &mut Command, seconds: u64) -> Output {
    let (out, err) = (tempfile::tempfile().expect("a file"), tempfile::tempfile().expect("a file"));
    let again = |file: &std::fs::File| Stdio::from(file.try_clone().expect("a descriptor"));
    let command = in_a_group(command.stdout(again(&out)).stderr(again(&err)));
    let mut child = command.spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(seconds);
    let read = |mut file: &std::fs::File| {
        use std::io::{Read, Seek};
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("read");
        bytes
    };
    // What it started ends with it, while its number is still its own.
    while !has_ended(child.id()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let hangs = !has_ended(child.id());
    end(child.id());
    let status = child.wait().expect("a child");
    if hangs {
        let said = String::from_utf8_lossy(&read(&out)).into_owned();
        panic!("{command:?} hangs:\n{said}{}", String::from_utf8_lossy(&read(&err)));
    }
    Output { status, stdout: read(&out), stderr: read(&err) }
}

/// A program of this folder, or with `-shared` a library.
pub fn compiled(place: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let program = place.join(source.replace('.', "-"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let done = ran(
        Command::new("cc")
            .args([
                "-std=gnu11",
                "-D_GNU_SOURCE",
                "-O1",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pthread",
            ])
            .args(flags)
            .arg(source)
            .arg("-o")
            .arg(&program),
        120,
    );
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// A command under `ginnel run --sysv`, in a directory of its own below `place`.
pub fn carried(place: &Path, program: &Path) -> Command {
    let mut command = Command::new(product("ginnel"));
    command.args(["run", "--sysv", "--"]).arg(program);
    command
        .env("GINNEL_DIR", place.join("own"))
        .env_remove("GINNEL_SEGMENT")
        .env("GINNEL_SIZE", "268435456");
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
