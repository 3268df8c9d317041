//! Processes: fork, exec, descriptors passed to others.
pub use crate::service::not_executed;

use crate::fds::{self, Entry, Young};
use crate::{adopt, identity, leader, own, pool, report, runtime, service, sets};
use ginnel_node::processes::ProcessFlags;
use ginnel_preload::{Preload, Unreachable, Way};
use ginnel_region::sys;
use ginnel_tcp::ledger::{Reason, Stage, flag};
use ginnel_tcp::{Attachment, hand_over};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// At `exit` and `_exit`: sockets that nobody else has end as if they were closed; those that
/// somebody else may have go back to TCP. Else a token would lie unread when the kernel closes
/// them, which then resets and throws away what it has not sent. Together they have two seconds.
pub fn finish_all() {
    // A process that carries nothing may be confined: not one system call more than its own.
    if runtime::attachment().is_none() || !own::is_ours_by_number() {
        return;
    }
    let end = sys::monotonic_ns() + 2_000_000_000;
    for (fd, entry) in fds::all() {
        if let (Entry::Endpoint(_) | Entry::Inherited(_), Some(endpoint)) = (entry, runtime::known(fd)) {
            let slot = endpoint.slot();
            let alone = slot.forking.load(Ordering::SeqCst) == 0 && !runtime::others_live(endpoint);
            let now = sys::monotonic_ns();
            if alone && slot.stage() == Stage::Active && now < end && endpoint.is_free() {
                if slot.has(flag::SPAWNED) {
                    // Somebody else may have it, without having said so yet: as at a close.
                    let _ = endpoint.detach(Reason::HandedOver, end - now);
                } else {
                    endpoint.finish();
                }
            } else if !alone && slot.stage() == Stage::Active {
                endpoint.leave_options_if_free();
            }
        }
    }
}

/// Before `fork` (pthread_atfork prepare).
pub fn fork_prepare() {
    identity::wait_for_parting();
    let _ = fds::hold_changes();
    for (fd, entry) in fds::all() {
        if entry.has_no_slot() {
            fds::share(fd);
        }
    }
    crate::uncounted::end_all();
    // The parent may close a socket before the child has said that it holds it.
    each_endpoint(|slot| {
        slot.forking.fetch_add(1, Ordering::SeqCst);
    });
    sets::lock_all();
}

/// Calls `work` for the slot of every descriptor that stands for one.
fn each_endpoint(work: impl Fn(&ginnel_tcp::Slot)) {
    let Some(attachment) = runtime::attachment() else { return };
    for (_, entry) in fds::all() {
        if let Entry::Endpoint(slot) | Entry::Inherited(slot) = entry {
            work(attachment.ledger.slot(slot));
        }
    }
}

/// After `fork`, in the parent.
pub fn fork_parent() {
    sets::unlock_all();
    fds::release_changes(false);
    service::expect();
}

/// After a `fork` that failed: there is no child that would say that it holds what this process
/// holds.
pub fn fork_failed() {
    each_endpoint(ginnel_tcp::Slot::forked);
}

/// After `fork`, in the child.
pub fn fork_child() {
    sets::unlock_all();
    fds::release_changes(true);
    own::begin();
    identity::abandon_what_was_left();
    let Some(attachment) = runtime::attachment() else { return };
    if !attachment.node.reenter(&attachment.ledger) {
        // No room in the ledger: whatever is carried cannot be shared. Nothing new is begun, and
        // nothing kept, as nobody would give it up if the child became another user.
        return identity::abandon(attachment);
    }
    report::forget();
    leader::begin();
    crate::uncounted::start();
    fds::forget_parent();
    service::forget_parent(attachment);
    pool::forget();
    sets::forget_parent();
    for (fd, entry) in fds::all() {
        if let Entry::Endpoint(slot) | Entry::Inherited(slot) = entry {
            let shared = attachment.ledger.slot(slot);
            if shared.holder_count() > 4 {
                shared.purge(&attachment.node.processes);
            }
            shared.hold(attachment.node.me());
            shared.set(flag::SHARED, true);
            shared.forked();
            fds::set(fd, Entry::Inherited(slot));
        } else if let Entry::Young(young) = entry {
            fds::set(fd, Entry::Young(young.heir()));
        }
    }
    identity::forked(attachment);
}

/// What a program that is about to be executed will have of this library.
#[derive(Clone, Copy, Default)]
pub struct Program {
    found: Option<Unreachable>,
    preload: Option<Preload>,
    way: Way,
}

