//! Real servers on unix sockets: Debian's memcached, and this one.

pub use crate::server::Server;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// This crate's server.
pub const OURS: &str = env!("CARGO_BIN_EXE_ginnel-cache");

impl Server {
    /// Starts this server.
    pub fn ours(args: &[&str]) -> Self {
        Self::start(OURS, args)
    }

    /// Starts Debian's memcached, if it is installed.
    pub fn memcached(args: &[&str]) -> Self {
        Self::start("memcached", args)
    }

    /// Kills it, and starts it anew.
    pub fn restart(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.child = Self::spawn(&mut self.command, &self.socket);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> Peer {
        Peer::connect(&self.socket)
    }

    /// What the row of `stats` with that name says.
    pub fn stat(&self, name: &str) -> Option<String> {
        let said = self.connect().ask(b"stats\r\n", b"END\r\n");
        let said = String::from_utf8(said).expect("text");
        let row = said.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        row.map(|value| value.trim_end().to_owned())
    }
}

/// A connection to a server.
pub struct Peer(pub UnixStream);

impl Peer {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a time");
        Self(stream)
    }

    /// Reads until `end` has come, or the server closes; else says that it is silent.
    pub fn read_to(&mut self, end: &[u8]) -> Vec<u8> {
        let (mut got, mut buffer) = (Vec::new(), [0; 65536]);
        while !got.ends_with(end) {
            match self.0.read(&mut buffer) {
                Ok(0) => {
                    got.extend_from_slice(b"<closed>");
                    break;
                }
                Ok(count) => got.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    got.extend_from_slice(b"<closed>");
                    break;
                }
                Err(_) => {
                    got.extend_from_slice(b"<silence>");
                    break;
                }
            }
        }
        got
    }

    /// Sends text and returns what came up to `end`.
    pub fn ask(&mut self, text: &[u8], end: &[u8]) -> Vec<u8> {
        // A server that has closed does not take all of it.
        let _ = self.0.write_all(text);
        self.read_to(end)
    }
}
