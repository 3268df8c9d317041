//! The flags of a meta command.

use super::{BAD_LINE, Context};
use crate::number;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

const BAD_WORD: &str = "CLIENT_ERROR bad token in command line format";

/// What a command's flags say, looked at once.
#[derive(Debug, Clone)]
pub struct Flags {
    pub key: Vec<u8>,
    pub binary_key: bool,
    pub value: bool,
    pub quiet: bool,
    pub no_bump: bool,
    pub stale: bool,
    pub vivify: Option<u32>,
    pub ttl: Option<u32>,
    pub recache: u32,
    pub client_flags: u32,
    pub cas: Option<u64>,
    pub mode: u8,
    pub initial: u64,
    pub delta: u64,
}

impl Flags {
    /// Reads the flags of a command; an error is the answer to it.
    pub fn read(key: &[u8], flags: &[&[u8]], context: &Context<'_>) -> Result<Self, &'static str> {
        let mut read = Self {
            key: key.to_vec(),
            binary_key: false,
            value: false,
            quiet: false,
            no_bump: false,
            stale: false,
            vivify: None,
            ttl: None,
            recache: 0,
            client_flags: 0,
            cas: None,
            mode: 0,
            initial: 0,
            delta: 1,
        };
        let (mut seen, mut wrong) = ([false; 128], None);
        for flag in flags {
            let Some((&name, rest)) = flag.split_first() else { continue };
            let known = usize::from(name);
            if known >= 127 || std::mem::replace(&mut seen[known], true) {
                return Err("CLIENT_ERROR duplicate flag");
            }
            match read.take(name, rest, context) {
                Ok(()) => {}
                Err("CLIENT_ERROR invalid flag") => return Err("CLIENT_ERROR invalid flag"),
                // memcached has no words of its own for bad client flags.
                Err(BAD_LINE) => wrong = wrong.or(Some(BAD_LINE)),
                Err(error) => wrong = Some(error),
            }
        }
        wrong.map_or(Ok(read), Err)
    }

    fn take(&mut self, name: u8, rest: &[u8], context: &Context<'_>) -> Result<(), &'static str> {
        let time = || {
            let exptime = number::signed_32(rest).ok_or(BAD_WORD)?;
            Ok::<u32, &'static str>(context.expiry(i64::from(exptime)))
        };
        match name {
            b'b' => {
                self.binary_key = true;
                let key = BASE64.decode(&self.key).ok().filter(|key| !key.is_empty());
                self.key = key.ok_or("CLIENT_ERROR error decoding key")?;
            }
            b'N' => self.vivify = Some(time()?),
            b'T' => self.ttl = Some(time()?),
            b'R' => self.recache = time()?,
            b'v' => self.value = true,
            b'u' => self.no_bump = true,
            b'q' => self.quiet = true,
            b'I' => self.stale = true,
            b'F' => self.client_flags = number::unsigned_32(rest).ok_or(BAD_LINE)?,
            b'C' => self.cas = Some(number::unsigned(rest).ok_or(BAD_WORD)?),
            b'M' => match rest {
                [mode] => self.mode = *mode,
                _ => return Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'J' => {
                let invalid = "CLIENT_ERROR invalid numeric initial value";
                self.initial = number::unsigned(rest).ok_or(invalid)?;
            }
            b'D' => {
                let invalid = "CLIENT_ERROR invalid numeric delta value";
                self.delta = number::unsigned(rest).ok_or(invalid)?;
            }
            b'l' | b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' => {}
            _ => return Err("CLIENT_ERROR invalid flag"),
        }
        Ok(())
    }
}
