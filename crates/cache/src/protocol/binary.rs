//! The binary protocol, as far as clients still use it: all of memcached's commands but SASL.

use super::text::forget;
use super::{Answer, Context, Flush, Next, Pending, stats};
use crate::layout::MAX_KEY;
use crate::store::{Change, Delta, Found, Mode, Put, Stored};

/// First byte of a request, and of an answer.
pub(super) const REQUEST: u8 = 0x80;
const ANSWER: u8 = 0x81;
/// Bytes of a header.
const HEADER: usize = 24;

/// An answer's status, and what it says beside it.
type Status = (u16, &'static str);
const NOT_FOUND: Status = (1, "Not found");
const EXISTS: Status = (2, "Data exists for key.");
const TOO_LARGE: Status = (3, "Too large.");
const INVALID: Status = (4, "Invalid arguments");
const NOT_STORED: Status = (5, "Not stored.");
const NOT_NUMBER: Status = (6, "Non-numeric server-side value for incr or decr");
const REFUSED: Status = (0x20, "Auth failure.");
const UNKNOWN: Status = (0x81, "Unknown command");
const NO_ROOM: Status = (0x82, "Out of memory allocating item");
const NO_ROOM_TO_COUNT: Status = (0x82, "Out of memory incrementing value");

/// What a command does; each has a quiet form with another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get {
        with_key: bool,
    },
    Touch {
        with_key: bool,
        with_value: bool,
    },
    Store(Mode),
    Delete,
    Change {
        up: bool,
    },
    Quit,
    Flush,
    Noop,
    Version,
    Stat,
    /// Not offered, but its forms are looked at as memcached does.
    Sasl {
        lists: bool,
    },
    Unknown,
}

impl Verb {
    /// Returns the verb of a number, and whether the client wants to hear only what is not usual.
    fn of(opcode: u8) -> (Self, bool) {
        let store = |mode| Self::Store(mode);
        match opcode {
            0x00 => (Self::Get { with_key: false }, false),
            0x09 => (Self::Get { with_key: false }, true),
            0x0c => (Self::Get { with_key: true }, false),
            0x0d => (Self::Get { with_key: true }, true),
            0x01 | 0x11 => (store(Mode::Set), opcode == 0x11),
            0x02 | 0x12 => (store(Mode::Add), opcode == 0x12),
            0x03 | 0x13 => (store(Mode::Replace), opcode == 0x13),
            0x0e | 0x19 => (store(Mode::Append), opcode == 0x19),
            0x0f | 0x1a => (store(Mode::Prepend), opcode == 0x1a),
            0x04 | 0x14 => (Self::Delete, opcode == 0x14),
            0x05 | 0x15 => (Self::Change { up: true }, opcode == 0x15),
            0x06 | 0x16 => (Self::Change { up: false }, opcode == 0x16),
            0x07 | 0x17 => (Self::Quit, opcode == 0x17),
            0x08 | 0x18 => (Self::Flush, opcode == 0x18),
            0x0a => (Self::Noop, false),
            0x0b => (Self::Version, false),
            0x10 => (Self::Stat, false),
            0x1c => (Self::Touch { with_key: false, with_value: false }, false),
            0x1d | 0x1e => (Self::Touch { with_key: false, with_value: true }, opcode == 0x1e),
            0x20..=0x22 => (Self::Sasl { lists: opcode == 0x20 }, false),
            0x23 | 0x24 => (Self::Touch { with_key: true, with_value: true }, opcode == 0x24),
            _ => (Self::Unknown, false),
        }
    }

    /// Returns whether lengths of extras, key and whole body are those of such a command.
    fn fits(self, extras: usize, key: usize, body: usize) -> bool {
        let value = body - extras - key;
        match self {
            Self::Get { .. } | Self::Delete => extras == 0 && key > 0 && value == 0,
            Self::Touch { .. } => extras == 4 && key > 0,
            Self::Store(Mode::Append | Mode::Prepend) => extras == 0 && key > 0,
            Self::Store(_) => extras == 8 && key > 0,
            Self::Change { .. } => extras == 20 && key > 0 && value == 0,
            Self::Flush => key == 0 && value == 0 && (extras == 0 || extras == 4),
            Self::Quit | Self::Noop | Self::Version => body == 0,
            Self::Stat => extras == 0,
            Self::Sasl { lists: true } => extras == 0 && key == 0 && body == 0,
            Self::Sasl { lists: false } => extras == 0 && key > 0,
            Self::Unknown => true,
        }
    }
}

