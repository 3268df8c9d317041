//! A stamp: where something began, and when, in one word; and the clock that it is by.

/// A cheap clock for short times: ticks of unknown length near a nanosecond.
#[must_use]
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: no memory is touched.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        ginnel_region::sys::monotonic_ns()
    }
}

/// A stamp: the low [`PLACE`] bits of a ring position above [`TIME`] bits of time, in units of
/// 2^[`UNIT`] ticks. The lowest bit is set: 0 stands for none.
pub(crate) const PLACE: u32 = 28;
pub(crate) const TIME: u32 = 36;
pub(crate) const UNIT: u32 = 4;
const _: () = assert!(PLACE + TIME == u64::BITS);

#[inline]
pub(crate) fn place(position: u64) -> u64 {
    position & ((1 << PLACE) - 1)
}

pub(crate) fn stamp(position: u64, now: u64) -> u64 {
    position << TIME | now >> UNIT & ((1 << TIME) - 1) | 1
}

/// When a stamp was made, as of `now`: right for some minutes. One that seems to be made later, as
/// by a processor whose counter is ahead, was made now.
#[inline]
pub(crate) fn time_of(stamp: u64, now: u64) -> u64 {
    let age = (now >> UNIT).wrapping_sub(stamp) & ((1 << TIME) - 1);
    if age >> (TIME - 1) != 0 { now } else { now.wrapping_sub(age << UNIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_keeps_place_and_time() {
        let (position, made) = (0xf_ffff_ffff_u64, 0x12_3456_7890_u64);
        let stamp = stamp(position, made);
        assert_eq!(stamp >> TIME, place(position));
        for later in [0, 100, 1 << 30] {
            assert!(time_of(stamp, made + later).abs_diff(made) < 2 << UNIT);
        }
        let before = made - 1000;
        assert_eq!(time_of(stamp, before), before, "it cannot have been made later");
    }
}
