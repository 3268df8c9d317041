//! The thread that makes connections and closes them.

use super::{News, Order, quiet, ring};
use crate::config::{FabricConfig, Provider};
use crate::hosts::handshake::{self, CALL, Keys, Refused};
use crate::hosts::libfabric::{Connection, Event, Fabric, Info, guard};
use crate::ring::Region;
use ginnel_daemon::log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

/// How long until a host is called again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Events that are taken before anything else is looked at.
const EVENTS: usize = 64;
/// How often at most it is logged that strangers are turned away.
const STRANGERS: Duration = Duration::from_secs(1);
/// How long the thread sleeps if it cannot listen, until it tries again.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);

/// How far a connection with a host is.
enum State {
    /// There is none. It is called then, if it is this host that calls.
    Idle(Instant),
    /// It was called.
    Calling(Box<Connection>, [u8; CALL], Instant),
    /// Another thread has it.
    Made,
}

/// Another host.
struct Peer {
    address: SocketAddr,
    /// This host calls it.
    calls: bool,
    state: State,
}

/// A call that is being answered: it is not in its host's place, so that whoever calls in its name
/// takes nothing from it.
struct Answering {
    host: usize,
    connection: Connection,
    keys: Keys,
    since: Instant,
}

/// The thread.
pub(super) struct Caller {
    config: FabricConfig,
    hosts: Vec<Peer>,
    news: Sender<News>,
    orders: Receiver<Order>,
    bell: Arc<OwnedFd>,
    orders_bell: Arc<OwnedFd>,
    /// When a stranger was logged last.
    refused: Option<Instant>,
    /// Machines' memory that devices are to know.
    regions: Vec<Arc<Region>>,
    /// They do not yet.
    unknown: bool,
}

/// The thread is to end.
struct End;

impl Caller {
    /// For the hosts of this configuration.
    pub(super) fn new(
        config: FabricConfig,
        (news, orders): (Sender<News>, Receiver<Order>),
        (bell, orders_bell): (Arc<OwnedFd>, Arc<OwnedFd>),
    ) -> Self {
        let hosts = config.hosts.iter().map(|host| {
            // Both sides compare the same two.
            let calls = config.listen < host.address;
            Peer { address: host.address, calls, state: State::Idle(Instant::now()) }
        });
        let hosts = hosts.collect();
        let (refused, regions, unknown) = (None, Vec::new(), false);
        Self { config, hosts, news, orders, bell, orders_bell, refused, regions, unknown }
    }

    /// Runs until it is to end.
    pub(super) fn run(&mut self) {
        loop {
            let why = match self.serve() {
                Ok(End) => return,
                Err(why) => why,
            };
            log!(Error, "hosts", why = why);
            self.tell(News::Broken(why));
            for host in &mut self.hosts {
                host.state = State::Idle(Instant::now());
            }
            let until = Instant::now() + LISTEN_AGAIN;
            while let left = until.saturating_duration_since(Instant::now())
                && !left.is_zero()
            {
                sleep(&[&*self.orders_bell], left);
                if self.take_orders().is_err() {
                    return;
                }
            }
        }
    }

    fn tell(&self, news: News) {
        // Nobody hears it when the switch ends.
        let _ = self.news.send(news);
        ring(&self.bell);
    }

    fn trouble(&self, host: usize, why: impl Into<String>) {
        self.tell(News::Trouble { host, why: why.into() });
    }

    /// Serves until it is to end, or nothing can be done any more.
    fn serve(&mut self) -> Result<End, String> {
        let fabric = Arc::new(Fabric::open(self.config.provider, self.config.listen)?);
        let hosts: Vec<SocketAddr> = self.hosts.iter().map(|host| host.address).collect();
        match guard(self.config.listen, &hosts) {
            Ok(true) => {}
            // By verbs nobody connects who is not answered.
            Ok(false) if self.config.provider == Provider::Verbs => {}
            Ok(false) => log!(Warning, "open_door", why = "the listening socket was not found"),
            Err(errno) => log!(Warning, "open_door", why = errno),
        }
        log!(Info, "hosts", listens = self.config.listen, provider = self.config.provider);
        let mut answering: Vec<Answering> = Vec::new();
        self.unknown = true;
        loop {
            if self.take_orders().is_err() {
                return Ok(End);
            }
            if std::mem::take(&mut self.unknown) {
                for why in fabric.know(&self.regions) {
                    log!(Warning, "not_in_place", why = why);
                }
            }
            self.call(&fabric);
            let mut events = 0;
            while events < EVENTS
                && let Some(event) = fabric.event()?
            {
                events += 1;
                match event {
                    Event::Called { info, data } => {
                        if let Some(new) = self.called(&fabric, &info, &data) {
                            // One of each host at a time: the later.
                            answering.retain(|one| one.host != new.host);
                            answering.push(new);
                        }
                    }
                    Event::Connected { id, data } => {
                        let place = answering.iter().position(|one| one.connection.id() == id);
                        match place.map(|place| answering.swap_remove(place)) {
                            Some(Answering { host, connection, keys, .. }) => {
                                let wire = Box::new(connection);
                                self.tell(News::Made { host, wire, keys, proven: false });
                            }
                            None => self.answered(id, &data),
                        }
                    }
                    Event::Ended { id, why } => {
                        answering.retain(|one| one.connection.id() != id);
                        self.ended(id, why);
                    }
                }
            }
            let now = Instant::now();
            answering.retain(|one| now.saturating_duration_since(one.since) < PATIENCE);
            let next = self.next(now, !answering.is_empty());
            if events < EVENTS && fabric.may_sleep() {
                sleep(&[&*fabric, &*self.orders_bell], next);
            }
        }
    }

