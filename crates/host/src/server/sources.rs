//! What the daemon waits for: everything that can become ready, in one epoll set.

use super::joiners::Joiner;
use super::{Server, web};
use anyhow::Result;
use ginnel_daemon::log;
use rustix::event::epoll;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What can become ready.
pub(crate) enum Source {
    /// SIGTERM or SIGINT.
    Signal(UnixStream),
    /// A socket at which joiners of a peer id arrive.
    Door { segment: usize, peer: u16, socket: Arc<OwnedFd> },
    /// Somebody who joined, or was refused.
    Joiner(Joiner),
    /// A process of the host rings a machine.
    Relay { segment: usize, peer: u16, vector: u16, bell: Arc<OwnedFd> },
    /// A machine rings the host.
    HostBell { segment: usize, vector: u16, bell: Arc<OwnedFd> },
    /// The status page's door.
    WebDoor(TcpListener),
    /// One who asks for a page.
    Web(web::Visitor),
}

impl Source {
    pub(super) fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Signal(stream) => stream.as_fd(),
            Self::Door { socket, .. } => socket.as_fd(),
            Self::Joiner(joiner) => joiner.socket.as_fd(),
            Self::Relay { bell, .. } | Self::HostBell { bell, .. } => bell.as_fd(),
            Self::WebDoor(listener) => listener.as_fd(),
            Self::Web(visitor) => visitor.stream.as_fd(),
        }
    }

    /// What to wait for. Doorbells only tell news (edge-triggered): somebody else may have emptied
    /// them, or may keep them full.
    pub(super) fn events(&self) -> epoll::EventFlags {
        use epoll::EventFlags as E;
        match self {
            Self::Relay { .. } | Self::HostBell { .. } => E::IN | E::ET,
            Self::Joiner(joiner) if !joiner.outbox.is_empty() && !joiner.crowded => {
                E::IN | E::RDHUP | E::OUT
            }
            Self::Joiner(_) => E::IN | E::RDHUP,
            Self::Web(visitor) if visitor.answers() => E::OUT,
            _ => E::IN,
        }
    }
}

impl Server {
    pub(crate) fn add(&mut self, source: Source) -> Result<u64> {
        let token = self.next;
        self.next += 1;
        epoll::add(
            &self.epoll,
            source.descriptor(),
            epoll::EventData::new_u64(token),
            source.events(),
        )?;
        self.sources.insert(token, source);
        Ok(token)
    }

    /// All of them or, where one cannot be added, none.
    pub(crate) fn add_all(&mut self, sources: impl Iterator<Item = Source>) -> Result<Vec<u64>> {
        let mut added = Vec::new();
        for source in sources {
            match self.add(source) {
                Ok(token) => added.push(token),
                Err(error) => {
                    for token in added {
                        self.remove(token);
                    }
                    return Err(error);
                }
            }
        }
        Ok(added)
    }

    /// Waits for nothing of a source any more, which stays.
    pub(crate) fn deafen(&mut self, token: u64) {
        if let Some(source) = self.sources.get(&token) {
            let _ = epoll::delete(&self.epoll, source.descriptor());
        }
    }

    /// Waits for what the source now wants.
    pub(crate) fn rearm(&mut self, token: u64) {
        if let Some(source) = self.sources.get(&token)
            && let Err(errno) = epoll::modify(
                &self.epoll,
                source.descriptor(),
                epoll::EventData::new_u64(token),
                source.events(),
            )
        {
            log!(Error, "epoll", why = errno);
        }
    }

    /// Takes a source out. Closing our descriptor would not do: the store, or QEMU, has the same
    /// open file.
    pub(crate) fn remove(&mut self, token: u64) -> Option<Source> {
        let source = self.sources.remove(&token)?;
        let _ = epoll::delete(&self.epoll, source.descriptor());
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use ginnel_ivshmem::doorbell;

    #[test]
    fn where_one_source_cannot_be_added_none_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let toml = format!(
            "run_dir = {:?}\nstatus = \"off\"\n[segment.t]\nsize = \"16M\"",
            directory.path().join("run")
        );
        let config = Config::parse(&toml, "t".as_ref()).expect("good");
        let mut server = Server::new(config).expect("made");
        let before = server.sources.len();
        let relay = |bell| Source::Relay { segment: 0, peer: 1, vector: 0, bell: Arc::new(bell) };
        let bell = || doorbell::new().expect("an eventfd");
        // A regular file cannot be waited for: epoll_ctl says EPERM.
        let file = std::fs::File::create(directory.path().join("file")).expect("made");
        server.add_all([bell(), bell(), file.into()].map(relay).into_iter()).expect_err("a file");
        assert_eq!(server.sources.len(), before);
        assert_eq!(
            server.add_all([bell(), bell()].map(relay).into_iter()).expect("added").len(),
            2
        );
    }
}
