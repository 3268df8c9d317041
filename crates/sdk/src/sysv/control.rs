//! What `semctl(2)` asks of a set and writes into it, but for who may.

use super::set::{HIGHEST, Locked, Set};
use super::{Access, Answer, Caller, No, Perm, no};
use std::sync::atomic::Ordering::Relaxed;

/// What is asked of one semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `GETVAL`
    Value,
    /// `GETPID`
    Pid,
    /// `GETNCNT`
    Increase,
    /// `GETZCNT`
    Zero,
}

impl Set {
    fn check_number(&self, number: i32) -> Answer<usize> {
        let number = usize::try_from(number).ok().filter(|&number| number < self.count);
        number.ok_or(No::Errno(libc::EINVAL))
    }

    /// `GETVAL`, `GETPID`, `GETNCNT`, `GETZCNT`.
    ///
    /// # Errors
    /// As semctl(2) has them.
    pub fn ask(&self, number: i32, ask: Ask, caller: &Caller, pause: &dyn Fn()) -> Answer<u32> {
        self.perm().check(caller, Access::READ)?;
        let number = self.check_number(number)?;
        let locked = self.lock(pause)?;
        let word = self.word(self.semaphore(number)).load(Relaxed);
        Ok(match ask {
            Ask::Value => (word & 0xffff) as u32,
            Ask::Pid => (word >> 32) as u32,
            Ask::Increase => locked.sleepers_of(number, false),
            Ask::Zero => locked.sleepers_of(number, true),
        })
    }

    /// `GETALL`.
    ///
    /// # Errors
    /// As semctl(2) has them.
    pub fn all(&self, caller: &Caller, pause: &dyn Fn()) -> Answer<Vec<u16>> {
        self.perm().check(caller, Access::READ)?;
        let locked = self.lock(pause)?;
        // All marked, so that they are of one moment.
        let change = locked.change();
        let places = || (0..self.count).map(|number| self.semaphore(number));
        places().for_each(|at| {
            change.hold(at);
        });
        Ok(places().map(|at| change.hold(at) as u16).collect())
    }

    /// `SETVAL`.
    ///
    /// # Errors
    /// As semctl(2) has them.
    pub fn put(&self, number: i32, value: i32, caller: &Caller, pause: &dyn Fn()) -> Answer<()> {
        let Some(value) = u16::try_from(value).ok().filter(|&value| i32::from(value) <= HIGHEST)
        else {
            return no(libc::ERANGE);
        };
        let number = self.check_number(number)?;
        self.perm().check(caller, Access::WRITE)?;
        self.lock(pause)?.put(&[(number, value)], caller);
        Ok(())
    }

    /// `SETALL`.
    ///
    /// # Errors
    /// As semctl(2) has them.
    pub fn put_all(&self, values: &[u16], caller: &Caller, pause: &dyn Fn()) -> Answer<()> {
        if values.iter().any(|&value| i32::from(value) > HIGHEST) {
            return no(libc::ERANGE);
        }
        let values: Vec<_> = values.iter().copied().take(self.count).enumerate().collect();
        self.lock(pause)?.put(&values, caller);
        Ok(())
    }

    /// How many semaphores it has, and may the caller change them? (`SETALL` asks before it reads.)
    ///
    /// # Errors
    /// EACCES.
    pub fn writable(&self, caller: &Caller) -> Answer<usize> {
        self.perm().check(caller, Access::WRITE)?;
        Ok(self.count)
    }

    /// The same for reading.
    ///
    /// # Errors
    /// EACCES.
    pub fn readable(&self, caller: &Caller) -> Answer<usize> {
        self.perm().check(caller, Access::READ)?;
        Ok(self.count)
    }
}

impl Locked<'_> {
    fn put(&mut self, values: &[(usize, u16)], caller: &Caller) {
        let mut change = self.change();
        for &(number, value) in values {
            let word = u64::from(caller.pid) << 32 | u64::from(value);
            change.hold(self.set.semaphore(number));
            change.put(self.set.semaphore(number), word);
        }
        self.forget_undo(&mut change, |number| values.iter().any(|&(of, _)| of == number));
        self.commit(&change);
        drop(change);
        Perm::touch(self.set.object.words);
        self.let_go_on(self.has_any_zero());
    }
}
