//! A client that reads items itself where it may, and asks the server where not.
//!
//! ```no_run
//! let mut cache = ginnel_cache::client::Client::connect("127.0.0.1:11211")?;
//! if let Some(found) = cache.get(b"greeting")? {
//!     println!("{} bytes, flags {}", found.value.len(), found.flags);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The server may be any memcached: then every get is a request. A miss in the memory is asked over
//! the protocol, too, so that the server's own word decides.

mod neighbour;
mod wire;

use crate::layout::MAX_KEY;
use crate::reader::{self, Look};
use neighbour::Neighbour;
use std::io;
use std::time::{Duration, Instant};
use wire::Wire;

/// An item as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// Its value.
    pub value: &'a [u8],
    /// What was kept beside it.
    pub flags: u32,
    /// Its unique number.
    pub cas: u64,
}

/// An item that outlives the next call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Its value.
    pub value: Vec<u8>,
    /// What was kept beside it.
    pub flags: u32,
    /// Its unique number.
    pub cas: u64,
}

/// How many gets came from where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Found in the server's memory.
    pub direct: u64,
    /// Asked over the protocol.
    pub asked: u64,
}

/// A client of one server, for one thread at a time.
#[derive(Debug)]
pub struct Client {
    address: String,
    timeout: Duration,
    wire: Option<Wire>,
    neighbour: Option<Neighbour>,
    /// Why it is no neighbour.
    why: String,
    /// When the server's memory was asked for last.
    tried: Option<Instant>,
    counts: Counts,
}

/// For so long a server may be silent within an answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Of how many keys that are read together is asked for ahead: about what a processor's first cache
/// has room for, and more than it waits for at a time.
const TOGETHER: usize = 8;
/// How long to wait before the memory is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

/// A key is 1 to 250 bytes, and neither blank nor control characters: they end lines and words.
fn check(key: &[u8]) -> io::Result<()> {
    let is_bad = |&byte: &u8| byte <= b' ' || byte == 127;
    if key.is_empty() || key.len() > MAX_KEY || key.iter().any(is_bad) {
        return Err(invalid("a key has 1 to 250 bytes, none of them a blank or control character"));
    }
    Ok(())
}

impl Client {
    /// Connects to the server at `address`: `HOST:PORT`, or the path of a unix socket.
    ///
    /// # Errors
    /// Those of connecting, and of a server that does not answer. That the memory is not to be had
    /// is none: see [`why`](Self::why).
    pub fn connect(address: &str) -> io::Result<Self> {
        let mut client = Self {
            address: address.to_owned(),
            timeout: TIMEOUT,
            wire: None,
            neighbour: None,
            why: String::new(),
            tried: None,
            counts: Counts::default(),
        };
        client.wire()?;
        Ok(client)
    }

