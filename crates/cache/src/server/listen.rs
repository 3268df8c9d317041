//! Sockets to listen on, and the streams that come from them, TCP and unix alike.

use super::BOTH;
use super::args::Args;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

/// A socket to listen on.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.register(registry, token, Interest::READABLE),
            Self::Unix(listener) => listener.register(registry, token, Interest::READABLE),
        }
    }

    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                // Answers are small, and each is one that somebody waits for.
                let _ = stream.set_nodelay(true);
                let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

impl Stream {
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, BOTH),
            Self::Unix(stream) => stream.register(registry, token, BOTH),
        }
    }

    /// Says why there is no service, and closes.
    pub fn refuse(mut self, why: &[u8]) {
        let _ = self.write(why);
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

/// Returns the sockets that the command line asks for, listening.
pub fn all(args: &Args) -> Result<Vec<Listener>, String> {
    if let Some(path) = &args.unix_socket {
        let listener = unix(path, &args.unix_mask, args.listen_backlog)?;
        return Ok(vec![Listener::Unix(listener)]);
    }
    let mut addresses = Vec::new();
    for address in &args.listen {
        addresses.extend(resolve(address, args.port)?);
    }
    if addresses.is_empty() && args.port != 0 {
        addresses.push(SocketAddr::from(([127, 0, 0, 1], args.port)));
    }
    if addresses.is_empty() {
        return Err("nothing to listen on: -p 0, and no -s".into());
    }
    let listen = |address: &SocketAddr| {
        let failed = |error| format!("failed to listen on TCP port {}: {error}", address.port());
        let listener = TcpListener::bind(*address).map_err(failed)?;
        backlog(&listener, args).map_err(failed)?;
        Ok(Listener::Tcp(listener))
    };
    addresses.iter().map(listen).collect()
}

/// Listening again makes the queue longer or shorter.
fn backlog(listener: impl std::os::fd::AsFd, args: &Args) -> io::Result<()> {
    Ok(rustix::net::listen(listener, args.listen_backlog)?)
}

/// Returns the addresses of a name, with `port` where it names none.
fn resolve(text: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let text = if text == "*" { "0.0.0.0" } else { text };
    let failed = |error: io::Error| format!("-l {text}: {error}");
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<std::net::IpAddr>().is_ok() || !text.contains(':') {
        return (bare, port).to_socket_addrs().map(Iterator::collect).map_err(failed);
    }
    text.to_socket_addrs().map(Iterator::collect).map_err(failed)
}

fn unix(path: &Path, mode: &str, backlog: i32) -> Result<UnixListener, String> {
    let failed =
        |error: io::Error| format!("failed to listen on unix socket {}: {error}", path.display());
    let mode = u32::from_str_radix(mode, 8).map_err(|_| format!("-a {mode}: no octal mode"))?;
    // A socket that a server left behind; nothing else is taken away.
    if path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let bound = || -> io::Result<OwnedFd> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Before it listens, when nobody can connect yet.
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode & 0o777))?;
        rustix::net::listen(&socket, backlog)?;
        Ok(socket)
    };
    let listener: std::os::unix::net::UnixListener = bound().map_err(failed)?.into();
    Ok(UnixListener::from_std(listener))
}
