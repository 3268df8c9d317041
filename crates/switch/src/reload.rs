//! Another configuration while the switch runs: `ginnel-switch reload`, and SIGHUP.
//!
//! A thread of its own reads the file and opens what is new, since either may wait for others
//! ([`prepare`]); frames go on meanwhile. If anything is wrong, what was opened is closed again and
//! everything stays as it was. What is left to do then is done by the thread of the frames, between
//! two turns ([`crate::switch::Switch::take_over`]).
//!
//! A port is the same one as before if it has the same socket or tap device: what is connected
//! there stays connected, whatever else of it changes, its name and its segment too.

use crate::config::{Config, ConfigError, PortConfig, Provider, VsockConfig};
use crate::hosts::libfabric;
use crate::places::{Place, Places, give, given};
use crate::poller::{Poller, Token};
use ginnel_daemon::log;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long an address may be listened at that is to be this switch's: until not long ago it may
/// have been its own, in a fabric that was let go, and that takes a moment.
const LISTENS: Duration = Duration::from_secs(2);

/// Where the configuration is.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// The command line says `--busy`, whatever the file says.
    pub busy: bool,
}

impl Source {
    /// What the file says now.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load_again(&self.file)?;
        config.busy |= self.busy;
        Ok(config)
    }
}

/// A configuration that can be had, and what is open for it.
#[derive(Debug)]
pub struct Prepared {
    /// The configuration.
    pub config: Config,
    /// Sockets and tap devices that are new.
    pub places: Places,
}

/// What came of it, for whoever asked: one JSON document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why nothing was changed, or what of it could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Ports and devices for sockets that are new.
    pub added: Vec<String>,
    /// Those that are no more.
    pub removed: Vec<String>,
    /// Those that are otherwise than before.
    pub changed: Vec<String>,
}

/// By what a port is known: its socket, or its tap device.
pub type Link<'a> = (Option<&'a Path>, Option<&'a str>);

/// The link of a port.
#[must_use]
pub fn link(port: &PortConfig) -> Link<'_> {
    (port.socket.as_deref(), port.tap.as_deref())
}

/// Reads the file, and opens what a switch with the configuration `now` does not have yet.
///
/// # Errors
/// What is wrong: nothing is changed then.
pub fn prepare(source: &Source, now: &Config) -> Result<Prepared, String> {
    let config = source.load().map_err(|error| error.to_string())?;
    let fixed = [
        ("run_dir", config.run_dir == now.run_dir),
        ("metrics", config.metrics == now.metrics),
        ("memory", config.memory == now.memory),
    ];
    if let Some((key, _)) = fixed.iter().find(|(_, same)| !same) {
        let file = source.file.display();
        return Err(format!("{file}: {key}: cannot change while the switch runs: restart it"));
    }
    if config.fabric != now.fabric {
        check_fabric(&config, now)?;
    }
    let places = open_new(&config, now)?;
    give_all(&config, now)?;
    Ok(Prepared { config, places })
}

/// Can this switch be a host of this fabric at all? (At the start it waits until it can. Here it
/// has connections, perhaps, that are not to end for one that cannot.)
fn check_fabric(config: &Config, now: &Config) -> Result<(), String> {
    let Some(fabric) = &config.fabric else { return Ok(()) };
    libfabric::is_there()?;
    let own = now.fabric.as_ref().map(|fabric| fabric.listen);
    let port = match fabric.provider {
        // It is this switch that listens there.
        _ if own == Some(fabric.listen) => return Ok(()),
        Provider::Tcp => fabric.listen.port(),
        // Its ports are others than those of TCP.
        Provider::Verbs => 0,
    };
    let until = Instant::now() + LISTENS;
    loop {
        let bound = TcpListener::bind((fabric.listen.ip(), port));
        let Err(error) = bound else { return Ok(()) };
        if error.kind() != ErrorKind::AddrInUse || Instant::now() > until {
            return Err(format!("fabric.listen: {}: {error}", fabric.listen));
        }
        std::thread::sleep(LISTENS / 20);
    }
}

