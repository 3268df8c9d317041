//! An Ethernet switch in this process for any number of guests (QEMU's `-netdev stream`: each frame
//! behind its length, 32 bits, big endian). Like a real one it drops frames for a guest that does
//! not take them.

use anyhow::Result;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames that wait for one guest at most.
const QUEUE: usize = 1024;
/// The largest frame: what a card with segmentation offload may hand over.
const LARGEST: u32 = 128 << 10;

type Ports = Arc<Mutex<Vec<(u64, SyncSender<Arc<[u8]>>)>>>;

/// A switch. It ends when it is dropped.
pub struct Switch {
    socket: PathBuf,
    ended: Arc<AtomicBool>,
    ports: Ports,
}

impl Switch {
    /// Serves guests at a socket in `directory`.
    ///
    /// # Errors
    /// Where the socket cannot be made.
    pub fn new(directory: &Path) -> Result<Self> {
        let socket = directory.join("switch");
        let listener = UnixListener::bind(&socket)?;
        let (ports, ended) = (Ports::default(), Arc::new(AtomicBool::new(false)));
        let (end, plugged) = (Arc::clone(&ended), Arc::clone(&ports));
        std::thread::spawn(move || {
            for (id, guest) in (0u64..).zip(listener.incoming()) {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok((mut guest, Ok(mut out))) = guest.map(|guest| {
                    let out = guest.try_clone();
                    (guest, out)
                }) {
                    plug_in(
                        id,
                        move || next(&mut guest),
                        move |frame| out.write_all(frame).is_ok(),
                        &plugged,
                    );
                }
            }
        });
        Ok(Self { socket, ended, ports })
    }

    /// Plugs in a network interface of the host.
    pub(crate) fn plug_tap(&self, tap: File) -> Result<()> {
        let mut input = tap.try_clone()?;
        let out = Mutex::new(tap);
        let sink = move |frame: &[u8]| {
            // The kernel takes a frame with each write, without its length.
            let Some(frame) = frame.get(4..) else { return true };
            // One that it does not take is lost, as on a wire.
            let _ = out.lock().unwrap_or_else(PoisonError::into_inner).write(frame);
            true
        };
        let source = move || {
            let mut frame = vec![0; LARGEST as usize];
            let bytes = input.read(&mut frame).ok().filter(|&bytes| bytes > 0)?;
            Some([&u32::try_from(bytes).ok()?.to_be_bytes()[..], &frame[..bytes]].concat().into())
        };
        plug_in(u64::MAX, source, sink, &self.ports);
        Ok(())
    }

    /// What QEMU takes as its `-netdev`.
    #[must_use]
    pub fn netdev(&self, id: &str) -> String {
        format!("stream,id={id},server=off,addr.type=unix,addr.path={}", self.socket.display())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees that it is over.
        let _ = UnixStream::connect(&self.socket);
    }
}

/// One port: frames come from `source` until it ends, and go into `sink` until it takes no more.
fn plug_in(
    id: u64,
    mut source: impl FnMut() -> Option<Arc<[u8]>> + Send + 'static,
    mut sink: impl FnMut(&[u8]) -> bool + Send + 'static,
    ports: &Ports,
) {
    let (sender, frames) = sync_channel::<Arc<[u8]>>(QUEUE);
    ports.lock().unwrap_or_else(PoisonError::into_inner).push((id, sender));
    std::thread::spawn(move || while frames.recv().is_ok_and(|frame| sink(&frame)) {});
    let ports = Arc::clone(ports);
    std::thread::spawn(move || {
        while let Some(frame) = source() {
            let ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
            for (_, port) in ports.iter().filter(|(other, _)| *other != id) {
                let _ = port.try_send(Arc::clone(&frame));
            }
        }
        ports.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != id);
    });
}

fn next(guest: &mut UnixStream) -> Option<Arc<[u8]>> {
    let mut length = [0; 4];
    guest.read_exact(&mut length).ok()?;
    let bytes = u32::from_be_bytes(length);
    if bytes > LARGEST {
        return None;
    }
    let mut frame = length.to_vec();
    frame.resize(4 + bytes as usize, 0);
    guest.read_exact(frame.get_mut(4..)?).ok()?;
    Some(frame.into())
}
