//! Other hosts: switches of one fabric send each other the frames of the segments that they share.
//!
//! ```text
//!  port ──▶ forward ──▶ link: frames of one host gathered, sealed ──▶ libfabric ──▶ the other host
//!  port ◀── forward ◀── link: messages opened, checked            ◀── libfabric ◀── the other host
//! ```
//!
//! Every host has a connection to every other (a full mesh): a frame that came from a host goes to
//! ports alone and never on to a host, so there are no loops. Where an address is, is learned from
//! frames, as of ports. A host that is lost is forgotten with all that was learned of it, and comes
//! back when a new connection shows that it is there.
//!
//! Connections are made and closed by a thread of their own ([`calls`]), which may wait for others.
//! The thread of the frames has those that are there, and waits for nobody: what a host does not
//! take is dropped, and counted.
//!
//! | module | part |
//! |---|---|
//! | [`handshake`] | how two hosts show each other that they have one secret |
//! | [`message`] | messages as bytes; sealing and opening them |
//! | [`link`] | one connection: gathering frames, noticing silence |
//! | [`calls`] | making and closing connections |
//! | [`libfabric`] | the library: all unsafe code of this |
//! | [`pair`] | two ends without the library, for tests |
//! | here | the hosts as the switch has them |

pub mod calls;
pub mod handshake;
#[allow(unsafe_code, reason = "a library in C; its rules are at its head")]
pub mod libfabric;
pub mod link;
pub mod message;
pub mod pair;

use crate::config::{Config, FabricConfig, HostConfig, MAX_PORTS, PortConfig, Provider};
use crate::counters::{Counters, Reason};
use crate::loan::Lender;
use crate::poller::{Poller, Token};
use crate::port::Cache;
use crate::ring::{Region, Slices};
use crate::wire::HEADER;
use calls::{Calls, News};
use ginnel_daemon::log;
use link::{Link, Lost, Put};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers in the table of addresses from here on are hosts'; those below are ports'.
pub const FIRST: u32 = MAX_PORTS as u32;
/// How often it is looked whether hosts live.
const LOOK: Duration = Duration::from_millis(500);

/// A host's place by its number in the table.
#[must_use]
#[inline]
pub fn place(index: u32) -> Option<usize> {
    index.checked_sub(FIRST).map(|place| place as usize)
}

/// Another host.
#[derive(Debug)]
pub struct Host {
    /// Its configuration.
    pub config: HostConfig,
    /// Its number in the table of addresses.
    pub index: u32,
    /// Its connection.
    pub link: Option<Link>,
    /// One in whose place that could come, once whoever made it has shown who it is.
    pub candidate: Option<Link>,
    /// Segments that both have, in order.
    pub keys: Vec<u32>,
    /// Frames that it sent, and was given.
    pub counters: Counters,
    /// Why it is not there, or was lost the last time.
    pub trouble: Option<String>,
    /// Connections that were made.
    pub connections: u64,
    /// What the table says of those to whom it sends, …
    pub(crate) destinations: Cache,
    /// … and of those who send from there.
    pub(crate) sources: Cache,
    /// See [`Link::slow`], of its last connection.
    pub slow: Option<Instant>,
    /// It is looked at in each turn, since something came of late.
    awake: Option<Instant>,
    /// Something was gathered for it.
    touched: bool,
    lost: Option<Lost>,
}

impl Host {
    fn new(config: HostConfig, place: usize) -> Self {
        Self {
            config,
            index: FIRST + place as u32,
            link: None,
            candidate: None,
            keys: Vec::new(),
            counters: Counters::default(),
            trouble: None,
            connections: 0,
            destinations: Cache::default(),
            sources: Cache::default(),
            slow: None,
            awake: None,
            touched: false,
            lost: None,
        }
    }

    /// Has it ports of this segment, as far as is known?
    #[must_use]
    #[inline]
    pub fn has(&self, key: u32) -> bool {
        self.link.is_some() && self.keys.binary_search(&key).is_ok()
    }
}

