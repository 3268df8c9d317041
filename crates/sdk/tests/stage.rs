//! A stage for a test: a process with its own `GINNEL_DIR`, which starts others in roles.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub const TEST: &str = "GINNEL_SDK_TEST";
const ROLE: &str = "GINNEL_SDK_ROLE";
const ARGUMENT: &str = "GINNEL_SDK_ARGUMENT";

/// What a process of a test is to do.
pub enum Part {
    /// The test's own part.
    Test,
    /// A role that it has started: its name, and an argument.
    Role(String, String),
}

/// Calls `body` in a process of the test's own, and in each that it starts. `name`: the test's
/// path.
///
/// A test that has not ended after two minutes is ended, and has failed.
pub fn play(name: &str, body: impl FnOnce(Part)) {
    if std::env::var(TEST).as_deref() == Ok(name) {
        let part = std::env::var(ROLE).map_or(Part::Test, |role| {
            Part::Role(role, std::env::var(ARGUMENT).unwrap_or_default())
        });
        return body(part);
    }
    let base = ["/dev/shm", "/tmp"].into_iter().find(|base| PathBuf::from(base).is_dir());
    let place = tempfile::tempdir_in(base.expect("a place")).expect("a directory");
    let mut command = again(name);
    command
        .env("GINNEL_DIR", place.path().join("own"))
        .env_remove("GINNEL_SEGMENT")
        .env_remove(ROLE);
    let mut child = Guarded(command.spawn().expect("it starts"));
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match child.0.try_wait().expect("a child") {
            Some(status) => return assert!(status.success(), "{name}: {status}"),
            None if Instant::now() > until => panic!("{name} hangs"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn again(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    command.args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1", "-q"]);
    command.env(TEST, name);
    command
}

/// Starts a process of this test in a role.
pub fn role(role: &str, argument: &str) -> Guarded {
    started(command(role, argument))
}

/// The same, for a role that becomes another user, with a directory of that user's.
pub fn role_of_another(role: &str, argument: &str, directory: &Path) -> Guarded {
    let mut command = command(role, argument);
    command.env("GINNEL_DIR", directory);
    started(command)
}

fn command(role: &str, argument: &str) -> Command {
    let name = std::env::var(TEST).expect("called by a test");
    let mut command = again(&name);
    command.env(ROLE, role).env(ARGUMENT, argument);
    command
}

fn started(mut command: Command) -> Guarded {
    Guarded(command.spawn().expect("it starts"))
}

/// A directory that everybody may look into, for a segment that two users open: the test's own has
/// its file there by the time that this returns, and `nobody`'s things their own.
pub struct Shared {
    place: tempfile::TempDir,
}

/// The number of a user who owns nothing.
pub const NOBODY: u32 = 65534;

impl Shared {
    /// None where only root can become another user, and this is not root.
    pub fn new() -> Option<Self> {
        // SAFETY: no arguments, cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            println!("skipped: only root can become another user");
            return None;
        }
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let shared = Self { place };
        std::fs::set_permissions(shared.place.path(), Permissions::from_mode(0o755)).expect("ours");
        std::fs::create_dir(shared.theirs()).expect("a directory");
        chown(shared.theirs(), Some(NOBODY), Some(NOBODY)).expect("root may");
        role("makes", shared.segment().to_str().expect("UTF-8")).ends();
        let mode = Permissions::from_mode(0o666);
        std::fs::set_permissions(shared.segment(), mode).expect("ours");
        Some(shared)
    }

    pub fn segment(&self) -> PathBuf {
        self.place.path().join("shared")
    }

    /// A role of the other user's; it calls [`become_nobody`].
    pub fn theirs_plays(&self, role: &str) -> Guarded {
        let segment = self.segment();
        role_of_another(role, segment.to_str().expect("UTF-8"), &self.theirs().join("own"))
    }

    fn theirs(&self) -> PathBuf {
        self.place.path().join("nobody")
    }
}

/// Gives up root.
pub fn become_nobody() {
    // SAFETY: numbers alone; all threads of the process change.
    let done = unsafe {
        [libc::setgroups(0, std::ptr::null()), libc::setgid(NOBODY), libc::setuid(NOBODY)]
    };
    assert_eq!(done, [0; 3], "{}", std::io::Error::last_os_error());
}

/// A child that does not outlive its test.
pub struct Guarded(pub Child);

impl Guarded {
    /// kill -9. A role that has ended by itself has failed.
    pub fn kill(mut self) {
        let ended = self.0.try_wait().expect("a child");
        assert!(ended.is_none(), "a role failed: {ended:?}");
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Waits for its end.
    pub fn ends(mut self) {
        let status = self.0.wait().expect("a child");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so, with a limit that only a hang meets.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: never");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A segment of 64 MiB.
pub fn segment() -> ginnel::Segment {
    ginnel::Options::new().size(64 << 20).open("stage").expect("a segment")
}
