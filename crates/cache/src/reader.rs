//! Looking a key up in the cache's memory: no message, no lock, no store.
//!
//! The memory's writer is not trusted. Every place and length is loaded once, checked against what
//! was mapped, and the loaded value is used; bytes are copied to private memory before anything is
//! concluded from them. All loops have an end of their own, so that a writer who changes versions
//! for ever costs a reader [`TRIES`] tries, or [`MOST_COPIED`] words and one item, and a question
//! over the protocol.

use crate::layout::{self, BUCKET_WORDS, Geometry, ITEM_WORDS, Item, Slot, header};
use crate::memory::{View, WORD};
use crate::seq;
use crate::sync::{AtomicU64, Ordering, fence};

/// How often a bucket is tried before the server is asked.
pub const TRIES: usize = if cfg!(loom) { 2 } else { 64 };
/// How many words of items one look copies before it copies no further item: 8 MiB.
pub const MOST_COPIED: usize = 1 << 20;
/// How many words of an item are asked for before its length is known: the processor asks for what
/// follows by itself.
const MOST_AHEAD: usize = 256;

/// What a look into the memory said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The item was there and whole; [`Reader::value`] has its value.
    Hit(Item),
    /// No item of that key was there at some moment of the call.
    Miss,
    /// The memory cannot tell: the server is writing, or has ended, or stands still.
    Unknown,
}

/// One thread's way of reading a cache's memory.
///
/// ```
/// use ginnel_cache::store::{Limits, Put, Store};
/// let limits = Limits { memory: 8 << 20, max_item: 1 << 20, ..Limits::default() };
/// let mut store = Store::private(&limits)?;
/// store.put(&Put::set(b"greeting", b"hello"));
///
/// let mut reader = ginnel_cache::reader::Reader::new(store.view())?;
/// assert!(matches!(reader.look(b"greeting"), ginnel_cache::reader::Look::Hit(_)));
/// assert_eq!(reader.value(), b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    view: View,
    geometry: Geometry,
    /// Where items are copied to; grows to the longest item seen.
    copy: Vec<u8>,
    /// Where the value of the last hit lies in `copy`.
    value: std::ops::Range<usize>,
    /// Words that this look has copied so far.
    copied: usize,
    /// Words of the item that was copied last: the next one may have as many.
    usual: usize,
    pulse: Pulse,
    /// Whether the server's end shows by its silence alone.
    far: bool,
}

