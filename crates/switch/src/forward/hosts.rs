//! Frames to other hosts and from them, and connections to them that come and go.

use super::{BUDGET, Frame, PER_FRAME};
use crate::config::Config;
use crate::counters::Reason;
use crate::fdb::Learned;
use crate::hosts::calls::News;
use crate::hosts::link::{Link, Lost};
use crate::hosts::message::Message;
use crate::hosts::{FIRST, Host};
use crate::poller::Token;
use crate::ring::Slices;
use crate::switch::Switch;
use crate::wire::{ETHERNET, FRONT, HEADER, Mac, Offload, is_group};
use ginnel_daemon::log;
use std::time::Duration;

/// Turns of a connection that has ended.
const LAST: usize = 64;
/// What a frame of a message costs beside its bytes. It is there already, so less than a guest's.
const PER_RECORD: usize = 256;

impl Switch {
    /// Takes what hosts have sent that are looked at in each turn. Was there anything?
    pub(super) fn serve_hosts(&mut self) -> bool {
        let mut worked = false;
        for place in 0..self.hosts.all.len() {
            if self.hosts.is_awake(place, self.clock.now, self.poll, self.busy) {
                worked |= self.serve_host(place);
            }
        }
        worked
    }

    /// A host has sent something, or takes more.
    pub(crate) fn host_rang(&mut self, place: usize) {
        self.hosts.wake(place, self.clock.now);
        self.serve_host(place);
    }

    /// Takes what a host has sent, up to a budget. Was there anything?
    pub(crate) fn serve_host(&mut self, place: usize) -> bool {
        let mut worked = false;
        for new in [true, false] {
            let Some(host) = self.hosts.all.get_mut(place) else { return false };
            let slot = if new { &mut host.candidate } else { &mut host.link };
            let Some(mut link) = slot.take() else { continue };
            let drained = self.drain(place, &mut link);
            let Some(host) = self.hosts.all.get_mut(place) else { return false };
            match drained {
                Ok(cost) => {
                    worked |= cost > 0;
                    match new {
                        true if link.proven => self.adopt(place, link),
                        true => host.candidate = Some(link),
                        false => host.link = Some(link),
                    }
                }
                Err(lost) if new => self.turn_away(place, link, &lost),
                Err(lost) => {
                    host.link = Some(link);
                    self.lose(place, &lost);
                }
            }
        }
        if worked {
            self.hosts.wake(place, self.clock.now);
        }
        self.tell();
        worked
    }

    /// Takes messages off a connection.
    fn drain(&mut self, place: usize, link: &mut Link) -> Result<usize, Lost> {
        let mut cost = 0;
        while cost < BUDGET {
            let Some(came) = link.receive()? else { break };
            cost += PER_FRAME;
            match link.open(came, self.clock.now)? {
                Message::Alive(keys) => {
                    let ours = &self.hosts.keys;
                    let mut both: Vec<u32> =
                        keys.iter().filter(|key| ours.binary_search(key).is_ok()).collect();
                    both.sort_unstable();
                    both.dedup();
                    if let Some(host) = self.hosts.all.get_mut(place) {
                        host.keys = both;
                    }
                }
                Message::Frames(frames) => {
                    for (key, front) in frames {
                        cost += PER_RECORD + self.bring(place, key, front);
                    }
                }
            }
            link.done(came)?;
            // Guests are told of what there is before it is looked for more.
            if !link.wire.has_more() {
                break;
            }
        }
        self.cost += cost;
        link.flush(self.clock.now, self.gathers)?;
        Ok(cost)
    }

