//! All unsafe code of this crate: the kernel copies between a file and a loaned buffer.
//!
//! Never a reference into a buffer, which a peer may write at any time: the kernel is given its
//! address, after the range was checked against the buffer's length.

#![allow(unsafe_code)]

use ginnel::{Loan, Message};
use std::io::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

/// Is this range inside?
fn is_inside(from: usize, len: usize, whole: usize) -> bool {
    from.checked_add(len).is_some_and(|end| end <= whole)
}

fn offset(at: u64) -> Result<libc::off_t> {
    libc::off_t::try_from(at).map_err(|_| Error::from(ErrorKind::InvalidInput))
}

/// Reads from a file at `at`, at most `len` bytes, into a loan from `to` on. Returns how many; 0 at
/// the file's end.
///
/// # Errors
/// The system's; `InvalidInput` where the range is not in the loan.
pub fn read_into(
    file: impl AsFd,
    at: u64,
    loan: &mut Loan<'_>,
    to: usize,
    len: usize,
) -> Result<usize> {
    if !is_inside(to, len, loan.len()) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let (fd, at, base) = (file.as_fd().as_raw_fd(), offset(at)?, loan.as_mut_ptr());
    loop {
        // SAFETY: `to + len` is at most the loan's length, for which it is this program's to write;
        // the kernel writes there as any peer could, and no reference to it exists.
        let read = unsafe { libc::pread(fd, base.add(to).cast(), len, at) };
        match usize::try_from(read) {
            Ok(read) => return Ok(read),
            Err(_) => match Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// The first bytes of a message, for the kernel to read.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    base: *const u8,
    len: usize,
    message: PhantomData<&'a ()>,
}

// SAFETY: only the kernel reads them, for as many threads as ask it to; the message, which is
// borrowed for as long, keeps the buffer where it is.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

impl<'a> Bytes<'a> {
    /// The first `len` bytes, or all where there are fewer.
    #[must_use]
    pub fn of(message: &'a Message<'_>, len: usize) -> Self {
        Self { base: message.as_ptr(), len: len.min(message.len()), message: PhantomData }
    }

    /// Has it these?
    #[must_use]
    pub fn holds(&self, (pos, len): (u32, u32)) -> bool {
        is_inside(pos as usize, len as usize, self.len)
    }
}

/// Writes `len` bytes of a message, from `from` on, into a file at `at`: all of them.
///
/// # Errors
/// The system's; `InvalidInput` where the message does not have them.
pub fn write_from(
    file: impl AsFd,
    at: u64,
    bytes: Bytes<'_>,
    (from, len): (u32, u32),
) -> Result<()> {
    if !bytes.holds((from, len)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let (from, len) = (from as usize, len as usize);
    let (fd, base) = (file.as_fd().as_raw_fd(), bytes.base);
    let mut done = 0;
    while done < len {
        let to = offset(at.checked_add(done as u64).ok_or(ErrorKind::InvalidInput)?)?;
        // SAFETY: `from + len` is at most the message's length, and the buffer is held for as long
        // as the message is borrowed; the kernel reads whatever stands there.
        let wrote = unsafe { libc::pwrite(fd, base.add(from + done).cast(), len - done, to) };
        match usize::try_from(wrote) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(wrote) => done += wrote,
            Err(_) => match Error::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}