/// Opens the sockets and tap devices that are new.
fn open_new(config: &Config, now: &Config) -> Result<Places, String> {
    let mut places = Places::default();
    let links: HashSet<_> = now.ports.iter().map(link).collect();
    for port in config.ports.iter().filter(|port| !links.contains(&link(port))) {
        let (mode, group) = (port.mode, port.group);
        let opened = match link(port) {
            (Some(socket), _) => places.open_socket(Place { socket, mode, group }),
            (None, Some(tap)) => places.open_tap(tap),
            (None, None) => Ok(()),
        };
        opened.map_err(|error| format!("port {}: {error:#}", port.name))?;
    }
    let own: HashSet<_> = now.vsock.iter().map(|one| &one.socket).collect();
    // Whichever machine's: where programs of the host connect may be another's from now on.
    let doors: HashSet<_> = now.vsock.iter().filter_map(|one| one.host.as_ref()).collect();
    for one in &config.vsock {
        let own = Some(&one.socket).filter(|path| !own.contains(path));
        let door = one.host.as_ref().filter(|path| !doors.contains(path));
        for socket in own.into_iter().chain(door) {
            let opened = places.open_socket(Place { socket, mode: one.mode, group: one.group });
            opened.map_err(|error| format!("vsock {}: {error:#}", one.name))?;
        }
    }
    Ok(places)
}

/// Gives the sockets that stay to whom they are to belong now: all of them, or none.
fn give_all(config: &Config, now: &Config) -> Result<(), String> {
    let (before, after) = (places(now), places(config));
    let before: HashMap<_, _> =
        before.iter().map(|one| (one.socket, (one.mode, one.group))).collect();
    let mut done = Vec::new();
    for new in after {
        let Some(&old) = before.get(new.socket) else { continue };
        if old == (new.mode, new.group) {
            continue;
        }
        // Who had another's group has the switch's own again.
        let own = old.1.map(|_| rustix::process::getegid().as_raw());
        let given = given(new.socket).and_then(|was| {
            done.push(was);
            give(Place { group: new.group.or(own), ..new })
        });
        if let Err(error) = given {
            for was in done {
                // It was so before.
                let _ = give(was);
            }
            return Err(format!("{}: mode and group: {error}", new.socket.display()));
        }
    }
    Ok(())
}

/// Every socket of a configuration.
fn places(config: &Config) -> Vec<Place<'_>> {
    let ports = config.ports.iter().filter_map(|port| {
        Some(Place { socket: port.socket.as_deref()?, mode: port.mode, group: port.group })
    });
    let of = |one: &VsockConfig| (one.mode, one.group);
    let vsock = config.vsock.iter().flat_map(move |one| {
        let (mode, group) = of(one);
        let paths = [Some(one.socket.as_path()), one.host.as_deref()];
        paths.into_iter().flatten().map(move |socket| Place { socket, mode, group })
    });
    ports.chain(vsock).collect()
}

/// What the thread of the frames is told.
#[derive(Debug)]
pub enum News {
    /// A configuration can be had, or cannot.
    Prepared(Result<Box<Prepared>, String>),
    /// The machines that have sockets are those of the configuration, but for what went wrong.
    Machines(Vec<String>),
}

/// By which it is told.
#[derive(Debug, Clone)]
pub struct Teller {
    sender: Sender<News>,
    bell: Arc<OwnedFd>,
}

