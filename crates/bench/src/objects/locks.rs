//! A mutex beside pthread's own: robust, and shared by processes.

use crate::{Asked, Failed, retried, segment, tell};
use ginnel::{Memory, Mutex, Segment};
use std::mem::size_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Instant;

/// Pairs of lock and unlock that are timed together.
const ROUND: u32 = 1000;
/// Where in the memory beside the lock: pthread's mutex, what it protects, who is ready, how many
/// of each end's are done, and when the first began.
const COUNTED: usize = 256;
const READY: usize = 320;
const DONE: [usize; 2] = [384, 448];
const MADE: usize = 512;

/// Either of the two.
enum Lock {
    Own(Box<Mutex>),
    Pthread(Pthread),
}

impl Lock {
    /// Takes it, does something and gives it back.
    fn with(&self, inside: impl FnOnce()) -> Result<(), Failed> {
        match self {
            Self::Own(mutex) => {
                let guard = mutex.lock().map_err(|error| error.to_string())?;
                inside();
                drop(guard);
                Ok(())
            }
            Self::Pthread(mutex) => mutex.with(inside),
        }
    }

    /// The one that a mode names; `first`: makes it.
    fn of(asked: &Asked, segment: &Segment, memory: &Memory, first: bool) -> Result<Self, Failed> {
        if asked.mode.starts_with("pthread") {
            return Ok(Self::Pthread(Pthread::at(memory, first)?));
        }
        Ok(Self::Own(Box::new(Mutex::open_or_create(segment, "lock")?)))
    }
}

/// By one thread, whom nobody disturbs.
pub fn alone(asked: &Asked) -> Result<(), Failed> {
    let segment = segment()?;
    let memory = Memory::create(&segment, "beside", 4096)?;
    let lock = Lock::of(asked, &segment, &memory, true)?;
    (0..ROUND).try_for_each(|_| lock.with(|| {}))?;
    let (mut samples, until) = (Vec::new(), asked.until());
    while Instant::now() < until {
        let began = Instant::now();
        (0..ROUND).try_for_each(|_| lock.with(|| {}))?;
        samples.push(began.elapsed().as_nanos() as f64 / f64::from(ROUND));
    }
    tell(samples);
    Ok(())
}

/// By two processes at once. What the lock protects is counted by both; both begin together.
pub fn contended(asked: &Asked, end: usize) -> Result<(), Failed> {
    let segment = segment()?;
    let memory = match end {
        0 => Memory::create(&segment, "beside", 4096)?,
        _ => retried(|| Memory::open(&segment, "beside"))?,
    };
    let word = |at| -> Result<&AtomicU64, Failed> { Ok(memory.word(at)?) };
    let (made, ready, counted) = (word(MADE)?, word(READY)?, word(COUNTED)?);
    let lock = if end == 0 {
        let lock = Lock::of(asked, &segment, &memory, true)?;
        made.store(1, Release);
        lock
    } else {
        wait_for(|| made.load(Acquire) == 1);
        Lock::of(asked, &segment, &memory, false)?
    };
    ready.fetch_add(1, AcqRel);
    wait_for(|| ready.load(Acquire) == 2);
    let (began, until, mut done) = (Instant::now(), asked.until(), 0u64);
    while Instant::now() < until {
        for _ in 0..16 {
            lock.with(|| counted.store(counted.load(Relaxed) + 1, Relaxed))?;
        }
        done += 16;
    }
    let elapsed = began.elapsed();
    word(DONE[end])?.store(done, Release);
    if end == 1 {
        return Ok(());
    }
    let theirs = word(DONE[1])?;
    wait_for(|| theirs.load(Acquire) != 0);
    let all = done + theirs.load(Acquire);
    if counted.load(Acquire) != all {
        return Err(format!("{all} were counted as {}", counted.load(Acquire)).into());
    }
    let share = done as f64 / all as f64;
    let rate = all as f64 / elapsed.as_secs_f64();
    println!(
        "result messages={all} elapsed_ns={} per_s={rate:.0} share={share:.3}",
        elapsed.as_nanos()
    );
    println!("end");
    Ok(())
}

fn wait_for(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::hint::spin_loop();
    }
}

/// pthread's robust mutex, shared by processes, in memory of the segment.
struct Pthread(*mut libc::pthread_mutex_t);

impl Pthread {
    fn at(memory: &Memory, make: bool) -> Result<Self, Failed> {
        const { assert!(size_of::<libc::pthread_mutex_t>() <= COUNTED) };
        let mutex = memory.as_ptr().cast::<libc::pthread_mutex_t>();
        if !make {
            return Ok(Self(mutex));
        }
        let mut attributes = std::mem::MaybeUninit::uninit();
        // SAFETY: attributes are made, set and used before they go; the mutex lies in a page of its
        // own, which stays mapped for as long as the segment does.
        let failed = unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr())
                | libc::pthread_mutexattr_setpshared(
                    attributes.as_mut_ptr(),
                    libc::PTHREAD_PROCESS_SHARED,
                )
                | libc::pthread_mutexattr_setrobust(
                    attributes.as_mut_ptr(),
                    libc::PTHREAD_MUTEX_ROBUST,
                )
                | libc::pthread_mutex_init(mutex, attributes.as_ptr())
        };
        if failed == 0 { Ok(Self(mutex)) } else { Err("no robust mutex".into()) }
    }

    fn with(&self, inside: impl FnOnce()) -> Result<(), Failed> {
        // SAFETY: a mutex that was made, and does not move.
        let failed = unsafe { libc::pthread_mutex_lock(self.0) };
        inside();
        // SAFETY: this thread has it.
        let failed = failed | unsafe { libc::pthread_mutex_unlock(self.0) };
        if failed == 0 { Ok(()) } else { Err("the robust mutex".into()) }
    }
}
