//! Programs of the host, by unix sockets, as Firecracker and vhost-device-vsock have it: a
//! machine's connection to port N of the host is one to the socket `PATH_N`. A program that
//! connects to `PATH` writes `CONNECT N\n`, and reads `OK M\n` once the machine has accepted on its
//! port N.

use super::connection::{At, End, State, Stream, WINDOW};
use super::hub::Hub;
use super::packet::{Address, HOST, Header, NO_RECEIVE, NO_SEND, Op};
use crate::closer::Closer;
use crate::poller::{Token, is_over};
use crate::rests::EXHAUSTED;
use crate::ring::Slices;
use ginnel_daemon::log;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, recv, recvmsg, send, shutdown, socket_with};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Programs of one machine that have not said yet what they want; the next one takes the place of
/// the one that waits longest.
const MAX_GREETINGS: usize = 64;
/// Connections of one machine with programs of the host: each takes a descriptor. One that is over
/// counts until the machine is told.
const MAX_STREAMS: usize = 256;
/// What it costs to ask whether a program listens, beside a packet's own: a socket that is made,
/// connected and closed.
const PER_CALL: usize = 16 << 10;
/// Sockets that wait to be closed before more are let in.
const MAX_UNCLOSED: usize = 64;
/// Descriptors beside one message (`SCM_MAX_FD`).
const MAX_DESCRIPTORS: usize = 253;
/// Bytes of what they say.
const MAX_LINE: usize = 32;
/// Bytes that are read at once.
const PIECE: u32 = 64 << 10;
/// Where the host's ports begin, as others who do the same have it.
const FIRST_PORT: u32 = 1 << 30;

/// A program that has connected and not said yet to which port.
pub struct Greeting {
    socket: OwnedFd,
    line: Vec<u8>,
    machine: u32,
}

/// Sends what there is room for: how many bytes.
fn put(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match send(&socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            other => return other,
        }
    }
}

/// Reads what is there: `None` where nothing is. Whoever sends descriptors too has made a mistake:
/// they are closed where that holds up nobody, and an error is said.
fn get(closer: &Arc<Closer>, socket: impl AsFd, into: &mut [u8]) -> Result<Option<usize>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut beside, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break Ok(None),
            other => break other.map(|message| Some(message.bytes)),
        }
    };
    let mut all: Vec<OwnedFd> = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            all.extend(received);
        }
    }
    if all.is_empty() {
        return result;
    }
    closer.close(all);
    Err(Errno::INVAL)
}

/// Has the other end gone, with nothing left to be read? (One that only says no more, by
/// shutdown(2), may wait for what it is told.)
fn has_gone(socket: impl AsFd) -> bool {
    let looked = recv(&socket, &mut [0u8][..], RecvFlags::DONTWAIT | RecvFlags::PEEK);
    is_over(&socket) && !matches!(looked, Ok((1.., _)))
}

impl Hub {
    /// A machine connects to a port of the host: the connection's number, if somebody is there.
    pub(super) fn call_host(&mut self, index: u32, header: &Header) -> Option<u64> {
        if !self.takes_streams(index) {
            return None;
        }
        let path = self.machine(index)?.config.host.as_ref()?;
        let path = format!("{}_{}", path.display(), header.to.port);
        self.given = self.given.wrapping_add(PER_CALL);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
        let ends = [(At::Machine(index), header.from), (At::Host, header.to)];
        let id = self.connect(ends.map(|(at, address)| End::new(at, address)));
        let watched = self.poller.watch_stream(&socket, Token::Stream(id));
        let connection = self.connections.get_mut(&id)?;
        let _ = connection.ends[1].announce(WINDOW, 0, 0);
        connection.state = State::Open;
        connection.stream = Some(Stream { socket, readable: true, told: 0 });
        if watched.is_err() {
            self.end(id, Some(index));
            return None;
        }
        Some(id)
    }

    /// May a machine have another connection with a program of the host?
    fn takes_streams(&self, index: u32) -> bool {
        let Some(machine) = self.machines.get(index as usize) else { return false };
        machine.closer.go_on();
        if machine.closer.waiting() > MAX_UNCLOSED {
            return false;
        }
        self.kept.get(&(index, At::Host)).is_none_or(|&count| count < MAX_STREAMS)
    }

