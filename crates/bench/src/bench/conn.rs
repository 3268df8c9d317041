//! Addresses and connections of every transport, over the C library's calls: those a preloaded
//! library sees.

use crate::direct;
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, mkfifoat};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens. Written `tcp:ADDRESS:PORT`, `unix:PATH`, `fifo:PATH`, `vsock:CID:PORT`
/// or `ring:BYTES:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP; port 0 is any.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// Two pipes in the file system: `PATH.up` to the server, `PATH.down` from it. One connection.
    Fifo(PathBuf),
    /// vsock(7): context id and port; port 0 is any.
    Vsock(u32, u32),
    /// Ginnel's ring, of so many bytes each way, in a segment of this name. One connection.
    Ring(u64, PathBuf),
}

impl Address {
    /// The same with the port that a server got.
    pub fn with_port(&self, port: u32) -> Self {
        match self {
            Self::Tcp(address) => {
                Self::Tcp(SocketAddr::new(address.ip(), u16::try_from(port).unwrap_or(0)))
            }
            Self::Vsock(cid, _) => Self::Vsock(*cid, port),
            Self::Unix(_) | Self::Fifo(_) | Self::Ring(..) => self.clone(),
        }
    }

    fn socket(&self) -> Result<(Socket, SockAddr)> {
        let (domain, address) = match self {
            Self::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
            Self::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
            // VMADDR_PORT_ANY
            Self::Vsock(cid, 0) => (Domain::VSOCK, SockAddr::vsock(*cid, u32::MAX)),
            Self::Vsock(cid, port) => (Domain::VSOCK, SockAddr::vsock(*cid, *port)),
            Self::Fifo(_) | Self::Ring(..) => bail!("{self} is no socket"),
        };
        let socket = Socket::new(domain, Type::STREAM, None)
            .with_context(|| format!("a socket for {self}"))?;
        Ok((socket, address))
    }

    fn pipes(path: &std::path::Path) -> (PathBuf, PathBuf) {
        (path.with_extension("up"), path.with_extension("down"))
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Fifo(path) => write!(f, "fifo:{}", path.display()),
            Self::Vsock(cid, port) => write!(f, "vsock:{cid}:{port}"),
            Self::Ring(bytes, path) => write!(f, "ring:{bytes}:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, rest) =
            text.split_once(':').with_context(|| format!("{text:?} is no address"))?;
        Ok(match kind {
            "tcp" => {
                Self::Tcp(rest.parse().with_context(|| format!("{rest:?} is not ADDRESS:PORT"))?)
            }
            "unix" => Self::Unix(rest.into()),
            "fifo" => Self::Fifo(rest.into()),
            "vsock" => {
                let (cid, port) =
                    rest.split_once(':').with_context(|| format!("{rest:?} is not CID:PORT"))?;
                Self::Vsock(cid.parse()?, port.parse()?)
            }
            "ring" => {
                let (bytes, path) =
                    rest.split_once(':').with_context(|| format!("{rest:?} is not BYTES:PATH"))?;
                Self::Ring(bytes.parse()?, path.into())
            }
            _ => bail!("{text:?} is no address"),
        })
    }
}

/// A server's end before its connections.
pub struct Listener(Waiting);

enum Waiting {
    Socket(Socket),
    Fifo(PathBuf),
    /// Until its one connection is there.
    Ring(Cell<Option<direct::Listener>>),
}

impl Listener {
    /// Binds, and listens for as many connections as the kernel allows to wait.
    pub fn bind(address: &Address) -> Result<Self> {
        if let Address::Fifo(path) = address {
            let (up, down) = Address::pipes(path);
            for pipe in [up, down] {
                let _ = std::fs::remove_file(&pipe);
                mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR)
                    .with_context(|| format!("making {}", pipe.display()))?;
            }
            return Ok(Self(Waiting::Fifo(path.clone())));
        }
        if let Address::Ring(bytes, path) = address {
            let listener = direct::Listener::bind(path, *bytes)
                .with_context(|| format!("making {address}"))?;
            return Ok(Self(Waiting::Ring(Cell::new(Some(listener)))));
        }
        if let Address::Unix(path) = address {
            let _ = std::fs::remove_file(path);
        }
        let (socket, place) = address.socket()?;
        let advice = if matches!(address, Address::Vsock(..)) {
            " (its loopback is the kernel's module vsock_loopback)"
        } else {
            ""
        };
        socket.bind(&place).with_context(|| format!("binding to {address}{advice}"))?;
        socket.listen(4096)?;
        Ok(Self(Waiting::Socket(socket)))
    }

    /// The port; 0 where there is none.
    pub fn port(&self) -> Result<u32> {
        let Waiting::Socket(socket) = &self.0 else {
            return Ok(0);
        };
        let place = socket.local_addr()?;
        Ok(place
            .as_socket()
            .map(|ip| u32::from(ip.port()))
            .or_else(|| Some(place.as_vsock_address()?.1))
            .unwrap_or(0))
    }

