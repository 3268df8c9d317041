//! From one descriptor to another, `sendfile` and `splice`: the bytes do not pass through the
//! program.

use crate::hooks::direct::{self, DIRECT, NONE, int, word};
use crate::hooks::{Outcome, bypass, cancel};
use crate::uncounted::Word;
use crate::{fds, next, ops};
use libc::{c_int, c_uint, off64_t};

#[unsafe(no_mangle)]
pub(in crate::hooks) unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: usize,
) -> isize {
    let may_go = count <= ops::io::PIECE && fds::is_plain(from);
    // SAFETY: the program's own arguments.
    unsafe {
        direct::call(&DIRECT.sendfile, may_go, out, [int(from), offset.cast(), word(count), NONE])
    }
}

/// # Safety
/// As for `sendfile(2)`.
#[inline(never)]
pub(in crate::hooks) unsafe extern "C" fn sendfile_here(
    out: c_int,
    from: Word,
    offset: Word,
    count: Word,
    _: Word,
) -> isize {
    let (from, offset, count) = (from.addr() as c_int, offset.cast::<off64_t>(), count.addr());
    let outcome = if bypass() {
        Outcome::Libc
    } else {
        // SAFETY: the program's own arguments.
        cancel::none(|| unsafe { ops::io::sendfile(out, from, offset, count) })
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::sendfile(out, from, offset, count) })
}

#[unsafe(no_mangle)]
pub(in crate::hooks) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    n: usize,
    flags: c_uint,
) -> isize {
    cancel::point();
    // A socket and a pipe have no offsets: the kernel refuses them.
    let outcome = if bypass() || !from_offset.is_null() || !to_offset.is_null() {
        Outcome::Libc
    } else {
        ops::io::splice(from, to, n, flags)
    };
    // SAFETY: the program's own arguments.
    outcome.or(|| unsafe { next::splice(from, from_offset, to, to_offset, n, flags) })
}
