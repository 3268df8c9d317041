//! A vhost-user socket, and the one front end that is served there at a time: letting it in,
//! hearing it, letting it go. Every port for machines has one, and every vsock device.

use crate::closer::Closer;
use crate::poller::{Poller, Token};
use crate::rests::{CLOSING, EXHAUSTED, LENDING};
use crate::vhost::{Connection, Device, Done, Incoming, Limits, Model};
use ginnel_daemon::log;
use ginnel_ivshmem::doorbell::Ringer;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Descriptors of one front end that wait to be closed before it is heard further.
const MAX_UNCLOSED: usize = 32;

/// What is said to whom stood at a port that is no more.
pub(crate) const GONE: &str = "it is no more in the configuration";

/// The socket and who is there.
#[derive(Debug)]
pub struct Seat {
    /// As the configuration names it.
    name: String,
    /// Its number in [`Token`]s.
    number: u32,
    model: Model,
    limits: Limits,
    /// `None` once it is closed for good.
    listener: Option<UnixListener>,
    closer: Arc<Closer>,
    /// The front end's connection, and the device that it has set up.
    pub peer: Option<(Connection, Device)>,
    /// What it said, and must wait.
    postponed: Option<Incoming>,
    /// Frames of the last front end's guest that are still being sent from where they lie.
    pub former: Weak<()>,
}

/// What came of somebody's connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// A front end is there that was not before.
    Seated,
    /// None is.
    Nobody,
    /// The socket is no longer watched, and is to be for so long.
    Later(Duration),
}

/// What came of hearing a front end.
#[derive(Debug)]
pub enum Heard {
    /// It has said nothing more.
    Nothing,
    /// The device has changed.
    Changed(Done),
    /// It is to be let go.
    Over(String),
    /// It is no longer watched, and is to be for so long.
    Later(Duration),
}

/// Has nobody connect any more. Who has connected and was not let in yet may have brought anything:
/// it is closed by the closer, with the socket.
pub fn shut(listener: UnixListener, poller: &Poller, closer: &Arc<Closer>) {
    poller.forget(&listener);
    // From here on who connects is refused, whenever the socket is closed.
    let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
    closer.close(listener);
}

impl Seat {
    /// Front ends connect at `listener`.
    ///
    /// # Errors
    /// The `errno` of epoll_ctl(2).
    pub fn open(
        (name, number): (&str, u32),
        listener: UnixListener,
        (model, limits): (Model, Limits),
        poller: &Poller,
    ) -> Result<Self, Errno> {
        poller.watch(&listener, Token::Listen(number))?;
        let (name, closer, listener) = (name.to_owned(), Arc::default(), Some(listener));
        let (peer, postponed, former) = (None, None, Weak::new());
        Ok(Self { name, number, model, limits, listener, closer, peer, postponed, former })
    }

    /// The next front end finds these; the name holds at once.
    pub fn change(&mut self, name: &str, (model, limits): (Model, Limits)) {
        (self.name, self.model, self.limits) = (name.to_owned(), model, limits);
    }

    /// Lets its front end go, and nobody else in.
    pub fn close(&mut self, poller: &Poller, why: &str) {
        if let Some(listener) = self.listener.take() {
            shut(listener, poller, &self.closer);
        }
        self.leave(poller, why);
    }

