//! Receives that were posted, messages that came before them, and which belongs to which.
//!
//! A receive names a sender or takes any, and a tag of which it may ignore bits. Both lists are
//! kept in the order of their coming, so that messages of one sender never pass each other.
//! Messages with tags and those without are apart.

use crate::layout::EndpointId;
use crate::requests::Requests;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// What the caller calls an operation by.
pub type Token = usize;

/// Memory of the caller's, in one piece or several.
#[derive(Debug, Clone, Default)]
pub struct Buffers(SmallVec<[(*mut u8, usize); 1]>);

// SAFETY: addresses, which are used only as who gave them promised, from any thread.
unsafe impl Send for Buffers {}

impl Buffers {
    /// One piece.
    #[must_use]
    #[inline]
    pub fn one(at: *mut u8, len: usize) -> Self {
        Self(SmallVec::from_buf([(at, len)]))
    }

    /// Several.
    #[must_use]
    pub fn of(parts: impl Iterator<Item = (*mut u8, usize)>) -> Self {
        Self(parts.collect())
    }

    /// Bytes in all.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, len)| len).sum()
    }

    /// Is there no byte in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.0.first().map_or(std::ptr::null_mut(), |(at, _)| *at)
    }

    /// At most `len` bytes from byte `from` on, as pieces.
    #[inline]
    pub fn range(&self, from: usize, len: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        let (mut skip, mut left) = (from, len);
        self.0.iter().filter_map(move |&(at, len)| {
            let skipped = skip.min(len);
            skip -= skipped;
            let taken = (len - skipped).min(left);
            left -= taken;
            (taken > 0).then_some((at.wrapping_add(skipped), taken))
        })
    }

    /// All `len` bytes from byte `from` on, where they lie in the first piece.
    #[must_use]
    #[inline]
    pub fn piece(&self, from: usize, len: usize) -> Option<(*mut u8, usize)> {
        let &(at, all) = self.0.first()?;
        (from <= all && len <= all - from).then(|| (at.wrapping_add(from), len))
    }

    /// The same as buffers.
    #[must_use]
    pub fn part(&self, from: usize, len: usize) -> Self {
        Self(self.range(from, len).collect())
    }
}

/// A receive that waits.
#[derive(Debug, Clone)]
pub struct Posted {
    /// Where the message goes.
    pub buffers: Buffers,
    /// Whose; `None`: anybody's.
    pub from: Option<EndpointId>,
    /// Which tag …
    pub tag: u64,
    /// … but for these bits.
    pub ignore: u64,
    /// What the caller calls it by.
    pub token: Token,
    /// The caller wants to hear of its end also where it went well.
    pub report: bool,
    /// It takes messages one after the other, as long as so many bytes are left.
    pub several: Option<usize>,
}

impl Posted {
    #[inline]
    fn takes(&self, from: EndpointId, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.from.is_none_or(|wanted| wanted == from)
    }
}

/// A message whose place is known.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where it goes.
    pub buffers: Buffers,
    /// What the caller calls the receive by.
    pub token: Token,
    /// See [`Posted::report`].
    pub report: bool,
    /// The receive of several messages that it is part of.
    pub several: Option<u64>,
}

/// A message that came before its receive.
#[derive(Debug)]
pub struct Early {
    /// Whose it is.
    pub from: EndpointId,
    /// Its tag.
    pub tag: u64,
    /// Its data for the receiver.
    pub data: Option<u64>,
    /// Its length.
    pub len: usize,
    /// All of it; `None`: it was offered only.
    pub body: Option<Box<[u8]>>,
    /// The sender's request, where that one wants to hear of it.
    pub request: u64,
    /// The sender wants to hear when it has been received.
    pub acknowledge: bool,
    /// The receive that claimed it, if any.
    pub claimed: Option<Token>,
}

impl Early {
    /// Bytes that it takes while it is kept.
    #[must_use]
    pub fn burden(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len()) + size_of::<Self>()
    }
}

/// A receive of several messages.
#[derive(Default)]
struct Several {
    outstanding: usize,
    exhausted: bool,
    /// It was taken back while messages were arriving in its memory.
    cancelled: Option<Posted>,
}

