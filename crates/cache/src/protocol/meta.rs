//! The meta commands: mg, ms, md, ma, me. (mn needs nothing and is among the text commands.)

mod flags;
mod set;

pub(super) use set::Ask;

use super::text::{NOT_NUMBER, Tokens, tell};
use super::{Context, Next, is_stored};
use crate::layout::{MAX_KEY, bits};
use crate::store::{Change, Delta, Found, Mode, Put};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flags::Flags;
use std::io::Write;

/// Most words of a meta command.
const MOST_WORDS: usize = 19;
/// Longest opaque word, with its O.
const MAX_OPAQUE: usize = 32;

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";
const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// Executes a meta command.
pub(super) fn command(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let name = tokens.at(0);
    if name == b"me" {
        return debug(tokens, context, out);
    }
    if tokens.count() < 2 {
        return tell(out, "ERROR");
    }
    let key = tokens.at(1);
    if key.len() > MAX_KEY || name == b"ms" && tokens.count() == 2 {
        return tell(out, BAD_LINE);
    }
    if tokens.count() > MOST_WORDS {
        return tell(
            out,
            match name {
                b"mg" => "CLIENT_ERROR options flags are too long",
                _ => "CLIENT_ERROR options flags too long",
            },
        );
    }
    if name == b"ms" {
        return set::set(tokens, context, out);
    }
    let words = &tokens.all()[2..];
    let flags = match Flags::read(key, words, context) {
        Ok(flags) => flags,
        Err(error) if name == b"mg" => return tell(out, error),
        Err(_) => return tell(out, "CLIENT_ERROR invalid or duplicate flag"),
    };
    // An answer that turns out to be an error comes alone.
    let before = out.len();
    let done = match name {
        b"mg" => get(words, &flags, context, out),
        b"md" => delete(words, &flags, context, out),
        _ => arithmetic(words, &flags, context, out),
    };
    if let Err(error) = done {
        out.truncate(before);
        return tell(out, error);
    }
    Next::Command
}

type Done = Result<(), &'static str>;

/// Writes a word of the answer: a blank, a letter, a value.
fn word(out: &mut Vec<u8>, letter: u8, value: &dyn std::fmt::Display) {
    let written = write!(out, " {}{value}", char::from(letter));
    debug_assert!(written.is_ok(), "a vector takes what is written");
}

