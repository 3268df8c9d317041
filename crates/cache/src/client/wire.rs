//! A connection to a server, and the few commands of the text protocol that a client needs.
//!
//! What the server sends is believed as far as it is bounded: a line has at most [`LINE`] bytes, a
//! value at most [`VALUE`], and only keys that were asked for are answered.

use super::Owned;
use crate::door;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest line, bytes.
const LINE: u64 = 4096;
/// Bytes of keys in a question, at most: a server bounds lines.
const QUESTION: usize = 32 << 10;
/// Largest value, bytes.
const VALUE: usize = crate::layout::MOST_ITEM;
/// Most lines of `stats`.
const STATS: usize = 1000;

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to one of the addresses that a name has, within `timeout` for each.
fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<Stream>,
    process: u32,
    kept: Option<Owned>,
}

fn broken(what: &str) -> io::Error {
    io::Error::other(format!("the server's answer is none: {what}"))
}

/// The server understood, and says no.
fn refused(line: &[u8]) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, String::from_utf8_lossy(line).into_owned())
}

fn number<N: std::str::FromStr>(word: Option<&[u8]>) -> io::Result<N> {
    let text = word.and_then(|word| std::str::from_utf8(word).ok());
    text.and_then(|text| text.parse().ok()).ok_or_else(|| broken("no number"))
}

impl Wire {
    pub fn connect(address: &str, timeout: Duration) -> io::Result<Self> {
        let stream = if address.contains('/') {
            Stream::Unix(door::connect(address.as_ref(), timeout)?)
        } else {
            let stream = connect(address, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Stream::Tcp(stream)
        };
        let process = std::process::id();
        Ok(Self { stream: BufReader::with_capacity(16 << 10, stream), process, kept: None })
    }

    /// Returns whether it was another process that connected.
    pub fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns whether it is open, and all answers were read.
    pub fn is_at_rest(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        // By the C library, not by rustix: under `ginnel run` what the kernel's socket holds is not
        // what there is to be read.
        let seen = recv(self.stream.get_ref().as_fd().as_raw_fd(), &mut byte, flags);
        self.stream.buffer().is_empty() && seen == Err(Errno::EAGAIN)
    }

    /// Keeps an item until the next question.
    pub fn keep(&mut self, item: Owned) -> &Owned {
        self.kept.insert(item)
    }

    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.stream.get_mut().write_all(&parts.concat())
    }

    /// Reads a line, without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        (&mut self.stream).take(LINE).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(rest) => Ok(rest.to_vec()),
            None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            None => Err(broken("a line without an end")),
        }
    }

    /// Asks for items. Each answer stands at the place of its key.
    pub fn gets(&mut self, mut keys: &[&[u8]]) -> io::Result<Vec<Option<Owned>>> {
        let mut found = Vec::with_capacity(keys.len());
        while !keys.is_empty() {
            let mut bytes = 0;
            let fits = |key: &&&[u8]| {
                bytes += key.len() + 1;
                bytes <= QUESTION
            };
            // One key at least, whatever its length.
            let count = keys.iter().take_while(fits).count().max(1);
            let (now, later) = keys.split_at(count);
            found.append(&mut self.gets_at_once(now)?);
            keys = later;
        }
        Ok(found)
    }

    fn gets_at_once(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Owned>>> {
        let mut found: Vec<Option<Owned>> = vec![None; keys.len()];
        let mut line = b"gets".to_vec();
        for key in keys {
            line.push(b' ');
            line.extend_from_slice(key);
        }
        self.send(&[&line, b"\r\n"])?;
        // Answers come in the order of the keys, and a key at most as often as it was asked for.
        let mut from = 0;
        loop {
            let line = self.line()?;
            if line == b"END" {
                return Ok(found);
            }
            let mut words = line.split(|&byte| byte == b' ');
            if words.next() != Some(b"VALUE") {
                return Err(refused(&line));
            }
            let key = words.next().unwrap_or_default();
            let at = keys[from..].iter().position(|asked| *asked == key);
            let at = from + at.ok_or_else(|| broken("a key that was not asked for"))?;
            from = at + 1;
            let (flags, len) = (number(words.next())?, number(words.next())?);
            let cas = number(words.next())?;
            found[at] = Some(Owned { value: self.value(len)?, flags, cas });
        }
    }

    fn value(&mut self, len: usize) -> io::Result<Vec<u8>> {
        if len > VALUE {
            return Err(broken("a value without measure"));
        }
        // Grows as bytes come, not as they are announced.
        let mut value = Vec::new();
        (&mut self.stream).take(len as u64 + 2).read_to_end(&mut value)?;
        if value.len() != len + 2 || !value.ends_with(b"\r\n") {
            return Err(broken("a value without an end"));
        }
        value.truncate(len);
        Ok(value)
    }

    /// Stores, and says whether the server did.
    pub fn store(
        &mut self,
        name: &str,
        key: &[u8],
        value: &[u8],
        (flags, exptime): (u32, i32),
        cas: Option<u64>,
    ) -> io::Result<bool> {
        let cas = cas.map_or(String::new(), |cas| format!(" {cas}"));
        let rest = format!(" {flags} {exptime} {}{cas}\r\n", value.len());
        self.send(&[name.as_bytes(), b" ", key, rest.as_bytes(), value, b"\r\n"])?;
        match &self.line()?[..] {
            b"STORED" => Ok(true),
            b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" => Ok(false),
            line => Err(refused(line)),
        }
    }

    /// Deletes, and says whether there was one.
    pub fn delete(&mut self, key: &[u8]) -> io::Result<bool> {
        self.send(&[b"delete ", key, b"\r\n"])?;
        match &self.line()?[..] {
            b"DELETED" => Ok(true),
            b"NOT_FOUND" => Ok(false),
            line => Err(refused(line)),
        }
    }

    /// Asks for statistics.
    pub fn stats(&mut self) -> io::Result<Vec<(String, String)>> {
        self.send(&[b"stats\r\n"])?;
        let mut rows = Vec::new();
        while rows.len() < STATS {
            let line = String::from_utf8_lossy(&self.line()?).into_owned();
            if line == "END" {
                return Ok(rows);
            }
            let row = line.strip_prefix("STAT ").and_then(|row| row.split_once(' '));
            let (name, value) = row.ok_or_else(|| broken("no statistics"))?;
            rows.push((name.to_owned(), value.to_owned()));
        }
        Err(broken("statistics without an end"))
    }
}