/// What becomes of a receive of several with the end of one of its messages.
#[derive(Debug)]
pub enum After {
    /// More may come.
    More,
    /// No more come, and the buffer is the caller's again.
    Last,
    /// The same, and the caller had taken it back.
    Cancelled(Posted),
}

/// A receive, and where it takes several messages, its number there and how many bytes are used.
type Waiting = (Posted, Option<(u64, usize)>);

/// Both lists, without tags and with.
#[derive(Default)]
pub struct Matching {
    posted: [VecDeque<Waiting>; 2],
    early: [VecDeque<Early>; 2],
    several: Requests<Several>,
}

impl Matching {
    /// A message came, of `len` bytes: its place, if somebody waits for it.
    #[inline]
    pub fn place(&mut self, tagged: bool, from: EndpointId, tag: u64, len: usize) -> Option<Place> {
        let list = &mut self.posted[usize::from(tagged)];
        // Mostly it is the first that takes it: then no other is looked at, and none is moved.
        if let Some((posted, None)) = list.front_mut()
            && posted.takes(from, tag)
        {
            let buffers = std::mem::take(&mut posted.buffers);
            let place =
                Place { buffers, token: posted.token, report: posted.report, several: None };
            list.pop_front();
            return Some(place);
        }
        let at = list.iter().position(|(posted, _)| posted.takes(from, tag))?;
        if list[at].1.is_none() {
            let (posted, _) = list.remove(at)?;
            return Some(Place {
                buffers: posted.buffers,
                token: posted.token,
                report: posted.report,
                several: None,
            });
        }
        self.place_one_of_several(tagged, at, len)
    }

    fn place_one_of_several(&mut self, tagged: bool, at: usize, len: usize) -> Option<Place> {
        let list = &mut self.posted[usize::from(tagged)];
        let (posted, state) = list.get_mut(at)?;
        let ((number, used), least) = (state.as_mut()?, posted.several?);
        let room = posted.buffers.len() - *used;
        let buffers = posted.buffers.part(*used, room.min(len.max(1)));
        *used += buffers.len().min(len);
        let exhausted = posted.buffers.len() - *used < least.max(1);
        let place =
            Place { buffers, token: posted.token, report: posted.report, several: Some(*number) };
        if let Some(several) = self.several.get_mut(*number) {
            several.outstanding += 1;
            several.exhausted = exhausted;
        }
        if exhausted {
            list.remove(at);
        }
        Some(place)
    }

    /// A message of a receive of several is there.
    pub fn ended(&mut self, number: u64) -> After {
        let Some(several) = self.several.get_mut(number) else { return After::More };
        several.outstanding -= 1;
        if !several.exhausted || several.outstanding > 0 {
            return After::More;
        }
        let cancelled = self.several.remove(number).and_then(|several| several.cancelled);
        cancelled.map_or(After::Last, After::Cancelled)
    }

    /// A message came that nobody waits for.
    pub fn keep(&mut self, tagged: bool, early: Early) {
        self.early[usize::from(tagged)].push_back(early);
    }

    /// The first message that this receive would take.
    pub fn find(&mut self, tagged: bool, posted: &Posted) -> Option<&mut Early> {
        self.early[usize::from(tagged)]
            .iter_mut()
            .find(|early| early.claimed.is_none() && posted.takes(early.from, early.tag))
    }

    /// Takes the first message that this receive takes.
    #[inline]
    pub fn take(&mut self, tagged: bool, posted: &Posted) -> Option<Early> {
        let list = &mut self.early[usize::from(tagged)];
        let at = list
            .iter()
            .position(|early| early.claimed.is_none() && posted.takes(early.from, early.tag))?;
        list.remove(at)
    }

    /// Takes the message that was claimed for `token`.
    pub fn take_claimed(&mut self, tagged: bool, token: Token) -> Option<Early> {
        let list = &mut self.early[usize::from(tagged)];
        let at = list.iter().position(|early| early.claimed == Some(token))?;
        list.remove(at)
    }

    /// Posts a receive.
    pub fn post(&mut self, tagged: bool, posted: Posted) {
        let state = posted.several.map(|_| (self.several.insert(Several::default()), 0));
        self.posted[usize::from(tagged)].push_back((posted, state));
    }

