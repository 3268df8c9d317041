//! What a frame says. A frame begins on a cache line: four words, then its payload.
//!
//! | word | what stands there |
//! |---|---|
//! | 0 | bits 0–23 bytes of words and payload, 24–31 [`Kind`], 32–39 [`flag`]s, 48–63 low bits of its position in lines |
//! | 1 … 3 | by kind, below |
//!
//! | kind | word 1 | word 2 | word 3 | payload |
//! |---|---|---|---|---|
//! | `Message`, `Tagged` | tag | data | sender's request, to acknowledge | all of the message |
//! | `Offer`, `TaggedOffer` | tag | data | sender's request | the message's length |
//! | `Take` | sender's request | receiver's request | bytes that are wanted | |
//! | `Piece` | request of whoever takes it | offset | | bytes |
//! | `Done` | request | 0, or an `errno` | | |
//! | `Write` | key | address | writer's request, to acknowledge | data and bytes before these, each if flagged, then bytes |
//! | `Read` | key | address | reader's request | how many bytes |
//! | `Apply` | key | address | caller's request | operation, operands |
//! | `Active` | its seal, or 0 | by what it covers the message | | all of the message |

use ginnel_region::Corrupt;

/// Bytes of a frame's words.
pub const WORDS: usize = 32;
/// A frame begins on a multiple of so many bytes.
pub const LINE: u64 = 64;

ginnel_region::numbered! {
    /// What a frame is.
    pub enum Kind: u8 {
        /// A whole message.
        Message = 1,
        /// A whole message with a tag.
        Tagged = 2,
        /// A message that is sent once it is taken.
        Offer = 3,
        /// The same with a tag.
        TaggedOffer = 4,
        /// An offer is taken.
        Take = 5,
        /// Bytes of something that was asked for.
        Piece = 6,
        /// Something was done, or failed.
        Done = 7,
        /// Bytes for registered memory.
        Write = 8,
        /// Bytes of registered memory are wanted.
        Read = 9,
        /// An operation on registered memory.
        Apply = 10,
        /// An active message: whole, its number in place of the flags ([`crate::active`]).
        Active = 11,
    }
}

impl Kind {
    /// Has it a tag, or belongs to what has?
    #[must_use]
    pub fn is_tagged(self) -> bool {
        matches!(self, Self::Tagged | Self::TaggedOffer)
    }
}

/// Flags of a frame.
pub mod flag {
    /// The message has data, for the receiver's completion.
    pub const DATA: u8 = 1;
    /// The sender wants to hear when it is done.
    pub const ACKNOWLEDGE: u8 = 2;
    /// The last of a write's frames.
    pub const LAST: u8 = 4;
    /// The caller of an operation wants what was there before.
    pub const FETCH: u8 = 8;
    /// Other frames of the same write came before this one, with so many bytes.
    pub const BEFORE: u8 = 16;
}

/// The words of a frame that is to be put, or was got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// See [`flag`].
    pub flags: u8,
    /// Words 1 to 3.
    pub words: [u64; 3],
}

impl Frame {
    /// A frame without flags.
    #[must_use]
    pub fn new(kind: Kind, words: [u64; 3]) -> Self {
        Self { kind, flags: 0, words }
    }

    /// Its first word, with so many bytes of payload, at this position of the ring.
    #[must_use]
    #[inline]
    pub fn head(&self, payload: usize, position: u64) -> u64 {
        let bytes = (WORDS + payload) as u64 & 0xff_ffff;
        bytes
            | (self.kind as u64) << 24
            | u64::from(self.flags) << 32
            | ((position / LINE) & 0xffff) << 48
    }

    /// Kind, flags and bytes of payload by a first word that another wrote.
    ///
    /// # Errors
    /// [`Corrupt`] where no writer of this version would have written it at this position.
    #[inline]
    pub fn check(head: u64, position: u64, most: u64) -> Result<(Kind, u8, usize), Corrupt> {
        let bytes = head & 0xff_ffff;
        let kind = Kind::numbered((head >> 24) as u8).ok_or(Corrupt)?;
        if bytes < WORDS as u64 || bytes > most || head >> 48 != (position / LINE) & 0xffff {
            return Err(Corrupt);
        }
        Ok((kind, (head >> 32) as u8, bytes as usize - WORDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_and_others_are_refused() {
        let frame = Frame {
            kind: Kind::TaggedOffer,
            flags: flag::DATA | flag::ACKNOWLEDGE,
            words: [1, 2, 3],
        };
        let head = frame.head(1000, 640);
        assert_eq!(Frame::check(head, 640, 4096), Ok((Kind::TaggedOffer, 3, 1000)));
        assert_eq!(Frame::check(head, 704, 4096), Err(Corrupt), "a frame of another place");
        assert_eq!(Frame::check(head, 640, 1000), Err(Corrupt), "a frame that is too long");
        assert_eq!(
            Frame::check(head & !0xff_ffff | 31, 640, 4096),
            Err(Corrupt),
            "a frame shorter than its words"
        );
        for kind in (0..=255).filter(|kind| !(1..=11).contains(kind)) {
            assert_eq!(Frame::check(head & !(0xff << 24) | kind << 24, 640, 4096), Err(Corrupt));
        }
    }
}
