//! The ways of waking, one file each, behind words in a segment (`page`). What is here knows a
//! segment and descriptors, and no node: [`crate::waiter`] chooses.
//!
//! | ends | woken by |
//! |---|---|
//! | processes of one kernel | one byte in a `fifo` |
//! | two processes of different users or containers | one byte in a [`line`] of their pair |
//! | machines | a `doorbell` of the guest's driver |
//! | the host and machines | a [`relay`]: `ginneld` passes doorbells on, and a process's service thread turns them into bytes in FIFOs |

pub mod directory;
pub(crate) mod doorbell;
pub(crate) mod fifo;
pub mod line;
mod lock;
pub(crate) mod page;
pub mod relay;

pub use doorbell::open as open_device;