/// All other hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    /// In the order of the configuration.
    pub all: Vec<Host>,
    /// What is configured.
    pub config: Option<FabricConfig>,
    /// Segments of this host that reach others, in order.
    pub keys: Vec<u32>,
    calls: Option<Calls>,
    looked: Option<Instant>,
}

impl Hosts {
    /// Those of the configuration. Calling begins.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(config: &Config, poller: &Poller) -> anyhow::Result<Self> {
        Self::after(None, config, poller)
    }

    /// The same once `before` has closed what it has.
    fn after(before: Option<Calls>, config: &Config, poller: &Poller) -> anyhow::Result<Self> {
        let Some(fabric) = &config.fabric else {
            if let Some(calls) = before {
                calls.end()?;
            }
            return Ok(Self::default());
        };
        if fabric.secret.is_none() {
            let why = "no secret: whoever sends from a host's address is that host";
            log!(Warning, "open_fabric", why = why);
        }
        let calls = Calls::start(fabric, before)?;
        poller.watch(&*calls.bell, Token::Hosts)?;
        Ok(Self { calls: Some(calls), ..Self::without_calls(fabric, &config.ports) })
    }

    /// The same without anybody who calls: tests bring connections themselves.
    #[must_use]
    pub fn without_calls(fabric: &FabricConfig, ports: &[PortConfig]) -> Self {
        let hosts = fabric.hosts.iter().enumerate();
        Self {
            all: hosts.map(|(place, host)| Host::new(host.clone(), place)).collect(),
            keys: fabric.keys_of(ports),
            config: Some(fabric.clone()),
            calls: None,
            looked: None,
        }
    }

    /// The ports are these from now on. Others hear of their segments when they hear that this host
    /// lives.
    pub fn renew_keys(&mut self, ports: &[PortConfig]) {
        if let Some(fabric) = &self.config {
            self.keys = fabric.keys_of(ports);
        }
    }

    /// Those of another configuration, in place of these, whose connections all end.
    ///
    /// # Errors
    /// Those of the system.
    pub fn replaced(mut self, config: &Config, poller: &Poller) -> anyhow::Result<Self> {
        for place in 0..self.all.len() {
            let host = &mut self.all[place];
            for link in [host.link.take(), host.candidate.take()].into_iter().flatten() {
                self.close(place, link, poller);
            }
        }
        if let Some(calls) = &self.calls {
            poller.forget(&*calls.bell);
        }
        Self::after(self.calls.take(), config, poller)
    }

    /// Are there none?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Gives a frame to a host, or counts why not.
    #[inline]
    pub fn give(
        &mut self,
        place: usize,
        key: u32,
        front: &[u8],
        rest: &Slices<'_>,
        lender: Option<&Lender<'_>>,
    ) {
        let Some(host) = self.all.get_mut(place) else { return };
        let counters = &mut host.counters;
        let Some(link) = host.link.as_mut().filter(|_| host.lost.is_none()) else {
            return counters.drop_received(Reason::ReceiverAbsent);
        };
        let put = match link.put(key, front, rest, lender) {
            Ok(put) => put,
            Err(lost) => {
                counters.drop_received(Reason::ReceiverAbsent);
                host.lost = Some(lost);
                return;
            }
        };
        if put == Put::Full {
            return counters.drop_received(Reason::HostFull);
        }
        counters.received_frames += 1;
        counters.received_bytes += (front.len() + rest.len()).saturating_sub(HEADER) as u64;
        counters.in_place += u64::from(put == Put::InPlace);
        host.touched = true;
    }

    /// Is machines' memory to be made known to a device before it can be sent from where it is?
    #[must_use]
    pub fn registers(&self) -> bool {
        let fabric = self.config.as_ref();
        fabric.is_some_and(|fabric| fabric.provider == Provider::Verbs && fabric.in_place.is_some())
    }

    /// Machines' memory is this from now on: what a device is to know of it, and nothing else.
    pub fn know(&self, regions: Vec<Arc<Region>>) {
        if let Some(calls) = &self.calls {
            calls.know(regions);
        }
    }

    /// Sends what was gathered, or leaves it for a turn where there is `more` to come at once.
    /// Returns those that are lost.
    pub fn flush(&mut self, now: Instant, more: bool) -> Vec<(usize, Lost)> {
        let mut lost = Vec::new();
        for (place, host) in self.all.iter_mut().enumerate() {
            if std::mem::take(&mut host.touched)
                && host.lost.is_none()
                && let Some(link) = &mut host.link
            {
                host.lost = link.flush(now, more).err();
                // It may answer, and something may have been seen of it already.
                host.awake = Some(now);
            }
            if let Some(why) = host.lost.take() {
                lost.push((place, why));
            }
        }
        lost
    }

    /// A host is looked at in each turn from now on.
    pub fn wake(&mut self, place: usize, now: Instant) {
        if let Some(host) = self.all.get_mut(place) {
            host.awake = Some(now);
        }
    }

    /// Is a host looked at in each turn? It is not any more if nothing came for so long.
    pub fn is_awake(&mut self, place: usize, now: Instant, poll: Duration, busy: bool) -> bool {
        let Some(host) = self.all.get_mut(place) else { return false };
        if busy && host.link.is_some() {
            return true;
        }
        let Some(since) = host.awake else { return false };
        if now.saturating_duration_since(since) <= poll {
            return true;
        }
        // From here on its bell rings.
        let mut sleeps = true;
        for link in [&mut host.link, &mut host.candidate].into_iter().flatten() {
            sleeps &= link.may_sleep();
        }
        host.awake = (!sleeps).then_some(now);
        !sleeps
    }

    /// Is any?
    #[must_use]
    pub fn any_awake(&self) -> bool {
        self.all.iter().any(|host| host.awake.is_some())
    }

    /// How long one may sleep at most. Whoever must not sleep yet is awake again.
    pub fn limit(&mut self, now: Instant) -> Option<Duration> {
        let mut limit = None;
        for host in &mut self.all {
            for link in [&mut host.link, &mut host.candidate].into_iter().flatten() {
                limit = limit.or(Some(LOOK));
                if host.awake.is_some() || !link.may_sleep() {
                    host.awake = Some(now);
                    limit = Some(Duration::ZERO);
                }
            }
        }
        limit
    }

    /// Is it to be looked whether hosts live?
    pub fn is_time(&mut self, now: Instant) -> bool {
        let looked = self.looked.is_some_and(|at| now.saturating_duration_since(at) < LOOK);
        if !looked {
            self.looked = Some(now);
        }
        !looked
    }

    /// Tells those who are there that this host is, when it is time. Returns those that are lost,
    /// and whether it is their candidate alone.
    pub fn keep(&mut self, now: Instant) -> Vec<(usize, bool, Lost)> {
        let mut lost = Vec::new();
        for (place, host) in self.all.iter_mut().enumerate() {
            for (link, new) in [(&mut host.link, false), (&mut host.candidate, true)] {
                let kept = link.as_mut().map_or(Ok(()), |link| link.keep(now, &self.keys));
                lost.extend(kept.err().map(|why| (place, new, why)));
            }
        }
        lost
    }

    /// What there is to hear of connections.
    pub fn news(&mut self) -> Vec<News> {
        let Some(calls) = &self.calls else { return Vec::new() };
        calls.quiet();
        std::iter::from_fn(|| calls.news()).collect()
    }

    /// Closes a connection of a host.
    pub fn close(&mut self, place: usize, link: Link, poller: &Poller) {
        poller.forget(link.wire.bell());
        if let Some(host) = self.all.get_mut(place) {
            host.slow = host.slow.max(link.slow);
        }
        if let Some(calls) = &self.calls {
            calls.close(place, link.wire);
        }
    }
}
