//! The command line: memcached's names, as far as they mean something here.

use crate::layout::MOST_ITEM;
use crate::protocol::Speaks;
use clap::Parser;
use std::path::PathBuf;

/// A cache that any memcached client can use; neighbours read items out of shared memory.
///
/// Flags are memcached's. What it has beyond these is not there: no SASL or TLS, no UDP, no slabs
/// to tune, no external storage, no proxy.
#[derive(Debug, Clone, Parser)]
#[command(name = "ginnel-cache", version, max_term_width = 100)]
pub struct Args {
    /// TCP port; 0 for none
    #[arg(short, long, default_value_t = 11211)]
    pub port: u16,
    /// Accepted for scripts that turn UDP off; there is no UDP
    #[arg(short = 'U', long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub udp_port: u16,
    /// Path of a unix socket to serve instead of TCP
    #[arg(short = 's', long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the unix socket, in octal
    #[arg(short = 'a', long, value_name = "MODE", default_value = "700")]
    pub unix_mask: String,
    /// Addresses to listen on, with a port if it is another; may be named again [127.0.0.1]
    #[arg(short, long, value_name = "ADDR", value_delimiter = ',')]
    pub listen: Vec<String>,
    /// Memory for items, in MiB
    #[arg(short, long, value_name = "MIB", default_value_t = 64)]
    pub memory_limit: usize,
    /// Largest item, in bytes or with k or m behind it: 1k to 1024m
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m")]
    pub max_item_size: String,
    /// Most connections at once
    #[arg(short, long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub conn_limit: u64,
    /// Threads that serve connections
    #[arg(short, long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// Become this user (only root can, and must)
    #[arg(short, long)]
    pub user: Option<String>,
    /// Protocol of connections: auto, ascii or binary
    #[arg(short = 'B', long, value_name = "NAME", default_value = "auto")]
    pub protocol: String,
    /// Length of the queue of connections that wait to be accepted
    #[arg(short = 'b', long, value_name = "N", default_value_t = 1024)]
    pub listen_backlog: i32,
    /// Refuse to store what has no room, rather than evict
    #[arg(short = 'M', long)]
    pub disable_evictions: bool,
    /// Give items no unique numbers
    #[arg(short = 'C', long)]
    pub disable_cas: bool,
    /// Accepted: a connection has its turn for eight reads
    #[arg(short = 'R', long, value_name = "N", default_value_t = 20, hide_default_value = true)]
    pub max_reqs_per_event: u32,
    /// Refuse flush_all
    #[arg(short = 'F', long)]
    pub disable_flush_all: bool,
    /// Obey the command shutdown
    #[arg(short = 'A', long)]
    pub enable_shutdown: bool,
    /// Offer the memory to nobody: every read is a request
    #[arg(long)]
    pub no_neighbours: bool,
    /// Keep a copy of the memory in a segment, for readers in other virtual machines: this one, or
    /// the one that `ginnel run` takes
    #[arg(long, value_name = "NAME|PATH", num_args = 0..=1, require_equals = true)]
    pub segment: Option<Option<PathBuf>>,
    /// Bytes for the index, or with k or m behind it [an eighth of the memory for items]
    #[arg(long, value_name = "SIZE")]
    pub index_size: Option<String>,
    /// Run in the background
    #[arg(short, long)]
    pub daemon: bool,
    /// Write the process's number to this file
    #[arg(short = 'P', long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,
    /// Say more on the standard error; may be given again
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// memcached's further options: idle_timeout=N is obeyed, tuning of what is not there passed
    /// over
    #[arg(short = 'o', long, value_name = "LIST", value_delimiter = ',')]
    pub extended: Vec<String>,
}

/// memcached's further options that change nothing here, and are passed over.
const PASSED_OVER: &[&str] = &[
    "modern",
    "no_modern",
    "relaxed_privileges",
    "drop_privileges",
    "no_drop_privileges",
    "maxconns_fast",
    "no_maxconns_fast",
    "hashpower",
    "no_hashexpand",
    "hash_algorithm",
    "tail_repair_time",
    "slab_reassign",
    "no_slab_reassign",
    "slab_automove",
    "lru_crawler",
    "no_lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "no_lru_maintainer",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "worker_logbuf_size",
    "watcher_logbuf_size",
    "track_sizes",
    "slab_chunk_max",
    "no_inline_ascii_resp",
    "read_buf_mem_limit",
    "resp_obj_mem_limit",
];

/// Returns bytes of a size such as `4096`, `512k` or `2m`.
///
/// # Errors
/// What is wrong with it.
pub fn size(text: &str) -> Result<usize, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, unit) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1 << 10),
        Some(b'm') => (&lower[..lower.len() - 1], 1 << 20),
        Some(b'g') => (&lower[..lower.len() - 1], 1 << 30),
        _ => (&lower[..], 1),
    };
    let number: usize =
        digits.parse().map_err(|_| format!("{text} is no size such as 4096, 512k or 2m"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))
}

impl Args {
    /// Returns the largest item, bytes.
    ///
    /// # Errors
    /// What is wrong with `-I`.
    pub fn max_item(&self) -> Result<usize, String> {
        let size = size(&self.max_item_size)?;
        if size < 1 << 10 {
            return Err("Item max size cannot be less than 1024 bytes.".into());
        }
        if size > MOST_ITEM {
            return Err("Cannot set item size limit higher than a gigabyte.".into());
        }
        if size > self.memory_limit * (1 << 20) / 2 {
            return Err("Cannot set item size limit higher than 1/2 of memory max.".into());
        }
        Ok(size)
    }

    /// Returns the protocols of `-B`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn speaks(&self) -> Result<Speaks, String> {
        match self.protocol.as_str() {
            "auto" | "negotiating" => Ok(Speaks::Any),
            "ascii" => Ok(Speaks::Text),
            "binary" => Ok(Speaks::Binary),
            other => Err(format!("{other}: the protocol is auto, ascii or binary")),
        }
    }

    /// Returns the seconds after which a silent connection is closed, 0 for never.
    ///
    /// # Errors
    /// What is wrong with `-o`.
    pub fn idle_timeout(&self) -> Result<u64, String> {
        let mut timeout = 0;
        for option in &self.extended {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "idle_timeout" => {
                    timeout = value.parse().map_err(|_| "-o idle_timeout=N: N is seconds")?;
                }
                _ if PASSED_OVER.contains(&name) => {}
                _ => return Err(format!("-o {name}: there is no such option here")),
            }
        }
        Ok(timeout)
    }
}
