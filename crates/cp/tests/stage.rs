//! A place for one test: a segment and directories of its own, a server, and `ginnel cp` in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The release build's `ginnel`, as users have it.
pub fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| ginnel_tests::build::release_dir().join("ginnel"));
    &PROGRAM
}

/// A directory of its own.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        for name in ["g", "root", "here"] {
            std::fs::create_dir(place.path(name)).expect("made");
        }
        let own = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(place.path("g"), own).expect("it is ours");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What is offered.
    pub fn root(&self, name: &str) -> PathBuf {
        self.path("root").join(name)
    }

    /// Where users are.
    pub fn here(&self, name: &str) -> PathBuf {
        self.path("here").join(name)
    }

    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let ours = |name: &str| name.starts_with("GINNEL_") || name == "LD_PRELOAD";
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
            command.env_remove(name);
        }
        command.env("GINNEL_DIR", self.path("g")).env("GINNEL_SIZE", "64M");
        command.current_dir(self.path("here"));
        command
    }

    /// Serves `root` under the name s.
    pub fn serve(&self, more: &[&str]) -> Server {
        let mut command = self.command(program());
        command.args(["cp", "serve", "--name", "s", "--root"]).arg(self.path("root")).args(more);
        Server::start(command)
    }

    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Guarded {
        let mut command = self.command(program());
        command.arg("cp").args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Guarded(command.spawn().expect("ginnel starts"))
    }

    pub fn cp<S: AsRef<OsStr>>(&self, args: &[S]) -> Said {
        self.start(args).ends()
    }

    /// The same, which has to do it.
    pub fn copies<S: AsRef<OsStr>>(&self, args: &[S]) -> Said {
        let said = self.cp(args);
        assert_eq!(said.code, Some(0), "{said:?}");
        said
    }

    /// The segment, as this process joins it.
    pub fn segment(&self) -> ginnel::Segment {
        ginnel::Options::new().size(64 << 20).open(self.path("g/default")).expect("a segment")
    }
}

/// A child that does not outlive its test.
pub struct Guarded(pub Child);

impl Guarded {
    /// Waits for its end, which has to come.
    pub fn ends(mut self) -> Said {
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        let drain = |from: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = from.map(|mut from| from.read_to_end(&mut bytes));
                bytes
            })
        };
        let out = drain(out.map(|out| Box::new(out) as _));
        let err = drain(err.map(|err| Box::new(err) as _));
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            match self.0.try_wait().expect("a child") {
                Some(status) => break status,
                None if Instant::now() > until => {
                    self.kill();
                    panic!("ginnel cp hangs");
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let [stdout, stderr] = [out, err].map(|thread| thread.join().expect("read"));
        Said::of(Output { status, stdout, stderr })
    }

    /// Waits until it writes a file that has no name yet.
    pub fn writes(&self) {
        let fds = format!("/proc/{}/fd", self.0.id());
        let is_nameless = |entry: std::io::Result<std::fs::DirEntry>| {
            let link = entry.and_then(|entry| std::fs::read_link(entry.path()));
            link.is_ok_and(|link| link.to_string_lossy().ends_with(" (deleted)"))
        };
        until("it writes", || std::fs::read_dir(&fds).is_ok_and(|mut all| all.any(is_nameless)));
    }

    /// kill -9
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `ginnel cp serve`, which says when it is ready.
pub struct Server(pub Guarded);

impl Server {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = Guarded(command.spawn().expect("ginnel starts"));
        let mut lines = BufReader::new(child.0.stderr.take().expect("a pipe"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("a line");
        assert!(first.contains(" is s: in "), "{first}");
        // What it says is not to stop it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self(child)
    }
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What `--json` printed.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// A count in it.
    pub fn count(&self, what: &str) -> u64 {
        self.json()[what].as_u64().unwrap_or_else(|| panic!("no {what}: {self:?}"))
    }
}

/// What a file, directory or link is, as a copy of all of it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    kind: &'static str,
    mode: u32,
    mtime: (i64, i64),
    content: Vec<u8>,
}

/// Everything below a directory, and the directory.
pub fn snapshot(path: &Path) -> BTreeMap<Vec<u8>, Thing> {
    let mut all = BTreeMap::new();
    look(path, b"", &mut all);
    all
}

fn look(path: &Path, name: &[u8], all: &mut BTreeMap<Vec<u8>, Thing>) {
    let meta = path.symlink_metadata().expect("it is there");
    let mtime = (meta.mtime(), meta.mtime_nsec());
    let (kind, content) = match meta.file_type() {
        kind if kind.is_symlink() => {
            let target = std::fs::read_link(path).expect("a link");
            ("link", target.as_os_str().as_bytes().to_vec())
        }
        kind if kind.is_dir() => ("directory", Vec::new()),
        _ => ("file", std::fs::read(path).expect("readable")),
    };
    let mode = if kind == "link" { 0 } else { meta.mode() & 0o7777 };
    all.insert(name.to_vec(), Thing { kind, mode, mtime, content });
    if kind == "directory" {
        for entry in std::fs::read_dir(path).expect("readable") {
            let entry = entry.expect("an entry");
            let below = [name, b"/", entry.file_name().as_bytes()].concat();
            look(&entry.path(), &below, all);
        }
    }
}

/// Waits until something is so, with a limit that only a hang meets.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: never");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Names in a directory.
pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("readable");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// Bytes that differ from one seed to another, and from one block to the next.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut block: Vec<u8> = (0..1024).flat_map(|_| next().to_le_bytes()).collect();
    let mut bytes = Vec::with_capacity(len + block.len());
    while bytes.len() < len {
        block[..8].copy_from_slice(&next().to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    bytes.truncate(len);
    bytes
}

/// A number below `most`, other ones in each run.
pub fn chance(most: u64) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() % most
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
