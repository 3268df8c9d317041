//! Capabilities: none, once the BPF program is loaded.

use anyhow::{Context, Result};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Gives up every capability. To be called before there is a second thread: capabilities are each
/// thread's own.
///
/// # Errors
/// capset(2)'s and prctl(2)'s.
pub fn give_up() -> Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("give up capabilities")?;
    // Nobody but root reads this process's memory, or takes the sockets that it was handed.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("forbid others to trace this process")
}