impl Reader {
    /// Returns a reader of a server's memory.
    ///
    /// # Errors
    /// What is wrong with the memory, in words.
    pub fn new(view: View) -> Result<Self, &'static str> {
        let geometry = Geometry::read(&view)?;
        let pulse = Pulse::default();
        let (copy, value, copied, usual, far) = (Vec::new(), 0..0, 0, 0, false);
        Ok(Self { view, geometry, copy, value, copied, usual, pulse, far })
    }

    /// Has items believed only while the server's clock goes: in another machine nothing else tells
    /// that it was killed.
    #[must_use]
    pub fn from_afar(self) -> Self {
        Self { far: true, ..self }
    }

    /// Returns the number of the server's start whose memory this is.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.geometry.generation
    }

    /// Returns whether the server whose memory this is has ended.
    #[must_use]
    #[inline]
    pub fn is_over(&self) -> bool {
        self.view.load(header::LIFE, Ordering::Acquire).is_none_or(|word| word & OWNER_DIED != 0)
    }

    /// The server answered a question that was asked at `asked`, in [`seconds`]: it ran since then.
    pub fn was_answered(&mut self, asked: u64) {
        self.pulse.alive = self.pulse.alive.max(Some(asked));
    }

    /// Returns the value of the last hit.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.copy.get(self.value.clone()).unwrap_or_default()
    }

    /// Looks `key` up, and copies its item if there is one.
    #[inline]
    pub fn look(&mut self, key: &[u8]) -> Look {
        self.look_hashed(key, self.geometry.hash(key))
    }

    /// Returns the hash under which `key` is looked up.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.geometry.hash(key)
    }

    /// As [`look`](Self::look), for a caller that has the key's [`hash`](Self::hash) already.
    pub fn look_hashed(&mut self, key: &[u8], hash: u64) -> Look {
        let home = self.geometry.home_of(hash);
        self.copied = 0;
        let mut found = Look::Miss;
        for bucket in home.buckets {
            found = self.look_in(bucket, home.tag, key);
            if found != Look::Miss {
                break;
            }
        }
        // What was seen was so while the server lived: no other can have been asked meanwhile.
        fence(Ordering::Acquire);
        if self.is_over() { Look::Unknown } else { self.unexpired(found) }
    }

    /// Asks for what looking up a key with that hash reads first, for a caller that looks several
    /// keys up: what one of them waits for, the others wait for at the same time.
    #[inline]
    pub fn will_look(&self, hash: u64) {
        let [first, _] = self.geometry.home_of(hash).buckets;
        self.view.will_read(first, BUCKET_WORDS);
    }

    /// Asks for the item that a key with that hash may have, if its bucket is here by now.
    #[inline]
    pub fn will_copy(&self, hash: u64) {
        let home = self.geometry.home_of(hash);
        let slots = self.view.words(home.buckets[0], BUCKET_WORDS).unwrap_or_default();
        let slots = slots.iter().skip(1).map(|slot| slot.load(Ordering::Relaxed));
        for slot in slots.filter_map(Slot::from_word).filter(|slot| slot.tag == home.tag) {
            self.will_copy_from(slot.place);
        }
    }

    /// Its length is not known before its head has come; what is asked for besides does no harm.
    #[inline]
    fn will_copy_from(&self, place: u64) {
        if let Ok(place) = usize::try_from(place) {
            self.view.will_read(place, self.usual.clamp(ITEM_WORDS, MOST_AHEAD));
        }
    }

    /// An expired item is none. One that can expire is only believed while the clock goes, and so
    /// is every item of a server far away.
    fn unexpired(&mut self, found: Look) -> Look {
        let Look::Hit(item) = found else { return found };
        if item.expiry == 0 && !self.far {
            return found;
        }
        let now = self.view.load(header::CLOCK, Ordering::Relaxed).unwrap_or(u64::MAX);
        match (item.is_expired(now), self.pulse.beats(now)) {
            (_, false) => Look::Unknown,
            (true, true) => Look::Miss,
            (false, true) => found,
        }
    }

    fn look_in(&mut self, bucket: usize, tag: u16, key: &[u8]) -> Look {
        for _ in 0..TRIES {
            if let Some(found) = self.try_bucket(bucket, tag, key) {
                return found;
            }
            pause();
        }
        Look::Unknown
    }

    /// Looks into a bucket once; nothing if the writer came between.
    #[inline]
    fn try_bucket(&mut self, bucket: usize, tag: u16, key: &[u8]) -> Option<Look> {
        let words = self.view.words(bucket, BUCKET_WORDS)?;
        let (version, slots) = words.split_first()?;
        let seen = seq::begin(version)?;
        for slot in slots {
            let Some(slot) = Slot::from_word(slot.load(Ordering::Relaxed)) else { continue };
            if slot.tag != tag {
                continue;
            }
            if self.copied > MOST_COPIED {
                return Some(Look::Unknown);
            }
            self.will_copy_from(slot.place);
            let place = (slot.place, key.len());
            let Some(item) = copy_item(&self.view, &self.geometry, place, &mut self.copy) else {
                continue;
            };
            self.usual = item.total_words();
            self.copied += self.usual;
            if !seq::unchanged(version, seen) {
                return None;
            }
            if self.copy.get(..key.len()) == Some(key) {
                self.value = key.len()..key.len() + item.value_len as usize;
                return Some(Look::Hit(item));
            }
        }
        seq::unchanged(version, seen).then_some(Look::Miss)
    }
}

/// Copies key and value of the item at a place, if one with a key of so many bytes can lie there.
#[inline]
fn copy_item(
    view: &View,
    geometry: &Geometry,
    (place, key_len): (u64, usize),
    copy: &mut Vec<u8>,
) -> Option<Item> {
    let place = usize::try_from(place).ok().filter(|&place| place >= geometry.log)?;
    let head = view.words(place, ITEM_WORDS)?;
    let mut words = [0; ITEM_WORDS];
    for (copy, word) in words.iter_mut().zip(head) {
        *copy = word.load(Ordering::Relaxed);
    }
    let item = Item::from_words(words);
    let total = item.total_words();
    if usize::from(item.key_len) != key_len || total > geometry.max_item {
        return None;
    }
    let body = view.words(place + ITEM_WORDS, total - ITEM_WORDS)?;
    if copy.len() < body.len() * WORD {
        copy.resize(body.len() * WORD, 0);
    }
    copy_words(body, copy);
    Some(item)
}