impl Program {
    /// The program at `path` (null: the open file `fd`), executed with the environment `envp`.
    ///
    /// # Safety
    /// As for `execve`, or for `fexecve`.
    pub unsafe fn of(path: *const c_char, fd: c_int, envp: *const *const c_char) -> Self {
        if CONFINED.load(Ordering::Relaxed) {
            return Self::default();
        }
        // SAFETY: the caller's promise.
        let Some((_, list)) = (unsafe { preload(envp) }) else { return Self::default() };
        let mut room = [0; 1024];
        let library = file_of_library(list, &mut room);
        // SAFETY: a terminated string by the caller's promise.
        let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
        let finding = path.map_or_else(|| ginnel_preload::look_at(fd, library), |path| ginnel_preload::look(path, library));
        let found = finding.map(|finding| finding.why);
        #[cfg(target_arch = "x86_64")]
        let loader = found == Some(Unreachable::StaticGo)
            && finding.is_some_and(|finding| finding.interpreter().is_none())
            && path.is_some_and(|path| crate::loader::for_program(path).is_some());
        #[cfg(not(target_arch = "x86_64"))]
        let loader = false;
        let preload = finding.map(|finding| finding.preload());
        Self { found, preload, way: ginnel_preload::way(found, loader) }
    }

    /// Will the library be there, and see what the program does?
    pub fn keeps_shim(self) -> bool {
        self.way != Way::None
    }

    /// Is the loader to be executed in its place?
    pub fn is_loaded(self) -> bool {
        self.way == Way::Loader
    }

    /// The same where the program is executed itself, though the loader could have been in its
    /// place.
    pub fn itself(self) -> Self {
        Self { way: if self.is_loaded() { Way::None } else { self.way }, ..self }
    }

    /// Says why it does not have it, to whoever asked (`GINNEL_VERBOSE`).
    fn explain(self, attachment: &Attachment) {
        if let (true, Some(why)) = (attachment.settings.verbose, self.found.filter(|_| !self.keeps_shim())) {
            runtime::say(true, &format!("the program that starts next {why}: it stays on TCP"));
        }
    }

    /// How the library is to be named to it.
    pub fn preload(self) -> Preload {
        self.preload.unwrap_or(Preload::Kept)
    }
}

/// The preloads in an environment, if this library is among them: which variable it is, and what it
/// says.
///
/// # Safety
/// `envp` is null or a null-terminated array of strings.
pub unsafe fn preload<'a>(envp: *const *const c_char) -> Option<(usize, &'a [u8])> {
    if envp.is_null() {
        return None;
    }
    let mut index = 0;
    let mut found = None;
    // SAFETY: the caller's promise; nothing behind the null pointer is read.
    unsafe {
        while let place = envp.add(index).read()
            && !place.is_null()
        {
            if let Some(list) = CStr::from_ptr(place).to_bytes().strip_prefix(b"LD_PRELOAD=")
                && is_named(list)
            {
                found = Some((index, list));
            }
            index += 1;
        }
    }
    found
}

/// The names in a list of preloads (ld.so(8)).
pub fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b' ' | b':')).filter(|name| !name.is_empty())
}

/// The file for glibc that a list of preloads means by this library, if it says so by an absolute
/// path. Of several the first that is there: the dynamic linker passes over the others.
fn file_of_library<'a>(list: &[u8], room: &'a mut [u8; 1024]) -> Option<&'a CStr> {
    let mut found = 0;
    for name in names(list).filter(|name| is_named(name)) {
        let (folder, file) = ginnel_preload::parts(name)?;
        found = 0;
        for part in [folder, b"/", file, b"\0"] {
            room.get_mut(found..found + part.len())?.copy_from_slice(part);
            found += part.len();
        }
        let here = CStr::from_bytes_with_nul(room.get(..found)?).ok()?;
        if sys::openat(libc::AT_FDCWD, here, libc::O_PATH, 0).map(sys::close).is_ok() {
            break;
        }
    }
    CStr::from_bytes_with_nul(room.get(..found)?).ok()
}

/// Does it name this library?
pub fn is_named(list: &[u8]) -> bool {
    list.windows(11).any(|part| part == b"ginnel_shim")
}

/// Does it name this library, or the one for System V objects, which lies beside it?
pub fn is_of_ginnel(name: &[u8]) -> bool {
    is_named(name) || name.windows(11).any(|part| part == b"ginnel_sysv")
}

/// Before an `exec*` of `program`: where it will not have the shim (static, setuid, LD_PRELOAD
/// gone), sockets that survive the exec are handed over.
pub fn executing(program: Program) {
    if runtime::attachment().is_none() || !own::is_ours_by_number() {
        return;
    }
    report::write();
    if let Some(attachment) = runtime::attachment() {
        program.explain(attachment);
        attachment.node.processes.process(attachment.node.me()).set(ProcessFlags::Executing, true);
    }
    sets::untag();
    if program.keeps_shim() {
        hand_over_pairs(true);
    } else {
        hand_over_inherited();
    }
    // Whatever it is in the middle of by then.
    let _ = service::stand_still();
}

/// Before `posix_spawn`, `system`, `popen` of a program: likewise.
pub fn spawning(program: Program) {
    let Some(attachment) = runtime::attachment() else { return };
    program.explain(attachment);
    if program.keeps_shim() {
        mark_inherited();
        hand_over_pairs(false);
    } else {
        sets::lend_inherited();
        hand_over_inherited();
    }
}

