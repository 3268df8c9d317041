//! The few calls that have no safe form: becoming another program without disturbing what it
//! inherits, and asking who we are.
//!
//! `std::process::Command` would reset the signal mask and SIGPIPE: a service manager's choice of
//! them would be lost.
#![expect(unsafe_code, reason = "calls of the C library; each argues for itself")]

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Becomes `command` (looked up in PATH, or the file `in_place`), with `environment`. Returns only
/// with the `errno`.
pub fn exec(
    command: &[OsString],
    in_place: Option<&Path>,
    environment: Vec<(OsString, OsString)>,
) -> i32 {
    let text = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
    let arguments: Vec<CString> =
        command.iter().map(|argument| text(argument.as_bytes().to_vec())).collect();
    let environment: Vec<CString> = environment
        .into_iter()
        .map(|(key, value)| {
            let mut entry = key.into_vec();
            entry.push(b'=');
            entry.extend(value.into_vec());
            text(entry)
        })
        .collect();
    let pointers = |texts: &[CString]| {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let in_place = in_place.map(|file| text(file.as_os_str().as_bytes().to_vec()));
    let (arguments, environment) = (pointers(&arguments), pointers(&environment));
    let file = in_place.as_ref().map_or(arguments[0], |file| file.as_ptr());
    // SAFETY: both lists end with a null pointer, the first has a string before it (clap requires a
    // program); the strings live until after the call, which returns only where it failed.
    unsafe { libc::execvpe(file, arguments.as_ptr(), environment.as_ptr()) };
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Runs `command` with `environment` to its end; its exit status, or as a shell has it, 128 and the
/// signal that ended it. What ends this process by hand (SIGTERM, SIGHUP) is handed on to it; what
/// a terminal sends (SIGINT, SIGQUIT) it gets itself.
///
/// What it leaves behind becomes this process's child: see [`wait_for_the_rest`].
///
/// # Errors
/// Where it does not start.
pub fn wait_for(
    command: &[OsString],
    environment: Vec<(OsString, OsString)>,
) -> std::io::Result<i32> {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    // Caught rather than ignored: what is ignored the program would inherit. What is ignored
    // already (by nohup, say) it is to inherit.
    let heard = |signals: [i32; 2]| signals.into_iter().filter(|signal| !is_ignored(*signal));
    for signal in heard([libc::SIGTERM, libc::SIGHUP]) {
        let hand_on = move || {
            let child = CHILD.load(Ordering::Relaxed);
            if child > 0 {
                // SAFETY: no memory is passed, and kill(2) may be called in a handler.
                unsafe { libc::kill(child, signal) };
            }
        };
        // SAFETY: the handler calls nothing that a handler may not.
        unsafe { signal_hook::low_level::register(signal, hand_on) }?;
    }
    for signal in heard([libc::SIGINT, libc::SIGQUIT]) {
        // SAFETY: the handler does nothing.
        unsafe { signal_hook::low_level::register(signal, || {}) }?;
    }
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut child = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .spawn()?;
    CHILD.store(i32::try_from(child.id()).unwrap_or(0), Ordering::Relaxed);
    let status = child.wait();
    CHILD.store(0, Ordering::Relaxed);
    let status = status?;
    Ok(status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1))
}

/// Was this process started with the signal ignored?
fn is_ignored(signal: i32) -> bool {
    // SAFETY: a structure of numbers and a pointer that may be null.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed, and what there is has room.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Waits for what the program of [`wait_for`] left behind, at most so long: a launcher that ends
/// its ranks by a signal may be gone before they are.
pub fn wait_for_the_rest(most: Duration) {
    let until = Instant::now() + most;
    loop {
        // SAFETY: a null pointer: the status is not wanted.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 if Instant::now() > until => return,
            0 => std::thread::sleep(Duration::from_millis(5)),
            -1 => return,
            _ => {}
        }
    }
}

/// May this process execute the file?
pub fn is_executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a terminated string.
    path.is_file()
        && unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) }
            == 0
}