fn key_word(out: &mut Vec<u8>, key: &[u8], binary: bool) {
    out.extend_from_slice(b" k");
    if binary {
        out.extend_from_slice(BASE64.encode(key).as_bytes());
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

/// Repeats the words that a client gave to know its answers by.
fn echo(flag: &[u8], flags: &Flags, out: &mut Vec<u8>) -> Done {
    match flag.first() {
        Some(b'O') if flag.len() > MAX_OPAQUE => return Err(LONG_OPAQUE),
        Some(b'O') => {
            out.push(b' ');
            out.extend_from_slice(flag);
        }
        Some(b'k') => key_word(out, &flags.key, flags.binary_key),
        _ => {}
    }
    Ok(())
}

/// Writes the seconds that an item has left, or -1 for ever.
fn ttl_word(out: &mut Vec<u8>, expiry: u32, now: u32) {
    match expiry {
        0 => word(out, b't', &-1),
        _ => word(out, b't', &expiry.wrapping_sub(now)),
    }
}

fn get(words: &[&[u8]], flags: &Flags, context: &mut Context<'_>, out: &mut Vec<u8>) -> Done {
    let mut made = false;
    let mut found = context.store.find(&flags.key);
    if let (None, Some(_)) = (&found, flags.vivify) {
        let put = Put { binary_key: flags.binary_key, ..Put::set(&flags.key, b"") };
        made = is_stored(context.store.put(&put));
        found = context.store.find(&flags.key);
    }
    let counts = &mut context.store.counts;
    if flags.ttl.is_some() {
        counts.touches += 1;
        counts.touch_misses += u64::from(found.is_none());
    } else {
        counts.gets += 1;
        counts.get_misses += u64::from(found.is_none());
    }
    let Some(mut found) = found else {
        let before = out.len();
        out.extend_from_slice(b"EN");
        words.iter().try_for_each(|flag| echo(flag, flags, out))?;
        out.extend_from_slice(b"\r\n");
        if flags.quiet {
            out.truncate(before);
        }
        return Ok(());
    };
    if flags.value {
        let written = write!(out, "VA {}", found.item.value_len);
        debug_assert!(written.is_ok(), "a vector takes what is written");
    } else {
        out.extend_from_slice(b"HD");
    }
    let won = get_words(words, flags, &mut found, made, context, out).inspect_err(|_| {
        // memcached counts the read before the error, unless it looks at the item's state first.
        let looks = |word: &&[u8]| matches!(word.first(), Some(b'N' | b'T' | b'R' | b'l' | b'h'));
        if !flags.no_bump && !words.iter().any(looks) {
            context.store.read(&found);
        }
    })?;
    state_words(&mut found, won, context, out);
    out.extend_from_slice(b"\r\n");
    if flags.value {
        context.store.append_value(&found, out);
        out.extend_from_slice(b"\r\n");
    }
    if !flags.no_bump {
        context.store.read(&found);
    }
    Ok(())
}

/// Writes what the flags of mg ask for, in their order; says whether the client is to renew it.
fn get_words(
    words: &[&[u8]],
    flags: &Flags,
    found: &mut Found,
    made: bool,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Result<bool, &'static str> {
    let (now, mut won) = (context.store.now(), false);
    for flag in words {
        let item = found.item;
        match flag.first().copied().unwrap_or_default() {
            b'T' => context.store.set_expiry(found, flags.ttl.unwrap_or_default()),
            b'N' if made => {
                context.store.set_expiry(found, flags.vivify.unwrap_or_default());
                won = true;
            }
            b'R' => {
                let due = item.expiry != 0 && item.expiry < flags.recache;
                won |= item.bits & bits::WON == 0 && !made && due;
            }
            b's' => word(out, b's', &item.value_len),
            b't' => ttl_word(out, item.expiry, now),
            b'c' => word(out, b'c', &item.cas),
            b'f' => word(out, b'f', &item.flags),
            b'l' => word(out, b'l', &now.wrapping_sub(item.accessed)),
            b'h' => word(out, b'h', &u8::from(item.bits & bits::FETCHED != 0)),
            b'k' => key_word(out, &flags.key, item.bits & bits::BINARY_KEY != 0),
            _ => echo(flag, flags, out)?,
        }
    }
    Ok(won)
}

/// Writes who renews a stale item, and notes it.
fn state_words(found: &mut Found, mut won: bool, context: &mut Context<'_>, out: &mut Vec<u8>) {
    let state = found.item.bits;
    if state & bits::WON != 0 {
        out.extend_from_slice(b" Z");
    }
    if state & bits::STALE != 0 {
        out.extend_from_slice(b" X");
        won |= state & bits::WON == 0;
    }
    if won {
        out.extend_from_slice(b" W");
        context.store.set_bits(found, state | bits::WON);
    }
}

fn delete(words: &[&[u8]], flags: &Flags, context: &mut Context<'_>, out: &mut Vec<u8>) -> Done {
    let mut tail = Vec::new();
    words.iter().try_for_each(|flag| echo(flag, flags, &mut tail))?;
    let status = delete_item(flags, context);
    if status != b"HD" || !flags.quiet {
        out.extend_from_slice(status);
        out.extend_from_slice(&tail);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

fn delete_item(flags: &Flags, context: &mut Context<'_>) -> &'static [u8; 2] {
    let store = &mut *context.store;
    let Some(mut found) = store.find(&flags.key) else {
        store.counts.deletes.1 += 1;
        return b"NF";
    };
    if flags.cas.is_some_and(|cas| cas != found.item.cas) {
        store.counts.deletes.1 += 1;
        return b"EX";
    }
    if flags.stale {
        if let Some(expiry) = flags.ttl {
            store.set_expiry(&mut found, expiry);
        }
        store.mark_stale(&mut found);
    } else {
        store.counts.deletes.0 += 1;
        store.remove(&found);
    }
    b"HD"
}

fn arithmetic(
    words: &[&[u8]],
    flags: &Flags,
    context: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Done {
    let up = match flags.mode {
        0 | b'I' | b'i' | b'+' => true,
        b'D' | b'd' | b'-' => false,
        _ => return Err("CLIENT_ERROR invalid mode for ma M token"),
    };
    let delta = Delta { up, by: flags.delta, cas: flags.cas.unwrap_or(0) };
    let mut made = false;
    let status: &[u8] = match context.store.change(&flags.key, delta) {
        Change::Changed(..) => b"",
        Change::NotNumber => return Err(NOT_NUMBER),
        Change::NoRoom => return Err("SERVER_ERROR out of memory"),
        Change::Exists => b"EX",
        Change::NotFound if flags.vivify.is_some() => {
            let digits = flags.initial.to_string();
            let put = Put { mode: Mode::Add, ..Put::set(&flags.key, digits.as_bytes()) };
            made = is_stored(context.store.put(&put));
            if made { b"" } else { b"NS" }
        }
        Change::NotFound => b"NF",
    };
    let found = if status.is_empty() { context.store.find(&flags.key) } else { None };
    let Some(mut found) = found else {
        out.extend_from_slice(status);
        words.iter().try_for_each(|flag| echo(flag, flags, out))?;
        out.extend_from_slice(b"\r\n");
        return Ok(());
    };
    let before = out.len();
    let mut value = Vec::new();
    context.store.append_value(&found, &mut value);
    let value = value.trim_ascii_end();
    if flags.value {
        let written = write!(out, "VA {}", value.len());
        debug_assert!(written.is_ok(), "a vector takes what is written");
    } else {
        out.extend_from_slice(b"HD");
    }
    for flag in words {
        let now = context.store.now();
        match flag.first().copied().unwrap_or_default() {
            b'c' => word(out, b'c', &found.item.cas),
            b't' => ttl_word(out, found.item.expiry, now),
            b'T' => context.store.set_expiry(&mut found, flags.ttl.unwrap_or_default()),
            b'N' if made => {
                context.store.set_expiry(&mut found, flags.vivify.unwrap_or_default());
            }
            _ => echo(flag, flags, out)?,
        }
    }
    out.extend_from_slice(b"\r\n");
    if flags.value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    // Only what was changed is kept quiet about, as memcached does.
    if flags.quiet && !made {
        out.truncate(before);
    }
    Ok(())
}

fn debug(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let mut key = tokens.at(1).to_vec();
    if tokens.count() < 2 || key.len() > MAX_KEY {
        return tell(out, BAD_LINE);
    }
    let binary = tokens.at(2) == b"b";
    if binary {
        match BASE64.decode(&key) {
            Ok(decoded) if !decoded.is_empty() => key = decoded,
            _ => return tell(out, BAD_LINE),
        }
    }
    context.store.counts.metas += 1;
    let Some(found) = context.store.find(&key) else { return tell(out, "EN") };
    let (item, now) = (found.item, context.store.now());
    let shown = if item.bits & bits::BINARY_KEY != 0 { BASE64.encode(&key).into() } else { key };
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(&shown);
    // Seconds since it expired, so less than 0, as memcached has it.
    let expired = match item.expiry {
        0 => -1,
        expiry => i64::from(now) - i64::from(expiry),
    };
    let written = write!(
        out,
        " exp={expired} la={} cas={} fetch={} cls=1 size={}\r\n",
        now.wrapping_sub(item.accessed),
        item.cas,
        if item.bits & bits::FETCHED != 0 { "yes" } else { "no" },
        item.total_words() * crate::memory::WORD,
    );
    debug_assert!(written.is_ok(), "a vector takes what is written");
    Next::Command
}
