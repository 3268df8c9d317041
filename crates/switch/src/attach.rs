//! Letting front ends in and out: who connects to a port, what it says, and what is undone when it
//! goes.

use crate::log;
use crate::poller::Token;
use crate::port::Link;
use crate::ring::Slices;
use crate::switch::{Sender, Switch};
use crate::vhost::{Connection, Device};
use crate::wire::{ETHERNET, HEADER, Mac};
use std::fmt::Display;
use std::os::fd::OwnedFd;

/// Messages of one front end before others are heard again.
const BURST: usize = 16;

impl Switch {
    /// Somebody connects to a port. One front end has it at a time; another is turned away as long
    /// as the first lives.
    pub(crate) fn accept(&mut self, index: u32) {
        // A front end that died before another came in its place is found gone now.
        self.hear(index);
        let poller = self.poller.clone();
        let Some(port) = self.port_mut(index) else { return };
        let Link::Guest { listener, peer } = &mut port.link else { return };
        let socket = match listener.accept() {
            Ok((socket, _)) => OwnedFd::from(socket),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(error) => {
                // Without descriptors it would be reported again and again.
                log!(Error, "accept", port = port.config.name, why = error);
                std::thread::sleep(std::time::Duration::from_millis(1));
                return;
            }
        };
        if peer.is_some() {
            log!(Warning, "refused", port = port.config.name, why = "the port is taken");
            return;
        }
        if let Err(errno) = poller.watch(&socket, Token::FrontEnd(index)) {
            log!(Error, "refused", port = port.config.name, why = errno);
            return;
        }
        let device = Device::new(index, port.config.pairs, poller);
        *peer = Some((Connection::new(socket), device));
        (port.trouble, port.connections) = (None, port.connections + 1);
        log!(Info, "connected", port = port.config.name);
    }

    /// Hears what a port's front end has sent.
    pub(crate) fn hear(&mut self, index: u32) {
        for _ in 0..BURST {
            let ringer = &self.ringer;
            let port = self.ports.get_mut(index as usize).and_then(Option::as_deref_mut);
            let Some(port) = port else { return };
            let Link::Guest { peer: Some((connection, device)), .. } = &mut port.link else {
                return;
            };
            let message = match connection.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(over) => return self.detach(index, &over),
            };
            let (request, need_reply) = (message.head.request, message.head.need_reply);
            match device.handle(message, ringer) {
                Ok(done) => {
                    let sent = done.reply.map_or(Ok(()), |reply| connection.send(&reply));
                    if let Err(over) = sent {
                        return self.detach(index, &over);
                    }
                    self.relist(index);
                    if let Some(mac) = done.announce {
                        self.announce(index, mac);
                    }
                }
                Err(refusal) => {
                    if let Some(reply) = device.failure(request, need_reply) {
                        // It is let go either way.
                        let _ = connection.send(&reply);
                    }
                    return self.detach(index, &format!("{request:?}: {refusal}"));
                }
            }
        }
    }

    /// A port's front end is served no further: its memory is unmapped, and what was learned of it
    /// is forgotten.
    pub(crate) fn detach(&mut self, index: u32, why: &dyn Display) {
        let poller = self.poller.clone();
        let Some(port) = self.port_mut(index) else { return };
        if let Link::Guest { peer, .. } = &mut port.link
            && let Some((connection, _)) = peer.take()
        {
            // Somebody else may hold the socket too.
            poller.forget(&connection);
            port.trouble = Some(why.to_string());
            log!(Info, "disconnected", port = port.config.name, why = why);
        }
        port.resume = None;
        self.fdb.forget(index);
        self.relist(index);
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
            self.detach(index, &"its memory was cut short while it was in use");
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
        self.switch(&mut port, 0, &mut frame, &Slices::new());
        self.ports[index as usize] = Some(port);
        self.tell();
    }

    /// Is a queue waiting for its rate alone? Then until when at least.
    pub(crate) fn resumes(&self, sender: Sender) -> Option<std::time::Instant> {
        self.port(sender.port)?.resume.filter(|&resume| resume > self.clock.now)
    }
}