/// A vfork child is about to be made: it will start some program.
pub fn vforking() {
    mark_inherited();
    hand_over_pairs(false);
}

/// Remembers of every connection that an exec would leave open that another program may have it.
fn mark_inherited() {
    sets::lend_inherited();
    for (fd, entry) in surviving() {
        if entry.has_no_slot() {
            fds::share(fd);
        } else if let Some(endpoint) = runtime::known(fd) {
            endpoint.slot().set(flag::SPAWNED | flag::SHARED, true);
        }
    }
    service::expect();
}

/// The TCP sockets that an exec would leave open.
pub(super) fn surviving() -> impl Iterator<Item = (c_int, Entry)> {
    fds::all().filter(|(_, entry)| entry.is_tcp()).filter(|(fd, _)| {
        let flags = sys::fcntl(*fd, libc::F_GETFD, 0).unwrap_or(libc::FD_CLOEXEC as usize);
        flags & libc::FD_CLOEXEC as usize == 0
    })
}

/// Hands over every endpoint that an exec would leave open.
fn hand_over_inherited() {
    for (fd, entry) in surviving() {
        match entry {
            Entry::Endpoint(_) | Entry::Inherited(_) => super::io::offer(fd),
            // The program may use it, and the counts would not know: it stays on TCP.
            Entry::Young(_) => {
                if let Some(endpoint) = runtime::find(fd) {
                    hand_over::hold(endpoint, Reason::HandedOver);
                }
            }
            _ => fds::share(fd),
        }
    }
}

/// Hands over every endpoint in the memory of a pair that an exec would leave open: the program
/// that comes has none of that memory. After it was said that a program comes: what the thread
/// does not see of that now, it sees before it has another connection meet there.
///
/// `for_good`: this process becomes that program.
fn hand_over_pairs(for_good: bool) {
    for (fd, _) in surviving() {
        let Some(endpoint) = runtime::known(fd).filter(|endpoint| endpoint.comes_to_pair()) else { continue };
        if for_good && !runtime::others_live(endpoint) {
            // Nobody is left who could read what stays in a ring: such a connection is reset.
            super::io::hand_over(fd);
        } else {
            super::io::offer(fd);
        }
    }
}

/// `fds` are about to be sent as SCM_RIGHTS over the unix socket `over`.
pub fn sending_fds(_over: c_int, fds: &[c_int]) {
    // Whoever receives it may not have the shim, and for a while nobody holds it: the kernel's
    // socket must hold the whole truth.
    for &fd in fds {
        sets::lend(fd);
        fds::share(fd);
        // Not used here, and most likely not to be.
        if fds::change_young(fd, Young::passed) {
            continue;
        }
        if let Some(endpoint) = runtime::known(fd) {
            super::io::hand_over(fd);
            // A close here is not the last, though nobody says that he has it.
            endpoint.slot().set(flag::SPAWNED, true);
        }
    }
}

/// `fds` were just received as SCM_RIGHTS.
pub fn received_fds(fds: &[c_int]) {
    for &fd in fds {
        super::fd::created(fd, super::fd::Kind::Socket);
        if runtime::classify(fd) == Entry::Shared {
            let _ = adopt::adopt(fd, false);
        }
    }
}

/// Set by [`confined`].
static CONFINED: AtomicBool = AtomicBool::new(false);

/// The program is about to confine itself to the system calls that it makes itself (seccomp): from
/// here on the shim makes none of its own, and changes none.
pub fn confined() {
    if runtime::attachment().is_none() || !own::is_ours_by_number() {
        return;
    }
    hand_over_all(Reason::HandedOver);
    report::write();
    // No handler leaves this in the midst of it.
    let _blocked = sys::block_signals();
    service::pause();
    // What it has mapped and opened it would keep: it is confined, so others may come to steer it.
    if let Some(attachment) = runtime::attachment() {
        identity::leave_for_good(attachment);
    }
    CONFINED.store(true, Ordering::Relaxed);
}

/// This program's calls are not seen: what it has inherited goes back to TCP.
#[cfg(target_arch = "x86_64")]
pub fn unseen() {
    hand_over_all(Reason::HandedOver);
}

/// Everything that this process carries goes back to TCP, and stays there.
pub fn hand_over_all(reason: Reason) {
    for (fd, entry) in fds::all() {
        let endpoint = match entry {
            Entry::Endpoint(_) | Entry::Inherited(_) => runtime::known(fd),
            // Another process may come to carry it, and would not know of what is done here.
            Entry::Young(young) if young.is_heir() => runtime::find(fd),
            _ => None,
        };
        match endpoint {
            Some(endpoint) if endpoint.slot().stage() == Stage::Active => super::io::hand_over_for(fd, reason),
            Some(endpoint) => hand_over::hold(endpoint, reason),
            None => {}
        }
    }
    // No registration is of a carried connection any more: from here on every change is told at
    // once.
    sets::tell_all();
}