    /// A program connects.
    pub(super) fn accept_at_door(&mut self, index: u32) {
        let Some(machine) = self.machines.get(index as usize) else { return };
        let Some(door) = &machine.door else { return };
        machine.closer.go_on();
        if machine.closer.waiting() > MAX_UNCLOSED {
            self.poller.forget(door);
            return self.rests.add(Token::Door(index), self.clock.now + EXHAUSTED);
        }
        let socket = match door.accept() {
            Ok((socket, _)) => OwnedFd::from(socket),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(error) => {
                log!(Error, "accept", vsock = index, why = error);
                self.poller.forget(door);
                return self.rests.add(Token::Door(index), self.clock.now + EXHAUSTED);
            }
        };
        let ours = |greeting: &Greeting| greeting.machine == index;
        let count = self.greetings.values().filter(|one| ours(one)).count();
        if count >= MAX_GREETINGS {
            let mut all = self.greetings.iter().filter(|(_, one)| ours(one)).map(|(&id, _)| id);
            if let Some(longest) = all.by_ref().min() {
                self.dismiss(longest);
            }
        }
        let id = self.number();
        if self.poller.watch_stream(&socket, Token::Stream(id)).is_ok() {
            let greeting = Greeting { socket, line: Vec::new(), machine: index };
            self.greetings.insert(id, greeting);
            self.hear_stream(id);
        }
    }

    /// Whoever has not said what it wants is sent away.
    fn dismiss(&mut self, id: u64) {
        if let Some(Greeting { socket, machine, .. }) = self.greetings.remove(&id) {
            self.send_away(machine, socket);
        }
    }

