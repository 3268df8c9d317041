//! Copies into rings and out of them.
//!
//! The C library's memcpy takes one string instruction (`rep movsb`) for two kilobytes and more
//! where the processor says that it is fast. For pieces that come from another core's cache it
//! often is not (64 KiB writes on a Zen 4: 14 to 21 GB/s with it, 27 to 30 GB/s without), and an
//! emulated processor does it byte by byte (0.27 and 2.3 GB/s). So larger pieces are copied in a
//! loop of loads and stores, as wide as every processor with AVX, or else every x86-64, has them,
//! that asks for what it is going to read: a stream of 64 KiB writes through a ring that lies in
//! the third cache is 3 to 9 % faster by it, and a message of 64 KiB 2 % sooner there (a Zen 4). To
//! ask for what it is going to write gains nothing.

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap. Another process
/// may write either at the same time: then what is copied is any mixture.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Below this the C library's copy takes no string instruction, and none of its time to choose.
    #[cfg(target_arch = "x86_64")]
    const LARGE: usize = 1024;
    #[cfg(target_arch = "x86_64")]
    match len {
        // SAFETY: the caller's promise; so many are two to four vectors.
        16..=64 => return unsafe { x86::small(from, to, len) },
        // SAFETY: the caller's promise; LARGE is more than the longest vector.
        LARGE.. => return unsafe { x86::large(from, to, len) },
        _ => {}
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{
        __m128i, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_store_si128,
        _mm_storeu_si128, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256,
    };

    /// So far ahead of where it copies a copy asks for what it will read, bytes, but nothing beyond
    /// the end: what lies there the other end may be writing.
    const AHEAD: usize = 512;
    const LINE: usize = 64;

    /// Without a call: a message of a cache line is the one whose latency counts.
    ///
    /// # Safety
    /// As [`super::copy`]; `len` is 16 to 64.
    #[inline(always)]
    pub unsafe fn small(from: *const u8, to: *mut u8, len: usize) {
        const WIDE: usize = size_of::<__m128i>();
        // Vectors from the front and from the end, which meet or overlap. All are read before any
        // is written. SAFETY: each lies between the ends of the ranges: a vector is no longer than
        // they are, and two, counted only where they are longer than two, neither.
        unsafe {
            let load = |at: usize| _mm_loadu_si128(from.add(at).cast());
            let store = |at: usize, vector| _mm_storeu_si128(to.add(at).cast(), vector);
            let (first, last) = (load(0), load(len - WIDE));
            if len > 2 * WIDE {
                let (second, third) = (load(WIDE), load(len - 2 * WIDE));
                store(WIDE, second);
                store(len - 2 * WIDE, third);
            }
            store(0, first);
            store(len - WIDE, last);
        }
    }

    /// # Safety
    /// As [`super::copy`]; `len` is at least 32.
    #[inline(never)]
    pub unsafe fn large(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise, and the processor has it.
        unsafe {
            if std::is_x86_feature_detected!("avx") {
                by_32(from, to, len)
            } else {
                by_16(from, to, len)
            }
        }
    }

    macro_rules! copier {
        ($name:ident, $vector:ty, $load:ident, $store:ident, $store_any:ident $(, $feature:literal)?) => {
            /// # Safety
            /// As [`super::copy`]; `len` is at least a vector's length.
            $(#[target_feature(enable = $feature)])?
            pub unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
                const WIDE: usize = size_of::<$vector>();
                // SAFETY: every access lies between the ends of the two ranges: the first and the
                // last vector because `len` is no less than one, the others because `at` and what
                // follows it are checked against `len`. From `at` on `to` is aligned.
                unsafe {
                    let last = $load(from.add(len - WIDE).cast());
                    $store_any(to.cast(), $load(from.cast()));
                    let mut at = WIDE - (to as usize & (WIDE - 1));
                    while at + 4 * WIDE <= len {
                        if at + AHEAD + 4 * WIDE <= len {
                            for line in (0..4 * WIDE).step_by(LINE) {
                                _mm_prefetch::<_MM_HINT_T0>(from.add(at + AHEAD + line).cast());
                            }
                        }
                        let (source, target): (*const $vector, *mut $vector) = (from.add(at).cast(), to.add(at).cast());
                        let (a, b, c, d) = ($load(source), $load(source.add(1)), $load(source.add(2)), $load(source.add(3)));
                        $store(target, a);
                        $store(target.add(1), b);
                        $store(target.add(2), c);
                        $store(target.add(3), d);
                        at += 4 * WIDE;
                    }
                    while at + WIDE <= len {
                        $store(to.add(at).cast(), $load(from.add(at).cast()));
                        at += WIDE;
                    }
                    $store_any(to.add(len - WIDE).cast(), last);
                }
            }
        };
    }

    copier!(by_32, __m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256, "avx");
    copier!(by_16, __m128i, _mm_loadu_si128, _mm_store_si128, _mm_storeu_si128);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A way to copy: [`copy`] and its parts.
    type Copy = unsafe fn(*const u8, *mut u8, usize);

    fn check(way: Copy, shortest: usize) {
        const ROOM: usize = 6000;
        let source: Vec<u8> = (0..ROOM).map(|i| (i * 7 % 251) as u8).collect();
        let lengths = (shortest..300).chain([1000, 1023, 1024, 1025, 2047, 4096, 5000]);
        for (len, (from, to)) in lengths.flat_map(|len| {
            [(0, 0), (1, 0), (0, 1), (3, 17), (33, 31), (64, 5)].map(|at| (len, at))
        }) {
            let mut target = vec![0xee; ROOM];
            // SAFETY: both have room: 64 + 5000 < 6000.
            unsafe { way(source.as_ptr().add(from), target.as_mut_ptr().add(to), len) };
            assert_eq!(
                target[to..to + len],
                source[from..from + len],
                "{len} bytes from {from} to {to}"
            );
            assert!(
                target[..to].iter().chain(&target[to + len..]).all(|&byte| byte == 0xee),
                "{len} bytes from {from} to {to}: beyond the ends"
            );
        }
    }

    #[test]
    fn every_length_and_alignment() {
        check(copy, 0);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn both_widths() {
        check(x86::by_16, 16);
        if std::is_x86_feature_detected!("avx") {
            // A function of a feature is no plain function pointer.
            // SAFETY: the promise of `check`, and the processor has AVX.
            check(|from, to, len| unsafe { x86::by_32(from, to, len) }, 32);
        }
    }
}
