//! The way to another endpoint: made when it is first needed, and where frames wait that find no
//! room.

use super::{Endpoint, Tuning};
use crate::Error;
use crate::frame::{Frame, WORDS};
use crate::layout::EndpointId;
use crate::matching::Buffers;
use crate::node::Node;
use crate::pair::Writer;
use ginnel_region::{Corrupt, sys};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// So long an answer waits for an endpoint that hears no more, nanoseconds.
const UNHEARD: u64 = if cfg!(test) { 300_000_000 } else { 10_000_000_000 };
/// The exit status then (`EX_SOFTWARE` of sysexits.h).
const SOFTWARE: i32 = 70;

/// Where frames to another endpoint go.
pub(super) struct Outgoing {
    pub id: EndpointId,
    pub writer: Option<Writer>,
    /// Frames that had no room.
    pub outbox: VecDeque<(Frame, SmallVec<[u8; 32]>)>,
    pub gone: bool,
    /// The owner has named it: it is no stranger.
    pub known: bool,
    /// Since when answers wait, as it hears no more; nanoseconds of the monotonic clock.
    pub unheard: Option<u64>,
    /// Bytes of its messages that are kept, as nobody waited for them.
    pub kept: usize,
}

impl Outgoing {
    pub fn new(id: EndpointId) -> Self {
        Self {
            id,
            writer: None,
            outbox: VecDeque::new(),
            gone: false,
            known: false,
            unheard: None,
            kept: 0,
        }
    }

    /// Puts a frame whose payload is these buffers' `len` bytes from `from` on. Refused where this
    /// end is not connected.
    #[inline]
    pub fn put(
        &mut self,
        node: &Node,
        frame: &Frame,
        prefix: &[u8],
        buffers: &Buffers,
        from: usize,
        len: usize,
    ) -> Result<bool, Corrupt> {
        let writer = self.writer.as_mut().ok_or(Corrupt)?;
        if prefix.is_empty()
            && let Some((at, len)) = buffers.piece(from, len)
        {
            let part = std::iter::once((at.cast_const(), len));
            // SAFETY: as below.
            let done = unsafe { writer.put(node.segment(), frame, len, part) };
            return self.put_so(node, done);
        }
        let prefix_part = (!prefix.is_empty()).then_some((prefix.as_ptr(), prefix.len()));
        let parts = prefix_part
            .into_iter()
            .chain(buffers.range(from, len).map(|(at, len)| (at.cast_const(), len)));
        // SAFETY: who asked for the operation promised that the buffers are readable until it ends,
        // and the callers here that they have `len` bytes from `from` on, within `most`.
        let done = unsafe { writer.put(node.segment(), frame, prefix.len() + len, parts) };
        self.put_so(node, done)
    }

    /// One that hears no more waits for an answer, and may for ever: the owner cannot be told, who
    /// may have asked for nothing. So the process ends once that has lasted, and its launcher ends
    /// the job.
    #[cold]
    fn wait_to_be_heard(&mut self, why: Error) {
        if why != Error::TooMany {
            self.unheard = None;
            return;
        }
        let now = sys::monotonic_ns();
        if now - *self.unheard.get_or_insert(now) > UNHEARD {
            eprintln!(
                "ginnel: another rank waits for this one's answer and hears no more: this rank ends"
            );
            // SAFETY: no memory is passed. Nothing else is to run: what the program would do at its
            // end may wait for others.
            unsafe { libc::_exit(SOFTWARE) };
        }
    }

    /// Wakes the reader of a frame that was put; a reader whose count makes no sense is gone.
    #[inline]
    fn put_so(&mut self, node: &Node, done: Result<bool, Corrupt>) -> Result<bool, Corrupt> {
        match done {
            Ok(true) => node.wake(self.id),
            Ok(false) => {}
            Err(Corrupt) => self.gone = true,
        }
        done
    }
}

impl Endpoint {
    /// The number by which this endpoint calls another one from here on.
    pub fn peer(&mut self, id: EndpointId) -> u32 {
        let peer = self.peer_of(id);
        self.out[peer as usize].known = true;
        peer
    }

    pub(super) fn peer_of(&mut self, id: EndpointId) -> u32 {
        *self.out_of.entry(id).or_insert_with(|| {
            self.out.push(Outgoing::new(id));
            self.out.len() as u32 - 1
        })
    }

    /// Makes the way to a peer where there is none yet, and looks whether it may be used now.
    #[inline]
    pub(super) fn ready(&mut self, to: u32) -> Result<(), Error> {
        let out = self.out.get(to as usize).ok_or(Error::Invalid)?;
        if out.gone {
            return Err(Error::Gone);
        }
        if out.writer.is_none() {
            return self.connect(to);
        }
        if out.outbox.is_empty() { Ok(()) } else { Err(Error::Again) }
    }

    #[cold]
    pub(super) fn connect(&mut self, to: u32) -> Result<(), Error> {
        let guard = self.node.guard()?;
        let out = &mut self.out[to as usize];
        let writer = Writer::connect(&guard, &self.node, out.id, self.tuning.ring);
        out.gone = writer.as_ref().err() == Some(&Error::Gone);
        let mut writer = writer?;
        writer_is_sound(&mut writer, self.tuning);
        out.writer = Some(writer);
        self.idle.set_crowded(self.node.is_crowded());
        Ok(())
    }

    /// Puts a short frame to a peer, now or as soon as there is room.
    pub(super) fn tell(&mut self, to: u32, frame: Frame, payload: &[u8]) {
        let ready = self.ready(to);
        let Some(out) = self.out.get_mut(to as usize) else { return };
        if ready.is_ok()
            && out.put(&self.node, &frame, payload, &Buffers::default(), 0, 0) == Ok(true)
            || out.gone
        {
            return;
        }
        self.untold += usize::from(out.outbox.is_empty());
        out.outbox.push_back((frame, SmallVec::from_slice(payload)));
    }

    /// Puts what had no room before.
    pub(super) fn tell_again(&mut self) {
        for to in 0..self.out.len() as u32 {
            let out = &self.out[to as usize];
            if out.outbox.is_empty() {
                continue;
            }
            if out.writer.is_none() && !out.gone {
                match self.connect(to) {
                    Ok(()) | Err(Error::Gone) => {}
                    Err(error) => {
                        // There is no room for a ring so far: what waits for it is not lost.
                        self.out[to as usize].wait_to_be_heard(error);
                        continue;
                    }
                }
            }
            let (node, out) = (&self.node, &mut self.out[to as usize]);
            while let Some((frame, payload)) = out.outbox.pop_front() {
                if !out.gone
                    && out.put(node, &frame, &payload, &Buffers::default(), 0, 0) == Ok(false)
                {
                    out.outbox.push_front((frame, payload));
                    break;
                }
            }
            self.untold -= usize::from(self.out[to as usize].outbox.is_empty());
        }
    }

    /// Puts a piece of registered memory.
    pub(super) fn put_piece(
        &mut self,
        to: u32,
        frame: &Frame,
        buffers: &Buffers,
        len: usize,
    ) -> Result<bool, Corrupt> {
        match self.ready(to) {
            Ok(()) => self.out[to as usize].put(&self.node, frame, &[], buffers, 0, len),
            Err(Error::Gone) => Err(Corrupt),
            Err(_) => Ok(false),
        }
    }
}

fn writer_is_sound(writer: &mut Writer, tuning: Tuning) {
    debug_assert!(writer.most() >= tuning.eager.min(tuning.ring as usize / 2 - 2 * WORDS));
}
