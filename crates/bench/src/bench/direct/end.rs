//! One end: bytes put into one ring and taken out of the other, and sleeping where there is nothing
//! to do.

use ginnel_region::{Corrupt, PAGE, Segment, Untrusted};
use ginnel_ring::park::{self, Want};
use ginnel_ring::span::{Span, available, free};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TAIL: u64 = 0x000;
const ENDED: u64 = 0x040;
pub(super) const PLACE: u64 = 0x080;
pub(super) const SIZE: u64 = 0x088;
const WANT_SPACE: u64 = 0x0c0;
const HEAD: u64 = 0x100;
const WANT_DATA: u64 = 0x140;

/// Bytes of a direction's words.
const DIRECTION: u64 = 0x400;

/// Sizes that a ring may have.
pub(super) const RINGS: std::ops::RangeInclusive<u64> = PAGE..=1 << 30;

/// How long an end spins before it sleeps: as long as a program under `ginnel run` does by itself.
const SPIN: Duration = Duration::from_micros(30);

/// One end.
pub struct End {
    segment: Segment,
    output: Direction,
    input: Direction,
    /// A byte here wakes this end; none left, and no writer, means that the other end is gone.
    bell: File,
    /// A byte here wakes the other end.
    other: File,
    nonblocking: bool,
}

/// A direction as this process sees it.
struct Direction {
    /// Where its words begin, from the segment's start.
    words: u64,
    ring: Span,
    /// This end's own index: the tail of its output, the head of its input.
    own: u64,
    /// The other's, as it was last seen.
    seen: u64,
}

// SAFETY: its pointer is into the segment's map, which every thread of the process may use.
unsafe impl Send for Direction {}

pub(super) fn words(page: u32, number: u64) -> u64 {
    u64::from(page) * PAGE + number * DIRECTION
}

fn corrupt(Corrupt: Corrupt) -> Error {
    Error::new(ErrorKind::ConnectionReset, "the other end wrote nonsense")
}

impl Direction {
    fn new(segment: &Segment, page: u32, number: u64) -> Result<Self> {
        let words = words(page, number);
        let value = |at| Untrusted::new(segment.word(words + at).load(Ordering::Relaxed));
        let size = value(SIZE).power_of_two(*RINGS.start(), *RINGS.end()).map_err(corrupt)?;
        let place = value(PLACE).checked(|place| segment.holds(*place, size)).map_err(corrupt)?;
        // SAFETY: `holds`: so many bytes lie there inside the map, which stays as long as the
        // segment does, which the end keeps; `size` is a power of two.
        let ring = unsafe { Span::new(segment.base().add(place as usize), size, 0) };
        Ok(Self { words, ring, own: 0, seen: 0 })
    }

    pub(super) fn word<'a>(&self, segment: &'a Segment, at: u64) -> &'a AtomicU64 {
        segment.word(self.words + at)
    }
}

impl End {
    pub(super) fn new(
        segment: Segment,
        page: u32,
        [output, input]: [u64; 2],
        bell: File,
        other: File,
    ) -> Result<Self> {
        let [output, input] =
            [Direction::new(&segment, page, output)?, Direction::new(&segment, page, input)?];
        Ok(Self { segment, output, input, bell, other, nonblocking: false })
    }

