//! memcached's protocols: one connection's state, apart from sockets.
//!
//! | module | part |
//! |---|---|
//! | this one | bytes in, bytes out; values that follow a command; memory of a connection |
//! | [`text`] | the classic text commands |
//! | [`meta`] | the meta commands |
//! | [`binary`] | the binary protocol |
//! | [`stats`] | what `stats` tells |
//!
//! Where the protocol's description leaves something open, memcached 1.6.18 decides; what differs
//! from it is listed in docs/cache-compatibility.md.
//!
//! A connection takes at most a command line, the value that it is receiving (which grows as its
//! bytes come, not as they are announced), and [`OUTPUT`] bytes of answers and one value: beyond
//! that it executes nothing more until the client has read.

mod binary;
mod meta;
mod stats;
mod text;

use crate::store::{Mode, Put, Store, Stored};

pub use stats::Connections;

/// Bytes of answers that may wait for a client before its next command has to.
pub const OUTPUT: usize = 256 << 10;
/// Longest line of a command that is no multiple get, bytes (memcached's, while it has no end).
const LINE: usize = 2048;
/// Longest line of a multiple get, bytes.
const LONG_LINE: usize = 1 << 20;
/// Room for input or output that an idle connection keeps, bytes.
const IDLE: usize = 16 << 10;

/// What the operator chose, as far as protocols know of it.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Which protocols a connection may speak.
    pub speaks: Speaks,
    /// `-F`: flush_all is refused.
    pub no_flush: bool,
    /// `-A`: shutdown is obeyed.
    pub shutdown: bool,
    /// Unix time at which the server's clock was 0, seconds.
    pub started: u64,
    /// What `stats settings` shows: names and values.
    pub shown: Vec<(&'static str, String)>,
    /// Where the memory can be asked for, if anywhere: shown by `stats`.
    pub door: Option<String>,
    /// The name of its copy in a segment, if there is one: shown by `stats`.
    pub copy: Option<String>,
}

/// Which protocols a connection may speak, `-B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speaks {
    /// The first byte decides.
    #[default]
    Any,
    /// Text alone.
    Text,
    /// Binary alone.
    Binary,
}

/// What a command needs beside the store.
pub struct Context<'a> {
    /// The items.
    pub store: &'a mut Store,
    /// What the operator chose.
    pub settings: &'a Settings,
    /// Connections, for `stats`.
    pub connections: &'a Connections,
}

impl Context<'_> {
    /// Returns the second of the server's clock that a client's exptime means.
    fn expiry(&self, exptime: i64) -> u32 {
        self.store.expiry(exptime, self.settings.started)
    }
}

/// What a connection does after a command.
#[derive(Debug)]
enum Next {
    /// The next command.
    Command,
    /// It receives the value of an item.
    Value(Pending),
    /// It passes over bytes.
    Skip(usize),
    /// It goes on with a multiple get once the client has read.
    Get(text::Keys),
    /// It goes on with flush_all once others had their turn.
    Flush(Flush),
    /// It ends, once the client has read.
    Close,
    /// The server ends.
    Shutdown,
}

/// An item whose value is being received.
#[derive(Debug)]
struct Pending {
    key: Vec<u8>,
    flags: u32,
    expiry: u32,
    mode: Mode,
    cas: u64,
    stale_too: bool,
    binary_key: bool,
    /// Bytes that are to come: the value, and the line's end in text.
    len: usize,
    value: Vec<u8>,
    answer: Answer,
}

/// How the client wants to hear what became of it.
#[derive(Debug)]
enum Answer {
    Text { quiet: bool },
    Meta(meta::Ask),
    Binary(binary::Request),
}

impl Pending {
    /// The value is whole: stores it and says so.
    fn finish(mut self, context: &mut Context<'_>, out: &mut Vec<u8>) {
        if !matches!(self.answer, Answer::Binary(_)) {
            if !self.value.ends_with(b"\r\n") {
                let quiet = matches!(self.answer, Answer::Text { quiet: true });
                text::say(out, quiet, "CLIENT_ERROR bad data chunk");
                return;
            }
            self.value.truncate(self.value.len() - 2);
        }
        let stored = context.store.put(&Put {
            key: &self.key,
            value: &self.value,
            flags: self.flags,
            expiry: self.expiry,
            mode: self.mode,
            cas: self.cas,
            stale_too: self.stale_too,
            binary_key: self.binary_key,
        });
        // As memcached: of a set, and of whatever ms does, no old value is left.
        let replaces = self.mode == Mode::Set || matches!(self.answer, Answer::Meta(_));
        if stored == Stored::NoRoom && replaces {
            text::forget(context, &self.key);
        }
        match self.answer {
            Answer::Text { quiet } => text::say(out, quiet, text::stored(stored)),
            Answer::Meta(ask) => ask.stored(stored, &self.key, out),
            Answer::Binary(request) => request.stored(stored, self.mode, out),
        }
    }
}

/// A flush_all that was begun.
#[derive(Debug)]
struct Flush {
    /// The bucket up to which the items are gone.
    from: usize,
    answer: Answer,
}

impl Flush {
    /// Takes all items out, now or at the second before the one that exptime means, as memcached
    /// does.
    fn begin(context: &mut Context<'_>, exptime: i64, answer: Answer, out: &mut Vec<u8>) -> Next {
        let at = if exptime > 0 { context.expiry(exptime) - 1 } else { 0 };
        context.store.counts.flushes += 1;
        let later = (at > context.store.now()).then_some(at);
        context.store.flush_at(later);
        let flush = Self { from: 0, answer };
        if later.is_none() { flush.go_on(context, out) } else { flush.end(out) }
    }

