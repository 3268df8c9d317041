//! An endpoint's page, which heads a group:
//!
//! | word | what stands there |
//! |---|---|
//! | 0x00 | [`ENDPOINT`] |
//! | 0x08 | its nonce: the page may be another's later |
//! | 0x10 | its waiter's page |
//! | 0x18 | where its table of incoming pairs begins |
//! | 0x20 | a number of its process's |
//! | 0x28 | its job, 0 where it has none |
//! | 0x40 | 0 awake, 1 asleep, 2 asleep and being woken, by somebody who may be killed before |
//! | 0x80 | how often a pair was entered in the table |

use ginnel_region::PAGE;

/// First word of an endpoint's page.
pub(crate) const ENDPOINT: u64 = u64::from_le_bytes(*b"GINNELEP");
pub(crate) const NONCE: u64 = 0x08;
pub(crate) const WAITER: u64 = 0x10;
pub(crate) const TABLE: u64 = 0x18;
pub(crate) const PROCESS: u64 = 0x20;
pub(crate) const JOB: u64 = 0x28;
pub(crate) const ASLEEP: u64 = 0x40;
pub(crate) const ENTERED: u64 = 0x80;
/// Entries of an endpoint's table of incoming pairs: 0 free, else the pair's page.
pub(crate) const ENTRIES: u64 = 1024;
pub(crate) const TABLE_PAGES: u32 = (ENTRIES * 8 / PAGE) as u32;
