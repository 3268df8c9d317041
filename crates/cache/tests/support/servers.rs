//! Real servers on unix sockets: Debian's memcached, and this one.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of one test, killed with it.
pub struct Server {
    child: Child,
    command: Command,
    pub socket: PathBuf,
    /// The Ginnel directory that it has.
    pub home: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts this server.
    pub fn ours(args: &[&str]) -> Self {
        Self::start(env!("CARGO_BIN_EXE_ginnel-cache"), args)
    }

    /// Starts Debian's memcached, if it is installed.
    pub fn memcached(args: &[&str]) -> Self {
        Self::start("memcached", args)
    }

    fn start(program: &str, args: &[&str]) -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
        let socket = home.path().join("socket");
        let mut command = Command::new(program);
        command.args(["-u", "root", "-s"]).arg(&socket).args(args);
        command.env("GINNEL_DIR", home.path()).stdin(Stdio::null());
        let child = Self::spawn(&mut command, &socket);
        Self { child, command, socket, home }
    }

    fn spawn(command: &mut Command, socket: &Path) -> Child {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error} (make deps-test installs it)"));
        let until = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < until, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
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
