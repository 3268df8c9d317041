//! `semget`, `semop`, `semtimedop`, `semctl`.

use crate::kernel::{self, Result};
use crate::memory::fill;
use crate::process::{self, Joined, caller, or_kernel};
use crate::user;
use ginnel::Kind;
use ginnel::sysv::{
    self, Access, Ask, Get, HIGHEST, MOST_OPERATIONS, MOST_SEMAPHORES, No, Quick, Set, Waiting,
};
use ginnel_region::sys::{SignalsBlocked, block_signals};
use libc::{c_int, c_long};
use std::sync::Arc;
use std::time::Duration;

const IPC_INFO: c_int = 3;

fn errno(no: No) -> c_int {
    match no {
        No::Errno(errno) => errno,
        No::Kernel(_) => libc::ENOMEM,
    }
}

pub(crate) fn get(key: c_int, count: c_int, flags: c_int) -> Result<c_long> {
    let kernel = || kernel::semget(key, count, flags);
    let Some(joined) = process::joined() else { return kernel() };
    or_kernel(joined.space.set_get(Get { key, flags }, count, &caller()).map(c_long::from), kernel)
}

/// `GETVAL` and `GETPID`, likewise.
pub(crate) fn quick_look(id: c_int, number: c_int, command: c_int) -> Option<c_int> {
    let of = match command {
        libc::GETVAL => Ask::Value,
        libc::GETPID => Ask::Pid,
        _ => return None,
    };
    let joined = process::joined_before().filter(|_| sysv::is_ours(id) && !sysv::is_asleep())?;
    joined.space.quick_look(id, number, of, &caller()).and_then(|value| value.try_into().ok())
}

/// `semop` of one operation that can be done at once, without a system call where possible; `None`:
/// it goes the long way.
///
/// # Safety
/// `ops` is the program's own argument.
pub(crate) unsafe fn quick(id: c_int, ops: *const libc::sembuf) -> Option<Result<()>> {
    // In a handler it ends the call in which its thread sleeps, on the long way.
    let joined = process::joined_before().filter(|_| sysv::is_ours(id) && !sysv::is_asleep())?;
    // SAFETY: the program's own argument.
    let op = unsafe { user::known_operation(ops) }?;
    match joined.space.quick(id, op, &caller())? {
        Quick::Done => Some(Ok(())),
        Quick::Fails(errno) => Some(Err(errno)),
        Quick::Look => {
            let _signals = block_signals();
            // The operation is done, whatever becomes of the set.
            let _ = joined.space.look(id);
            Some(Ok(()))
        }
    }
}

/// `semtimedop`; `time` may be null.
///
/// # Safety
/// `ops` and `time` are the program's own arguments.
pub(crate) unsafe fn operate(
    id: c_int,
    ops: *const libc::sembuf,
    count: usize,
    time: *const libc::timespec,
    signals: &SignalsBlocked,
) -> Result<c_long> {
    let Some(joined) = process::joined().filter(|_| sysv::is_ours(id)) else {
        // It may sleep: with the signals that the program wants.
        signals.restored();
        return kernel::semtimedop(id, ops, count, time.cast());
    };
    // SAFETY: the program's own argument.
    let time = unsafe { user::time(time) }?;
    if count < 1 {
        return Err(libc::EINVAL);
    }
    if count > MOST_OPERATIONS {
        return Err(libc::E2BIG);
    }
    // SAFETY: the program's own argument.
    let ops = unsafe { user::operations(ops, count) }?;
    let time = match time {
        None => None,
        Some(time) => {
            let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
            let rest = u32::try_from(time.tv_nsec).ok().filter(|&rest| rest < 1_000_000_000);
            Some(Duration::new(seconds, rest.ok_or(libc::EINVAL)?))
        }
    };
    let waiting = Waiting { time, mask: signals.before(), pause: &|| signals.let_through() };
    joined.space.operate(id, ops, &caller(), &waiting).map(|()| 0).map_err(errno)
}

