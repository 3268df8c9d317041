//! The limits: what a core's caches and memory do without any transport.

use super::{Measured, Phase, Task, histogram, stay_on};
use crate::args::Pattern;
use anyhow::{Result, bail};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Copied from one such part of memory to another: four times what the largest cache holds, as
/// STREAM asks for, within these bounds.
const MEMORY: std::ops::RangeInclusive<usize> = 64 << 20..=512 << 20;
/// Exchanges of the cache line that are timed together.
const BATCH: u32 = 64;

/// A cache line of its own (two: processors fetch them in pairs).
#[repr(align(128))]
struct Line(AtomicU64);

pub fn run(task: &Task) -> Result<Measured> {
    match task.pattern {
        Pattern::Latency => ping_pong(task),
        Pattern::Stream => copy(task),
        other => bail!("memory has no pattern {other:?}"),
    }
}

/// Two threads write a cache line in turn. Where no processors are named: the first two that this
/// process may use.
fn ping_pong(task: &Task) -> Result<Measured> {
    let line = Line(AtomicU64::new(0));
    let own = task.cpu.unwrap_or(0);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<()> {
            stay_on(if own == 0 { 1 } else { 0 })?;
            let mut expected = 1;
            loop {
                // Relaxed: the word itself is all that passes.
                let seen = line.0.load(Relaxed);
                if seen == u64::MAX {
                    return Ok(());
                }
                if seen == expected {
                    line.0.store(expected + 1, Relaxed);
                    expected += 2;
                }
                std::hint::spin_loop();
            }
        });
        let mut times = histogram()?;
        let mut phase = Phase::begin();
        let mut turn = 0;
        if let Err(error) = stay_on(own) {
            line.0.store(u64::MAX, Relaxed);
            return Err(error);
        }
        while phase.began.elapsed() < task.duration() && !echo.is_finished() {
            let before = Instant::now();
            for _ in 0..BATCH {
                line.0.store(turn + 1, Relaxed);
                turn += 2;
                while line.0.load(Relaxed) != turn && !echo.is_finished() {
                    std::hint::spin_loop();
                }
            }
            // All of them to a reading of the clock, which takes as long as one.
            times.saturating_record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        phase.end();
        line.0.store(u64::MAX, Relaxed);
        match echo.join() {
            Ok(done) => done?,
            Err(_) => bail!("the other thread ended"),
        }
        Ok(Measured::new().amount(0, turn / 2, &phase).times(&times, f64::from(2 * BATCH)))
    })
}

/// Bytes of the largest cache of the first processor; 0 where the kernel does not say.
fn largest_cache() -> usize {
    let caches =
        std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
    let kib = caches.filter_map(|cache| {
        std::fs::read_to_string(cache.path().join("size"))
            .ok()?
            .trim()
            .strip_suffix('K')?
            .parse::<usize>()
            .ok()
    });
    kib.max().unwrap_or(0) << 10
}

/// One core copies through memory in pieces of the size. Counts the bytes copied, not those read
/// and written.
fn copy(task: &Task) -> Result<Measured> {
    let size = task.size;
    let memory =
        (4 * largest_cache()).clamp(*MEMORY.start(), *MEMORY.end()).max(size) / size * size;
    let from = vec![1u8; memory];
    let mut to = vec![2u8; memory];
    let mut phase = Phase::begin();
    let mut bytes = 0u64;
    // As many to a reading of the clock as make 1 MiB.
    let batch = (1usize << 20).div_ceil(size) * size;
    'time: loop {
        for (from, to) in from.chunks(batch).zip(to.chunks_mut(batch)) {
            for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
                std::hint::black_box(to).copy_from_slice(std::hint::black_box(from));
            }
            bytes += from.len() as u64;
            if phase.began.elapsed() >= task.duration() {
                break 'time;
            }
        }
    }
    phase.end();
    Ok(Measured::new().amount(bytes, bytes / size as u64, &phase))
}
