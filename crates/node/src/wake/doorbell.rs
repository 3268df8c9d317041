//! Waking by a doorbell, between machines: an interrupt that the guest's driver turns into a
//! wake-up.
//!
//! Several waiters share a vector. Each has an open file of the driver's device, which wakes it
//! when an interrupt of its vector finds the summary of its page other than zero: those that are
//! not meant sleep on.

use super::page::SUMMARY;
use crate::place::Place;
use ginnel_region::{PAGE, Segment, device, sys};
use std::path::Path;

/// A descriptor of the guest driver's device, out of the program's way; -1 where it cannot be had.
#[must_use]
pub fn open(path: &Path) -> i32 {
    ginnel_region::open::open(path).map_or(-1, |(fd, _)| sys::move_high(fd.take()))
}

/// Returns the open file that wakes the waiter with this page, and the vector that does.
///
/// # Errors
/// The `errno` of the driver's ioctl: ENOSPC where a vector has as many waiters as it may.
pub(crate) fn watch(segment: &Segment, place: Place, page: u32) -> sys::Result<(i32, u16)> {
    // Vector 0 is also rung for whoever comes and goes. The others are shared out.
    let others = u32::from(place.vectors).saturating_sub(1);
    let vector = if others == 0 { 0 } else { u16::try_from(1 + page % others).unwrap_or(0) };
    let file = open(segment.path());
    match device::watch(file, u64::from(page) * PAGE + SUMMARY, vector) {
        Ok(()) => Ok((file, vector)),
        Err(errno) => {
            if file >= 0 {
                sys::close(file);
            }
            Err(errno)
        }
    }
}