/// `semctl`. `argument`: its fourth, as the program passed it.
///
/// # Safety
/// It is the program's own.
pub(crate) unsafe fn control(
    id: c_int,
    number: c_int,
    command: c_int,
    argument: usize,
    signals: &SignalsBlocked,
) -> Result<c_long> {
    let kernel = || kernel::semctl(id, number, command, argument);
    let Some(joined) = process::joined() else { return kernel() };
    match command {
        IPC_INFO | libc::SEM_INFO if id >= 0 => return info(joined, command, argument),
        libc::SEM_STAT | libc::SEM_STAT_ANY => {
            let real = joined.space.id_at(id, Kind::SystemVSemaphores).map_err(errno)?;
            let set = joined.space.set(real).map_err(errno)?;
            return status(&set, command, argument).map(|()| real.into());
        }
        _ if sysv::is_ours(id) => {}
        _ => return kernel(),
    }
    const KNOWN: [c_int; 10] = [
        libc::GETVAL,
        libc::GETPID,
        libc::GETNCNT,
        libc::GETZCNT,
        libc::GETALL,
        libc::SETALL,
        libc::SETVAL,
        libc::IPC_STAT,
        libc::IPC_SET,
        libc::IPC_RMID,
    ];
    if !KNOWN.contains(&command) {
        return Err(libc::EINVAL);
    }
    if command == libc::SETVAL && !(0..=HIGHEST).contains(&(argument as c_int)) {
        return Err(libc::ERANGE);
    }
    // The kernel reads before it looks for the set.
    let given = if command == libc::IPC_SET {
        // SAFETY: the program's own argument; plain numbers.
        Some(unsafe { user::read::<libc::semid_ds>(argument) }?.sem_perm)
    } else {
        None
    };
    let set = joined.space.set(id).map_err(errno)?;
    if let Some(perm) = given {
        let caller = caller();
        set.perm().check_owner(&caller).map_err(errno)?;
        user::check_ids(perm.uid, perm.gid)?;
        let set = set.set(&caller, perm.uid, perm.gid, u32::from(perm.mode));
        return set.map(|()| 0).map_err(errno);
    }
    // SAFETY: the caller's promise.
    unsafe { of_set(&set, number, command, argument, signals) }
}

/// # Safety
/// As for [`control`].
unsafe fn of_set(
    set: &Arc<Set>,
    number: c_int,
    command: c_int,
    argument: usize,
    signals: &SignalsBlocked,
) -> Result<c_long> {
    let (caller, pause) = (caller(), || signals.let_through());
    let ask = |ask| set.ask(number, ask, &caller, &pause).map(c_long::from).map_err(errno);
    let done = match command {
        libc::GETVAL => return ask(Ask::Value),
        libc::GETPID => return ask(Ask::Pid),
        libc::GETNCNT => return ask(Ask::Increase),
        libc::GETZCNT => return ask(Ask::Zero),
        libc::GETALL => {
            let values = set.all(&caller, &pause).map_err(errno)?;
            // SAFETY: the program's own argument: room for as many as the set has.
            return unsafe { user::write_all(argument, &values) }.map(|()| 0);
        }
        libc::SETALL => {
            let count = set.writable(&caller).map_err(errno)?;
            let mut values = Vec::<u16>::with_capacity(count);
            // SAFETY: the program's own argument: as many as the set has, and then they are there.
            unsafe {
                user::read_all(argument, &mut values.spare_capacity_mut()[..count])?;
                values.set_len(count);
            }
            set.put_all(&values, &caller, &pause)
        }
        libc::SETVAL => set.put(number, argument as c_int, &caller, &pause),
        libc::IPC_RMID => set.remove(&caller),
        _ => return status(set, command, argument).map(|()| 0),
    };
    done.map(|()| 0).map_err(errno)
}

fn status(set: &Set, command: c_int, buffer: usize) -> Result<()> {
    let status = set.status();
    if command != libc::SEM_STAT_ANY {
        status.perm.check(&caller(), Access::READ).map_err(errno)?;
    }
    // SAFETY: all zeroes is a valid value.
    let mut ds: libc::semid_ds = unsafe { std::mem::zeroed() };
    fill(&mut ds.sem_perm, &status.perm);
    [ds.sem_otime, ds.sem_ctime] = status.times.map(u64::cast_signed);
    ds.sem_nsems = status.count as u64;
    // SAFETY: the program's own argument.
    unsafe { user::write_all(buffer, &[ds]) }
}

/// What there may be, and what there is (`struct seminfo`). Gives the highest entry that is in use.
fn info(joined: &Joined, command: c_int, buffer: usize) -> Result<c_long> {
    let usage = joined.space.usage(Kind::SystemVSemaphores);
    let names = ginnel_region::names::NAMES.cast_signed();
    let each = MOST_SEMAPHORES.cast_signed();
    let mut info = [0; 10];
    // semmap, semmni, semmns, semmnu, semmsl, semopm, semume, semusz, semvmx, semaem.
    info.copy_from_slice(&[
        each,
        names,
        names * each,
        each,
        each,
        MOST_OPERATIONS as c_int,
        MOST_OPERATIONS as c_int,
        20,
        HIGHEST,
        HIGHEST,
    ]);
    if command == libc::SEM_INFO {
        info[7] = usage.count.cast_signed();
        info[9] = c_int::try_from(usage.bytes / 2).unwrap_or(c_int::MAX);
    }
    // SAFETY: the program's own argument.
    unsafe { user::write_all(buffer, &info) }?;
    Ok(usage.highest.into())
}