impl Teller {
    /// Tells it.
    pub fn tell(&self, news: News) {
        // Nobody hears it when the switch ends.
        let _ = self.sender.send(news);
        // A full counter has been rung.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

/// Tells it of the machines, whatever becomes of the hub: who waits for it does not wait for ever.
#[derive(Debug)]
pub struct Pending(Option<Teller>);

impl Pending {
    /// By this.
    #[must_use]
    pub fn new(teller: Teller) -> Self {
        Self(Some(teller))
    }

    /// It is done, but for this.
    pub fn done(mut self, troubles: Vec<String>) {
        if let Some(teller) = self.0.take() {
            teller.tell(News::Machines(troubles));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(teller) = self.0.take() {
            teller.tell(News::Machines(vec!["vsock: its thread has ended: restart".into()]));
        }
    }
}

/// What is under way, and who waits for it.
#[derive(Debug)]
pub struct Reloads {
    source: Option<Source>,
    teller: Teller,
    news: Receiver<News>,
    /// Visitors of the control socket that wait for what is under way; `None`: nothing is.
    waiting: Option<Vec<u32>>,
    /// Those who asked since, when the file may have been read already.
    late: Option<Vec<u32>>,
    /// What came of it so far.
    pub outcome: Option<Outcome>,
}

impl Reloads {
    /// None yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(poller: &Poller) -> Result<Self, Errno> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        poller.watch(&*bell, Token::Prepared)?;
        let (sender, news) = channel();
        let teller = Teller { sender, bell };
        Ok(Self { source: None, teller, news, waiting: None, late: None, outcome: None })
    }

    /// From now on the configuration can be read again.
    pub fn read_from(&mut self, source: Source) {
        self.source = Some(source);
    }

    /// Begins, for these visitors.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn begin(&mut self, visitors: &[u32], now: &Config) -> Result<(), String> {
        let Some(source) = self.source.clone() else {
            return Err("its ports are on its command line: restart it with others, or start it \
                        with --config FILE, which can be read again"
                .into());
        };
        if self.waiting.is_some() {
            self.late.get_or_insert_default().extend(visitors);
            return Ok(());
        }
        let (now, teller) = (now.clone(), self.teller());
        let run = move || {
            // Whoever waits is told even if this panics.
            let prepared = std::panic::catch_unwind(|| prepare(&source, &now));
            let prepared = prepared.unwrap_or_else(|_| Err("it could not be read".into()));
            teller.tell(News::Prepared(prepared.map(Box::new)));
        };
        let named = std::thread::Builder::new().name("reload".into());
        named.spawn(run).map_err(|error| error.to_string())?;
        self.waiting = Some(visitors.to_vec());
        Ok(())
    }

    /// By which news comes.
    #[must_use]
    pub fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// What there is to hear.
    pub fn news(&self) -> Option<News> {
        // It may have been read already.
        let _ = rustix::io::read(&*self.teller.bell, &mut [0u8; 8]);
        self.news.try_recv().ok()
    }

    /// It is over: who waits for what came of it, and who asked since.
    pub fn end(&mut self) -> (Vec<u32>, Option<Vec<u32>>) {
        (self.waiting.take().unwrap_or_default(), self.late.take())
    }
}

impl Outcome {
    /// Nothing was changed.
    #[must_use]
    pub fn refused(why: String) -> Self {
        Self { error: Some(why), ..Self::default() }
    }

    /// This went wrong, too.
    pub fn add(&mut self, troubles: &[String]) {
        for why in troubles {
            let error = self.error.get_or_insert_default();
            error.push_str(if error.is_empty() { "" } else { "; " });
            error.push_str(why);
        }
    }

    /// Says it in the log.
    pub fn log(&self) {
        match &self.error {
            Some(why) => log!(Error, "reload", why = why),
            None => {
                let (added, removed) = (self.added.len(), self.removed.len());
                let changed = self.changed.len();
                log!(Info, "reload", added = added, removed = removed, changed = changed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_hub_that_has_ended_is_told() {
        let reloads = Reloads::new(&Poller::new().expect("a set")).expect("none yet");
        drop(Pending::new(reloads.teller()));
        let Some(News::Machines(troubles)) = reloads.news() else { panic!("news") };
        assert!(troubles[0].contains("has ended"));
        Pending::new(reloads.teller()).done(Vec::new());
        assert!(matches!(reloads.news(), Some(News::Machines(none)) if none.is_empty()));
        assert!(reloads.news().is_none(), "once");
    }
}