    /// Waits for a connection.
    pub fn accept(&self) -> Result<Conn> {
        match &self.0 {
            Waiting::Socket(socket) => Conn::of(socket.accept()?.0),
            Waiting::Fifo(path) => {
                let (up, down) = Address::pipes(path);
                let input = File::open(up)?;
                Ok(Conn(Way::Pipes(input, Some(OpenOptions::new().write(true).open(down)?))))
            }
            Waiting::Ring(listener) => {
                let listener = listener.take().context("a ring has one connection")?;
                Ok(Conn(Way::Ring(Box::new(listener.accept()?))))
            }
        }
    }
}

/// One end of a connection; blocking unless said otherwise.
pub struct Conn(Way);

enum Way {
    Socket(File),
    /// To read, and to write until [`Conn::finish`].
    Pipes(File, Option<File>),
    Ring(Box<direct::End>),
}

impl Conn {
    /// Connects to a server.
    pub fn connect(address: &Address) -> Result<Self> {
        if let Address::Fifo(path) = address {
            let (up, down) = Address::pipes(path);
            let output = OpenOptions::new().write(true).open(up)?;
            return Ok(Self(Way::Pipes(File::open(down)?, Some(output))));
        }
        if let Address::Ring(_, path) = address {
            let end = direct::connect(path).with_context(|| format!("connecting to {address}"))?;
            return Ok(Self(Way::Ring(Box::new(end))));
        }
        let (socket, place) = address.socket()?;
        socket.connect(&place).with_context(|| format!("connecting to {address}"))?;
        Self::of(socket)
    }

    fn of(socket: Socket) -> Result<Self> {
        if socket.local_addr()?.is_ipv4() || socket.local_addr()?.is_ipv6() {
            socket.set_tcp_nodelay(true)?;
        }
        Ok(Self(Way::Socket(File::from(OwnedFd::from(socket)))))
    }

    /// The descriptor to wait on for input; for a socket and a ring the one for both directions.
    pub fn input_fd(&self) -> RawFd {
        match &self.0 {
            Way::Socket(file) | Way::Pipes(file, _) => file.as_raw_fd(),
            Way::Ring(end) => end.bell(),
        }
    }

    /// The descriptor to wait on for room.
    pub fn output_fd(&self) -> RawFd {
        match &self.0 {
            Way::Pipes(_, Some(output)) => output.as_raw_fd(),
            _ => self.input_fd(),
        }
    }

    /// Sets both directions to blocking or not.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> Result<()> {
        match &mut self.0 {
            Way::Socket(file) | Way::Pipes(file, None) => {
                SockRef::from(&*file).set_nonblocking(nonblocking)?
            }
            Way::Pipes(input, Some(output)) => {
                SockRef::from(&*input).set_nonblocking(nonblocking)?;
                SockRef::from(&*output).set_nonblocking(nonblocking)?;
            }
            Way::Ring(end) => end.set_nonblocking(nonblocking)?,
        }
        Ok(())
    }

    /// Says that no more will be written: a half-close.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.0 {
            Way::Socket(file) => SockRef::from(&*file).shutdown(Shutdown::Write)?,
            Way::Pipes(_, output) => *output = None,
            Way::Ring(end) => end.finish(),
        }
        Ok(())
    }

    /// Reads exactly so many bytes. False at the end of the stream, if that is where it lies.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read(&mut buffer[done..]) {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => bail!("the stream ended inside a message"),
                Ok(n) => done += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl Read for Conn {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Way::Socket(file) | Way::Pipes(file, _) => file.read(buffer),
            Way::Ring(end) => end.read(buffer),
        }
    }
}

impl Write for Conn {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        match &mut self.0 {
            Way::Socket(file) | Way::Pipes(_, Some(file)) => file.write(buffer),
            Way::Pipes(_, None) => Err(std::io::ErrorKind::BrokenPipe.into()),
            Way::Ring(end) => end.write(buffer),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in [
            "tcp:127.0.0.1:80",
            "tcp:[::1]:0",
            "unix:/a b",
            "fifo:/c",
            "vsock:1:77",
            "ring:4096:/d",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "tcp:", "tcp:host", "udp:127.0.0.1:1", "vsock:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_arrive_over_each_transport() {
        let folder = std::env::temp_dir().join(format!("ginnel-bench-conn-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = folder.display();
        for address in [
            "tcp:127.0.0.1:0".into(),
            format!("unix:{place}/s"),
            format!("fifo:{place}/p"),
            format!("ring:4096:{place}/r"),
        ] {
            let address: Address = address.parse().unwrap();
            let listener = Listener::bind(&address).unwrap();
            let client_address = address.with_port(listener.port().unwrap());
            let client = std::thread::spawn(move || {
                let mut conn = Conn::connect(&client_address).unwrap();
                conn.write_all(b"question").unwrap();
                conn.finish().unwrap();
                let mut answer = Vec::new();
                conn.read_to_end(&mut answer).unwrap();
                answer
            });
            let mut conn = listener.accept().unwrap();
            let mut question = [0; 8];
            assert!(conn.fill(&mut question).unwrap() && !conn.fill(&mut [0; 1]).unwrap());
            conn.write_all(&question).unwrap();
            drop(conn);
            assert_eq!(client.join().unwrap(), b"question");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