    /// Somebody connects. One front end has the seat at a time; another is turned away as long as
    /// the first lives, and waits as long as something of an earlier one is being closed.
    pub fn accept(&mut self, poller: &Poller) -> Accepted {
        self.closer.go_on();
        let Some(listener) = &self.listener else { return Accepted::Nobody };
        // What is being sent may be the next one's memory too: QEMU connects again for one guest.
        if self.closer.waiting() > 0 || self.former.strong_count() > 0 {
            poller.forget(listener);
            return Accepted::Later(CLOSING);
        }
        let socket = match listener.accept() {
            Ok((socket, _)) => OwnedFd::from(socket),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Accepted::Nobody;
            }
            Err(error) => {
                // Without descriptors it would be reported again and again.
                log!(Error, "accept", port = self.name, why = error);
                poller.forget(listener);
                return Accepted::Later(EXHAUSTED);
            }
        };
        if self.peer.is_some() {
            log!(Warning, "refused", port = self.name, why = "the port is taken");
            self.closer.close(socket);
            return Accepted::Nobody;
        }
        if let Err(errno) = poller.watch(&socket, Token::FrontEnd(self.number)) {
            log!(Error, "refused", port = self.name, why = errno);
            self.closer.close(socket);
            return Accepted::Nobody;
        }
        let (model, limits) = (self.model.clone(), self.limits.clone());
        let device = Device::new(self.number, model, limits, poller.clone());
        self.peer = Some((Connection::new(socket, &self.closer), device));
        log!(Info, "connected", port = self.name);
        Accepted::Seated
    }

    /// Has its front end gone, perhaps with words behind it that nobody has heard yet?
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        self.peer.as_ref().is_some_and(|(connection, _)| connection.is_over())
    }

    /// Hears the next message.
    pub fn hear(&mut self, poller: &Poller, ringer: &Ringer) -> Heard {
        let Some((connection, device)) = &mut self.peer else { return Heard::Nothing };
        self.closer.go_on();
        if self.closer.waiting() > MAX_UNCLOSED {
            poller.forget(&*connection);
            return Heard::Later(CLOSING);
        }
        let message =
            match self.postponed.take().map_or_else(|| connection.receive(), |one| Ok(Some(one))) {
                Ok(Some(message)) => message,
                Ok(None) => return Heard::Nothing,
                Err(over) => return Heard::Over(over.to_string()),
            };
        if device.must_wait(message.head.request) {
            device.lends = false;
            self.postponed = Some(message);
            poller.forget(&*connection);
            return Heard::Later(LENDING);
        }
        device.lends = true;
        if self.closer.waiting() > 0 && device.lacks_room(&message) {
            self.postponed = Some(message);
            poller.forget(&*connection);
            return Heard::Later(CLOSING);
        }
        let (request, need_reply) = (message.head.request, message.head.need_reply);
        match device.handle(message, ringer) {
            Ok(mut done) => {
                let sent = done.reply.take().map_or(Ok(()), |reply| connection.send(&reply));
                sent.map_or_else(|over| Heard::Over(over.to_string()), |()| Heard::Changed(done))
            }
            Err(refusal) => {
                if let Some(reply) = device.failure(request, need_reply) {
                    // It is let go either way.
                    let _ = connection.send(&reply);
                }
                Heard::Over(format!("{request:?}: {refusal}"))
            }
        }
    }

    /// Serves its front end no further. False where there is none.
    pub fn leave(&mut self, poller: &Poller, why: &str) -> bool {
        let Some((connection, mut device)) = self.peer.take() else { return false };
        // From here on it is held by what is lent alone, and not by who closes the device.
        let loans = std::mem::take(&mut device.loans);
        (self.postponed, self.former) = (None, Arc::downgrade(&loans));
        // Somebody else may hold the socket too.
        poller.forget(&connection);
        connection.end();
        // Eventfds are closed here, so that no kick is heard of a device that is gone.
        device.queues.clear();
        log!(Info, "disconnected", port = self.name, why = why);
        self.closer.close((connection, device));
        true
    }

    /// Has the socket or its front end watched again, after it was not. False where that cannot be
    /// had now.
    pub fn watch(&self, poller: &Poller, what: Token) -> bool {
        let watched = match (what, &self.peer, &self.listener) {
            (Token::Listen(_), _, Some(listener)) => poller.watch(listener, what),
            // Another front end may have come, which is watched since.
            (Token::FrontEnd(_), Some((connection, _)), _) => poller.watch(connection, what),
            _ => Ok(()),
        };
        matches!(watched, Ok(()) | Err(Errno::EXIST))
    }

    /// Its device.
    #[must_use]
    #[inline]
    pub fn device(&self) -> Option<&Device> {
        self.peer.as_ref().map(|(_, device)| device)
    }

    /// The same, to be changed.
    #[inline]
    pub fn device_mut(&mut self) -> Option<&mut Device> {
        self.peer.as_mut().map(|(_, device)| device)
    }
}
