//! What comes from a tap device.

use super::{BUDGET, PER_FRAME};
use crate::poller::Token;
use crate::port::{Link, Port};
use crate::rests::{EXHAUSTED, GONE};
use crate::ring::Slices;
use crate::switch::Switch;
use crate::tap::Tap;
use crate::wire::{HEADER, LONGEST};
use rustix::io::Errno;
use std::time::Instant;

impl Switch {
    /// Takes what a tap device has, up to a budget. It is asked again as long as it has more, and
    /// as its rate allows: what is beyond waits in the device's queue.
    pub(crate) fn serve_tap(&mut self, index: u32) {
        let Some(mut port) = self.ports.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        let mut buffer = std::mem::take(&mut self.scratch.tap);
        buffer.resize(HEADER + LONGEST, 0);
        let mut cost = 0;
        while cost < BUDGET {
            if !self.may_send(&mut port) {
                self.rest_tap(&port, port.resume.unwrap_or(self.clock.now));
                break;
            }
            match take(&port, &mut buffer) {
                Ok(Some(len)) => {
                    let front = buffer.get_mut(..len).unwrap_or_default();
                    cost += PER_FRAME + self.switch(&mut port, 0, front, &Slices::new(), None);
                }
                Ok(None) => break,
                // Epoll reports a device that was deleted again and again.
                Err(errno) => {
                    port.trouble = Some(format!("the device is gone: {errno}"));
                    self.rest_tap(&port, self.clock.now + GONE);
                    break;
                }
            }
        }
        self.scratch.tap = buffer;
        self.ports[index as usize] = Some(port);
        self.tell();
    }

    /// Has a tap device not be looked at for a while.
    fn rest_tap(&mut self, port: &Port, until: Instant) {
        if let Link::Tap(tap) = &port.link {
            self.poller.forget(tap);
            self.rests.add(Token::Tap(port.index), until);
        }
    }

    /// A tap device that rested is looked at again. One that is gone is opened anew, and made if
    /// there is none, as at the start.
    pub(crate) fn watch_tap(&mut self, index: u32) {
        let (poller, now) = (self.poller.clone(), self.clock.now);
        let Some(port) = self.port_mut(index) else { return };
        let (Link::Tap(tap), Some(name)) = (&mut port.link, &port.config.tap) else { return };
        if port.trouble.is_some() {
            match Tap::open(name) {
                Ok(opened) => (*tap, port.trouble) = (opened, None),
                Err(error) => {
                    port.trouble = Some(format!("the device is gone, and cannot be had: {error}"));
                    return self.rests.add(Token::Tap(index), now + GONE);
                }
            }
        }
        // Another port's device may be in this place, which is watched already.
        poller.forget(&*tap);
        if poller.watch(&*tap, Token::Tap(index)).is_err() {
            self.rests.add(Token::Tap(index), now + EXHAUSTED);
        }
    }
}

/// The next frame of a tap device.
fn take(port: &Port, into: &mut [u8]) -> Result<Option<usize>, Errno> {
    match &port.link {
        Link::Tap(tap) => tap.read(into),
        Link::Guest(_) => Ok(None),
    }
}