    fn go_on(self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
        match context.store.flush_some(self.from) {
            Some(from) => Next::Flush(Self { from, ..self }),
            None => {
                context.store.flushed();
                self.end(out)
            }
        }
    }

    fn end(self, out: &mut Vec<u8>) -> Next {
        match self.answer {
            Answer::Binary(request) => request.done(0, &[], out),
            Answer::Text { quiet } => text::say(out, quiet, "OK"),
            Answer::Meta(_) => {}
        }
        Next::Command
    }
}

/// What is to be done with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Open,
    /// It is closed once its output is written.
    Close,
    /// The server ends.
    Shutdown,
}

/// One connection's state.
#[derive(Debug, Default)]
pub struct Session {
    input: Vec<u8>,
    /// How much of `input` is done with.
    done: usize,
    /// How much of the line behind that was looked through, and has no end.
    searched: usize,
    /// A long command gave others a turn, and can go on.
    paused: bool,
    /// Answers that were not written yet.
    pub output: Vec<u8>,
    binary: Option<bool>,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Command,
    Value(Pending),
    Skip(usize),
    Get(text::Keys),
    Flush(Flush),
    Closed(bool),
}

impl Session {
    /// Takes bytes that came, and executes what is whole.
    pub fn receive(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Verdict {
        self.input.extend_from_slice(bytes);
        self.run(context)
    }

    /// Returns whether commands wait for the client to read answers.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT
    }

    /// Returns whether it is in the midst of flush_all: others that wait for the store go first.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        matches!(self.state, State::Flush(_))
    }

    /// Returns whether more can be done without further input, now or once the client has read.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.is_full() || self.paused
    }

    /// Executes what is whole, as far as the client reads the answers, and up to the next moment at
    /// which a command gives others a turn.
    pub fn run(&mut self, context: &mut Context<'_>) -> Verdict {
        self.paused = false;
        while !self.paused && !self.is_full() && self.step(context) {
            self.paused = matches!(self.state, State::Get(_) | State::Flush(_));
        }
        self.input.drain(..self.done);
        self.done = 0;
        if self.input.is_empty() {
            self.input.shrink_to(IDLE);
        }
        match self.state {
            State::Closed(true) => Verdict::Shutdown,
            State::Closed(false) => Verdict::Close,
            _ => Verdict::Open,
        }
    }

    /// `count` bytes of output were written.
    pub fn written(&mut self, count: usize) {
        self.output.drain(..count);
        if self.output.is_empty() {
            self.output.shrink_to(IDLE);
        }
    }

    /// Does one thing; false if it needs more input, or is closed.
    fn step(&mut self, context: &mut Context<'_>) -> bool {
        let next = match std::mem::take(&mut self.state) {
            State::Command => match self.command(context) {
                Some(next) => next,
                None => return false,
            },
            State::Value(pending) => match self.take_value(pending, context) {
                Ok(()) => Next::Command,
                Err(pending) => {
                    self.state = State::Value(pending);
                    return false;
                }
            },
            State::Skip(left) => {
                let take = left.min(self.input.len() - self.done);
                self.done += take;
                if take < left {
                    self.state = State::Skip(left - take);
                    return false;
                }
                Next::Command
            }
            State::Get(keys) => keys.go_on(context, &mut self.output),
            State::Flush(flush) => flush.go_on(context, &mut self.output),
            State::Closed(shutdown) => {
                self.state = State::Closed(shutdown);
                return false;
            }
        };
        self.state = match next {
            Next::Command => State::Command,
            Next::Value(pending) => State::Value(pending),
            Next::Skip(left) => State::Skip(left),
            Next::Get(keys) => State::Get(keys),
            Next::Flush(flush) => State::Flush(flush),
            Next::Close => State::Closed(false),
            Next::Shutdown => State::Closed(true),
        };
        true
    }

    /// Adds what came to the value, and stores it once it is whole.
    fn take_value(
        &mut self,
        mut pending: Pending,
        context: &mut Context<'_>,
    ) -> Result<(), Pending> {
        let take = (pending.len - pending.value.len()).min(self.input.len() - self.done);
        pending.value.extend_from_slice(&self.input[self.done..self.done + take]);
        self.done += take;
        if pending.value.len() < pending.len {
            return Err(pending);
        }
        pending.finish(context, &mut self.output);
        Ok(())
    }

    /// Executes one command, if one is whole.
    fn command(&mut self, context: &mut Context<'_>) -> Option<Next> {
        let input = &self.input[self.done..];
        let first = *input.first()?;
        let speaks = context.settings.speaks;
        let binary = *self.binary.get_or_insert(match speaks {
            Speaks::Any => first == binary::REQUEST,
            Speaks::Text => false,
            Speaks::Binary => true,
        });
        if binary {
            let (len, next) = binary::command(input, context, &mut self.output)?;
            self.done += len;
            return Some(next);
        }
        let searched = std::mem::take(&mut self.searched);
        let Some(end) = input[searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = input.len();
            return is_too_long(input).then_some(Next::Close);
        };
        let end = searched + end;
        let line = &input[..end];
        let line = if end > 1 { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        let next = text::command(line, context, &mut self.output);
        self.done += end + 1;
        Some(next)
    }
}

/// Returns whether a line that has no end yet is longer than any that is meant.
fn is_too_long(input: &[u8]) -> bool {
    let blanks = input.iter().take_while(|&&byte| byte == b' ').count();
    let line = &input[blanks..];
    let many = line.starts_with(b"get ") || line.starts_with(b"gets ");
    input.len() > LONG_LINE || input.len() > LINE && (blanks > 100 || !many)
}

/// Returns whether a value was stored.
fn is_stored(stored: Stored) -> bool {
    matches!(stored, Stored::Stored(_))
}
