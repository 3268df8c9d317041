//! The memory that a call names, as pieces that the kernel would take: cut where it would cut them,
//! and refused where it would refuse them.

use crate::hooks::Outcome;
use core::mem::MaybeUninit;
use libc::{c_void, iovec};

/// The kernel moves no more than this many bytes in one call (`MAX_RW_COUNT`).
pub(super) const MOST_BYTES: usize = 0x7fff_f000;

/// The kernel takes no more than this many pieces in one call (`UIO_MAXIOV`).
pub(in crate::hooks) const MOST_PIECES: usize = 1024;

/// Is that where no program has memory: in the first page, or in the kernel's half? The kernel says
/// EFAULT, and we must not touch it.
#[inline]
pub(in crate::hooks) fn is_nowhere<T>(at: *const T) -> bool {
    at.addr() < 4096 || at.addr().cast_signed() < 0
}

/// A buffer as one piece; `None` where the kernel must refuse it.
#[inline]
pub(super) fn piece(buf: *const c_void, n: usize) -> Option<[iovec; 1]> {
    let valid = n <= isize::MAX.unsigned_abs() && (n == 0 || !is_nowhere(buf));
    valid.then_some([iovec { iov_base: buf.cast_mut(), iov_len: n.min(MOST_BYTES) }])
}

/// Calls `run` with the program's pieces and their total, cut where the kernel would cut them;
/// `Libc` where it must refuse them.
///
/// # Safety
/// `iov` is null or points to `count` pieces.
pub(in crate::hooks) unsafe fn with_pieces(
    iov: *const iovec,
    count: usize,
    run: impl FnOnce(&[iovec], usize) -> Outcome,
) -> Outcome {
    if count == 0 {
        return run(&[], 0);
    }
    if is_nowhere(iov) || count > MOST_PIECES {
        return Outcome::Libc;
    }
    // SAFETY: not null, and `count` pieces by the caller's promise; the program may not change them
    // during the call.
    let pieces = unsafe { core::slice::from_raw_parts(iov, count) };
    let mut total = 0_usize;
    let mut plain = true;
    for piece in pieces {
        if piece.iov_len > isize::MAX.unsigned_abs() {
            return Outcome::Libc;
        }
        plain &= piece.iov_len == 0 || !is_nowhere(piece.iov_base);
        total = total.saturating_add(piece.iov_len);
    }
    if plain && total <= MOST_BYTES { run(pieces, total) } else { cut(pieces, run) }
}

/// The rare case of [`with_pieces`]: more bytes than one call moves, or a piece that is nowhere,
/// before which the kernel stops.
#[cold]
#[inline(never)]
fn cut(pieces: &[iovec], run: impl FnOnce(&[iovec], usize) -> Outcome) -> Outcome {
    let mut room = [const { MaybeUninit::<iovec>::uninit() }; MOST_PIECES];
    let (mut total, mut kept) = (0, 0);
    for (place, piece) in room.iter_mut().zip(pieces) {
        if is_nowhere(piece.iov_base) && piece.iov_len != 0 {
            break;
        }
        let len = piece.iov_len.min(MOST_BYTES - total);
        place.write(iovec { iov_base: piece.iov_base, iov_len: len });
        total += len;
        kept += 1;
    }
    if total == 0 {
        return Outcome::Libc;
    }
    // SAFETY: the loop wrote the first `kept` places.
    run(unsafe { core::slice::from_raw_parts(room.as_ptr().cast(), kept) }, total)
}
