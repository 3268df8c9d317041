//! Messages between hosts, as bytes. All numbers are little-endian.
//!
//! | bytes | |
//! |---|---|
//! | 32 | seal: BLAKE3 of all that follows, keyed by the connection's key; zero without a secret |
//! | 1 | kind: 1 alive, 2 frames |
//! | 3 | zero |
//! | 4 | how many keys or frames follow |
//! | 8 | number of the message in its direction of the connection, from 0 |
//!
//! *Alive* goes on with the keys of the segments that the sender has, 4 bytes each. *Frames* are
//! one after the other: 4 bytes of key, 4 bytes of length, a virtio-net header of 12, the frame.
//!
//! What arrives is nobody's until its seal and its number are right; then all lengths are looked at
//! before the first frame is given to anybody. The buffer is this process's own: what was checked
//! stays as it is.

use super::handshake::Keys;
use crate::wire::{ETHERNET, HEADER, LONGEST, MESSAGE};
use std::fmt;

/// Bytes before the keys or frames of a message.
pub const HEAD: usize = 48;
/// Bytes before each frame, and its header among them.
pub const RECORD: usize = 8 + HEADER;
/// Keys of one host: as many as it can have ports.
pub const MAX_KEYS: usize = crate::config::MAX_PORTS;

const SEAL: usize = 32;
const ALIVE: u8 = 1;
const FRAMES: u8 = 2;
const _: () = assert!(HEAD + 4 * MAX_KEYS <= MESSAGE && HEAD + RECORD + LONGEST <= MESSAGE);

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// It is sealed with another key: somebody else's, or it was altered.
    Seal,
    /// It is not the next one.
    Number {
        /// What it says.
        said: u64,
        /// What it had to be.
        next: u64,
    },
    /// Its parts do not add up.
    Shape,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seal => f.write_str("a message with a wrong seal: it has another secret"),
            Self::Number { said, next } => write!(f, "message {said} came in the place of {next}"),
            Self::Shape => f.write_str("a message whose parts do not add up"),
        }
    }
}

/// Seals what this host sends, and opens what it receives, of one connection.
#[derive(Debug)]
pub struct Seals {
    keys: Keys,
    sent: u64,
    received: u64,
}

impl Seals {
    /// Of a new connection.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self { keys, sent: 0, received: 0 }
    }

    /// Is anything proved by it?
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.keys.theirs.is_some()
    }

    /// Makes a message whole: `message` has its keys or frames behind [`HEAD`].
    fn seal(&mut self, message: &mut [u8], kind: u8, count: u32) {
        let Some((head, _)) = message.split_first_chunk_mut::<HEAD>() else { return };
        head[..SEAL].fill(0);
        head[SEAL..SEAL + 4].copy_from_slice(&[kind, 0, 0, 0]);
        head[SEAL + 4..SEAL + 8].copy_from_slice(&count.to_le_bytes());
        head[SEAL + 8..].copy_from_slice(&self.sent.to_le_bytes());
        self.sent += 1;
        if let Some(key) = &self.keys.ours {
            let seal = blake3::keyed_hash(key, &message[SEAL..]);
            message[..SEAL].copy_from_slice(seal.as_bytes());
        }
    }

    /// Makes a message of `message`, which has frames as [`put`] has written them.
    pub fn frames(&mut self, message: &mut [u8], count: u32) {
        self.seal(message, FRAMES, count);
    }

    /// Writes a message that this host is alive and has these keys. Returns its length.
    pub fn alive(&mut self, message: &mut [u8], keys: &[u32]) -> usize {
        let keys = keys.get(..MAX_KEYS).unwrap_or(keys);
        let len = HEAD + 4 * keys.len();
        let Some(message) = message.get_mut(..len) else { return 0 };
        let (places, _) = message[HEAD..].as_chunks_mut::<4>();
        for (place, key) in places.iter_mut().zip(keys) {
            *place = key.to_le_bytes();
        }
        self.seal(message, ALIVE, keys.len() as u32);
        len
    }

    /// Opens a message.
    ///
    /// # Errors
    /// [`Bad`]: nothing more can be believed of this connection.
    pub fn open<'a>(&mut self, message: &'a mut [u8]) -> Result<Message<'a>, Bad> {
        if let Some(key) = &self.keys.theirs {
            let said: [u8; SEAL] = *message.first_chunk().ok_or(Bad::Shape)?;
            // Comparing takes the same time whatever they are.
            if blake3::keyed_hash(key, &message[SEAL..]) != blake3::Hash::from_bytes(said) {
                return Err(Bad::Seal);
            }
        }
        let (head, body) = message.split_first_chunk_mut::<HEAD>().ok_or(Bad::Shape)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| head[at + n]));
        let number = u64::from_le_bytes(std::array::from_fn(|n| head[SEAL + 8 + n]));
        if number != self.received {
            return Err(Bad::Number { said: number, next: self.received });
        }
        self.received += 1;
        let (kind, count) = (word(SEAL), word(SEAL + 4) as usize);
        match u8::try_from(kind) {
            Ok(ALIVE) if count <= MAX_KEYS && body.len() == 4 * count => {
                Ok(Message::Alive(Segments(body)))
            }
            Ok(FRAMES) if add_up(body, count) => Ok(Message::Frames(Frames { rest: body })),
            _ => Err(Bad::Shape),
        }
    }
}

