//! What `stats` tells, under memcached's names where it is the same thing.

use super::text::{say, tell};
use super::{Context, Next};
use rustix::process::{Resource, getpid};
use std::sync::atomic::{AtomicU64, Ordering};

/// The version that clients are told: that of the memcached whose protocol this is.
pub const VERSION: &str = concat!("1.6.18-ginnel-", env!("CARGO_PKG_VERSION"));

/// Connections of a server, counted by those who accept and close them.
#[derive(Debug, Default)]
pub struct Connections {
    /// Open now.
    pub open: AtomicU64,
    /// Opened so far.
    pub total: AtomicU64,
    /// Refused because there were as many as `-c` allows.
    pub refused: AtomicU64,
    /// Most that may be open.
    pub most: AtomicU64,
    /// Bytes that clients sent.
    pub read: AtomicU64,
    /// Bytes that clients were sent.
    pub written: AtomicU64,
    /// Clients that were handed the memory.
    pub neighbours: AtomicU64,
    /// Readers of the copy in a segment that tell what they read.
    pub far: AtomicU64,
    /// Connections that were closed because they were silent for long.
    pub idle: AtomicU64,
    /// How often a connection had more to do than others would wait for.
    pub yields: AtomicU64,
    /// Threads that serve connections.
    pub threads: AtomicU64,
}

/// Names and values.
type Rows = Vec<(String, String)>;

/// Answers `stats` in text.
pub(super) fn text(words: &[&[u8]], context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let sub = words.get(1).copied().unwrap_or_default();
    match sub {
        b"reset" => {
            reset(context);
            return tell(out, "RESET");
        }
        b"detail" => return detail(words.get(2).copied().unwrap_or_default(), out),
        _ => {}
    }
    let Some(rows) = rows(sub, context) else { return tell(out, "ERROR") };
    for (name, value) in rows {
        say(out, false, &format!("STAT {name} {value}"));
    }
    tell(out, "END")
}

/// Counting by prefixes of keys is not there; switching it on and off costs nothing.
fn detail(word: &[u8], out: &mut Vec<u8>) -> Next {
    match word {
        b"on" | b"off" => tell(out, "OK"),
        b"dump" => tell(out, "END"),
        _ => tell(out, "CLIENT_ERROR usage: stats detail on|off|dump"),
    }
}

/// Begins counting anew.
pub(super) fn reset(context: &mut Context<'_>) {
    context.store.counts.reset();
    for count in [&context.connections.total, &context.connections.refused] {
        count.store(0, Ordering::Relaxed);
    }
}

/// Returns the rows of one kind of statistics, or nothing if there is no such kind.
pub(super) fn rows(sub: &[u8], context: &Context<'_>) -> Option<Rows> {
    match sub {
        b"" => Some(general(context)),
        b"settings" => {
            let shown = context.settings.shown.iter();
            Some(shown.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
        }
        b"items" => Some(items(context)),
        b"slabs" => Some(segments(context)),
        b"sizes" => Some(vec![("sizes_status".into(), "disabled".into())]),
        _ => None,
    }
}

#[allow(clippy::too_many_lines, reason = "a table: a line for each statistic")]
fn general(context: &Context<'_>) -> Rows {
    let (store, connections) = (&context.store, context.connections);
    let counts = &store.counts;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let now = u64::from(store.now());
    let usage = processor_time();
    let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(0);
    let mut rows: Rows = vec![
        row("pid", getpid().as_raw_nonzero()),
        row("uptime", now - u64::from(crate::store::CLOCK_START)),
        row("time", context.settings.started + now),
        row("version", VERSION),
        row("pointer_size", usize::BITS),
        row("rusage_user", &usage[0]),
        row("rusage_system", &usage[1]),
        row("max_connections", count(&connections.most)),
        row("curr_connections", count(&connections.open)),
        row("total_connections", count(&connections.total)),
        row("rejected_connections", count(&connections.refused)),
        row("max_descriptors", most),
        row("cmd_get", counts.gets),
        row("cmd_set", counts.sets),
        row("cmd_flush", counts.flushes),
        row("cmd_touch", counts.touches),
        row("cmd_meta", counts.metas),
        row("get_hits", counts.gets - counts.get_misses),
        row("get_misses", counts.get_misses),
        row("direct_hits_sampled", counts.direct_hits),
    ];
    rows.extend([
        row("get_expired", counts.get_expired),
        row("idle_kicks", count(&connections.idle)),
        row("conn_yields", count(&connections.yields)),
        row("listen_disabled_num", 0),
        row("delete_misses", counts.deletes.1),
        row("delete_hits", counts.deletes.0),
        row("incr_misses", counts.incrs.1),
        row("incr_hits", counts.incrs.0),
        row("decr_misses", counts.decrs.1),
        row("decr_hits", counts.decrs.0),
        row("cas_misses", counts.cas.1),
        row("cas_hits", counts.cas.0),
        row("cas_badval", counts.cas.2),
        row("touch_hits", counts.touches - counts.touch_misses),
        row("touch_misses", counts.touch_misses),
        row("store_too_large", counts.too_large),
        row("store_no_memory", counts.no_room),
        row("bytes_read", count(&connections.read)),
        row("bytes_written", count(&connections.written)),
        row("limit_maxbytes", store.limits().memory),
        row("accepting_conns", 1),
        row("threads", count(&connections.threads)),
        row("neighbours", count(&connections.neighbours)),
        row("bytes", counts.bytes),
        row("curr_items", counts.items),
        row("total_items", counts.total_items),
        row("expired_unfetched", counts.expired_unfetched),
        row("evicted_unfetched", counts.evicted_unfetched),
        row("evictions", counts.evictions),
        row("reclaimed", counts.reclaimed),
        row("slot_evictions", counts.displaced),
        row("generation", format!("{:016x}", store.generation())),
    ]);
    if let Some(door) = &context.settings.door {
        rows.push(row("memory", door));
    }
    if let Some(copy) = &context.settings.copy {
        rows.push(row("copy", copy));
        rows.push(row("far_neighbours", count(&connections.far)));
    }
    rows
}

fn items(context: &Context<'_>) -> Rows {
    let counts = &context.store.counts;
    vec![
        row("items:1:number", counts.items),
        row("items:1:evicted", counts.evictions),
        row("items:1:evicted_unfetched", counts.evicted_unfetched),
        row("items:1:reclaimed", counts.reclaimed),
        row("items:1:expired_unfetched", counts.expired_unfetched),
        row("items:1:outofmemory", 0),
    ]
}

/// There are no slabs; the one class that is shown is that of the log's segments.
fn segments(context: &Context<'_>) -> Rows {
    let (all, free, bytes) = context.store.segments();
    vec![
        row("1:chunk_size", bytes),
        row("1:total_pages", all),
        row("1:used_chunks", all - free),
        row("1:free_chunks", free),
        row("active_slabs", 1),
        row("total_malloced", all * bytes),
    ]
}

fn row(name: &str, value: impl std::fmt::Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// Returns seconds of processor time, of the program and of the kernel for it.
fn processor_time() -> [String; 2] {
    use nix::sys::resource::{UsageWho, getrusage};
    let text = |time: nix::sys::time::TimeVal| format!("{}.{:06}", time.tv_sec(), time.tv_usec());
    getrusage(UsageWho::RUSAGE_SELF).map_or_else(
        |_| ["0.000000".into(), "0.000000".into()],
        |used| [text(used.user_time()), text(used.system_time())],
    )
}
