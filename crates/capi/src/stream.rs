//! `ginnel_listener_…` and `ginnel_stream_…`

use crate::error::Fail;
use crate::{Wait, answer, as_number, close, hand_out, handle, number, text};
use ginnel::{Error, ReadHalf, Segment, WriteHalf};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A handle of who listens: one thread at a time is in it, as the header says, or waits for its
/// turn.
pub struct Listener(Mutex<ginnel::Listener>);

/// A handle: one thread may read and one may write at the same time.
pub struct Stream {
    read: Mutex<ReadHalf>,
    write: Mutex<Option<WriteHalf>>,
}

impl Stream {
    fn new(stream: ginnel::Stream) -> Self {
        let (read, write) = stream.split();
        Self { read: Mutex::new(read), write: Mutex::new(Some(write)) }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn limit(time: i64) -> Option<Duration> {
    match Wait::of(time) {
        Wait::Not => Some(Duration::ZERO),
        Wait::ForEver => None,
        Wait::For(time) => Some(time),
    }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_listener_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Listener,
) -> c_int {
    let open = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        let make = || Ok(Listener(Mutex::new(ginnel::Listener::bind(segment, name)?)));
        // SAFETY: as above.
        unsafe { hand_out(out, make) }
    };
    answer(open())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_listener_accept(
    listener: *const Listener,
    time: i64,
    out: *mut *mut Stream,
) -> c_int {
    let accept = || {
        // SAFETY: the header's promise.
        let mut listener = locked(&unsafe { handle(listener) }?.0);
        let wait = || {
            let accepted = match Wait::of(time) {
                Wait::Not => listener.try_accept(),
                Wait::ForEver => listener.accept(),
                Wait::For(time) => listener.accept_timeout(time),
            };
            Ok(Stream::new(accepted?))
        };
        // SAFETY: as above.
        unsafe { hand_out(out, wait) }
    };
    answer(accept())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_listener_fd(listener: *const Listener) -> c_int {
    // SAFETY: the header's promise.
    let listener = unsafe { handle(listener) };
    let fd = |listener: &Listener| Ok::<_, Fail>(locked(&listener.0).descriptor().map(as_number)?);
    number(listener.and_then(fd))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_listener_close(listener: *mut Listener) {
    // SAFETY: the header's promise.
    unsafe { close(listener) };
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_connect(
    segment: *const Segment,
    name: *const c_char,
    time: i64,
    out: *mut *mut Stream,
) -> c_int {
    let connect = || {
        // SAFETY: the header's promise.
        let (segment, name) = unsafe { (handle(segment)?, text(name)?) };
        let make = || {
            let connected = match limit(time) {
                None => ginnel::Stream::connect(segment, name),
                Some(time) => ginnel::Stream::connect_timeout(segment, name, time),
            };
            Ok(Stream::new(connected?))
        };
        // SAFETY: as above.
        unsafe { hand_out(out, make) }
    };
    answer(connect())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_read(
    stream: *const Stream,
    bytes: *mut c_void,
    room: usize,
    len: *mut usize,
    time: i64,
) -> c_int {
    let read = || {
        // SAFETY: the header's promise.
        let stream = unsafe { handle(stream) }?;
        if len.is_null() || bytes.is_null() && room > 0 {
            return Err(Fail::null("where the bytes, or how many they are, are to be put"));
        }
        let room = if bytes.is_null() {
            &mut [][..]
        } else {
            // SAFETY: the header's promise: writable for so many bytes, and nobody else's
            // meanwhile.
            unsafe {
                bytes.cast::<u8>().write_bytes(0, room);
                std::slice::from_raw_parts_mut(bytes.cast(), room)
            }
        };
        let n = locked(&stream.read).read_some(room, limit(time))?;
        // SAFETY: the header's promise.
        unsafe { len.write(n) };
        Ok(())
    };
    answer(read())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_write(
    stream: *const Stream,
    bytes: *const c_void,
    len: usize,
    written: *mut usize,
    time: i64,
) -> c_int {
    let write = || {
        // SAFETY: the header's promise.
        let stream = unsafe { handle(stream) }?;
        if bytes.is_null() && len > 0 {
            return Err(Fail::null("the bytes"));
        }
        let bytes = if bytes.is_null() {
            &[]
        } else {
            // SAFETY: the header's promise.
            unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }
        };
        let mut half = locked(&stream.write);
        let half = half.as_mut().ok_or_else(|| Fail::invalid("its way out is shut"))?;
        let done = write_all(half, bytes, limit(time))?;
        if !written.is_null() {
            // SAFETY: the header's promise.
            unsafe { written.write(done) };
        }
        Ok(())
    };
    answer(write())
}

/// Writes as much as goes in that time. Fails where that is nothing.
fn write_all(half: &mut WriteHalf, bytes: &[u8], time: Option<Duration>) -> Result<usize, Error> {
    let end = time.and_then(|time| Instant::now().checked_add(time));
    let mut done = 0;
    while done < bytes.len() {
        let left = match (time, end) {
            (Some(Duration::ZERO), _) => Some(Duration::ZERO),
            // At its end one more look, which does not wait.
            (_, Some(end)) => Some(end.saturating_duration_since(Instant::now())),
            _ => None,
        };
        match half.write_some(&bytes[done..], left) {
            Ok(n) => done += n,
            Err(_) if done > 0 => break,
            Err(Error::WouldBlock) if time != Some(Duration::ZERO) => return Err(Error::TimedOut),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_shutdown(stream: *const Stream) -> c_int {
    // SAFETY: the header's promise.
    let shut = |stream: &Stream| drop(locked(&stream.write).take());
    // SAFETY: as above.
    answer(unsafe { handle(stream) }.map(shut))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_fd(stream: *const Stream) -> c_int {
    // SAFETY: the header's promise.
    let stream = unsafe { handle(stream) };
    number(stream.and_then(|stream| Ok(locked(&stream.read).descriptor().map(as_number)?)))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_write_fd(stream: *const Stream) -> c_int {
    let fd = |stream: &Stream| {
        let half = locked(&stream.write);
        let half = half.as_ref().ok_or_else(|| Fail::invalid("its way out is shut"))?;
        Ok(half.descriptor().map(as_number)?)
    };
    // SAFETY: the header's promise.
    number(unsafe { handle(stream) }.and_then(fd))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_stream_close(stream: *mut Stream) {
    // SAFETY: the header's promise.
    unsafe { close(stream) };
}
