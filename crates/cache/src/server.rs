//! The server: sockets, threads, the clock.
//!
//! | module | part |
//! |---|---|
//! | this one | starting and ending |
//! | [`args`] | the command line |
//! | [`front`] | the thread that lets clients in, and keeps the clock |
//! | [`worker`] | a thread that serves connections |
//! | [`listen`] | sockets to listen on |
//! | [`pages`] | the thread that has what is filled in huge pages |
//!
//! One thread accepts and keeps the clock; `-t` others serve connections, each its own. All share
//! the store behind one lock, which is held for what one read(2) brought, or for some of what
//! neighbours read, never across a system call.

pub mod args;
mod front;
mod listen;
mod pages;
mod worker;

use crate::door::{self, Door};
use crate::far;
use crate::hints::Shared as Rings;
use crate::memory::{self, Memory};
use crate::protocol::{Connections, Settings};
use crate::store::{CLOCK_START, Limits, Store};
use crate::{life, server::args::Args};
use front::Front;
use mio::Interest;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the threads share.
#[derive(Debug)]
pub struct Shared {
    store: Mutex<Store>,
    settings: Settings,
    connections: Arc<Connections>,
    /// Seconds after which a silent connection is closed, 0 for never.
    idle_timeout: u64,
    begun: Instant,
    stop: AtomicBool,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        // A thread that panics ends the process: the release profile aborts.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the second of the server's clock.
    fn now(&self) -> u32 {
        u32::try_from(self.begun.elapsed().as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(CLOCK_START)
    }
}

/// Runs a server until it is told to end.
///
/// # Errors
/// Why it cannot start, in words for whoever typed the command.
pub fn run(args: &Args) -> Result<(), String> {
    let limits = limits(args)?;
    let idle_timeout = args.idle_timeout()?;
    // A port below 1024 is root's to take; a unix socket is to belong to whom the server becomes.
    let early = if args.unix_socket.is_none() { Some(listen::all(args)?) } else { None };
    if args.daemon {
        nix::unistd::daemon(false, false).map_err(|error| format!("-d: {error}"))?;
    }
    allow_descriptors(args)?;
    become_user(args)?;
    let listeners = early.map_or_else(|| listen::all(args), Ok)?;
    write_pidfile(args)?;
    let ended = end_on_signals()?;
    let (memory, descriptor) = memory::create("ginnel-cache", limits.total())
        .map_err(|error| format!("memory of {} bytes: {error}", limits.total()))?;
    life::hold(&memory).map_err(|error| format!("a thread that readers see end: {error}"))?;
    let generation = random()?;
    let (memory, rings) = copied(args, memory, generation, limits.total())?;
    let (closing, gathered) = (memory.keep(), memory.keep());
    let store = Store::new(memory, &limits, generation, [random()?, random()?]);
    let connections = Arc::new(Connections::default());
    let door = if args.no_neighbours {
        None
    } else {
        Door::open(store.generation(), descriptor, connections.clone())
            .inspect_err(|error| eprintln!("ginnel-cache: nobody can read the memory: {error}"))
            .ok()
    };
    connections.most.store(args.conn_limit, Ordering::Relaxed);
    connections.threads.store(u64::from(args.threads), Ordering::Relaxed);
    let settings = settings(args, &limits, generation, door.as_ref())?;
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    let store = Mutex::new(store);
    let shared = Arc::new(Shared { store, settings, connections, idle_timeout, begun, stop });
    pages::start(&shared, gathered).map_err(|error| format!("a thread: {error}"))?;
    let result = Front::new(shared, listeners, (door, rings), args.threads)
        .and_then(|mut front| front.run(&ended))
        .map_err(|error| error.to_string());
    finish(args, &closing);
    result
}

/// Returns the memory, with a copy in a segment if one is asked for, and the rings of its readers.
fn copied(
    args: &Args,
    memory: Memory,
    generation: u64,
    bytes: usize,
) -> Result<(Memory, Option<Rings>), String> {
    let Some(segment) = &args.segment else { return Ok((memory, None)) };
    let failed = |error: std::io::Error| format!("--segment: {error}");
    let offer = far::offer(segment.as_deref(), generation, bytes).map_err(failed)?;
    let memory = memory.copied_to(offer.copy).map_err(failed)?;
    Ok((memory, Some(offer.rings)))
}

fn finish(args: &Args, memory: &Memory) {
    life::end(memory);
    let socket = args.unix_socket.iter();
    for path in socket.chain(&args.pidfile) {
        let _ = std::fs::remove_file(path);
    }
}

fn limits(args: &Args) -> Result<Limits, String> {
    let max_item = args.max_item()?;
    if args.memory_limit > 1 << 24 {
        return Err("-m: more than 16 TiB".into());
    }
    let index = args.index_size.as_deref().map(args::size).transpose()?;
    Ok(Limits {
        memory: args.memory_limit.max(1) << 20,
        max_item,
        index,
        keep_all: args.disable_evictions,
        no_cas: args.disable_cas,
    })
}

fn random() -> Result<u64, String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("random numbers: {error}"))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// Has the kernel allow as many descriptors as connections and neighbours need. Fewer are enough to
/// begin with, as long as they are not fewer than the connections that were asked for.
fn allow_descriptors(args: &Args) -> Result<(), String> {
    /// Beside connections and neighbours: what is listened on, and what threads wait by.
    const OTHERS: u64 = 64;
    let wanted = args.conn_limit + door::MOST as u64 + OTHERS + 3 * u64::from(args.threads);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|soft| soft >= wanted) {
        return Ok(());
    }
    // Root may have more than the hard limit.
    let more = maximum.map(|hard| hard.max(wanted));
    let may = maximum.map_or(wanted, |hard| hard.min(wanted));
    let raise =
        |current, maximum| setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum });
    if raise(wanted, more).is_ok() || raise(may, maximum).is_ok() && may >= args.conn_limit {
        return Ok(());
    }
    Err(format!("-c {}: only {may} descriptors are allowed (ulimit -n)", args.conn_limit))
}