    /// The descriptor that becomes readable when a call that said `WouldBlock` is worth another
    /// try.
    #[must_use]
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Whether calls say `WouldBlock` where they would wait.
    ///
    /// # Errors
    /// fcntl(2)'s.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> Result<()> {
        let mut flags = fcntl_getfl(&self.bell)?;
        flags.set(OFlags::NONBLOCK, nonblocking);
        fcntl_setfl(&self.bell, flags)?;
        self.nonblocking = nonblocking;
        Ok(())
    }

    /// Says that no more will be written.
    pub fn finish(&mut self) {
        // Release pairs with the Acquire load in `take`: who sees the end sees the last bytes too.
        self.output.word(&self.segment, ENDED).store(1, Ordering::Release);
        let want = park::claim(self.output.word(&self.segment, WANT_DATA));
        self.wake(want);
    }

    fn wake(&self, want: Want) {
        if want == Want::Token {
            // An end that is gone needs no waking.
            let _ = (&self.other).write(&[1]);
        }
    }

    /// Takes bytes that are there. None: there are none yet; 0: there will be none.
    #[inline]
    fn take(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let (segment, input) = (&self.segment, &mut self.input);
        let look = |input: &mut Direction| {
            // Acquire pairs with the Release store of `publish`: the bytes are there.
            input.seen = input.word(segment, TAIL).load(Ordering::Acquire);
            available(Untrusted::new(input.seen), input.own, input.ring.size()).map_err(corrupt)
        };
        let mut there = look(input)?;
        if there == 0 {
            if input.word(segment, ENDED).load(Ordering::Acquire) == 0 {
                return Ok(None);
            }
            there = look(input)?;
            if there == 0 {
                return Ok(Some(0));
            }
        }
        let n = buffer.len().min(usize::try_from(there).unwrap_or(usize::MAX));
        // SAFETY: `buffer` is writable for `n` bytes, which `available` says are in the ring, and
        // so no more than its size.
        unsafe { input.ring.copy_out(input.own, buffer.as_mut_ptr(), n) };
        input.own += n as u64;
        let want =
            park::publish(input.word(segment, HEAD), input.own, input.word(segment, WANT_SPACE));
        self.wake(want);
        Ok(Some(n))
    }

    /// Puts in what there is room for. None: there is none yet.
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let (segment, output) = (&self.segment, &mut self.output);
        let size = output.ring.size();
        let mut room = free(output.own, Untrusted::new(output.seen), size).map_err(corrupt)?;
        if room < bytes.len() as u64 {
            // Acquire pairs with the Release store of `publish`: the reader is done with these
            // bytes.
            output.seen = output.word(segment, HEAD).load(Ordering::Acquire);
            room = free(output.own, Untrusted::new(output.seen), size).map_err(corrupt)?;
        }
        let n = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if n == 0 {
            return Ok((bytes.is_empty()).then_some(0));
        }
        // SAFETY: `bytes` is readable for `n` bytes, for which there is room.
        unsafe { output.ring.copy_in(output.own, bytes.as_ptr(), n) };
        output.own += n as u64;
        let want =
            park::publish(output.word(segment, TAIL), output.own, output.word(segment, WANT_DATA));
        self.wake(want);
        Ok(Some(n))
    }

    /// Does something until it is done: again and again for a while, then asleep between.
    fn until<T>(
        &mut self,
        want: fn(&Self) -> &AtomicU64,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        if let Some(done) = attempt(self)? {
            return Ok(done);
        }
        let mut began = None;
        while !self.nonblocking && began.get_or_insert_with(Instant::now).elapsed() < SPIN {
            for _ in 0..20 {
                if let Some(done) = attempt(self)? {
                    return Ok(done);
                }
                std::hint::spin_loop();
            }
        }
        loop {
            park::arm(want(self), Want::Token);
            // Armed, and so told of whatever comes from here on: asleep only if nothing came
            // before.
            if let Some(done) = attempt(self)? {
                park::disarm(want(self), Want::Token);
                return Ok(done);
            }
            match self.bell.read(&mut [0; 64]) {
                Ok(0) => match attempt(self)? {
                    Some(done) => return Ok(done),
                    None => {
                        return Err(Error::new(
                            ErrorKind::ConnectionReset,
                            "the other end is gone",
                        ));
                    }
                },
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Read for End {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.until(|end| end.input.word(&end.segment, WANT_DATA), |end| end.take(buffer))
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.until(|end| end.output.word(&end.segment, WANT_SPACE), |end| end.put(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::{Listener, connect};
    use std::path::Path;

    fn pair(folder: &Path, ring: u64) -> (End, End) {
        let path = folder.join("segment");
        let listener = Listener::bind(&path, ring).unwrap();
        let client = std::thread::spawn(move || connect(&path).unwrap());
        (listener.accept().unwrap(), client.join().unwrap())
    }

    #[test]
    fn bytes_arrive_through_a_ring_much_smaller_than_the_stream() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = pair(folder.path(), 4096);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the names are gone");
        let sent: Vec<u8> =
            (0..1_000_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        let bytes = sent.clone();
        let writer = std::thread::spawn(move || {
            for (i, piece) in bytes.chunks(7001).enumerate() {
                client.write_all(piece).unwrap();
                // Now and then long enough for the reader to fall asleep.
                if i % 20 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            drop(client);
        });
        let mut got = Vec::new();
        let mut buffer = [0; 333];
        loop {
            match server.read(&mut buffer).unwrap() {
                0 => break,
                n => got.extend_from_slice(&buffer[..n]),
            }
            // … and for the writer.
            if got.len() % 50 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        writer.join().unwrap();
        assert!(got == sent);
    }

    #[test]
    fn who_must_not_wait_is_told_by_the_bell() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = pair(folder.path(), 4096);
        server.set_nonblocking(true).unwrap();
        let would_block =
            |result: Result<usize>| assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
        would_block(server.read(&mut [0; 8]));
        client.write_all(b"x").unwrap();
        assert_eq!(server.bell.read(&mut [0; 8]).unwrap(), 1, "armed: a byte wakes it");
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 1);
        client.write_all(b"y").unwrap();
        would_block(server.bell.read(&mut [0; 8]));
        assert_eq!(server.write(&[0; 5000]).unwrap(), 4096);
        would_block(server.write(&[0]));
        assert_eq!(client.read(&mut [0; 100]).unwrap(), 100);
        assert_eq!(server.bell.read(&mut [0; 8]).unwrap(), 1);
        assert_eq!(server.write(&[0; 5000]).unwrap(), 100);
    }

    #[test]
    fn nonsense_in_the_segment_ends_the_connection() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = pair(folder.path(), 4096);
        client.output.word(&client.segment, TAIL).store(4097, Ordering::Release);
        assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        server.input.word(&server.segment, HEAD).store(5000, Ordering::Release);
        let error = (0..2).map(|_| client.write(&[0; 4096])).find_map(Result::err);
        assert_eq!(error.unwrap().kind(), ErrorKind::ConnectionReset);
        assert!(Listener::bind(&folder.path().join("odd"), 5000).is_err());
    }
}
