//! What happens when the library is loaded, before the program starts.

use crate::fds::{self, Entry, NOT_STARTED, strangers};
use crate::next::{self, errno, set_errno};
use crate::{adopt, hooks, leader, ops, own, pool, report, runtime, uncounted};
use core::sync::atomic::Ordering;
use ginnel_region::sys;
use ginnel_tcp::ledger::Reason;
use ginnel_tcp::settings::Settings;
use libc::c_int;

/// Run by the loader before the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    let saved = errno();
    next::resolve_all();
    hooks::resolve();
    #[cfg(target_arch = "x86_64")]
    crate::loader::begin();
    started();
    hooks::watch_forks();
    strangers().fetch_and(!NOT_STARTED, Ordering::Relaxed);
    #[cfg(target_arch = "x86_64")]
    crate::go::start();
    set_errno(saved);
}

/// The C library's functions are there.
fn started() {
    attach();
    leader::begin();
    if let Some(attachment) = runtime::attachment() {
        extern "C" fn at_end() {
            report::write();
            ops::process::finish_all();
        }
        // SAFETY: the function takes nothing and stays loaded.
        unsafe { libc::atexit(at_end) };
        // Sockets that came over exec are held from now on.
        if attachment.ledger.slots().next().is_some() {
            inherit();
        }
    }
}

/// Attaches this process, once.
fn attach() {
    if runtime::attachment().is_some() || std::env::var_os("GINNEL_OFF").is_some() {
        return;
    }
    own::begin();
    report::start();
    let settings = Settings::from_environment();
    let verbose = settings.verbose;
    if !fds::start() {
        return runtime::say(verbose, "no address space; connections stay on TCP");
    }
    pool::start();
    uncounted::start();
    runtime::look_by(adopt::look);
    runtime::attach(settings);
}

/// Looks for sockets among the descriptors that this program began with.
fn inherit() {
    for fd in open_descriptors() {
        if runtime::classify(fd) == Entry::Shared {
            if let Some(endpoint) = adopt::adopt(fd, false)
                && fd <= 2
            {
                let _ = endpoint.detach(Reason::HandedOver, 1_000_000_000);
            }
        } else if fds::get(fd) == Entry::Plain {
            // It may be an epoll set: that is looked at when it is used as one.
            fds::set(fd, Entry::Unknown);
        }
    }
}

fn open_descriptors() -> Vec<c_int> {
    let mut found = Vec::new();
    let Ok(dir) =
        sys::openat(libc::AT_FDCWD, c"/proc/thread-self/fd", libc::O_RDONLY | libc::O_DIRECTORY, 0)
    else {
        return found;
    };
    sys::each_entry(dir, |name| {
        if let Some(fd) = name.to_str().ok().and_then(|name| name.parse::<c_int>().ok())
            && fd != dir
        {
            found.push(fd);
        }
    });
    sys::close(dir);
    found
}
