//! libfabric remembers memory that was registered once (fi_mr(3), "Memory registration cache"), and
//! finds out that it was unmapped by watching functions of the C library. The switch maps without
//! those: a device would go on with pages of a mapping that is gone, for one that has its addresses
//! now. So nothing may be remembered. The library is told by the environment alone.

use crate::config::Provider;

const MONITOR: &str = "FI_MR_CACHE_MONITOR";
const NONE: &str = "disabled";

/// Has nothing be remembered. Called before the process has a second thread; later it does nothing.
pub fn forget_registrations() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line == "Threads:\t1") {
        // SAFETY: nobody else is there who could read the environment meanwhile.
        unsafe { std::env::set_var(MONITOR, NONE) };
    }
}

/// Is memory that this provider registers forgotten with its registration?
///
/// # Errors
/// That it is not.
pub(super) fn check(provider: Provider) -> Result<(), String> {
    let forgets = std::env::var_os(MONITOR).is_some_and(|value| value == NONE);
    match provider {
        Provider::Verbs if !forgets => {
            Err(format!("provider verbs needs {MONITOR}={NONE} in the environment"))
        }
        _ => Ok(()),
    }
}
