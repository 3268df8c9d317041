//! The configuration: one TOML file, or defaults. What is wrong with it is said with file, line and
//! key, and what to do.
//!
//! ```toml
//! run_dir = "/run/ginnel"        # sockets: RUN_DIR/SEGMENT/SLOT.sock
//! status = "127.0.0.1:9190"      # status page and metrics; "off": none
//!
//! [broker]                       # ginnel-broker: memory for each pair of processes
//! memory = "64M"                 # of each pair at most; taken as it is used
//! pairs = 256                    # that two users may have together
//!
//! [segment.default]
//! size = "1G"                    # a power of two, 16M to 1T
//! slots = 8                      # virtual machines: slots 1 to 8
//! vectors = 4                    # interrupts of each machine
//! memory = "memfd"               # or "hugepages-2M", "hugepages-1G"
//! users = ["libvirt-qemu", 1000] # who may join a slot …
//! groups = ["kvm"]               # … by user or by any of its groups
//!
//! [segment.default.slot.3]       # another rule for one slot
//! users = ["alice"]
//!
//! [segment.default.host]         # processes of this host and containers
//! users = ["www-data"]
//! processes = 16
//! trust = ["10.0.0.7"]           # addresses whose connections need no proof
//! ```

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Read where no file is named, if it is there.
pub const DEFAULT_FILE: &str = "/etc/ginnel/ginneld.toml";
/// Descriptors that are kept for the next instance, all segments together: their names must fit
/// into one environment variable of 128 KiB.
const MAX_KEPT: usize = 3000;

/// What the daemon is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directory of the sockets.
    pub run_dir: PathBuf,
    /// Loopback address of the status page and the metrics.
    pub status: Option<SocketAddr>,
    /// The segments, by name.
    pub segments: BTreeMap<String, SegmentConfig>,
    /// What `ginnel-broker` gives.
    pub broker: BrokerConfig,
}

/// What `ginnel-broker` gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerConfig {
    /// Bytes of a pair's memory: a power of two.
    pub memory: u64,
    /// Pairs that may count to one user: to the one whose program connected.
    pub pairs: usize,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self { memory: 64 << 20, pairs: 256 }
    }
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Bytes; a power of two, as it is the size of a PCI BAR.
    pub size: u64,
    /// Slots for virtual machines: 1 … `machines`.
    pub machines: u16,
    /// Interrupt vectors of each, 1 … 256.
    pub vectors: u16,
    /// Where the memory comes from.
    pub memory: Backing,
    /// Who may join a slot that has no rule of its own.
    pub joiners: Joiners,
    /// Slots with rules of their own.
    pub slots: BTreeMap<u16, Joiners>,
    /// Who may join as a process of the host.
    pub host: Joiners,
    /// How many processes of the host at once; 0: none.
    pub processes: u16,
    /// Addresses and networks whose connections programs that `ginnel run` starts in this segment
    /// take for what they say they are, without a proof: as [`ginnel_tcp::policy`] has them.
    pub trust: Vec<String>,
}

impl SegmentConfig {
    /// Who may join at a peer's socket; 0 is the host's.
    #[must_use]
    pub fn joiners(&self, peer: u16) -> &Joiners {
        if peer == 0 { &self.host } else { self.slots.get(&peer).unwrap_or(&self.joiners) }
    }
}

/// Where a segment's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Backing {
    /// A memfd of small pages: taken as it is used.
    #[serde(rename = "memfd")]
    Memfd,
    /// A memfd of huge pages of 2 MiB, all reserved at once.
    #[serde(rename = "hugepages-2M")]
    Huge2M,
    /// The same with pages of 1 GiB.
    #[serde(rename = "hugepages-1G")]
    Huge1G,
}

impl Backing {
    /// Bytes of a huge page.
    #[must_use]
    pub fn huge_page(self) -> Option<u64> {
        match self {
            Self::Memfd => None,
            Self::Huge2M => Some(2 << 20),
            Self::Huge1G => Some(1 << 30),
        }
    }
}

