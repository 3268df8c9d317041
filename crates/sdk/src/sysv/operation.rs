//! `semop(2)` and `semtimedop(2)`: all operations of a call, or none.

use super::doer::Doer;
use super::set::{HIGHEST, Locked, MOST_OPERATIONS, Set};
use super::sleepers::Sleeper;
use super::transaction::Change;
use super::{Access, Answer, Caller, No, Space, asleep, no};
use crate::wait::Deadline;
use std::time::Duration;

/// Between looks of one that found no room in the queue.
const UNQUEUED: Duration = Duration::from_millis(1);

/// One of a call's operations (`struct sembuf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// Which semaphore.
    pub number: u16,
    /// What is added; 0: it is to be zero.
    pub add: i16,
    /// `IPC_NOWAIT` and `SEM_UNDO`.
    pub flags: i16,
}

impl Op {
    fn has(self, flag: i32) -> bool {
        i32::from(self.flags) & flag != 0
    }

    pub(super) fn is_undone(self) -> bool {
        self.has(libc::SEM_UNDO)
    }

    pub(super) fn is_not_to_wait(self) -> bool {
        self.has(libc::IPC_NOWAIT)
    }

    pub(super) fn packed(self) -> u64 {
        let (add, flags) = (self.add.cast_unsigned(), self.flags.cast_unsigned());
        u64::from(self.number) | u64::from(add) << 16 | u64::from(flags) << 32
    }

    pub(super) fn unpacked(word: u64) -> Self {
        let part = |at: u32| (word >> at) as u16;
        Self { number: part(0), add: part(16).cast_signed(), flags: part(32).cast_signed() }
    }
}

/// What became of an attempt.
pub(super) enum Step {
    Done,
    /// This operation of it is to be waited for.
    Blocks(usize),
    Fails(i32),
}

/// How a call waits.
pub struct Waiting<'a> {
    /// For so long at most.
    pub time: Option<Duration>,
    /// Signals that were blocked before the call, a bit for each.
    pub mask: u64,
    /// Lets signals through once.
    pub pause: &'a dyn Fn(),
}

/// How a call begins.
enum Begun {
    Done,
    Sleeps(Sleeper),
    /// There is no room in the queue.
    NoRoom,
}

impl Space {
    /// `semtimedop(2)`.
    ///
    /// # Errors
    /// As there.
    pub fn operate(
        &self,
        id: i32,
        ops: Vec<Op>,
        caller: &Caller,
        waiting: &Waiting<'_>,
    ) -> Answer<()> {
        let set = self.set(id)?;
        let deadline = waiting.time.map_or(Deadline::NEVER, Deadline::after);
        match set.begin(&ops, caller, waiting)? {
            Begun::Done => Ok(()),
            Begun::NoRoom => set.sleep_unqueued(&ops, deadline, waiting),
            Begun::Sleeps(sleeper) => {
                // Who jumps out of the sleep leaves nothing behind.
                drop(ops);
                asleep::sleep(set, sleeper, deadline, waiting)
            }
        }
    }
}

impl Set {
    fn begin(&self, ops: &[Op], caller: &Caller, waiting: &Waiting<'_>) -> Answer<Begun> {
        if ops.is_empty() {
            return no(libc::EINVAL);
        }
        if ops.len() > MOST_OPERATIONS {
            return no(libc::E2BIG);
        }
        if ops.iter().any(|op| usize::from(op.number) >= self.count) {
            return no(libc::EFBIG);
        }
        let changes = ops.iter().any(|op| op.add != 0);
        self.perm().check(caller, if changes { Access::WRITE } else { Access::READ })?;
        let mut locked = self.lock(waiting.pause)?;
        let Some((blocking, change)) = locked.perform(ops)? else { return Ok(Begun::Done) };
        let sleeper = locked.enter(ops, blocking);
        // Only now: who does without the lock sees the sleeper, or is seen.
        drop(change);
        Ok(sleeper.map_or(Begun::NoRoom, Begun::Sleeps))
    }

    /// The queue is full: looks again and again.
    fn sleep_unqueued(&self, ops: &[Op], deadline: Deadline, waiting: &Waiting<'_>) -> Answer<()> {
        let (inner, presence) = (self.object.inner, self.object.presence());
        let sleeper = inner.sleepers.take(presence)?;
        let sleep = || loop {
            let left = deadline.left().map_err(|_| No::Errno(libc::EAGAIN))?;
            if sleeper.sleep_among_signals(left.min(UNQUEUED), waiting.mask) {
                return no(libc::EINTR);
            }
            if !self.is_there() {
                return no(libc::EIDRM);
            }
            if self.lock(waiting.pause)?.perform(ops)?.is_none() {
                return Ok(());
            }
        };
        let slept = sleep();
        inner.sleepers.give_back(sleeper, presence);
        slept
    }
}

impl<'a> Locked<'a> {
    /// Does it, where it can be done now: `None`. Else which operation is to be waited for, and
    /// what marks those that were looked at.
    fn perform(&mut self, ops: &[Op]) -> Answer<Option<(usize, Change<'a>)>> {
        let mut change = self.change();
        match self.attempt(&mut change, ops, &self.set.own) {
            Step::Fails(errno) => no(errno),
            Step::Blocks(at) => Ok(Some((at, change))),
            Step::Done => {
                self.commit(&change);
                drop(change);
                self.set.touch();
                if ops.iter().any(|op| op.add != 0) && self.has_sleepers() {
                    self.let_go_on(self.has_zero(ops.iter().map(|op| usize::from(op.number))));
                }
                Ok(None)
            }
        }
    }

    /// What the operations come to, in `change`, which is whole only where they are done.
    pub fn attempt(&self, change: &mut Change<'_>, ops: &[Op], doer: &Doer) -> Step {
        let mut undos: Vec<(usize, i32)> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let number = usize::from(op.number);
            let at = change.set().semaphore(number);
            let value = (change.get(at) & 0xffff) as i32;
            let result = value + i32::from(op.add);
            if op.add == 0 && value != 0 || result < 0 {
                // Also of one that sleeps, if what it is to wait for now is another operation.
                let waits = !op.has(libc::IPC_NOWAIT);
                return if waits { Step::Blocks(index) } else { Step::Fails(libc::EAGAIN) };
            }
            if result > HIGHEST {
                return Step::Fails(libc::ERANGE);
            }
            if op.has(libc::SEM_UNDO) {
                let known = undos.iter().position(|&(of, _)| of == number);
                let before =
                    known.map_or_else(|| self.own_undo(change, doer.party, number), |i| undos[i].1);
                let undo = before - i32::from(op.add);
                if !(-HIGHEST - 1..=HIGHEST).contains(&undo) {
                    return Step::Fails(libc::ERANGE);
                }
                match known {
                    Some(i) => undos[i].1 = undo,
                    None => undos.push((number, undo)),
                }
            }
            change.put(at, u64::from(doer.pid) << 32 | u64::from(result.cast_unsigned()));
        }
        for (number, undo) in undos {
            let undo = i16::try_from(undo).unwrap_or(0);
            if !self.put_undo(change, doer, number, undo) {
                return Step::Fails(libc::ENOMEM);
            }
        }
        Step::Done
    }
}
