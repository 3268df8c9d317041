//! Machines' memory that a device knows (fi_mr(3)), so that it reads it by itself.

use super::fabric::Fabric;
use super::{Library, close, has};
use crate::ring::Region;
use ginnel_fabric_bindings as b;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};

/// A region that a device knows. It forgets it when this is dropped.
#[derive(Debug)]
pub(super) struct Known {
    memory: *mut b::fid_mr,
    /// Mapped until it is forgotten: what is dropped in `drop` comes first.
    region: Arc<Region>,
}

// SAFETY: opened with FI_THREAD_SAFE, and it does not change.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

impl Known {
    /// What goes along with whatever is sent from it.
    pub(super) fn descriptor(&self) -> *mut c_void {
        // SAFETY: registered memory is open as long as `self`.
        unsafe { (*self.memory).mem_desc }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once. Whoever sends from it holds it.
        unsafe { close(&raw mut (*self.memory).fid) };
    }
}

impl Fabric {
    /// Must devices know memory before anything is sent from it?
    pub(super) fn registers(&self) -> bool {
        // SAFETY: the structure is whole.
        let mode = unsafe { (*(*self.info().get()).domain_attr).mr_mode };
        mode & b::FI_MR_LOCAL as c_int != 0
    }

    /// Has devices know these regions, and forget all others. Returns why some are not known.
    ///
    /// All pages of a region come into being here and stay in memory, which may take seconds.
    #[must_use]
    pub fn know(&self, regions: &[Arc<Region>]) -> Vec<String> {
        let is = |one: &Arc<Known>, region: &Arc<Region>| Arc::ptr_eq(&one.region, region);
        let known = || self.known.write().unwrap_or_else(PoisonError::into_inner);
        let all = regions.iter().filter(|_| self.registers());
        let old = std::mem::take(&mut *known());
        let (kept, gone): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|one| regions.iter().any(|region| is(one, region)));
        // Forgotten while nobody waits for the list.
        *known() = kept.clone();
        drop(gone);
        let mut troubles = Vec::new();
        for region in all.filter(|region| !kept.iter().any(|one| is(one, region))) {
            match self.register(region) {
                Ok(new) => known().push(Arc::new(new)),
                Err(why) => troubles.push(why),
            }
        }
        troubles
    }

    /// A region, if it is known.
    pub(super) fn known(&self, region: &Arc<Region>) -> Option<Arc<Known>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|one| Arc::ptr_eq(&one.region, region)).map(Arc::clone)
    }

    fn register(&self, region: &Arc<Region>) -> Result<Known, String> {
        let library: &Library = self.library;
        let (at, len) = region.all();
        let len = usize::try_from(len).map_err(|_| "a region longer than an address space")?;
        let mut memory = null_mut();
        // SAFETY: the domain is open; the region is mapped as long as what is returned.
        unsafe {
            let register = has((*(*self.domain).mr).reg)?;
            let (domain, access) = (&raw mut (*self.domain).fid, u64::from(b::FI_SEND));
            let to = &raw mut memory;
            let done = register(domain, at.cast(), len, access, 0, 0, 0, to, null_mut());
            library.check(done, "a machine's memory cannot be registered (see ulimit -l)")?;
        }
        Ok(Known { memory, region: Arc::clone(region) })
    }
}