/// Gives root's rights up, which root must ask for, as memcached wants it.
fn become_user(args: &Args) -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let Some(name) = &args.user else {
        return Err("can't run as root without the -u switch".into());
    };
    let unknown = || format!("can't find the user {name} to switch to");
    let user = nix::unistd::User::from_name(name).map_err(|error| error.to_string())?;
    let user = user.ok_or_else(unknown)?;
    if user.uid.is_root() {
        return Ok(());
    }
    let failed = |error: nix::Error| format!("failed to assume identity of user {name}: {error}");
    nix::unistd::setgroups(&[user.gid]).map_err(failed)?;
    nix::unistd::setgid(user.gid).map_err(failed)?;
    nix::unistd::setuid(user.uid).map_err(failed)
}

fn write_pidfile(args: &Args) -> Result<(), String> {
    let Some(path) = &args.pidfile else { return Ok(()) };
    std::fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn end_on_signals() -> Result<Arc<AtomicBool>, String> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1] {
        signal_hook::flag::register(signal, ended.clone()).map_err(|error| error.to_string())?;
    }
    Ok(ended)
}

fn settings(
    args: &Args,
    limits: &Limits,
    generation: u64,
    door: Option<&Door>,
) -> Result<Settings, String> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let text = |path: &std::path::Path| path.display().to_string();
    let socket = args.unix_socket.as_deref().map_or("NULL".into(), text);
    let listen = if args.listen.is_empty() { "NULL".into() } else { args.listen.join(",") };
    let tcp = if args.unix_socket.is_some() { 0 } else { args.port };
    let shown = vec![
        ("maxbytes", limits.memory.to_string()),
        ("maxconns", args.conn_limit.to_string()),
        ("tcpport", tcp.to_string()),
        ("udpport", "0".into()),
        ("inter", listen),
        ("verbosity", args.verbose.to_string()),
        ("oldest", "0".into()),
        ("evictions", if args.disable_evictions { "off" } else { "on" }.into()),
        ("domain_socket", socket),
        ("umask", args.unix_mask.clone()),
        ("num_threads", args.threads.to_string()),
        ("cas_enabled", yes(!args.disable_cas)),
        ("tcp_backlog", args.listen_backlog.to_string()),
        ("binding_protocol", args.protocol.clone()),
        ("item_size_max", limits.max_item.to_string()),
        ("maxconns_fast", "yes".into()),
        ("flush_enabled", yes(!args.disable_flush_all)),
        ("shutdown_command", yes(args.enable_shutdown)),
        ("idle_timeout", args.idle_timeout()?.to_string()),
        ("total_memory", limits.total().to_string()),
        ("neighbours", yes(door.is_some())),
    ];
    Ok(Settings {
        speaks: args.speaks()?,
        no_flush: args.disable_flush_all,
        shutdown: args.enable_shutdown,
        started: unix - u64::from(CLOCK_START),
        shown,
        door: door.map(|door| text(door.path())),
        copy: args.segment.is_some().then(|| far::name(generation)),
    })
}

/// What a stream is registered for.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
