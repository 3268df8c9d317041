//! ms: a value follows.

use super::flags::Flags;
use super::{BAD_LINE, LONG_OPAQUE, MAX_OPAQUE, key_word, word};
use crate::number;
use crate::protocol::text::{NO_ROOM, Tokens, forget, say, tell};
use crate::protocol::{Answer, Context, Next, Pending};
use crate::store::{Mode, Stored};

/// What the client of ms wants to hear.
#[derive(Debug)]
pub struct Ask {
    quiet: bool,
    binary_key: bool,
    /// The words O, k and c of the command, in their order.
    words: Vec<Vec<u8>>,
}

impl Ask {
    /// Says what became of the value.
    pub fn stored(&self, stored: Stored, key: &[u8], out: &mut Vec<u8>) {
        let (status, cas): (&[u8], u64) = match stored {
            Stored::Stored(_) if self.quiet => return,
            Stored::Stored(cas) => (b"HD", cas),
            Stored::Exists => (b"EX", 0),
            Stored::NotFound => (b"NF", 0),
            Stored::NotStored => (b"NS", 0),
            Stored::NoRoom => return say(out, false, NO_ROOM),
        };
        out.extend_from_slice(status);
        for flag in &self.words {
            match flag.first() {
                Some(b'O') => {
                    out.push(b' ');
                    out.extend_from_slice(flag);
                }
                Some(b'k') => key_word(out, key, self.binary_key),
                _ => word(out, b'c', &cas),
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

pub fn set(tokens: &Tokens<'_>, context: &mut Context<'_>, out: &mut Vec<u8>) -> Next {
    let len = number::signed_32(tokens.at(2)).and_then(|len| usize::try_from(len).ok());
    let Some(len) = len.filter(|&len| len <= i32::MAX as usize - 2) else {
        return tell(out, BAD_LINE);
    };
    match set_checked(tokens, len, context) {
        Ok(pending) => Next::Value(pending),
        Err(error) => {
            say(out, false, error);
            Next::Skip(len + 2)
        }
    }
}

fn set_checked(
    tokens: &Tokens<'_>,
    len: usize,
    context: &mut Context<'_>,
) -> Result<Pending, &'static str> {
    let words = &tokens.all()[3..];
    let flags = Flags::read(tokens.at(1), words, context)?;
    let is_long = |word: &&[u8]| word.first() == Some(&b'O') && word.len() > MAX_OPAQUE;
    let mode = match flags.mode {
        0 | b'S' => Mode::Set,
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => return Err("CLIENT_ERROR invalid mode for ms M token"),
    };
    if words.iter().any(is_long) {
        return Err(LONG_OPAQUE);
    }
    let compares = flags.cas.is_some() && matches!(mode, Mode::Set | Mode::Replace);
    let mode = if compares { Mode::Cas } else { mode };
    if !context.store.is_size_allowed(flags.key.len(), flags.client_flags, len) {
        context.store.counts.too_large += 1;
        forget(context, &flags.key);
        return Err("SERVER_ERROR object too large for cache");
    }
    let asked = words.iter().filter(|word| matches!(word.first(), Some(b'O' | b'k' | b'c')));
    let words = asked.map(|word| word.to_vec()).collect();
    Ok(Pending {
        flags: flags.client_flags,
        expiry: flags.ttl.unwrap_or(0),
        mode,
        cas: flags.cas.unwrap_or(0),
        stale_too: flags.stale && mode == Mode::Cas,
        binary_key: flags.binary_key,
        len: len + 2,
        value: Vec::new(),
        answer: Answer::Meta(Ask { quiet: flags.quiet, binary_key: flags.binary_key, words }),
        key: flags.key,
    })
}