/// Do so many records fill these bytes?
fn add_up(mut body: &[u8], count: usize) -> bool {
    for _ in 0..count {
        let Some((record, rest)) = split(body) else { return false };
        let len = record.len() - RECORD;
        if !(ETHERNET..=LONGEST).contains(&len) {
            return false;
        }
        body = rest;
    }
    body.is_empty()
}

/// Where the first record ends, if it is whole.
fn end(body: &[u8]) -> Option<usize> {
    let len: [u8; 4] = body.get(4..8)?.try_into().ok()?;
    let end = RECORD.checked_add(u32::from_le_bytes(len) as usize)?;
    (end <= body.len()).then_some(end)
}

fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    body.split_at_checked(end(body)?)
}

/// A message that was opened.
#[derive(Debug)]
pub enum Message<'a> {
    /// The sender is alive, and has these segments.
    Alive(Segments<'a>),
    /// Frames.
    Frames(Frames<'a>),
}

/// Keys of segments.
#[derive(Debug)]
pub struct Segments<'a>(&'a [u8]);

impl Segments<'_> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.as_chunks::<4>().0.iter().map(|key| u32::from_le_bytes(*key))
    }
}

/// Frames, one after the other: the key of each, and its header with the frame behind it.
#[derive(Debug)]
pub struct Frames<'a> {
    rest: &'a mut [u8],
}

impl<'a> Iterator for Frames<'a> {
    type Item = (u32, &'a mut [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = end(self.rest)?;
        let (record, rest) = std::mem::take(&mut self.rest).split_at_mut_checked(end)?;
        self.rest = rest;
        let key = u32::from_le_bytes(*record.first_chunk()?);
        Some((key, record.get_mut(8..)?))
    }
}

/// Bytes that a frame takes in a message, of which `len` bytes are its header and itself.
#[must_use]
pub fn taken(len: usize) -> usize {
    8 + len
}

