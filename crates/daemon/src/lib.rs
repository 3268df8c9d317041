//! What Ginnel's daemons, `ginneld` with its helpers and `ginnel-switch`, have in common.
//!
//! ```
//! use ginnel_daemon::log;
//! log!(Info, "joined", segment = "default", slot = 3);
//! ```

pub mod log;
pub mod question;
