//! What comes from a tap device.

use crate::port::Link;
use crate::ring::Slices;
use crate::switch::Switch;
use crate::wire::{HEADER, LONGEST};

/// Frames that are taken from a tap device in one turn.
const TAP_BURST: usize = 32;

impl Switch {
    /// Takes what a tap device has. It is asked again as long as it has more.
    pub(crate) fn serve_tap(&mut self, index: u32) {
        let Some(mut port) = self.ports.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        let mut buffer = std::mem::take(&mut self.scratch.tap);
        buffer.resize(HEADER + LONGEST, 0);
        for _ in 0..TAP_BURST {
            let read = match &port.link {
                Link::Tap(tap) => tap.read(&mut buffer),
                Link::Guest(_) => break,
            };
            match read {
                Ok(Some(len)) => {
                    if let Some(front) = buffer.get_mut(..len) {
                        self.switch(&mut port, 0, front, &Slices::new(), None);
                    }
                }
                Ok(None) => break,
                Err(errno) => {
                    port.trouble = Some(errno.to_string());
                    break;
                }
            }
        }
        self.scratch.tap = buffer;
        self.ports[index as usize] = Some(port);
        self.tell();
    }
}
