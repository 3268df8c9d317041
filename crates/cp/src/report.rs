//! What a copy tells of itself while it goes on.

use crate::link::Link;
use crate::wire::{Action, Message, Note};
use serde_bytes::ByteBuf;

/// Who is told. Everything has an empty default, so that each takes what it shows.
pub trait Report {
    /// More is to be copied: files and their bytes.
    fn found(&mut self, _files: u64, _bytes: u64) {}
    /// Bytes of those files are done: moved, or there already.
    fn moved(&mut self, _bytes: u64) {}
    /// Bytes of files went over the queue.
    fn carried(&mut self, _bytes: u64) {}
    /// What became of a file, link or directory.
    fn became(&mut self, _action: Action, _path: &[u8]) {}
    /// Something was deleted, or would be.
    fn deleted(&mut self, _path: &[u8]) {}
    /// Something was left out, as it is meant to be.
    fn skipped(&mut self, _path: &[u8], _why: &str) {}
    /// Something failed, and the rest goes on.
    fn problem(&mut self, _path: &[u8], _why: &str, _vanished: bool) {}

    /// One of the peer's notes.
    fn note(&mut self, note: &Note) {
        match note {
            Note::Problem { path, text, vanished } => self.problem(path, text, *vanished),
            Note::Skipped { path, text } => self.skipped(path, text),
            Note::Deleted { path } => self.deleted(path),
        }
    }
}

/// A server's: what the user is to hear goes over to the client.
///
/// A note that cannot be sent is left: the next message says why.
pub struct Remote<'a> {
    link: &'a Link,
}

impl<'a> Remote<'a> {
    /// To the client at the other end.
    #[must_use]
    pub fn new(link: &'a Link) -> Self {
        Self { link }
    }

    fn tell(&self, note: Note) {
        let _ = self.link.send(&Message::Note(note));
    }
}

impl Report for Remote<'_> {
    fn deleted(&mut self, path: &[u8]) {
        self.tell(Note::Deleted { path: ByteBuf::from(path) });
    }

    fn skipped(&mut self, path: &[u8], why: &str) {
        self.tell(Note::Skipped { path: ByteBuf::from(path), text: why.into() });
    }

    fn problem(&mut self, path: &[u8], why: &str, vanished: bool) {
        self.tell(Note::Problem { path: ByteBuf::from(path), text: why.into(), vanished });
    }
}
