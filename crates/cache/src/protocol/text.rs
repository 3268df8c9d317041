//! The classic text commands.

use super::{Answer, Context, Flush, Next, Pending, meta, stats};
use crate::layout::MAX_KEY;
use crate::number;
use crate::store::{Change, Delta, Mode, Stored};
use std::io::Write;

/// Most words of a line that are told apart; what follows is only read by get.
const TOKENS: usize = 23;

/// Keys of a multiple get that are looked up before other clients have their turn.
const AT_ONCE: usize = 2048;

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";

/// A line's words.
pub(super) struct Tokens<'a> {
    words: [&'a [u8]; TOKENS],
    count: usize,
}

impl<'a> Tokens<'a> {
    fn of(line: &'a [u8]) -> Self {
        let mut tokens = Self { words: [&[]; TOKENS], count: 0 };
        for word in words(line).take(TOKENS) {
            tokens.words[tokens.count] = word;
            tokens.count += 1;
        }
        tokens
    }

    pub fn all(&self) -> &[&'a [u8]] {
        &self.words[..self.count]
    }

    /// Returns the word at `index`, or none of its bytes.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.all().get(index).copied().unwrap_or_default()
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the last word asks for no answer.
    fn is_quiet(&self) -> bool {
        self.at(self.count - 1) == b"noreply"
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

/// Answers with a line, or not.
pub(super) fn say(out: &mut Vec<u8>, quiet: bool, line: &str) {
    if !quiet {
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Answers with a line.
pub(super) fn tell(out: &mut Vec<u8>, line: &str) -> Next {
    say(out, false, line);
    Next::Command
}

/// Returns the line for what became of a value.
pub(super) fn stored(stored: Stored) -> &'static str {
    match stored {
        Stored::Stored(_) => "STORED",
        Stored::Exists => "EXISTS",
        Stored::NotFound => "NOT_FOUND",
        Stored::NotStored => "NOT_STORED",
        Stored::NoRoom => NO_ROOM,
    }
}

/// Executes a line, which comes without its end.
pub(super) fn command(line: &[u8], context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    // As memcached, for which a line is a C string.
    let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let tokens = Tokens::of(line);
    let name = tokens.at(0);
    let one_of = |counts: &[usize]| counts.contains(&tokens.count());
    match name {
        b"get" | b"gets" | b"gat" | b"gats" | b"bget" if tokens.count() >= 2 => {
            get(name, line, context, out)
        }
        b"set" if one_of(&[5, 6]) => update(&tokens, Mode::Set, context, out),
        b"add" if one_of(&[5, 6]) => update(&tokens, Mode::Add, context, out),
        b"replace" if one_of(&[5, 6]) => update(&tokens, Mode::Replace, context, out),
        b"append" if one_of(&[5, 6]) => update(&tokens, Mode::Append, context, out),
        b"prepend" if one_of(&[5, 6]) => update(&tokens, Mode::Prepend, context, out),
        b"cas" if one_of(&[6, 7]) => update(&tokens, Mode::Cas, context, out),
        b"incr" | b"decr" if one_of(&[3, 4]) => arithmetic(&tokens, context, out),
        b"delete" if one_of(&[2, 3, 4]) => delete(&tokens, context, out),
        b"touch" if one_of(&[3, 4]) => touch(&tokens, context, out),
        b"mg" | b"ms" | b"md" | b"ma" | b"me" => meta::command(&tokens, context, out),
        b"mn" => tell(out, "MN"),
        b"stats" => stats::text(tokens.all(), context, out),
        b"version" => tell(out, &format!("VERSION {}", stats::VERSION)),
        b"quit" => Next::Close,
        b"flush_all" if one_of(&[1, 2, 3]) => flush_all(&tokens, context, out),
        b"verbosity" if one_of(&[2, 3]) => verbosity(&tokens, out),
        b"cache_memlimit" if one_of(&[2, 3]) => {
            let quiet = tokens.is_quiet();
            say(out, quiet, "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust");
            Next::Command
        }
        b"shutdown" => shutdown(&tokens, context, out),
        _ if tokens.all().last().is_some_and(|last| last.starts_with(b"HTTP/")) => Next::Close,
        _ => tell(out, "ERROR"),
    }
}

/// What is left of a multiple get.
#[derive(Debug)]
pub(super) struct Keys {
    /// The keys that are left, each followed by blanks or the end.
    keys: Vec<u8>,
    with_cas: bool,
    expiry: Option<u32>,
}

impl Keys {
    /// Answers for the keys that are left, or as many of them as there is room for.
    pub fn go_on(self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
        answer_keys(&self.keys, self.with_cas, self.expiry, context, out)
    }
}

fn get(name: &[u8], line: &[u8], context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let touches = name.starts_with(b"gat");
    let mut left = words(line).skip(1);
    let mut expiry = None;
    if touches {
        let Some(exptime) = left.next().and_then(number::signed_32) else {
            return tell(out, "CLIENT_ERROR invalid exptime argument");
        };
        expiry = Some(context.expiry(i64::from(exptime)));
    }
    // Before any is answered: an error comes alone.
    if words(line).skip(1 + usize::from(touches)).any(|key| key.len() > MAX_KEY) {
        return tell(out, BAD_LINE);
    }
    let keys = left.next().map_or(line.len(), |first| offset(line, first));
    answer_keys(&line[keys..], name.ends_with(b"s"), expiry, context, out)
}

/// Returns where in `whole` its part `part` begins.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}

fn answer_keys(
    keys: &[u8],
    with_cas: bool,
    expiry: Option<u32>,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Next {
    for (at, key) in words(keys).enumerate() {
        if out.len() >= super::OUTPUT || at == AT_ONCE {
            let keys = keys[offset(keys, key)..].to_vec();
            return Next::Get(Keys { keys, with_cas, expiry });
        }
        let found = match expiry {
            Some(expiry) => context.store.touch(key, expiry),
            None => context.store.get(key),
        };
        let Some(found) = found else { continue };
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        let item = found.item;
        let written = if with_cas {
            write!(out, " {} {} {}\r\n", item.flags, item.value_len, item.cas)
        } else {
            write!(out, " {} {}\r\n", item.flags, item.value_len)
        };
        debug_assert!(written.is_ok(), "a vector takes what is written");
        context.store.append_value(&found, out);
        out.extend_from_slice(b"\r\n");
    }
    tell(out, "END")
}

fn update(tokens: &Tokens<'_>, mode: Mode, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let quiet = tokens.is_quiet();
    let bad = |out: &mut Vec<u8>| {
        say(out, quiet, BAD_LINE);
        Next::Command
    };
    let key = tokens.at(1);
    if key.len() > MAX_KEY {
        return bad(out);
    }
    let numbers = (
        number::unsigned_32(tokens.at(2)),
        number::signed_32(tokens.at(3)),
        number::signed_32(tokens.at(4)),
    );
    let (Some(flags), Some(exptime), Some(len)) = numbers else { return bad(out) };
    let cas = if mode == Mode::Cas { number::unsigned(tokens.at(5)) } else { Some(0) };
    let Some(cas) = cas else { return bad(out) };
    let Some(len) = usize::try_from(len).ok().filter(|&len| len <= i32::MAX as usize - 2) else {
        return bad(out);
    };
    if !context.store.is_size_allowed(key.len(), flags, len) {
        say(out, quiet, "SERVER_ERROR object too large for cache");
        context.store.counts.too_large += 1;
        if mode == Mode::Set {
            forget(context, key);
        }
        return Next::Skip(len + 2);
    }
    Next::Value(Pending {
        key: key.to_vec(),
        flags,
        expiry: context.expiry(i64::from(exptime)),
        mode,
        cas,
        stale_too: false,
        binary_key: false,
        len: len + 2,
        value: Vec::new(),
        answer: Answer::Text { quiet },
    })
}

/// Takes an item out whose new value could not be stored: an old one must not be read instead.
pub(super) fn forget(context: &mut Context<'_>, key: &[u8]) {
    if let Some(found) = context.store.find(key) {
        context.store.remove(&found);
    }
}

fn arithmetic(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let quiet = tokens.is_quiet();
    let key = tokens.at(1);
    if key.len() > MAX_KEY {
        say(out, quiet, BAD_LINE);
        return Next::Command;
    }
    let Some(by) = number::unsigned(tokens.at(2)) else {
        say(out, quiet, "CLIENT_ERROR invalid numeric delta argument");
        return Next::Command;
    };
    let up = tokens.at(0) == b"incr";
    match context.store.change(key, Delta { up, by, cas: 0 }) {
        Change::Changed(value, _) => say(out, quiet, &value.to_string()),
        Change::NotNumber => say(out, quiet, NOT_NUMBER),
        Change::NoRoom => say(out, quiet, "SERVER_ERROR out of memory"),
        Change::NotFound | Change::Exists => say(out, quiet, "NOT_FOUND"),
    }
    Next::Command
}

pub(super) const NO_ROOM: &str = "SERVER_ERROR out of memory storing object";
pub(super) const NOT_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

fn delete(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let mut quiet = false;
    if tokens.count() > 2 {
        let zero = tokens.at(2) == b"0";
        quiet = tokens.is_quiet();
        let meant = match tokens.count() {
            3 => zero || quiet,
            _ => zero && quiet,
        };
        if !meant {
            let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
            say(out, quiet, usage);
            return Next::Command;
        }
    }
    let key = tokens.at(1);
    let answer = match key.len() {
        ..=MAX_KEY => match context.store.delete(key, 0) {
            Some(_) => "DELETED",
            None => "NOT_FOUND",
        },
        _ => BAD_LINE,
    };
    say(out, quiet, answer);
    Next::Command
}

fn touch(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let (quiet, key) = (tokens.is_quiet(), tokens.at(1));
    let answer = match (key.len(), number::signed_32(tokens.at(2))) {
        (..=MAX_KEY, Some(exptime)) => {
            let expiry = context.expiry(i64::from(exptime));
            context.store.touch(key, expiry).map_or("NOT_FOUND", |_| "TOUCHED")
        }
        (..=MAX_KEY, None) => "CLIENT_ERROR invalid exptime argument",
        _ => BAD_LINE,
    };
    say(out, quiet, answer);
    Next::Command
}

fn flush_all(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let quiet = tokens.is_quiet();
    if context.settings.no_flush {
        context.store.counts.flushes += 1;
        say(out, quiet, "CLIENT_ERROR flush_all not allowed");
        return Next::Command;
    }
    let mut exptime = 0;
    if tokens.count() != if quiet { 2 } else { 1 } {
        let Some(delay) = number::signed_32(tokens.at(1)) else {
            say(out, quiet, "CLIENT_ERROR invalid exptime argument");
            return Next::Command;
        };
        exptime = delay;
    }
    Flush::begin(context, i64::from(exptime), Answer::Text { quiet }, out)
}

fn verbosity(tokens: &Tokens<'_>, out: &mut Vec<u8>) -> Next {
    let quiet = tokens.is_quiet();
    let known = number::unsigned_32(tokens.at(1)).is_some();
    say(out, quiet, if known { "OK" } else { BAD_LINE });
    Next::Command
}

fn shutdown(tokens: &Tokens<'_>, context: &Context<'_>, out: &mut Vec<u8>) -> Next {
    if !context.settings.shutdown {
        return tell(out, "ERROR: shutdown not enabled");
    }
    match (tokens.count(), tokens.at(1)) {
        (1, _) | (2, b"graceful") => Next::Shutdown,
        _ => tell(out, "CLIENT_ERROR invalid shutdown mode"),
    }
}
