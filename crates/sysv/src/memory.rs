//! `shmget`, `shmat`, `shmdt`, `shmctl`.

use crate::caller::{IPC_LOCK, is_capable};
use crate::kernel::{self, Result};
use crate::map::{self, Wanted};
use crate::process::{self, Attached, Joined, attached, caller, or_kernel};
use crate::user;
use ginnel::Kind;
use ginnel::sysv::{self, Access, Caller, Get, Memory};
use ginnel_region::sys;
use libc::{c_int, c_long, c_ulong};

/// `SHM_STAT`, `SHM_INFO` and `SHM_STAT_ANY` (linux/shm.h).
const SHM_STAT: c_int = 13;
const SHM_INFO: c_int = 14;
const SHM_STAT_ANY: c_int = 15;
const IPC_INFO: c_int = 3;

pub(crate) fn get(key: c_int, size: usize, flags: c_int) -> Result<c_long> {
    let kernel = || kernel::shmget(key, size, flags);
    let Some(joined) = process::joined() else { return kernel() };
    let get = Get { key, flags };
    or_kernel(joined.space.memory_get(get, size as u64, &caller()).map(c_long::from), kernel)
}

pub(crate) fn attach(id: c_int, at: usize, flags: c_int) -> Result<usize> {
    let joined = process::joined().filter(|_| sysv::is_ours(id));
    let Some(joined) = joined else { return kernel::shmat(id, at, flags).map(|at| at as usize) };
    let address = map::address(at, flags)?;
    let caller = caller();
    let no = || kernel::shmat(id, at, flags);
    let memory = or_kernel(joined.space.memory(id).map(Some), || no().map(|_| None))?;
    let memory = memory.ok_or(libc::EINVAL)?;
    let read_only = flags & libc::SHM_RDONLY != 0;
    let execute = if flags & libc::SHM_EXEC != 0 { 1 } else { 0 };
    let access =
        Access(if read_only { Access::READ.0 } else { Access::READ.0 | Access::WRITE.0 } | execute);
    let refused = |no| match no {
        sysv::No::Errno(errno) => errno,
        sysv::No::Kernel(_) => libc::ENOMEM,
    };
    memory.check(&caller, access).map_err(refused)?;
    let record = memory.attach(&caller).map_err(refused)?;
    let ((own, len), offset) = (record.place(), record.offset());
    let wanted = Wanted { own, len, offset, path: &joined.path };
    let mut list = attached();
    match map::attach(&wanted, address, flags) {
        Ok(at) => {
            record.begun(caller.pid);
            // What lay there before was replaced.
            for old in list.extract_if(.., |old| old.at >= at && old.at + old.len <= at + len) {
                process::end(old.record, &caller);
            }
            list.push(Attached { at, len, own: own as usize, id, record: Some(record) });
            Ok(at)
        }
        Err(errno) => {
            record.withdraw();
            Err(errno)
        }
    }
}

pub(crate) fn detach(at: usize) -> Result<c_long> {
    // A child of fork enters itself first.
    let _ = process::joined();
    let mut list = attached();
    let maps = sys::read_file(c"/proc/self/maps");
    while let Some(index) = list.iter().position(|attached| attached.at == at) {
        let attached = list.swap_remove(index);
        // As the kernel: only what is attached there still, and not what was put in its place.
        let pieces = map::pieces(&maps, attached.own, attached.at, attached.len);
        pieces.iter().for_each(|&(at, len)| map::detach(at, len));
        process::end(attached.record, &caller());
        if !pieces.is_empty() {
            return Ok(0);
        }
        // All of it was unmapped, and perhaps another is attached at the place.
    }
    drop(list);
    kernel::shmdt(at)
}