    /// Gives a frame that a host has sent to whom it is for. Returns what its bytes cost.
    fn bring(&mut self, place: usize, key: u32, front: &mut [u8]) -> usize {
        let len = front.len().saturating_sub(HEADER);
        let admitted = self.admit_of_host(place, key, front, len);
        let Some(host) = self.hosts.all.get_mut(place) else { return len };
        host.counters.sent_frames += 1;
        host.counters.sent_bytes += len as u64;
        let (to, offload) = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => {
                host.counters.drop_sent(reason);
                return len;
            }
        };
        if let Some(header) = front.first_chunk_mut() {
            *header = offload.header();
        }
        let index = host.index;
        // Frames of one sender stay in order, and several senders take several queues.
        let queue = front.get(HEADER + 11).map_or(0, |byte| 2 * u16::from(*byte));
        let (rest, lender) = (&Slices::new(), None);
        let mut frame = Frame { key, front, rest, offload, lender };
        match to {
            Some(to) => len + self.deliver(to, index, queue, &mut frame),
            None => {
                let cost = self.flood_ports(index, queue, &mut frame, len + PER_FRAME);
                if let Some(host) = self.hosts.all.get_mut(place) {
                    host.counters.flooded += 1;
                    if cost == 0 {
                        host.counters.drop_sent(Reason::NobodyThere);
                    }
                }
                cost.max(len + PER_FRAME)
            }
        }
    }

    /// To which port does it go? `None`: to all of its segment. And what is still to be done of it?
    fn admit_of_host(
        &mut self,
        place: usize,
        key: u32,
        front: &[u8],
        len: usize,
    ) -> Result<(Option<u32>, Offload), Reason> {
        if self.hosts.keys.binary_search(&key).is_err() {
            return Err(Reason::NoSuchKey);
        }
        let header = front.first_chunk().ok_or(Reason::BadLength)?;
        let frame = front.get(HEADER..).filter(|frame| frame.len() >= ETHERNET);
        let frame = frame.ok_or(Reason::BadLength)?;
        let (to, from): (Mac, Mac) = match (frame.first_chunk(), frame[6..].first_chunk()) {
            (Some(to), Some(from)) => (*to, *from),
            _ => return Err(Reason::BadLength),
        };
        if is_group(from) {
            return Err(Reason::BadSource);
        }
        let offload = Offload::parse(header, len).ok_or(Reason::BadOffload)?;
        self.learn_of_host(place, key, from)?;
        if is_group(to) {
            let link_local = to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16;
            return if link_local { Err(Reason::LinkLocal) } else { Ok((None, offload)) };
        }
        match self.find_of_host(place, key, to) {
            // It is another host's, to which the sender has sent it too.
            Some(index) if index >= FIRST => Err(Reason::Elsewhere),
            found => Ok((found, offload)),
        }
    }

    fn find_of_host(&mut self, place: usize, key: u32, to: Mac) -> Option<u32> {
        let (now, generation) = (self.clock.seconds, self.fdb.generation());
        let host = self.hosts.all.get_mut(place)?;
        if let Some(found) = host.destinations.get(key, to, generation, now) {
            return Some(found);
        }
        let found = self.fdb.find(key, to, now)?;
        host.destinations.put(key, to, generation, now, found);
        Some(found)
    }

    fn learn_of_host(&mut self, place: usize, key: u32, from: Mac) -> Result<(), Reason> {
        let now = self.clock.seconds;
        let macs = self.hosts.config.as_ref().map_or(0, |config| config.macs);
        let Some(host) = self.hosts.all.get_mut(place) else { return Ok(()) };
        if host.sources.get(key, from, self.fdb.generation(), now) == Some(host.index) {
            return Ok(());
        }
        match self.fdb.learn(key, from, host.index, now, macs) {
            Learned::Known | Learned::New => {
                host.sources.put(key, from, self.fdb.generation(), now, host.index);
            }
            Learned::TooMany => host.counters.unlearned += 1,
            Learned::Taken => return Err(Reason::SpoofedMac),
        }
        Ok(())
    }

    /// Gives a frame to every host that has its segment. Returns to how many.
    pub(super) fn flood_hosts(&mut self, frame: &Frame<'_, '_>) -> usize {
        let mut given = 0;
        for place in 0..self.hosts.all.len() {
            if self.hosts.all[place].has(frame.key) {
                self.hosts.give(place, frame.key, frame.front, frame.rest, None);
                given += 1;
            }
        }
        given
    }

    /// Sends what was gathered for hosts. `more`: ports have more, by which it is joined in the
    /// next turn.
    pub(super) fn tell_hosts(&mut self, more: bool) {
        if self.hosts.is_empty() {
            return;
        }
        for (place, lost) in self.hosts.flush(self.clock.now, more) {
            self.lose(place, &lost);
        }
    }

    /// Tells hosts that this one lives, and forgets those that say nothing.
    pub(crate) fn keep_hosts(&mut self) {
        if self.hosts.is_empty() {
            return;
        }
        if !self.hosts.is_time(self.clock.now) {
            return;
        }
        // What has come is heard first: it may be this host that stood still.
        for place in 0..self.hosts.all.len() {
            self.serve_host(place);
        }
        for (place, new, lost) in self.hosts.keep(self.clock.now) {
            let candidate = self.hosts.all.get_mut(place).filter(|_| new);
            match candidate.and_then(|host| host.candidate.take()) {
                Some(link) => self.turn_away(place, link, &lost),
                None => self.lose(place, &lost),
            }
        }
    }

    /// How long the switch may sleep for its hosts.
    pub(crate) fn hosts_limit(&mut self) -> Option<Duration> {
        self.hosts.limit(self.clock.now)
    }

    /// Connections were made, or have ended.
    pub(crate) fn hear_of_hosts(&mut self) {
        for news in self.hosts.news() {
            match news {
                News::Made { host, wire, keys, proven } => {
                    let link = Link::new(wire, keys, proven, self.clock.now);
                    self.made(host, link);
                }
                News::Ended { id, why } => {
                    let with =
                        |link: &Option<Link>| link.as_ref().is_some_and(|one| one.wire.id() == id);
                    let all = self.hosts.all.iter().enumerate();
                    let mut found =
                        all.filter(|(_, host)| with(&host.link) || with(&host.candidate));
                    let Some((place, _)) = found.next() else { continue };
                    // What came before the end is heard first: no more than can be on its way, as
                    // the host may have another connection by now, which goes on.
                    for _ in 0..LAST {
                        if !self.serve_host(place) {
                            break;
                        }
                    }
                    let Some(host) = self.hosts.all.get_mut(place) else { continue };
                    if with(&host.candidate) {
                        if let Some(link) = host.candidate.take() {
                            self.turn_away(place, link, &Lost(why));
                        }
                    } else if with(&host.link) {
                        self.lose(place, &Lost(why));
                    }
                }
                News::Trouble { host, why } => self.trouble(host, why),
                News::Broken(why) => {
                    for place in 0..self.hosts.all.len() {
                        self.lose(place, &Lost(why.clone()));
                        self.trouble(place, why.clone());
                    }
                }
            }
        }
    }

    /// Other hosts, or the same by another secret or address: all connections begin anew.
    pub(crate) fn renew_hosts(&mut self, config: &Config) -> anyhow::Result<()> {
        let old = std::mem::take(&mut self.hosts);
        for host in &old.all {
            self.fdb.forget(host.index);
        }
        self.hosts = old.replaced(config, &self.poller)?;
        self.memory_changed = true;
        Ok(())
    }

    /// A connection is there.
    pub(crate) fn made(&mut self, place: usize, mut link: Link) {
        if let Some(bytes) = self.hosts.config.as_ref().and_then(|config| config.in_place) {
            // What of a frame lies in its front is copied anyway.
            link.in_place = (bytes as usize).saturating_sub(FRONT);
        }
        link.slow = self.hosts.all.get(place).and_then(|host| host.slow);
        let watched = self.poller.watch(link.wire.bell(), Token::Host(place as u32));
        if let Err(errno) = watched {
            self.hosts.close(place, link, &self.poller);
            return self.trouble(place, format!("it cannot be waited for: {errno}"));
        }
        if link.proven {
            return self.adopt(place, link);
        }
        let Some(host) = self.hosts.all.get_mut(place) else { return };
        if let Some(old) = host.candidate.replace(link) {
            self.hosts.close(place, old, &self.poller);
        }
        self.hosts.wake(place, self.clock.now);
    }

    /// A connection whose other end has shown who it is becomes the host's.
    fn adopt(&mut self, place: usize, mut link: Link) {
        let (now, secret) = (self.clock.now, link.is_secret());
        let kept = link.keep(now, &self.hosts.keys);
        let Some(host) = self.hosts.all.get_mut(place) else { return };
        (host.trouble, host.connections) = (None, host.connections + 1);
        let sealed = if secret { "sealed" } else { "open" };
        log!(Info, "host_up", host = host.config.name, messages = sealed);
        if let Some(old) = host.link.replace(link) {
            self.hosts.close(place, old, &self.poller);
        }
        self.hosts.wake(place, now);
        if let Err(lost) = kept {
            self.lose(place, &lost);
        }
    }

    /// Whoever made a connection in a host's name has not shown who it is.
    fn turn_away(&mut self, place: usize, link: Link, why: &Lost) {
        self.hosts.close(place, link, &self.poller);
        let up = self.hosts.all.get(place).is_some_and(|host| host.link.is_some());
        if !up {
            self.trouble(place, why.to_string());
        }
    }

    /// A host is not there any more: what was learned of it is forgotten.
    fn lose(&mut self, place: usize, why: &Lost) {
        let Some(host) = self.hosts.all.get_mut(place) else { return };
        let (index, Some(link)) = (host.index, host.link.take()) else { return };
        host.keys.clear();
        host.trouble = Some(why.to_string());
        log!(Warning, "host_down", host = host.config.name, why = why);
        self.hosts.close(place, link, &self.poller);
        self.fdb.forget(index);
    }

    /// Why a host is not there. It is logged when it is another reason than before.
    fn trouble(&mut self, place: usize, why: String) {
        let Some(host) = self.hosts.all.get_mut(place) else { return };
        let Host { config, trouble, .. } = host;
        if trouble.as_ref() != Some(&why) {
            log!(Warning, "no_host", host = config.name, why = why);
            *trouble = Some(why);
        }
    }
}