/// Copies words, a cache line's at a time: so many loads without a branch between them are on their
/// way together.
#[inline]
fn copy_words(words: &[AtomicU64], copy: &mut [u8]) {
    const LINE: usize = 8;
    let (lines, rest) = words.as_chunks::<LINE>();
    let (copied, _) = copy.as_chunks_mut::<WORD>();
    let (copied_lines, _) = copied.as_chunks_mut::<LINE>();
    for (copy, line) in copied_lines.iter_mut().zip(lines) {
        *copy = line.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    }
    for (copy, word) in copied.iter_mut().skip(lines.len() * LINE).zip(rest) {
        *copy = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// The bit that the kernel sets in a robust futex's word when its owner ends
/// (`FUTEX_OWNER_DIED` in linux/futex.h), and the server when it closes.
pub const OWNER_DIED: u64 = 0x4000_0000;

#[inline]
fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Whether the server's clock goes: a stopped server expires nothing.
///
/// That the clock has moved since the reader looked last only tells that the server ran after that
/// look, which may be long ago. The server does not write into the memory when it was that it set
/// the clock: containers can have clocks of their own (time_namespaces(7)).
#[derive(Debug, Default)]
struct Pulse {
    clock: u64,
    /// When the clock was looked at last, [`seconds`].
    looked: Option<u64>,
    /// The server is known to have run at this second, or after it.
    alive: Option<u64>,
}

impl Pulse {
    /// For so long the server is believed to run, seconds.
    const PATIENCE: u64 = 3;

    /// Returns whether the server, whose clock says `clock`, has run lately.
    fn beats(&mut self, clock: u64) -> bool {
        let now = seconds();
        if self.clock != clock {
            self.clock = clock;
            self.alive = self.alive.max(self.looked);
        }
        self.looked = Some(now);
        self.alive.is_some_and(|at| now.saturating_sub(at) <= Self::PATIENCE)
    }
}

/// Returns seconds of the clock by which a reader judges whether the server runs.
#[cfg(not(loom))]
#[must_use]
pub fn seconds() -> u64 {
    milliseconds() / 1000
}

/// Returns milliseconds of the same clock.
#[cfg(not(loom))]
#[must_use]
pub fn milliseconds() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::MonotonicCoarse);
    u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap_or(0)
}
/// As the other, in a model without time.
#[cfg(loom)]
#[must_use]
pub fn seconds() -> u64 {
    0
}

const _: () = assert!(layout::MAX_KEY <= u8::MAX as usize, "an item's key length is a byte");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::HEADER_WORDS;
    use crate::store::{Limits, Put, Store};

    /// A writer points every slot of a key's two buckets to one large item of another key.
    #[test]
    fn a_look_copies_a_bounded_number_of_items() {
        let limits = Limits { memory: 16 << 20, max_item: 1 << 20, ..Limits::default() };
        let mut store = Store::private(&limits).expect("memory");
        let _ = store.put(&Put::set(b"other", &[1; 1_000_000]));
        let slots = (HEADER_WORDS..store.view().len())
            .filter(|at| !(at - HEADER_WORDS).is_multiple_of(BUCKET_WORDS));
        let place = slots
            .map(|at| store.view().load(at, Ordering::Relaxed).unwrap_or(0))
            .find_map(Slot::from_word)
            .expect("its slot")
            .place;
        let mut reader = Reader::new(store.view()).expect("an honest header");
        assert_eq!(reader.look(b"money"), Look::Miss);
        let home = reader.geometry.home(b"money");
        for bucket in home.buckets {
            (1..BUCKET_WORDS)
                .for_each(|at| store.forge(bucket + at, Slot { tag: home.tag, place }.to_word()));
        }
        assert_eq!(reader.look(b"money"), Look::Unknown);
        let item = layout::item_words(5, 1_000_000);
        assert!(reader.copied <= MOST_COPIED + item, "{} words of {item}", reader.copied);
    }

    #[test]
    fn a_clock_that_moved_says_nothing_of_when() {
        let mut pulse = Pulse::default();
        assert!(!pulse.beats(70), "nothing is known yet");
        pulse.alive = Some(seconds());
        assert!(pulse.beats(70));
        let long_ago = seconds().saturating_sub(100);
        let mut pulse = Pulse { clock: 70, looked: Some(long_ago), alive: Some(long_ago) };
        assert!(!pulse.beats(75), "it ran at some moment of the hundred seconds");
        assert!(pulse.beats(76), "it ran since the last look");
    }
}