/// Writes the beginning of a record whose header and frame have `len` bytes, and gives where those
/// go. `None` where they do not fit.
#[inline]
pub fn put(message: &mut [u8], at: usize, key: u32, len: usize) -> Option<&mut [u8]> {
    let record = message.get_mut(at..at.checked_add(taken(len))?)?;
    let bytes = u32::try_from(len.checked_sub(HEADER)?).ok()?;
    record[..4].copy_from_slice(&key.to_le_bytes());
    record[4..8].copy_from_slice(&bytes.to_le_bytes());
    Some(&mut record[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals() -> [Seals; 2] {
        let (one, two) = (Some([1; 32]), Some([2; 32]));
        [Seals::new(Keys { ours: one, theirs: two }), Seals::new(Keys { ours: two, theirs: one })]
    }

    fn message(seals: &mut Seals, frames: &[(u32, usize)]) -> Vec<u8> {
        let mut message = vec![0; MESSAGE];
        let mut at = HEAD;
        for &(key, len) in frames {
            put(&mut message, at, key, HEADER + len).expect("room").fill(key as u8);
            at += RECORD + len;
        }
        message.truncate(at);
        seals.frames(&mut message, frames.len() as u32);
        message
    }

    #[test]
    fn what_was_put_in_comes_out() {
        let [mut a, mut b] = seals();
        let frames = [(7, 60), (u32::MAX, LONGEST), (0, 14)];
        let [first, second, third] = [&frames[..1], &frames[1..2], &[frames[0], frames[2]]]
            .map(|frames| message(&mut a, frames));
        for (mut message, wanted) in [
            (first, vec![frames[0]]),
            (second, vec![frames[1]]),
            (third, vec![frames[0], frames[2]]),
        ] {
            let Ok(Message::Frames(got)) = b.open(&mut message) else { panic!("frames") };
            let got: Vec<_> = got.map(|(key, front)| (key, front.len() - HEADER)).collect();
            assert_eq!(got, wanted);
        }
        let mut bytes = [0; MESSAGE];
        let len = b.alive(&mut bytes, &[1, 2, 3]);
        let Ok(Message::Alive(keys)) = a.open(&mut bytes[..len]) else { panic!("alive") };
        assert_eq!(keys.iter().collect::<Vec<_>>(), [1, 2, 3]);
        // More than there can be are not sent.
        let many: Vec<u32> = (0..5000).collect();
        assert_eq!(b.alive(&mut bytes, &many), HEAD + 4 * MAX_KEYS);
    }

    #[test]
    fn what_comes_twice_or_late_or_from_oneself_is_refused() {
        let [mut a, mut b] = seals();
        let [first, second] = [0, 1].map(|_| message(&mut a, &[(7, 60)]));
        assert_eq!(b.open(&mut second.clone()).err(), Some(Bad::Number { said: 1, next: 0 }));
        assert!(b.open(&mut first.clone()).is_ok());
        assert_eq!(b.open(&mut first.clone()).err(), Some(Bad::Number { said: 0, next: 1 }));
        assert!(b.open(&mut second.clone()).is_ok());
        assert_eq!(a.open(&mut first.clone()).err(), Some(Bad::Seal), "its own, sent back");
        let [_, mut other] = seals();
        for bit in 0..8 * first.len() {
            let mut bad = first.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(other.open(&mut bad).err(), Some(Bad::Seal), "bit {bit}");
        }
        assert!(other.open(&mut first.clone()).is_ok());
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused_before_any_frame_is_seen() {
        let open = || Seals::new(Keys { ours: None, theirs: None });
        let good = message(&mut open(), &[(7, 60), (7, 60)]);
        assert!(open().open(&mut good.clone()).is_ok());
        for len in 0..good.len() {
            assert_eq!(open().open(&mut good[..len].to_vec()).err(), Some(Bad::Shape), "{len}");
        }
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            open().open(&mut bad).err()
        };
        // Lengths of the first frame: too short, the next one's too, everybody's.
        for len in [0, 13, 59, 61, 100, 140, 141, u32::MAX, u32::MAX - 19] {
            assert_eq!(with(HEAD + 4, &len.to_le_bytes()), Some(Bad::Shape), "{len}");
        }
        for count in [0u32, 1, 3, u32::MAX] {
            assert_eq!(with(36, &count.to_le_bytes()), Some(Bad::Shape), "{count}");
        }
        for kind in [0, 3, 255, 1 | 1 << 8, 2 | 1 << 31] {
            assert_eq!(with(32, &u32::to_le_bytes(kind)), Some(Bad::Shape), "{kind}");
        }
        assert_eq!(with(32, &[1]), Some(Bad::Shape), "keys that are none");
    }
}