/// Who may join: any of these users, or members of any of these groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Joiners {
    /// User ids.
    pub users: Vec<u32>,
    /// Group ids, primary or supplementary.
    pub groups: Vec<u32>,
}

impl Joiners {
    /// May one with this user id, and with any of these groups, join?
    #[must_use]
    pub fn admits(&self, uid: u32, groups: &[u32]) -> bool {
        self.users.contains(&uid) || groups.iter().any(|gid| self.groups.contains(gid))
    }
}

/// What is wrong with the configuration: one line, with the place and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    key: String,
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// From `file`; without one from [`DEFAULT_FILE`] if that exists, else the defaults.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let path = file.unwrap_or(Path::new(DEFAULT_FILE));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path),
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Self::parse("", path)
            }
            Err(error) => Err(ConfigError {
                file: path.to_owned(),
                line: None,
                key: String::new(),
                problem: format!(
                    "cannot be read: {error}; name a file with --config, or leave it out for the defaults"
                ),
            }),
        }
    }

    /// From the text of `file`, whose name is only for messages. No segment at all means one,
    /// `default`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        read::Reader { text, file, run_dir: default_run_dir() }.config()
    }

    /// As those see it who look for the daemon on this host: from [`DEFAULT_FILE`], or, where they
    /// may not read it or it is wrong, the defaults. A `RUNTIME_DIRECTORY` is that of the service
    /// they are part of, and not heeded.
    #[must_use]
    pub fn of_this_host() -> Self {
        let file = Path::new(DEFAULT_FILE);
        let of = |text: &str| read::Reader { text, file, run_dir: usual_run_dir() }.config();
        let text = std::fs::read_to_string(file).unwrap_or_default();
        of(&text).or_else(|_| of("")).unwrap_or_else(|_| Self {
            run_dir: usual_run_dir(),
            status: None,
            segments: BTreeMap::new(),
            broker: BrokerConfig::default(),
        })
    }

    /// The socket of a peer of a segment: a slot, or 0 for the host.
    #[must_use]
    pub fn socket(&self, segment: &str, peer: u16) -> PathBuf {
        let name = if peer == 0 { "host.sock".into() } else { format!("{peer}.sock") };
        self.run_dir.join(segment).join(name)
    }
}

/// `RUNTIME_DIRECTORY` as systemd gives it; `/run/ginnel` for root, and for everybody where it
/// exists; else [`own_run_dir`].
fn default_run_dir() -> PathBuf {
    if let Some(given) = std::env::var_os("RUNTIME_DIRECTORY").filter(|given| !given.is_empty()) {
        return PathBuf::from(given);
    }
    usual_run_dir()
}

fn usual_run_dir() -> PathBuf {
    let system = Path::new("/run/ginnel");
    let uid = rustix::process::geteuid();
    if uid.is_root() || system.exists() {
        return system.to_owned();
    }
    own_run_dir(uid)
}

/// A user's own: below `XDG_RUNTIME_DIR`, the directory that a session would have there, or the
/// user's home. Only one who has none of these gets a place in `/tmp`, where somebody else may have
/// been first: [`crate::rundir`] finds that out.
fn own_run_dir(uid: rustix::process::Uid) -> PathBuf {
    if let Some(directory) =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty())
    {
        return Path::new(&directory).join("ginnel");
    }
    let is_ours = |directory: &PathBuf| {
        directory.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == uid.as_raw())
    };
    // As the system has it, so that daemon and programs agree whatever HOME is in their
    // environments.
    let home =
        || nix::unistd::User::from_uid(uid.as_raw().into()).ok().flatten().map(|user| user.dir);
    if let Some(session) =
        Some(PathBuf::from(format!("/run/user/{}", uid.as_raw()))).filter(is_ours)
    {
        session.join("ginnel")
    } else if let Some(home) = home().filter(is_ours) {
        home.join(".ginnel/run")
    } else {
        PathBuf::from(format!("/tmp/ginneld-{}", uid.as_raw()))
    }
}

mod read;
#[cfg(test)]
mod tests;
