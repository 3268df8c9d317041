//! Letting front ends in and out: who connects to a port, what it says, and what is undone when it
//! goes.

use crate::poller::Token;
use crate::port::{Link, Port};
use crate::rests::EXHAUSTED;
use crate::ring::Slices;
use crate::seat::{Accepted, Heard};
use crate::switch::{Sender, Switch};
use crate::vhost::Device;
use crate::vhost::connection::Over;
use crate::wire::{ETHERNET, HEADER, Mac};

/// Messages of one front end before others are heard again.
const BURST: usize = 16;

impl Switch {
    /// Somebody connects to a port.
    pub(crate) fn accept(&mut self, index: u32) {
        // A front end that died before another came in its place is found gone now, however much it
        // had said, and whatever that waits for.
        self.hear(index);
        let deserted = |port: &Port| matches!(&port.link, Link::Guest(seat) if seat.is_deserted());
        if self.port(index).is_some_and(deserted) {
            self.detach(index, &Over::Closed.to_string());
        }
        let (poller, now) = (self.poller.clone(), self.clock.now);
        let Some(port) = self.port_mut(index) else { return };
        let Link::Guest(seat) = &mut port.link else { return };
        match seat.accept(&poller) {
            Accepted::Seated => (port.trouble, port.connections) = (None, port.connections + 1),
            Accepted::Nobody => {}
            Accepted::Later(pause) => self.rests.add(Token::Listen(index), now + pause),
        }
    }

    /// Hears what a port's front end has sent.
    pub(crate) fn hear(&mut self, index: u32) {
        for _ in 0..BURST {
            let port = self.ports.get_mut(index as usize).and_then(Option::as_deref_mut);
            let Some(Link::Guest(seat)) = port.map(|port| &mut port.link) else { return };
            match seat.hear(&self.poller, &self.ringer) {
                Heard::Nothing => return,
                Heard::Changed(done) => {
                    self.relist(index);
                    if let Some(mac) = done.announce {
                        self.announce(index, mac);
                    }
                }
                Heard::Over(why) => return self.detach(index, &why),
                Heard::Later(pause) => {
                    return self.rests.add(Token::FrontEnd(index), self.clock.now + pause);
                }
            }
        }
    }

    /// A port's front end is served no further: its memory is unmapped, and what was learned of it
    /// is forgotten.
    pub(crate) fn detach(&mut self, index: u32, why: &str) {
        let poller = self.poller.clone();
        let Some(port) = self.port_mut(index) else { return };
        if let Link::Guest(seat) = &mut port.link
            && seat.leave(&poller, why)
        {
            port.trouble = Some(why.into());
        }
        port.resume = None;
        self.fdb.forget(index);
        self.relist(index);
    }

    /// What rested is watched again.
    pub(crate) fn watch(&mut self, what: Token) {
        if let Token::Tap(index) = what {
            return self.watch_tap(index);
        }
        let (Token::Listen(index) | Token::FrontEnd(index)) = what else { return };
        let Some(Link::Guest(seat)) = self.port(index).map(|port| &port.link) else { return };
        if !seat.watch(&self.poller, what) {
            self.rests.add(what, self.clock.now + EXHAUSTED);
        } else if let Token::FrontEnd(index) = what {
            // What it has said already is not reported again.
            self.tell();
            self.hear(index);
        }
    }

    /// Lets those ports go whose memory was cut short under the switch.
    pub(crate) fn look_for_cuts(&mut self) {
        let cuts = crate::ring::cuts();
        if cuts == self.cuts {
            return;
        }
        self.cuts = cuts;
        let is_cut = |device: &Device| device.memory.is_cut();
        let cut = self.ports().filter(|port| port.device().is_some_and(is_cut));
        for index in cut.map(|port| port.index).collect::<Vec<_>>() {
            self.detach(index, "its memory was cut short while it was in use");
        }
    }

    /// Tells everybody in the segment that an address is here now: a guest was moved that cannot
    /// say so itself (vhost-user, SEND_RARP; RFC 903).
    fn announce(&mut self, index: u32, mac: Mac) {
        let Some(mut port) = self.ports.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        let mut frame = [0; HEADER + 60];
        let rarp = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
        frame[HEADER..HEADER + 6].copy_from_slice(&[0xff; 6]);
        frame[HEADER + 6..HEADER + 12].copy_from_slice(&mac);
        frame[HEADER + 12..HEADER + 12 + rarp.len()].copy_from_slice(&rarp);
        frame[HEADER + ETHERNET + 8..HEADER + ETHERNET + 14].copy_from_slice(&mac);
        frame[HEADER + ETHERNET + 18..HEADER + ETHERNET + 24].copy_from_slice(&mac);
        self.switch(&mut port, 0, &mut frame, &Slices::new(), None);
        self.ports[index as usize] = Some(port);
        self.tell();
    }

    /// Is a queue waiting for its rate alone? Then until when at least.
    pub(crate) fn resumes(&self, sender: Sender) -> Option<std::time::Instant> {
        self.port(sender.port)?.resume.filter(|&resume| resume > self.clock.now)
    }
}