    /// Sets how long the server may be silent within an answer (one second).
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.wire = None;
    }

    /// Returns whether gets are read out of the server's memory.
    #[must_use]
    pub fn is_neighbour(&self) -> bool {
        self.neighbour.is_some()
    }

    /// Returns why gets are not read out of the server's memory, for people.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns how many gets came from where so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Reads the item of `key`, if there is one.
    ///
    /// # Errors
    /// Where the memory does not tell: those of asking the server. `InvalidInput` for a key that
    /// is none.
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> io::Result<Option<Found<'_>>> {
        if let Some(item) = self.look(key) {
            // Looked at twice for the borrow checker, once by the processor.
            let value = self.neighbour.as_ref().map_or(&[][..], |one| one.reader.value());
            return Ok(Some(Found { value, flags: item.flags, cas: item.cas }));
        }
        self.ask(key)
    }

    /// Reads the item of `key` out of the memory, and asks nobody: nothing where the memory does
    /// not tell, or there is none.
    pub fn get_direct(&mut self, key: &[u8]) -> Option<Found<'_>> {
        let item = self.look(key)?;
        let value = self.neighbour.as_ref().map_or(&[][..], |one| one.reader.value());
        Some(Found { value, flags: item.flags, cas: item.cas })
    }

    /// Returns the number of the server's start whose memory is read, as `stats` names it
    /// (`generation`), while that server lives.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        let lives = |one: &&Neighbour| one.mark.is_set() && !one.reader.is_over();
        self.neighbour.as_ref().filter(lives).map(|one| one.reader.generation())
    }

    /// Reads several items; those that are not there are none.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn mget(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Owned>>> {
        let mut found = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            if at.is_multiple_of(TOGETHER) {
                self.will_look(&keys[at..keys.len().min(at + TOGETHER)]);
            }
            let item = self.look(key).map(|item| {
                let value = self.neighbour.as_ref().map_or(&[][..], |one| one.reader.value());
                Owned { value: value.to_vec(), flags: item.flags, cas: item.cas }
            });
            if item.is_none() {
                check(key)?;
                missing.push(at);
            }
            found.push(item);
        }
        if missing.is_empty() {
            return Ok(found);
        }
        self.counts.asked += missing.len() as u64;
        let asked: Vec<&[u8]> = missing.iter().map(|&at| keys[at]).collect();
        let answers = self.retried(|wire| wire.gets(&asked))?;
        for (at, answer) in missing.into_iter().zip(answers) {
            found[at] = answer;
        }
        Ok(found)
    }

    /// Stores an item, for `exptime` seconds (0: for ever). Says whether it was stored.
    ///
    /// # Errors
    /// Those of asking the server; `InvalidData` if it says that it cannot.
    pub fn set(&mut self, key: &[u8], value: &[u8], flags: u32, exptime: i32) -> io::Result<bool> {
        check(key)?;
        // Not asked again: whether the first was executed is not known.
        self.once(|wire| wire.store("set", key, value, (flags, exptime), None))
    }

    /// Stores an item if the one there has the unique number `cas`. Says whether it was stored.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn cas(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        exptime: i32,
        cas: u64,
    ) -> io::Result<bool> {
        check(key)?;
        self.once(|wire| wire.store("cas", key, value, (flags, exptime), Some(cas)))
    }

    /// Deletes an item. Says whether there was one.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub fn delete(&mut self, key: &[u8]) -> io::Result<bool> {
        check(key)?;
        self.once(|wire| wire.delete(key))
    }

    /// Asks for what looking these keys up will read, so that it comes while others are waited for.
    fn will_look(&self, keys: &[&[u8]]) {
        let Some(Neighbour { reader, .. }) = &self.neighbour else { return };
        let mut hashes = [0; TOGETHER];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = reader.hash(key);
            reader.will_look(*hash);
        }
        hashes.iter().zip(keys).for_each(|(&hash, _)| reader.will_copy(hash));
    }

    /// Looks into the memory.
    #[inline]
    fn look(&mut self, key: &[u8]) -> Option<crate::layout::Item> {
        let one = self.neighbour.as_mut()?;
        if !one.mark.is_set() {
            return None;
        }
        if one.is_to_look() && !self.wire.as_ref().is_some_and(Wire::is_at_rest) {
            // The server ended, or is not asked any more: what it kept may be old.
            self.neighbour = None;
            return None;
        }
        let hash = one.reader.hash(key);
        let Look::Hit(item) = one.reader.look_hashed(key, hash) else { return None };
        one.hints.push(hash);
        self.counts.direct += 1;
        Some(item)
    }

    #[cold]
    fn ask(&mut self, key: &[u8]) -> io::Result<Option<Found<'_>>> {
        check(key)?;
        self.counts.asked += 1;
        self.retried(|wire| wire.gets(&[key]).map(|mut found| found.pop().flatten())).map(|found| {
            let wire = self.wire.as_mut()?;
            let kept = wire.keep(found?);
            Some(Found { value: &kept.value, flags: kept.flags, cas: kept.cas })
        })
    }

    /// Asks, and asks once more over a new connection: the server may have been started anew.
    fn retried<R>(&mut self, mut ask: impl FnMut(&mut Wire) -> io::Result<R>) -> io::Result<R> {
        let fresh = self.wire.is_none();
        match self.once(&mut ask) {
            Err(error) if !fresh && error.kind() != io::ErrorKind::InvalidData => self.once(ask),
            result => result,
        }
    }

    fn once<R>(&mut self, ask: impl FnOnce(&mut Wire) -> io::Result<R>) -> io::Result<R> {
        let asked = reader::seconds();
        let result = ask(self.wire()?);
        match (&result, &mut self.neighbour) {
            (Ok(_), Some(one)) => one.reader.was_answered(asked),
            (Ok(_), None) => {}
            // What else may come over it belongs to a question that was given up.
            (Err(_), _) => self.wire = None,
        }
        result
    }

    /// Returns the connection, made anew where there is none, and where a fork left the parent's.
    fn wire(&mut self) -> io::Result<&mut Wire> {
        if self.neighbour.as_ref().is_some_and(|one| one.reader.is_over()) {
            self.neighbour = None;
            self.wire = None;
            self.tried = None;
        }
        if self.wire.as_ref().is_some_and(Wire::is_inherited) {
            self.wire = None;
            // Its ring of hints is the parent's to write.
            self.neighbour = None;
        }
        if self.wire.as_ref().is_some_and(|wire| !wire.is_at_rest()) {
            // The server closed it, or says what nobody asked for.
            self.wire = None;
        }
        let (mut wire, is_new) = match self.wire.take() {
            Some(wire) => (wire, false),
            None => (Wire::connect(&self.address, self.timeout)?, true),
        };
        let again = || self.tried.is_none_or(|at| at.elapsed() > AGAIN);
        if is_new || self.neighbour.is_none() && again() {
            self.tried = Some(Instant::now());
            self.meet(&mut wire)?;
        }
        Ok(self.wire.insert(wire))
    }

    /// Asks the server behind `wire` for its memory, unless that is read already. The memory of any
    /// other is given up: what this one acknowledges is not in it.
    ///
    /// # Errors
    /// Those of asking: nothing can be asked over `wire` any more.
    fn meet(&mut self, wire: &mut Wire) -> io::Result<()> {
        let asked = reader::seconds();
        let stats = match wire.stats() {
            // It understood, and knows no statistics.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Vec::new(),
            other => other?,
        };
        let stat =
            |name: &str| stats.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
        let generation = stat("generation").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let read = self.neighbour.as_ref().map(|one| one.reader.generation());
        if read.is_none() || read != generation {
            let copied = stat("copy").is_some();
            self.neighbour = match Neighbour::of(stat("memory"), copied, generation) {
                Ok(neighbour) => Some(neighbour),
                Err(error) => {
                    self.why = error.to_string();
                    None
                }
            };
        }
        if let Some(one) = &mut self.neighbour {
            one.reader.was_answered(asked);
        }
        Ok(())
    }
}
