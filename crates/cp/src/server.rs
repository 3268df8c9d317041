//! The server: offers one directory, to each client in a thread of its own.

use crate::client::{open_all, refuse_delete};
use crate::failure::{Code, Failure, Result};
use crate::link::Link;
use crate::names;
use crate::recv::{Allowed, From, Policy, Task, receive};
use crate::report::{Remote, Report};
use crate::send::send;
use crate::walk::Source;
use crate::wire::{self, Hello, MAGIC, Message, Order, VERSION};
use ginnel::{Error, Keep, Queue, Receiver, Segment, Sender};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Paths that one client may name, together, in bytes.
const MOST_SOURCES: usize = 1 << 20;
/// So many more clients at a time are told that there are too many.
const REFUSED: usize = 8;
/// Bytes of a client's largest message, at most: what it can have a session look at.
const MOST_MESSAGE: u64 = 4 << 20;

/// A directory that is offered.
pub struct Serve {
    /// The segment in which it can be found.
    pub segment: Segment,
    /// Its name there.
    pub name: String,
    root: OwnedFd,
    policy: Policy,
    /// Clients may write.
    pub writable: bool,
    /// Clients at a time.
    pub sessions: usize,
    /// For how long a silent client is waited for; `None`: for ever.
    pub timeout: Option<Duration>,
    /// What is said of each session.
    pub log: fn(&str),
}

/// What this host is called: the name that a server has where none is given.
#[must_use]
pub fn default_name() -> String {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String =
        host.split('.').next().unwrap_or_default().chars().map(plain).take(48).collect();
    if name.is_empty() { "host".into() } else { name }
}

/// A name without what would be read as something else.
///
/// # Errors
/// What it may be.
fn check_name(name: &str) -> Result<()> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if (1..=48).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    let text =
        format!("{name:?}: a server's name has 1 to 48 letters, digits, '-' and '_' (--name)");
    Err(Failure::new(Code::Usage, text))
}