pub(crate) fn control(id: c_int, command: c_int, buffer: usize) -> Result<c_long> {
    let kernel = || kernel::shmctl(id, command, buffer);
    let Some(joined) = process::joined() else { return kernel() };
    match command {
        IPC_INFO | SHM_INFO if id >= 0 => return info(joined, command, buffer),
        SHM_STAT | SHM_STAT_ANY => {}
        _ if sysv::is_ours(id) => {}
        _ => return kernel(),
    }
    let caller = caller();
    let real = match command {
        SHM_STAT | SHM_STAT_ANY => {
            or_kernel(joined.space.id_at(id, Kind::SystemVMemory), || Err(libc::EINVAL))?
        }
        _ => id,
    };
    if !matches!(
        command,
        SHM_STAT
            | SHM_STAT_ANY
            | libc::IPC_STAT
            | libc::IPC_SET
            | libc::IPC_RMID
            | libc::SHM_LOCK
            | libc::SHM_UNLOCK
    ) {
        return Err(libc::EINVAL);
    }
    // The kernel reads before it looks for the segment.
    let given = if command == libc::IPC_SET {
        // SAFETY: the program's own argument; plain numbers.
        Some(unsafe { user::read::<libc::shmid_ds>(buffer) }?.shm_perm)
    } else {
        None
    };
    let memory = or_kernel(joined.space.memory(real), || Err(libc::EINVAL))?;
    let done = match (command, given) {
        (libc::IPC_RMID, _) => memory.remove(&caller),
        (_, Some(perm)) => memory
            .perm()
            .check_owner(&caller)
            .and_then(|()| user::check_ids(perm.uid, perm.gid).map_err(sysv::No::Errno))
            .and_then(|()| memory.set(&caller, perm.uid, perm.gid, u32::from(perm.mode))),
        (libc::SHM_LOCK | libc::SHM_UNLOCK, _) => {
            return lock(&memory, &caller, command == libc::SHM_LOCK);
        }
        _ => {
            return status(&memory, &caller, command, buffer)
                .map(|()| if real == id { 0 } else { real.into() });
        }
    };
    or_kernel(done.map(|()| 0), || Err(libc::EINVAL))
}

/// Locking in memory is shown, and that is all: who may is asked as the kernel asks.
fn lock(memory: &Memory, caller: &Caller, on: bool) -> Result<c_long> {
    let perm = memory.perm();
    if !is_capable(IPC_LOCK) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: room for a limit.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        if !perm.is_owner(caller) || on && limit.rlim_cur == 0 {
            return Err(libc::EPERM);
        }
    }
    memory.lock(on);
    Ok(0)
}

fn status(memory: &Memory, caller: &Caller, command: c_int, buffer: usize) -> Result<()> {
    let status = memory.status();
    if command != SHM_STAT_ANY {
        or_kernel(status.perm.check(caller, Access::READ), || Err(libc::EACCES))?;
    }
    // SAFETY: all zeroes is a valid value.
    let mut ds: libc::shmid_ds = unsafe { std::mem::zeroed() };
    fill(&mut ds.shm_perm, &status.perm);
    ds.shm_segsz = usize::try_from(status.size).unwrap_or(usize::MAX);
    [ds.shm_atime, ds.shm_dtime, ds.shm_ctime] = status.times.map(u64::cast_signed);
    [ds.shm_cpid, ds.shm_lpid] = status.pids.map(u32::cast_signed);
    ds.shm_nattch = status.attached;
    // SAFETY: the program's own argument.
    unsafe { user::write_all(buffer, &[ds]) }
}

/// Who may do what, as the C library has it.
pub(crate) fn fill(to: &mut libc::ipc_perm, perm: &sysv::Perm) {
    to.__key = perm.key;
    [to.uid, to.gid, to.cuid, to.cgid] = [perm.uid, perm.gid, perm.cuid, perm.cgid];
    to.mode = perm.mode as _;
}

/// What there may be, and what there is (`struct shminfo`, `struct shm_info`). Gives the highest
/// entry that is in use.
fn info(joined: &Joined, command: c_int, buffer: usize) -> Result<c_long> {
    let usage = joined.space.usage(Kind::SystemVMemory);
    let pages = joined.space.len() / 4096;
    let names = c_ulong::from(ginnel_region::names::NAMES);
    if command == IPC_INFO {
        // shmmax, shmmin, shmmni, shmseg, shmall, and four that are unused.
        let limits: [c_ulong; 9] = [joined.space.len(), 1, names, names, pages, 0, 0, 0, 0];
        // SAFETY: the program's own argument.
        unsafe { user::write_all(buffer, &limits) }?;
    } else {
        let taken = usage.bytes.div_ceil(4096);
        // used_ids (an int), shm_tot, shm_rss, shm_swp, and two that are unused.
        let now: [c_ulong; 6] = [usage.count.into(), taken, taken, 0, 0, 0];
        // SAFETY: as above.
        unsafe { user::write_all(buffer, &now) }?;
    }
    Ok(usage.highest.into())
}
