//! What `ginnel status --json` prints (docs/status-json.md).

use serde::Serialize;

/// Version of the format: grows when a member changes its meaning or goes.
pub const VERSION: u32 = 1;

/// One user's directory.
#[derive(Debug, Default, Serialize)]
pub struct Directory {
    /// Where.
    pub directory: String,
    /// Why the list of sockets cannot be read.
    pub error: Option<String>,
    /// The segments in it, and those that its processes use elsewhere.
    pub segments: Vec<Segment>,
    /// Processes with the shim.
    pub processes: Vec<Process>,
    /// Their TCP connections.
    pub connections: Vec<Connection>,
}

/// The whole, for one user.
#[derive(Debug, Serialize)]
pub struct One<'a> {
    /// [`VERSION`].
    pub version: u32,
    /// The rest.
    #[serde(flatten)]
    pub directory: &'a Directory,
}

/// The whole, for all users.
#[derive(Debug, Serialize)]
pub struct All<'a> {
    /// [`VERSION`].
    pub version: u32,
    /// Each user's.
    pub users: &'a [Directory],
}

/// A segment.
#[derive(Debug, Default, Serialize)]
pub struct Segment {
    /// Name in the directory; the path of one elsewhere.
    pub name: String,
    /// Its file.
    pub path: String,
    /// Bytes of the file.
    pub size: u64,
    /// Permission bits, octal.
    pub mode: String,
    /// Pages that can be claimed, of 4096 bytes; `null` with an error.
    pub pages: Option<u32>,
    /// Those of them that are free.
    pub free_pages: Option<u32>,
    /// The same number: an extent is made of whole pages.
    pub free_extents: Option<u32>,
    /// Are tokens the only wake-up?
    pub tokens_only: Option<bool>,
    /// Were its processes asked to leave it?
    pub detached: bool,
    /// Who is attached.
    pub members: Vec<Member>,
    /// Why it cannot be used.
    pub error: Option<String>,
    /// Its named objects.
    #[serde(skip)]
    pub objects: Vec<ginnel_region::Entry>,
    /// Its random number.
    #[serde(skip)]
    pub id: u64,
}

impl Segment {
    /// Bytes that are claimed.
    pub fn in_use(&self) -> Option<u64> {
        let (all, free) = self.pages.zip(self.free_pages)?;
        Some(u64::from(all.saturating_sub(free)) * ginnel_region::PAGE)
    }
}

/// The processes of one ledger, seen in a segment: a peer.
#[derive(Debug, Serialize)]
pub struct Member {
    /// Number in the segment.
    pub member: u16,
    /// Is it this ledger?
    pub own: bool,
    /// Does a process of it live?
    pub alive: bool,
}

/// A process with the shim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Number, in its own pid namespace.
    pub pid: u32,
    /// Name (`/proc/PID/comm`).
    pub name: String,
    /// Name of the segment that it uses.
    pub segment: Option<String>,
    /// It set up an io_uring.
    pub io_uring: bool,
    /// It lives in another pid namespace: its number means nothing here, and it is shown also when
    /// it ended.
    pub other_pid_namespace: bool,
    /// Why it cannot accelerate anything: a word.
    pub reason: Option<String>,
    /// The same as a sentence.
    pub explanation: Option<String>,
    /// Is it attached to any segment, known or not?
    #[serde(skip)]
    pub attached: bool,
}

/// Who has a connection open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Number.
    pub pid: u32,
    /// Name.
    pub name: String,
}

/// What carries a direction's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// The kernel.
    Tcp,
    /// Shared memory.
    Ring,
}

/// How its sleepers are woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wake {
    /// A FIFO beside the segment.
    Fifo,
    /// An interrupt, between virtual machines.
    Doorbell,
    /// A byte in a socket that the two processes of a pair have.
    Line,
    /// One byte on the TCP connection.
    Token,
    /// Nothing but the kernel: the connection is on TCP.
    None,
}

/// One end of a connection.
#[derive(Debug, Serialize)]
pub struct Connection {
    /// The socket's `SO_COOKIE`.
    pub cookie: u64,
    /// Who has it open.
    pub processes: Vec<Holder>,
    /// This end; `null` until it was asked for.
    pub local: Option<String>,
    /// The other end.
    pub remote: Option<String>,
    /// Name of the segment it is in.
    pub segment: Option<String>,
    /// How far it has come: a word.
    pub stage: &'static str,
    /// What carries what this end sends.
    pub out_carrier: Carrier,
    /// What carries what it receives.
    pub in_carrier: Carrier,
    /// Bytes sent over TCP.
    pub out_tcp: u64,
    /// Bytes sent into a ring.
    pub out_ring: u64,
    /// Bytes received over TCP.
    pub in_tcp: u64,
    /// Bytes received out of a ring.
    pub in_ring: u64,
    /// How its sleepers are woken.
    pub wake: Wake,
    /// Wake-ups sent by FIFO.
    pub wakes: u64,
    /// Tokens sent.
    pub tokens: u64,
    /// Upgrades of what this end sends.
    pub upgrades: u64,
    /// Downgrades of it.
    pub downgrades: u64,
    /// Why it is not accelerated: a word.
    pub reason: Option<String>,
    /// The same as a sentence.
    pub explanation: Option<String>,
    /// Which use of the ledger's slot this is.
    #[serde(skip)]
    pub generation: u64,
}

impl Connection {
    /// Bytes through rings, both ways.
    pub fn ring_bytes(&self) -> u64 {
        self.in_ring.wrapping_add(self.out_ring)
    }

    /// Bytes over TCP, both ways.
    pub fn tcp_bytes(&self) -> u64 {
        self.in_tcp.wrapping_add(self.out_tcp)
    }

    /// Does a ring carry a direction at the moment?
    pub fn accelerated(&self) -> bool {
        self.out_carrier == Carrier::Ring || self.in_carrier == Carrier::Ring
    }
}
