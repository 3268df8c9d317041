//! The objects by which libfabric names a domain and an endpoint, and what everything that is made
//! in a domain shares.

use crate::b;
use crate::lock::Lock;
use crate::state::State;
use std::sync::Arc;

/// What everything in a domain shares.
pub struct Shared {
    pub lock: Lock<State>,
    /// How memory is registered: by address, and with keys of the provider's.
    pub registers: (bool, bool),
}

/// The domain object.
#[repr(C)]
pub struct Domain {
    pub fid: b::fid_domain,
    pub shared: Arc<Shared>,
}

/// What the things in a domain share.
///
/// # Safety
/// `domain` is a [`Domain`], and is not closed.
pub unsafe fn shared(domain: *mut b::fid_domain) -> Arc<Shared> {
    // SAFETY: the caller's promise; the domain begins with its `fid_domain`.
    unsafe { (*domain.cast::<Domain>()).shared.clone() }
}

/// An endpoint's object.
#[repr(C)]
pub struct EndpointObject {
    pub fid: b::fid_ep,
    pub shared: Arc<Shared>,
    pub at: usize,
}

/// What libfabric names by this.
///
/// # Safety
/// `ep` is an [`EndpointObject`], and is not closed.
#[inline]
pub unsafe fn endpoint<'a>(ep: *mut b::fid_ep) -> &'a EndpointObject {
    // SAFETY: the caller's promise; the object begins with its `fid_ep`.
    unsafe { &*ep.cast::<EndpointObject>() }
}