    /// Takes a posted receive back: whether it has a tag, and the receive. `None` for that: one of
    /// several whose messages are arriving in its memory, [which ends](After::Cancelled) with them.
    pub fn cancel(&mut self, token: Token) -> Option<(bool, Option<Posted>)> {
        for tagged in [true, false] {
            let list = &mut self.posted[usize::from(tagged)];
            let Some(at) = list.iter().position(|(posted, _)| posted.token == token) else {
                continue;
            };
            let (posted, state) = list.remove(at)?;
            let Some((number, _)) = state else { return Some((tagged, Some(posted))) };
            if let Some(several) = self.several.get_mut(number)
                && several.outstanding > 0
            {
                (several.exhausted, several.cancelled) = (true, Some(posted));
                return Some((tagged, None));
            }
            self.several.remove(number);
            return Some((tagged, Some(posted)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId(1);
    const B: EndpointId = EndpointId(2);

    fn posted(from: Option<EndpointId>, tag: u64, ignore: u64, token: Token) -> Posted {
        Posted {
            buffers: Buffers::default(),
            from,
            tag,
            ignore,
            token,
            report: true,
            several: None,
        }
    }

    fn early(from: EndpointId, tag: u64) -> Early {
        Early {
            from,
            tag,
            data: None,
            len: 0,
            body: None,
            request: 0,
            acknowledge: false,
            claimed: None,
        }
    }

    #[test]
    fn the_first_that_takes_a_message_has_it() {
        let mut matching = Matching::default();
        matching.post(true, posted(Some(B), 7, 0, 1));
        matching.post(true, posted(None, 0x10, 0xf, 2));
        matching.post(true, posted(None, 7, 0, 3));
        let mut token = |from, tag| matching.place(true, from, tag, 0).map(|place| place.token);
        assert_eq!(token(A, 0x1c), Some(2));
        assert_eq!(token(A, 7), Some(3), "the first is for another");
        assert_eq!(token(A, 7), None);
        assert_eq!(token(B, 7), Some(1));
        assert!(matching.place(false, B, 7, 0).is_none(), "without a tag is apart");
    }

    #[test]
    fn early_messages_keep_their_order_and_a_claimed_one_is_its_claimers() {
        let mut matching = Matching::default();
        for (from, tag) in [(A, 1), (B, 1), (A, 1)] {
            matching.keep(true, early(from, tag));
        }
        let any = posted(None, 1, 0, 9);
        matching.find(true, &any).expect("the first").claimed = Some(9);
        assert_eq!(matching.take(true, &any).map(|early| early.from), Some(B));
        assert_eq!(matching.take_claimed(true, 9).map(|early| early.from), Some(A));
        assert_eq!(matching.take(true, &any).map(|early| early.from), Some(A));
        assert!(matching.take(true, &any).is_none());
    }

    #[test]
    fn a_receive_of_several_ends_with_the_last_that_arrives() {
        let mut matching = Matching::default();
        let mut memory = [0u8; 100];
        let buffers = Buffers::one(memory.as_mut_ptr(), memory.len());
        matching.post(false, Posted { buffers, several: Some(30), ..posted(None, 0, 0, 5) });
        let mut place = |len| matching.place(false, A, 0, len);
        let (first, second) = (place(40).expect("room"), place(40).expect("room"));
        assert_eq!(
            (first.buffers.len(), second.buffers.start() as usize),
            (40, memory.as_ptr() as usize + 40)
        );
        assert!(place(1).is_none(), "less than 30 bytes are left");
        let number = first.several.expect("one of several");
        assert!(matches!(matching.ended(number), After::More), "the other is on its way");
        assert!(matches!(matching.ended(number), After::Last));
    }

    #[test]
    fn ranges_cross_pieces() {
        let mut memory = [0u8; 30];
        let at = memory.as_mut_ptr();
        let buffers = Buffers::of(
            [(at, 10), (at.wrapping_add(10), 0), (at.wrapping_add(15), 10)].into_iter(),
        );
        let range = |from, len| {
            buffers.range(from, len).map(|(p, n)| (p as usize - at as usize, n)).collect::<Vec<_>>()
        };
        assert_eq!(range(0, 100), [(0, 10), (15, 10)]);
        assert_eq!(range(8, 4), [(8, 2), (15, 2)]);
        assert_eq!(range(10, 1), [(15, 1)]);
        assert_eq!(range(20, 5), []);
    }
}