    /// The same with all of a machine's.
    pub(super) fn dismiss_all(&mut self, index: u32) {
        let ours = self.greetings.iter().filter(|(_, one)| one.machine == index);
        for id in ours.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.dismiss(id);
        }
    }

    /// Ends a stream of a machine. It is closed elsewhere: descriptors that nobody read go with it.
    pub(super) fn send_away(&self, index: u32, socket: OwnedFd) {
        self.poller.forget(&socket);
        // It may have gone already.
        let _ = shutdown(&socket, Shutdown::Both);
        if let Some(machine) = self.machines.get(index as usize) {
            machine.closer.close(socket);
        }
    }

    /// A program's stream has something to say, or room, or has ended.
    pub(super) fn hear_stream(&mut self, id: u64) {
        if self.greetings.contains_key(&id) {
            return self.hear_greeting(id);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(stream) = &mut connection.stream else { return };
        stream.readable = true;
        if connection.state == State::Asked {
            // Nothing is read before the machine has answered; but who has gone is seen.
            if has_gone(&stream.socket) {
                self.end(id, None);
            }
            return;
        }
        self.drain(id);
        self.ready.push(id);
    }

    fn hear_greeting(&mut self, id: u64) {
        let Some(greeting) = self.greetings.get_mut(&id) else { return };
        let mut byte = [0];
        // One by one: what follows the line is for the machine.
        while greeting.line.last() != Some(&b'\n') {
            let Some(machine) = self.machines.get(greeting.machine as usize) else { return };
            match get(&machine.closer, &greeting.socket, &mut byte) {
                Ok(None) => return,
                Ok(Some(1)) if greeting.line.len() < MAX_LINE => greeting.line.extend(byte),
                _ => return self.dismiss(id),
            }
        }
        let Some(Greeting { socket, line, machine }) = self.greetings.remove(&id) else { return };
        let text = String::from_utf8_lossy(&line);
        let port = text.trim_end().strip_prefix("CONNECT ").and_then(|text| text.parse().ok());
        let takes = self.takes_streams(machine);
        let up = self.machine(machine).filter(|one| takes && one.is_up());
        let (Some(port), Some(cid)) = (port, up.map(|one| u64::from(one.config.cid))) else {
            return self.send_away(machine, socket);
        };
        let to = Address { cid, port };
        let Some(from) = self.free_port(machine, port) else {
            return self.send_away(machine, socket);
        };
        let from = Address { cid: HOST, port: from };
        let ends = [(At::Host, from), (At::Machine(machine), to)];
        self.connect_as(id, ends.map(|(at, address)| End::new(at, address)));
        if let Some(connection) = self.connections.get_mut(&id) {
            let _ = connection.ends[0].announce(WINDOW, 0, 0);
            connection.stream = Some(Stream { socket, readable: true, told: 0 });
        }
        self.give(id, 1, Op::Request, 0, &mut Slices::new());
        self.tell();
    }

    fn free_port(&mut self, index: u32, to: u32) -> Option<u32> {
        for _ in 0..1000 {
            let port = FIRST_PORT + self.next_port % FIRST_PORT;
            self.next_port = self.next_port.wrapping_add(1);
            if !self.machine(index)?.connections.contains_key(&(to, HOST, port)) {
                return Some(port);
            }
        }
        None
    }

    /// Tells a program what its machine says.
    pub(super) fn tell_host(&mut self, id: u64, op: Op, rest: &Slices<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(stream) = &mut connection.stream else { return };
        let host = usize::from(connection.ends[0].at != At::Host);
        match op {
            Op::Response => {
                let line = format!("OK {}\n", connection.ends[host].address.port);
                // Nothing was sent before, so there is room.
                if put(&stream.socket, line.as_bytes()) != Ok(line.len()) {
                    return self.end(id, None);
                }
                self.ready.push(id);
            }
            Op::Rw => {
                self.scratch.clear();
                rest.append_to(&mut self.scratch);
                connection.ends[host].waiting.data.extend(&self.scratch);
                self.drain(id);
                // Its header may have told of room.
                self.ready.push(id);
            }
            Op::CreditRequest => self.give(id, 1 - host, Op::CreditUpdate, 0, &mut Slices::new()),
            Op::Shutdown => self.drain(id),
            _ => self.ready.push(id),
        }
    }

    /// Writes what waits for a program, as far as there is room.
    fn drain(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let host = usize::from(connection.ends[0].at != At::Host);
        let Some(stream) = &connection.stream else { return };
        let data = &mut connection.ends[host].waiting.data;
        let mut written: u32 = 0;
        while !data.is_empty() {
            match put(&stream.socket, data.as_slices().0) {
                Ok(0) => break,
                Ok(len) => {
                    data.drain(..len);
                    written = written.wrapping_add(len as u32);
                }
                Err(_) => {
                    data.clear();
                    return self.end(id, None);
                }
            }
        }
        let (empty, shut) = (data.is_empty(), connection.ends[1 - host].shut);
        if connection.state == State::Over {
            return if empty {
                self.end(id, None)
            };
        }
        if empty && shut & NO_SEND != 0 {
            // It may have gone already.
            let _ = shutdown(&stream.socket, Shutdown::Write);
        }
        if empty && shut == NO_SEND | NO_RECEIVE {
            return self.end(id, None);
        }
        let told = stream.told;
        let taken = connection.ends[host].fwd_cnt.wrapping_add(written);
        let given = connection.given(host);
        let _ = connection.ends[host].announce(WINDOW, taken, given);
        if taken.wrapping_sub(told) >= WINDOW / 2 {
            self.give(id, 1 - host, Op::CreditUpdate, 0, &mut Slices::new());
        }
    }

    /// Reads from a program, as far as its machine has credit and nothing waits for it.
    pub(super) fn pump(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let host = usize::from(connection.ends[0].at != At::Host);
        let guest = &connection.ends[1 - host];
        let credit = guest.credit(connection.ends[host].sent).min(PIECE) as usize;
        let takes = guest.waiting.is_empty() && guest.shut & NO_RECEIVE == 0 && credit > 0;
        let open = connection.state == State::Open && connection.ends[host].shut & NO_SEND == 0;
        let At::Machine(index) = guest.at else { return false };
        let Some(stream) = connection.stream.as_mut().filter(|one| one.readable) else {
            return false;
        };
        if !takes || !open {
            return false;
        }
        self.scratch.resize(PIECE as usize, 0);
        let into = self.scratch.get_mut(..credit).unwrap_or_default();
        let Some(machine) = self.machines.get(index as usize) else { return false };
        match get(&machine.closer, &stream.socket, into) {
            Ok(Some(0)) => {
                stream.readable = false;
                connection.ends[host].shut |= NO_SEND;
                self.give(id, 1 - host, Op::Shutdown, NO_SEND, &mut Slices::new());
            }
            Ok(Some(len)) => {
                let sent = &mut connection.ends[host].sent;
                *sent = sent.wrapping_add(len as u32);
                let waiting = &mut connection.ends[1 - host].waiting;
                waiting.data.extend(self.scratch.iter().take(len));
                if !std::mem::replace(&mut waiting.listed, true)
                    && let Some(machine) = self.machine(index)
                {
                    machine.queue.push_back(id);
                }
                self.flush(index);
            }
            Ok(None) => stream.readable = false,
            Err(_) => self.end(id, None),
        }
        true
    }
}