/// A command's header, and how it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    opcode: u8,
    opaque: [u8; 4],
    cas: u64,
    quiet: bool,
}

impl Request {
    fn answer(&self, status: u16, cas: u64, parts: [&[u8]; 3], out: &mut Vec<u8>) {
        let [extras, key, value] = parts;
        let body = (extras.len() + key.len() + value.len()) as u32;
        out.extend_from_slice(&[ANSWER, self.opcode]);
        out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        out.extend_from_slice(&[extras.len() as u8, 0]);
        out.extend_from_slice(&status.to_be_bytes());
        out.extend_from_slice(&body.to_be_bytes());
        out.extend_from_slice(&self.opaque);
        out.extend_from_slice(&cas.to_be_bytes());
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    /// An error is answered to quiet commands, too.
    fn fail(&self, status: Status, out: &mut Vec<u8>) {
        self.answer(status.0, 0, [&[], &[], status.1.as_bytes()], out);
    }

    pub fn done(&self, cas: u64, value: &[u8], out: &mut Vec<u8>) {
        if !self.quiet {
            self.answer(0, cas, [&[], &[], value], out);
        }
    }

    /// Says what became of a value.
    pub fn stored(&self, stored: Stored, mode: Mode, out: &mut Vec<u8>) {
        match (stored, mode) {
            (Stored::Stored(cas), _) => self.done(cas, &[], out),
            (Stored::Exists, _) => self.fail(EXISTS, out),
            (Stored::NotFound, _) => self.fail(NOT_FOUND, out),
            (Stored::NoRoom, _) => self.fail(NO_ROOM, out),
            (Stored::NotStored, Mode::Add) => self.fail(EXISTS, out),
            (Stored::NotStored, Mode::Replace) => self.fail(NOT_FOUND, out),
            (Stored::NotStored, _) => self.fail(NOT_STORED, out),
        }
    }
}

/// The parts of a command that come before a value.
struct Parts<'a> {
    extras: &'a [u8],
    key: &'a [u8],
    /// Bytes that follow.
    value: usize,
}

impl Parts<'_> {
    fn extra_32(&self, at: usize) -> u32 {
        let bytes = self.extras.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    fn extra_64(&self, at: usize) -> u64 {
        u64::from(self.extra_32(at)) << 32 | u64::from(self.extra_32(at + 4))
    }
}

