//! Sending: from a connection's own buffers, and from machines' memory behind them.

use super::connection::{BUFFERS, Connection};
use super::has;
use super::known::Known;
use crate::hosts::link::Lost;
use crate::loan::{Beside, Loan};
use crate::wire::MESSAGE;
use ginnel_fabric_bindings as b;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::sync::Arc;

/// What is lent to a message on its way.
#[derive(Debug)]
pub(super) struct Lent {
    loan: Loan,
    /// How many were lent something before.
    pub(super) number: u64,
    /// Its regions, as the device knows them.
    known: SmallVec<[Arc<Known>; 3]>,
}

impl Lent {
    /// It is sent.
    pub(super) fn settle(self) {
        self.loan.settle(self.known.into_iter().map(|one| one as Arc<_>).collect());
    }
}

impl Connection {
    /// Sends the first bytes of a buffer. False: not now.
    pub(super) fn send_own(&mut self, index: u32, len: usize) -> Result<bool, Lost> {
        let (at, descriptor) = (self.place(index), self.descriptor());
        let context = index as usize as *mut c_void;
        self.lend(index, len);
        // SAFETY: an open endpoint; the buffer was ours, and is libfabric's from here on. The
        // context is a number that nobody follows: FI_CONTEXT was not agreed on.
        let done = unsafe {
            let send = has((*(*self.endpoint).msg).send).map_err(Lost)?;
            send(self.endpoint, at.cast(), len, descriptor, b::fi_addr_t::MAX, context)
        };
        self.sent(index, done)
    }

    /// Sends the same, and what is lent behind it. The loan comes back: not now.
    pub(super) fn send_lent(
        &mut self,
        index: u32,
        len: usize,
        loan: Loan,
    ) -> Result<Option<Loan>, Lost> {
        let pieces = loan.held().map_or(&[][..], |held| held.pieces());
        let mut places: SmallVec<[b::iovec; 4]> = SmallVec::new();
        let mut descriptors: SmallVec<[*mut c_void; 4]> = SmallVec::new();
        places.push(b::iovec { iov_base: self.place(index).cast(), iov_len: len });
        descriptors.push(self.descriptor());
        let mut known = SmallVec::new();
        for piece in pieces {
            let at = piece.at().cast_mut().cast();
            places.push(b::iovec { iov_base: at, iov_len: piece.len() });
            let one = self.fabric.known(piece.region());
            if one.is_none() && self.fabric.registers() {
                return self.send_copied(index, len, loan);
            }
            descriptors.push(one.as_ref().map_or(std::ptr::null_mut(), |one| one.descriptor()));
            known.extend(one);
        }
        let context = index as usize as *mut c_void;
        self.lend(index, len);
        // SAFETY: as above; the pieces are readable as long as the loan, and known as long as
        // `known`, both of which `self` has until the send is over. Lists are read before the call
        // returns (fi_msg(3)). What is sent is only read.
        let done = unsafe {
            let send = has((*(*self.endpoint).msg).sendv).map_err(Lost)?;
            let (list, count) = (places.as_ptr(), places.len());
            let described = descriptors.as_mut_ptr();
            send(self.endpoint, list, described, count, b::fi_addr_t::MAX, context)
        };
        if !self.sent(index, done)? {
            return Ok(Some(loan));
        }
        let number = self.loans;
        self.loans += 1;
        self.lent_to[index as usize] = Some(Lent { loan, number, known });
        Ok(None)
    }

    /// Sends the same with the end copied: what was known when it was lent has been forgotten
    /// since, as its machine is gone.
    fn send_copied(&mut self, index: u32, len: usize, loan: Loan) -> Result<Option<Loan>, Lost> {
        let buffer = self.own(index).get_mut(len..).unwrap_or_default();
        let copied = loan.held().map_or(0, |held| held.copy_to(buffer));
        if !self.send_own(index, len + copied)? {
            return Ok(Some(loan));
        }
        loan.settle(Beside::new());
        Ok(None)
    }

    /// A buffer is libfabric's.
    fn lend(&mut self, index: u32, len: usize) {
        let is_own = self.lent.get(index as usize) == Some(&false);
        assert!(is_own && (index as usize) < BUFFERS && len <= MESSAGE);
        self.lent[index as usize] = true;
    }

    /// What came of sending a buffer.
    fn sent(&mut self, index: u32, done: isize) -> Result<bool, Lost> {
        self.lent[index as usize] = done == 0;
        match done {
            0 => Ok(true),
            done if done == -(b::FI_EAGAIN as isize) => Ok(false),
            done => {
                Err(Lost(format!("it cannot send: {}", self.fabric.library.error(done as i64))))
            }
        }
    }
}