impl Serve {
    /// Offers `root` under a name, to be read.
    ///
    /// # Errors
    /// What is wrong with the directory or the name, or with the kernel.
    pub fn new(segment: Segment, name: &str, root: &Path, log: fn(&str)) -> Result<Self> {
        check_name(name)?;
        let failed = |error: std::io::Error| {
            Failure::of_path(
                Code::Files,
                "offering it",
                root.as_os_str().as_encoded_bytes(),
                &error,
            )
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd =
            rustix::fs::open(root, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        // Every path is resolved by this call: better to hear now that there is none.
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&fd, ".", flags, Mode::empty(), how).map_err(|errno| {
            let text = format!(
                "openat2(2), which keeps clients inside of the directory: {errno}; it \
                 takes Linux 5.6, and a sandbox that allows it"
            );
            Failure::new(Code::Start, text)
        })?;
        Ok(Self {
            segment,
            name: name.to_owned(),
            root: fd,
            policy: Policy::new(false, false),
            writable: false,
            sessions: 32,
            timeout: Some(Duration::from_secs(120)),
            log,
        })
    }

    /// Lets clients say whose their files are, where this is root; and leave links that lead out of
    /// the directory.
    pub fn allow(&mut self, owners: bool, any_links: bool) {
        self.policy = Policy::new(owners, any_links);
    }

    /// Serves until `stop` is set. `ready` is called when clients can come.
    ///
    /// # Errors
    /// The name is taken, or the segment cannot be used.
    pub fn run(self, stop: &Arc<AtomicBool>, ready: impl FnOnce()) -> Result<()> {
        let (serve, busy) = (Arc::new(self), Arc::new(AtomicUsize::new(0)));
        let mut door = serve.open_door()?;
        ready();
        while !stop.load(Ordering::Relaxed) {
            let heard = door.recv_timeout(Duration::from_millis(500));
            let hello = match heard.map(|message| hello(&message)) {
                Ok(hello) => hello,
                Err(Error::TimedOut | Error::Ended { .. } | Error::TooManyMessages { .. }) => {
                    continue;
                }
                // Somebody's nonsense. Who knocked meanwhile is told by silence, and tries again.
                Err(Error::Corrupt { .. }) => {
                    (serve.log)("somebody wrote nonsense into the door; it is made anew");
                    drop(door);
                    let _ = serve.segment.remove(&wire::door(&serve.name));
                    door = serve.open_door()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(hello) = hello else { continue };
            let before = busy.fetch_add(1, Ordering::Relaxed);
            if before >= serve.sessions + REFUSED {
                busy.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (session, done, stop) = (Arc::clone(&serve), Arc::clone(&busy), Arc::clone(stop));
            let thread = std::thread::Builder::new().name("ginnel-cp".into());
            let started = thread.spawn(move || {
                session.session(hello, before >= session.sessions, &stop);
                done.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                busy.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // Sessions see the signal at their next message.
        for _ in 0..20 {
            if busy.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn open_door(&self) -> Result<Receiver> {
        let name = wire::door(&self.name);
        let queue = Queue::new().message_size(64).capacity(4).senders(64).loans(1);
        queue.keep(Keep::WithCreator).create(&self.segment, &name).map_err(
            |error| match error {
                Error::Taken { .. } => {
                    let text = format!(
                        "{} serves already in this segment; choose another --name",
                        self.name
                    );
                    Failure::new(Code::Start, text)
                }
                error => error.into(),
            },
        )?;
        Ok(Receiver::open(&self.segment, &name)?)
    }

    /// The other ends of a client's queues.
    fn link(&self, id: u64, stop: &Arc<AtomicBool>) -> Result<Link> {
        let [to, from] = wire::queues(&self.name, id);
        let rx = Receiver::open(&self.segment, &to)?;
        let tx = Sender::open(&self.segment, &from)?.of_one_receiver();
        if !(16 << 10..=MOST_MESSAGE).contains(&tx.message_size()) {
            return Err(Failure::broken("queues that are too small or too large"));
        }
        let mut link = Link::new(tx, rx, Arc::clone(stop), "client");
        link.patience = self.timeout;
        Ok(link)
    }

    /// One client, from its greeting on; `refused`: there is no room for it.
    fn session(&self, hello: Hello, refused: bool, stop: &Arc<AtomicBool>) {
        let link = match self.link(hello.id, stop) {
            Ok(link) => link,
            Err(failure) => return (self.log)(&format!("a client cannot be answered: {failure}")),
        };
        let full = || Failure::new(Code::Start, "too many clients at once; try again later");
        match if refused { Err(full()) } else { self.serve(&link) } {
            Ok(done) => (self.log)(&done),
            Err(failure) => {
                (self.log)(&format!("a copy ended: {failure}"));
                link.fail(&failure);
            }
        }
    }

    fn serve(&self, link: &Link) -> Result<String> {
        link.send(&Message::Welcome { version: VERSION, writable: self.writable })?;
        match link.recv()?.message {
            Message::Get(order) => self.give(link, order),
            Message::Put { order, to } => self.take(link, &order, &to),
            _ => Err(Failure::broken("neither a wish nor an offer")),
        }
    }

    fn give(&self, link: &Link, order: Order) -> Result<String> {
        let (mut paths, mut bytes) = (Vec::new(), 0);
        loop {
            match link.recv()?.message {
                Message::Source(path) => {
                    bytes += path.len() + 32;
                    if bytes > MOST_SOURCES {
                        return Err(Failure::new(Code::Usage, "too many paths at once"));
                    }
                    paths.push(path.into_vec());
                }
                Message::Go => break,
                _ => return Err(Failure::broken("a message out of turn")),
            }
        }
        let mut remote = Remote::new(link);
        let sources = open_all(&paths, |path| Source::beneath(&self.root, path), &mut remote)?;
        refuse_delete(&order, &sources)?;
        send(link, &sources, &order, &mut remote)?;
        let first = paths.first().map(|path| names::shown(path)).unwrap_or_default();
        Ok(format!("gave {} of {first} …", paths.len()))
    }

    fn take(&self, link: &Link, order: &Order, to: &[u8]) -> Result<String> {
        if !self.writable {
            return Err(Failure::new(Code::Start, "it offers its files for reading only"));
        }
        if to.len() > names::MOST_PATH || to.contains(&0) {
            return Err(Failure::new(Code::Usage, "the destination is no path"));
        }
        let (policy, from) = (self.policy, From::Root(&self.root));
        let task = Task { link, from, to, order, policy, allowed: Allowed::Any };
        let mut remote = Remote::new(link);
        let remote: &mut dyn Report = &mut remote;
        receive(&task, remote)?;
        Ok(format!("took what came for {}", names::shown(to)))
    }
}

/// What somebody says at the door, if it is what clients say.
fn hello(message: &ginnel::Message<'_>) -> Option<Hello> {
    let mut bytes = [0; 64];
    let len = message.read(0, &mut bytes);
    let (hello, _) = postcard::take_from_bytes::<Hello>(bytes.get(..len)?).ok()?;
    (hello.magic == MAGIC).then_some(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(check_name("vm3").is_ok() && check_name("a-b_C9").is_ok());
        for bad in ["", "a.b", "a:b", "a/b", "ü", &"x".repeat(49)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
