//! Where a test's programs run: a directory of their own, and the settings of the shim or none.

use std::ffi::OsStr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Done, Running, build, json};

/// One test's place. Its directory, and with it the segment, goes when it is dropped.
pub struct Stand {
    dir: PathBuf,
    settings: Option<Vec<(String, String)>>,
    limit: Duration,
}

/// The sums of what the shim of every process on a stand reported when it ended.
#[derive(Debug, Default)]
pub struct Report {
    text: String,
}

impl Report {
    /// Sum of one counter over all processes.
    #[must_use]
    pub fn sum(&self, counter: &str) -> u64 {
        json::sum(&self.text, counter)
    }

    /// Bytes received out of rings.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.sum("ring_in")
    }

    /// How many processes reported.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.text.lines().count()
    }

    /// How many of them ran the program that is so called.
    #[must_use]
    pub fn processes_of(&self, program: &str) -> usize {
        self.text.matches(&format!("\"program\":\"{program}\"")).count()
    }
}

impl Stand {
    /// For programs without the shim.
    #[must_use]
    pub fn plain(name: &str) -> Self {
        Self::new(name, None)
    }

    /// For programs under the shim with these settings (see the shim's `GINNEL_*` variables). Every
    /// connection is a candidate from its first byte unless `settings` say otherwise.
    #[must_use]
    pub fn shimmed(name: &str, settings: &[(&str, &str)]) -> Self {
        let mut all = vec![("GINNEL_AFTER".to_owned(), "0".to_owned())];
        all.extend(settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())));
        Self::new(name, Some(all))
    }

    fn new(name: &str, settings: Option<Vec<(String, String)>>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        crate::permit::of_this_test();
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("ginnel-test-{}-{n}-{name}", std::process::id()));
        // As the ledger wants it: the user's alone.
        let mut builder = std::fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        lock(&DIRECTORIES).push(dir.clone());
        Self { dir, settings, limit: Duration::from_secs(120) }
    }

    /// Changes the time after which a program is taken for stuck (120 s).
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The stand's directory; under the shim also `GINNEL_DIR`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether programs run under the shim here.
    #[must_use]
    pub fn is_shimmed(&self) -> bool {
        self.settings.is_some()
    }

    /// What to set for a program to run as the stand says.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if let Some(settings) = &self.settings {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            all.push(("LD_PRELOAD".to_owned(), text(&build::shim())));
            all.push(("GINNEL_DIR".to_owned(), text(&self.dir)));
            all.push(("GINNEL_REPORT".to_owned(), text(&self.dir.join("report.jsonl"))));
            all.extend(settings.iter().cloned());
        }
        all
    }

    /// A command that runs `program` as the stand says.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = bare_command(program);
        command.envs(self.environment());
        command
    }

    /// The same behind a wrapper (`ip netns exec`, `unshare`, `setpriv`) that itself runs without
    /// the shim.
    ///
    /// # Panics
    /// When `wrapper` is empty.
    pub fn command_behind(&self, wrapper: &[&str], program: impl AsRef<OsStr>) -> Command {
        let (first, rest) = wrapper.split_first().expect("a wrapper has a name");
        let mut command = bare_command(first);
        command
            .args(rest)
            .arg("env")
            .args(self.environment().iter().map(|(key, value)| format!("{key}={value}")))
            .arg(program);
        command
    }

    /// Starts it.
    pub fn start(&self, command: &mut Command) -> Running {
        let status = self.is_shimmed().then(|| (build::ginnel(), self.dir.clone()));
        Running::start(command, &self.dir, self.limit, status)
    }

    /// Runs it to its end.
    pub fn run(&self, command: &mut Command) -> Done {
        self.start(command).finish()
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// When it does not end in time: what was seen of it.
    pub fn try_run(&self, command: &mut Command) -> Result<Done, String> {
        self.start(command).try_finish()
    }

    /// What the shims of all ended processes reported.
    #[must_use]
    pub fn report(&self) -> Report {
        Report { text: std::fs::read_to_string(self.dir.join("report.jsonl")).unwrap_or_default() }
    }

    /// `ginnel status --json` for this stand's segment.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn status(&self) -> String {
        let output = Command::new(build::ginnel())
            .args(["status", "--json"])
            .envs(self.environment().into_iter().filter(|(key, _)| key != "LD_PRELOAD"))
            .output()
            .expect("ginnel runs");
        assert!(
            output.status.success(),
            "ginnel status: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// When that takes longer than `patience`.
    pub fn wait_until(&self, patience: Duration, what: &str, condition: impl Fn() -> bool) {
        let since = Instant::now();
        while !condition() {
            assert!(since.elapsed() < patience, "not in {patience:?}: {what}: {}", self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Free extents of the segment, as `ginnel status` says.
    ///
    /// # Panics
    /// When it does not say.
    #[must_use]
    pub fn free_extents(&self) -> u64 {
        let status = self.status();
        let found = json::numbers(&status, "free_extents");
        *found.first().unwrap_or_else(|| panic!("ginnel status names no free_extents: {status}"))
    }

    /// Waits until at least `baseline` extents are free again: nothing that the programs here held
    /// is lost.
    ///
    /// # Panics
    /// When that takes longer than a dead process's memory needs to be found (15 s).
    pub fn assert_nothing_lost(&self, baseline: u64) {
        let since = Instant::now();
        loop {
            let free = self.free_extents();
            if free >= baseline {
                return;
            }
            assert!(
                since.elapsed() < Duration::from_secs(15),
                "{free} extents are free where {baseline} were: {}",
                self.status()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The directories of all stands there are.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a stand's directory, unless `GINNEL_KEEP` is set.
fn remove(dir: &Path) {
    if std::env::var_os("GINNEL_KEEP").is_none() {
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// For programs, where a panic ends the process at once: says why, removes all stands' directories
/// and exits with status 1.
pub fn exit_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        for dir in lock(&DIRECTORIES).drain(..) {
            remove(&dir);
        }
        std::process::exit(1);
    }));
}

/// For programs: Ctrl-C removes all stands' directories and ends the program; what it started has
/// its own way to end with it.
///
/// # Panics
/// When the handler cannot be set.
pub fn exit_on_interrupt() {
    let handler = || {
        for dir in lock(&DIRECTORIES).drain(..) {
            remove(&dir);
        }
        std::process::exit(130);
    };
    ctrlc::set_handler(handler).expect("a handler can be set");
}

impl Drop for Stand {
    fn drop(&mut self) {
        lock(&DIRECTORIES).retain(|dir| *dir != self.dir);
        remove(&self.dir);
    }
}

/// Without what the caller's own environment says about the shim.
fn bare_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name == "LD_PRELOAD" || (name.starts_with("GINNEL_") && name != "GINNEL_SEED") {
            command.env_remove(&key);
        }
    }
    command
}