    /// How long nothing is to be done.
    fn next(&self, now: Instant, answers: bool) -> Duration {
        let due = self.hosts.iter().filter_map(|host| match &host.state {
            State::Idle(at) if host.calls => Some(*at),
            State::Calling(_, _, since) => Some(*since + PATIENCE),
            _ => None,
        });
        let due = due.min().map(|at| at.saturating_duration_since(now));
        let due = due.unwrap_or(Duration::from_secs(60));
        if answers { due.min(PATIENCE) } else { due }
    }

    fn take_orders(&mut self) -> Result<(), End> {
        quiet(&self.orders_bell);
        loop {
            match self.orders.try_recv() {
                Ok(Order::Close(host, wire)) => {
                    drop(wire);
                    if let Some(host) = self.hosts.get_mut(host)
                        && matches!(host.state, State::Made)
                    {
                        host.state = State::Idle(Instant::now() + AGAIN);
                    }
                }
                Ok(Order::Know(regions)) => (self.regions, self.unknown) = (regions, true),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(End),
            }
        }
    }

    /// Calls those hosts whose time has come.
    fn call(&mut self, fabric: &Arc<Fabric>) {
        let now = Instant::now();
        for index in 0..self.hosts.len() {
            let Peer { address, calls, ref state } = self.hosts[index];
            let why = match state {
                State::Idle(at) if calls && *at <= now => {
                    let nonce = handshake::nonce();
                    let (secret, own) = (self.config.secret.as_ref(), self.config.listen);
                    let call = handshake::call(secret, own, address, nonce);
                    let made = fabric.info_for(address).and_then(|info| {
                        let connection = Connection::open(fabric, &info)?;
                        connection.call(address, &call)?;
                        Ok(connection)
                    });
                    match made {
                        Ok(connection) => {
                            self.hosts[index].state =
                                State::Calling(Box::new(connection), call, now);
                            continue;
                        }
                        Err(why) => why,
                    }
                }
                State::Calling(_, _, since)
                    if now.saturating_duration_since(*since) >= PATIENCE =>
                {
                    "it does not answer".into()
                }
                _ => continue,
            };
            self.hosts[index].state = State::Idle(now + AGAIN);
            self.trouble(index, why);
        }
    }

    /// Somebody calls: answers, or turns it away.
    fn called(&mut self, fabric: &Arc<Fabric>, info: &Info, data: &[u8]) -> Option<Answering> {
        let from = info.caller();
        let said = handshake::caller(data);
        let known = |address| self.hosts.iter().position(|host| host.address == address);
        // It says who it is; where it comes from is what the network says.
        let place = said.ok().filter(|said| from.is_some_and(|from| from.ip() == said.ip()));
        let Some(host) = place.and_then(known).filter(|&host| !self.hosts[host].calls) else {
            fabric.reject(info);
            let why = said.err().unwrap_or(Refused::Stranger);
            let now = Instant::now();
            if self.refused.is_none_or(|at| now.saturating_duration_since(at) >= STRANGERS) {
                let from = from.map_or_else(|| "nobody".into(), |from| from.to_string());
                log!(Warning, "refused", from = from, why = why);
                self.refused = Some(now);
            }
            return None;
        };
        let (secret, own) = (self.config.secret.as_ref(), self.config.listen);
        let (answer, keys) = match handshake::answer(secret, data, own, handshake::nonce()) {
            Ok(answered) => answered,
            Err(refused) => {
                fabric.reject(info);
                self.trouble(host, refused.to_string());
                return None;
            }
        };
        // From here on the call is the connection's, and ends with it.
        let made = Connection::open(fabric, info)
            .and_then(|connection| connection.answer(&answer).map(|()| connection));
        match made {
            Ok(connection) => Some(Answering { host, connection, keys, since: Instant::now() }),
            Err(why) => {
                self.trouble(host, why);
                None
            }
        }
    }

    /// A host that was called has answered.
    fn answered(&mut self, id: usize, data: &[u8]) {
        let calling =
            |host: &Peer| matches!(&host.state, State::Calling(one, ..) if one.id() == id);
        let Some(index) = self.hosts.iter().position(calling) else { return };
        let later = State::Idle(Instant::now() + AGAIN);
        let State::Calling(connection, call, _) =
            std::mem::replace(&mut self.hosts[index].state, later)
        else {
            return;
        };
        match handshake::answered(self.config.secret.as_ref(), &call, data) {
            Ok(keys) => {
                self.hosts[index].state = State::Made;
                self.tell(News::Made { host: index, wire: connection, keys, proven: true });
            }
            Err(refused) => self.trouble(index, refused.to_string()),
        }
    }

    fn ended(&mut self, id: usize, why: String) {
        let calling =
            |host: &Peer| matches!(&host.state, State::Calling(one, ..) if one.id() == id);
        match self.hosts.iter().position(calling) {
            Some(index) => {
                self.hosts[index].state = State::Idle(Instant::now() + AGAIN);
                let why = match why.as_str() {
                    "Connection refused" => "it refuses: it is not up, or turns this host away",
                    why => why,
                };
                self.trouble(index, why);
            }
            None => self.tell(News::Ended { id, why }),
        }
    }
}

/// Sleeps until one of these can be read, or for so long.
fn sleep(on: &[&dyn AsFd], limit: Duration) {
    let mut polled: Vec<_> =
        on.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)).collect();
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // Whatever ends it, everything is looked at.
    let _ = poll(&mut polled, Some(&limit));
}
