//! `TCP_CORK` while a ring carries what is sent. Nothing is kept back in a ring, so the kernel is
//! not told before TCP carries again: a server that corks and uncorks around each answer makes no
//! system calls for it. A cork that the kernel has, from before, is taken out at once: what stands
//! behind it is to go.

use crate::endpoint::Endpoint;
use crate::kernel;
use crate::ledger::flag;
use libc::c_int;

/// Has the kernel a cork for `fd`? No where it cannot be asked.
#[must_use]
pub fn is_set(fd: c_int) -> bool {
    let mut on = 0;
    kernel::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, &mut on).is_ok_and(|_| on != 0)
}

impl Endpoint<'_> {
    /// The program sets or takes out its cork. False: the kernel is to be told, and
    /// [`Self::corked`] after it.
    pub fn cork(self, on: bool) -> bool {
        let _held = self.send_lock();
        let kept = self.tx_in_ring() && !self.slot().has(flag::TX_SHUT | flag::KERNEL_CORKED);
        if kept {
            self.slot().set(flag::CORKED, on);
        }
        kept
    }

    /// The kernel was told.
    pub fn corked(self, on: bool) {
        self.slot().set(flag::CORKED | flag::KERNEL_CORKED, on);
    }

    /// Nobody was told of what the program did with its cork lately. What it does at this moment is
    /// told after the kernel has heard of it: that may be in between.
    pub(crate) fn learn_cork(self) {
        loop {
            let on = is_set(self.fd());
            self.corked(on);
            if is_set(self.fd()) == on {
                return;
            }
        }
    }

    /// What the program set, where the kernel does not know.
    #[must_use]
    pub fn own_cork(self) -> Option<bool> {
        let own = self.slot().has(flag::CORKED);
        (own != self.slot().has(flag::KERNEL_CORKED)).then_some(own)
    }

    /// All that was written is to arrive, so that the other end can catch up: what a cork keeps in
    /// the kernel would lie there. The program goes on having its cork.
    pub(crate) fn push_corked(self) {
        if self.slot().has(flag::KERNEL_CORKED) {
            self.slot().set(flag::KERNEL_CORKED, false);
            let _ = kernel::setsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CORK,
                &c_int::from(false),
            );
        }
    }

    /// TCP carries again.
    pub(crate) fn settle_cork(self) {
        if let Some(on) = self.own_cork() {
            self.slot().set(flag::KERNEL_CORKED, on);
            let _ =
                kernel::setsockopt(self.fd(), libc::IPPROTO_TCP, libc::TCP_CORK, &c_int::from(on));
        }
    }
}