/// Executes the command at the beginning of `input`, if header, extras and key are there. Returns
/// how many bytes they take.
pub(super) fn command(
    input: &[u8],
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Option<(usize, Next)> {
    if input.first() != Some(&REQUEST) {
        return Some((input.len(), Next::Close));
    }
    let header: &[u8; HEADER] = input.first_chunk()?;
    let opcode = header[1];
    let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras = usize::from(header[4]);
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let start = HEADER + extras + key;
    let (verb, quiet) = Verb::of(opcode);
    let opaque = [header[12], header[13], header[14], header[15]];
    let cas = header[16..24].iter().fold(0, |cas, &byte| cas << 8 | u64::from(byte));
    let request = Request { opcode, opaque, cas, quiet };
    if key + extras > body {
        request.fail(UNKNOWN, out);
        return Some((input.len(), Next::Close));
    }
    if key > MAX_KEY {
        request.fail(INVALID, out);
        return Some((input.len(), Next::Close));
    }
    let rest = input.get(HEADER..start)?;
    let (extras, key) = rest.split_at(extras);
    if !verb.fits(extras.len(), key.len(), body) {
        request.fail(INVALID, out);
        return Some((input.len(), Next::Close));
    }
    let parts = Parts { extras, key, value: body - extras.len() - key.len() };
    Some((start, execute(verb, request, &parts, context, out)))
}

fn execute(
    verb: Verb,
    request: Request,
    parts: &Parts<'_>,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Next {
    match verb {
        Verb::Get { with_key } => {
            let found = context.store.get(parts.key);
            item(found, with_key, true, &request, parts.key, context, out);
        }
        Verb::Touch { with_key, with_value } => {
            let expiry = context.expiry(i64::from(parts.extra_32(0)));
            let found = context.store.touch(parts.key, expiry);
            item(found, with_key, with_value, &request, parts.key, context, out);
            return skip(parts.value);
        }
        Verb::Store(mode) => return store(mode, request, parts, context, out),
        Verb::Delete => match context.store.delete(parts.key, request.cas) {
            Some(true) => request.done(0, &[], out),
            Some(false) => request.fail(EXISTS, out),
            None => request.fail(NOT_FOUND, out),
        },
        Verb::Change { up } => change(up, request, parts, context, out),
        Verb::Quit => {
            request.done(0, &[], out);
            return Next::Close;
        }
        Verb::Flush => {
            if context.settings.no_flush {
                request.fail(REFUSED, out);
                return Next::Command;
            }
            let exptime = if parts.extras.is_empty() { 0 } else { parts.extra_32(0) };
            return Flush::begin(context, i64::from(exptime), Answer::Binary(request), out);
        }
        Verb::Noop => request.done(0, &[], out),
        Verb::Version => request.done(0, stats::VERSION.as_bytes(), out),
        Verb::Stat => {
            stat(&request, parts.key, context, out);
            return skip(parts.value);
        }
        Verb::Sasl { .. } | Verb::Unknown => {
            request.fail(UNKNOWN, out);
            return skip(parts.value);
        }
    }
    Next::Command
}

fn skip(bytes: usize) -> Next {
    if bytes == 0 { Next::Command } else { Next::Skip(bytes) }
}

fn item(
    found: Option<Found>,
    with_key: bool,
    with_value: bool,
    request: &Request,
    key: &[u8],
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    let shown = if with_key { key } else { &[] };
    let Some(found) = found else {
        match (request.quiet, with_key) {
            (true, _) => {}
            (false, true) => request.answer(NOT_FOUND.0, 0, [&[], key, &[]], out),
            (false, false) => request.fail(NOT_FOUND, out),
        }
        return;
    };
    let flags = found.item.flags.to_be_bytes();
    let mut value = Vec::new();
    if with_value {
        context.store.append_value(&found, &mut value);
    }
    request.answer(0, found.item.cas, [&flags, shown, &value], out);
}

fn store(
    mode: Mode,
    request: Request,
    parts: &Parts<'_>,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Next {
    let appends = matches!(mode, Mode::Append | Mode::Prepend);
    let (flags, exptime) = if appends { (0, 0) } else { (parts.extra_32(0), parts.extra_32(4)) };
    if !context.store.is_size_allowed(parts.key.len(), flags, parts.value) {
        request.fail(TOO_LARGE, out);
        context.store.counts.too_large += 1;
        if mode == Mode::Set {
            forget(context, parts.key);
        }
        return skip(parts.value);
    }
    // With -C a number is not kept, and so is none.
    let compares = request.cas != 0 && !appends && !context.store.limits().no_cas;
    Next::Value(Pending {
        key: parts.key.to_vec(),
        flags,
        expiry: context.expiry(i64::from(exptime)),
        mode: if compares { Mode::Cas } else { mode },
        cas: request.cas,
        stale_too: false,
        binary_key: false,
        len: parts.value,
        value: Vec::new(),
        answer: Answer::Binary(request),
    })
}

fn change(
    up: bool,
    request: Request,
    parts: &Parts<'_>,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) {
    /// The expiry by which a client says that nothing is to be made.
    const MAKE_NONE: u32 = u32::MAX;
    let delta = Delta { up, by: parts.extra_64(0), cas: request.cas };
    match context.store.change(parts.key, delta) {
        Change::Changed(value, cas) => request.done(cas, &value.to_be_bytes(), out),
        Change::NotNumber => request.fail(NOT_NUMBER, out),
        Change::Exists => request.fail(EXISTS, out),
        Change::NoRoom => request.fail(NO_ROOM_TO_COUNT, out),
        Change::NotFound if parts.extra_32(16) == MAKE_NONE => request.fail(NOT_FOUND, out),
        Change::NotFound => {
            let initial = parts.extra_64(8);
            let digits = initial.to_string();
            let expiry = context.expiry(i64::from(parts.extra_32(16)));
            let put = Put { expiry, mode: Mode::Add, ..Put::set(parts.key, digits.as_bytes()) };
            match context.store.put(&put) {
                Stored::Stored(cas) => request.done(cas, &initial.to_be_bytes(), out),
                _ => request.fail(NOT_STORED, out),
            }
        }
    }
}

fn stat(request: &Request, sub: &[u8], context: &mut Context<'_>, out: &mut Vec<u8>) {
    let rows = match sub {
        b"reset" => {
            stats::reset(context);
            Some(Vec::new())
        }
        b"detail on" | b"detail off" => Some(Vec::new()),
        _ => stats::rows(sub, context),
    };
    let Some(rows) = rows else { return request.fail(NOT_FOUND, out) };
    for (name, value) in rows {
        request.answer(0, 0, [&[], name.as_bytes(), value.as_bytes()], out);
    }
    request.answer(0, 0, [&[]; 3], out);
}
