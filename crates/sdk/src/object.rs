//! What every named object has in common: how it is made, found and removed. What stands in its
//! first page: [`crate::layout`].
//!
//! It is made in steps, each of which leaves memory that says whose it is (`sweep` in
//! [`crate::presence`] frees what a death between two of them leaves):
//!
//! 1. the name is claimed;
//! 2. pages are claimed as the party's own, and written;
//! 3. the first page becomes the object's head, and the others its group;
//! 4. the name is published.

use crate::joined::Inner;
use crate::layout::{ENTRY, KIND, MAGIC, NUMBERS, PAGES, SIZE, VERSION, stands_in};
use crate::presence::Presence;
use crate::raw::Area;
use crate::{Error, Keep, Kind, Result};
use ginnel_region::names::NameError;
use ginnel_region::{Entry, Extent, Head, Owner, PAGE, Untrusted, Use};
use std::sync::atomic::Ordering;

/// How often a name is looked up anew because it changed meanwhile: an honest one settles at once.
const TRIES: u32 = 100;

/// A name as it is shown: one that is no UTF-8, which another process may have written, with its
/// bytes escaped.
pub(crate) fn shown(name: &[u8]) -> String {
    let text = std::str::from_utf8(name).map(str::to_owned);
    text.unwrap_or_else(|_| name.escape_ascii().to_string())
}

/// Makes an object, or opens the one that is there by now.
pub(crate) fn open_or_create<T>(
    name: &str,
    create: impl Fn() -> Result<T>,
    open: impl Fn() -> Result<T>,
) -> Result<T> {
    for _ in 0..TRIES {
        match create() {
            Err(Error::Taken { .. }) => {}
            other => return other,
        }
        match open() {
            // It went between the two.
            Err(Error::NotFound { .. }) => {}
            other => return other,
        }
    }
    Err(Error::Busy { name: name.to_owned() })
}

/// What an object is to be made with.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub kind: Kind,
    /// Bytes for its users, as `ginnel ls` shows them.
    pub size: u64,
    /// Pages beside the first.
    pub pages: u64,
    pub numbers: [u64; 3],
    pub keep: Keep,
}

/// An object that this process uses.
pub(crate) struct Object {
    pub inner: &'static Inner,
    pub name: String,
    entry: Entry,
    pub head: Head,
    /// Its first page.
    pub words: Area,
    /// What it was made with, copied and checked against nothing but the segment.
    pub size: u64,
    pub pages: u32,
    pub numbers: [u64; 3],
}

fn named(error: NameError, name: &str) -> Error {
    match error {
        NameError::Taken(entry) => {
            Error::Taken { name: name.to_owned(), kind: Kind::of(entry.kind) }
        }
        NameError::Length(len) => Error::Name { len },
        NameError::Full => Error::NamesFull,
        NameError::Busy => Error::Busy { name: name.to_owned() },
        NameError::Lost => Error::Lost,
    }
}

impl Object {
    /// Makes an object. `fill` writes what its kind wants to stand there before anybody finds it.
    pub fn create(
        inner: &'static Inner,
        name: &str,
        shape: &Shape,
        fill: impl FnOnce(Area, Option<Area>),
    ) -> Result<Self> {
        let presence = &inner.presence;
        presence.enter()?;
        presence.check_all()?;
        let names = presence.segment().names();
        let claim =
            || names.claim(name.as_bytes(), presence.party(), |party| presence.lives(party));
        let claim = match claim() {
            // Those of the dead are free after a look at all of them.
            Err(NameError::Full) => {
                presence.sweep();
                claim()
            }
            Err(NameError::Taken(entry))
                if entry.owner.is_some_and(|owner| !presence.lives(owner)) =>
            {
                presence.sweep();
                claim()
            }
            other => other,
        };
        let claim = claim.map_err(|error| named(error, name))?;
        let (index, generation) = claim.parts();
        let made = presence
            .start_use(index, generation)
            .and_then(|()| make(presence, shape, (index, generation), fill));
        let head = match made {
            Ok(head) => head,
            Err(error) => {
                names.withdraw(claim);
                presence.end_use(index, generation);
                return Err(error);
            }
        };
        let owner = (shape.keep == Keep::WithCreator).then(|| presence.party());
        let published = names.publish(claim, shape.kind as u16, head.page(), shape.size, owner);
        let entry = published.map_err(|error| named(error, name)).inspect_err(|_| {
            presence.segment().release_groups(&[head]);
            presence.end_use(index, generation);
        })?;
        Self::attached(inner, entry, head, shape.kind)
    }

    /// Finds an object.
    pub fn open(inner: &'static Inner, name: &str, kind: Kind) -> Result<Self> {
        let presence = &inner.presence;
        presence.enter()?;
        presence.check_all()?;
        let segment = presence.segment();
        let missing = || Error::NotFound { name: name.to_owned() };
        for _ in 0..TRIES {
            let entry = segment.names().find(name.as_bytes()).ok_or_else(missing)?;
            if entry.owner.is_some_and(|owner| !presence.lives(owner)) {
                presence.sweep();
                continue;
            }
            if entry.kind != kind as u16 {
                let is = Kind::of(entry.kind);
                return Err(Error::WrongKind { name: name.to_owned(), is, wanted: kind });
            }
            presence.start_use(entry.index, entry.generation)?;
            // Only now: see `start_use`.
            if !segment.names().is_live(&entry) {
                presence.end_use(entry.index, entry.generation);
                continue;
            }
            let is_it = |head: &Head| {
                let stands = stands_in(segment, *head) == (entry.index, entry.generation);
                head.owner().kind == Use::Object && !head.is_busy() && stands
            };
            let Some(head) = segment.head(entry.page).filter(is_it) else {
                presence.end_use(entry.index, entry.generation);
                return Err(presence.corrupt(name));
            };
            return Self::attached(inner, entry, head, kind);
        }
        Err(Error::Busy { name: name.to_owned() })
    }

    /// Opens what stands in an entry, by that alone; one without a name, too, where `is_used` says
    /// of it that a living process uses it for as long as that asks.
    pub fn open_at(
        inner: &'static Inner,
        entry: Entry,
        kind: Kind,
        is_used: impl FnOnce(&Self) -> bool,
    ) -> Result<Self> {
        let presence = &inner.presence;
        presence.enter()?;
        presence.check_all()?;
        let segment = presence.segment();
        let missing = || Error::NotFound { name: shown(&entry.name) };
        if entry.kind != kind as u16 {
            return Err(missing());
        }
        presence.start_use(entry.index, entry.generation)?;
        let lives = |party| presence.lives(party);
        let (index, generation) = (entry.index, entry.generation);
        let stands = segment.names().stands_for(index, generation, lives);
        let is_it = |head: &Head| {
            head.owner().kind == Use::Object
                && !head.is_busy()
                && stands_in(segment, *head) == (index, generation)
        };
        let head = segment.head(entry.page).filter(is_it).filter(|_| stands);
        let Some(head) = head else {
            presence.end_use(index, generation);
            return Err(missing());
        };
        let object = Self::attached(inner, entry, head, kind)?;
        // Only now: whoever frees it looks at who uses it after its name was taken.
        let stays = segment.names().is_live(&object.entry) || is_used(&object);
        if stays { Ok(object) } else { Err(Error::NotFound { name: object.name.clone() }) }
    }

    /// Its place in the table of names: (entry, generation).
    pub fn place(&self) -> (u32, u32) {
        (self.entry.index, self.entry.generation)
    }

    /// What stands in the table of names for as long as it has its name.
    pub fn name_word(&self) -> u64 {
        self.entry.live_word()
    }

    /// Has it its name still?
    pub fn is_named(&self) -> bool {
        self.presence().segment().names().is_live(&self.entry)
    }

    fn attached(inner: &'static Inner, entry: Entry, head: Head, kind: Kind) -> Result<Self> {
        let presence = &inner.presence;
        let name = shown(&entry.name);
        // What no honest party writes is no version, but nonsense.
        let at = u64::from(head.page()) * PAGE + KIND as u64;
        let theirs = u16::try_from(presence.segment().word(at).load(Ordering::Acquire) >> 16).ok();
        let read = || {
            let words = Area::new(presence.segment(), u64::from(head.page()) * PAGE, PAGE)?;
            let value = |at| Untrusted::new(words.word(at).load(Ordering::Acquire));
            value(0).checked(|&magic| magic == MAGIC).ok()?;
            let wanted = u64::from(kind as u16) | u64::from(theirs.unwrap_or(VERSION)) << 16;
            value(KIND).checked(|&word| word == wanted).ok()?;
            let most = presence.segment().len() / PAGE;
            let pages = u32::try_from(value(PAGES).within(1, most).ok()?).ok()?;
            let size = value(SIZE).at_most(presence.segment().len()).ok()?;
            let numbers = [0, 1, 2].map(|i| words.word(NUMBERS + i * 8).load(Ordering::Relaxed));
            let extent = Extent { page: head.page(), pages };
            let whole = presence.segment().is_of_group(extent, head.page());
            whole.then_some((words, size, pages, numbers))
        };
        let refuse = |error| {
            presence.end_use(entry.index, entry.generation);
            Err(error)
        };
        if let Some(theirs) = theirs.filter(|&theirs| theirs != VERSION) {
            return refuse(Error::Version { name, theirs, ours: VERSION });
        }
        let Some((words, size, pages, numbers)) = read() else {
            return refuse(presence.corrupt(&name));
        };
        Ok(Self { inner, name, entry, head, words, size, pages, numbers })
    }

    pub fn presence(&self) -> &Presence {
        &self.inner.presence
    }

    /// The pages behind the first.
    pub fn body(&self) -> Option<Area> {
        let len = u64::from(self.pages - 1) * PAGE;
        let at = (u64::from(self.head.page()) + 1) * PAGE;
        if len == 0 { None } else { Area::new(self.presence().segment(), at, len) }
    }

    /// Takes its name away: it is freed when nobody uses it any more.
    pub fn remove(&self) -> bool {
        self.presence().segment().names().remove(&self.entry)
    }

    /// Claims pages for the object, zeroed: this party's until they are
    /// [handed over](Self::hand_over).
    pub fn claim(&self, pages: u32) -> Result<Extent> {
        claim(self.presence(), pages)
    }

    /// Makes claimed pages the object's.
    pub fn hand_over(&self, extent: Extent) -> Result<()> {
        let presence = self.presence();
        let handed = presence.segment().hand_over(extent, presence.head()?, self.head);
        handed.map_err(|_| Error::Lost)
    }

    /// Frees pages that were claimed and not handed over.
    pub fn give_up(&self, extent: Extent) {
        if let Ok(party) = self.presence().head() {
            let Extent { page, pages } = extent;
            self.presence().segment().release_if_tagged(page, pages, party.page());
        }
    }

    pub fn corrupt(&self) -> Error {
        self.presence().corrupt(&self.name)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.presence().end_use(self.entry.index, self.entry.generation);
    }
}

/// Claims pages as the party's own, zeroed.
fn claim(presence: &Presence, pages: u32) -> Result<Extent> {
    let segment = presence.segment();
    let head = presence.head()?;
    let owner = Owner { kind: Use::Data, tag: Some(head.page()), ..head.owner() };
    let claim = || segment.claim(pages, owner);
    let claimed = match claim() {
        Err(ginnel_region::Error::Full) => {
            presence.sweep();
            claim()
        }
        other => other,
    };
    let extent = claimed.map_err(|error| match error {
        ginnel_region::Error::Full => Error::SegmentFull { bytes: u64::from(pages) * PAGE },
        error => error.into(),
    })?;
    let area = Area::new(segment, extent.offset(), u64::from(pages) * PAGE);
    area.ok_or(Error::Lost)?.clear();
    Ok(extent)
}

fn make(
    presence: &Presence,
    shape: &Shape,
    (index, generation): (u32, u32),
    fill: impl FnOnce(Area, Option<Area>),
) -> Result<Head> {
    let segment = presence.segment();
    let full = Error::SegmentFull { bytes: shape.pages.saturating_add(1).saturating_mul(PAGE) };
    let pages = shape.pages.checked_add(1).and_then(|pages| u32::try_from(pages).ok());
    let extent = claim(presence, pages.ok_or(full)?)?;
    let words = Area::new(segment, extent.offset(), PAGE).ok_or(Error::Lost)?;
    let put = |at, value| words.word(at).store(value, Ordering::Relaxed);
    put(0, MAGIC);
    put(KIND, u64::from(shape.kind as u16) | u64::from(VERSION) << 16);
    put(ENTRY, u64::from(generation) << 32 | u64::from(index));
    put(SIZE, shape.size);
    put(PAGES, extent.pages.into());
    for (i, &number) in shape.numbers.iter().enumerate() {
        put(NUMBERS + i * 8, number);
    }
    let body = Area::new(segment, extent.offset() + PAGE, shape.pages * PAGE);
    fill(words, body.filter(|body| body.len() > 0));
    let party = presence.head()?;
    let head = segment.promote(extent.page, party).map_err(|_| Error::Lost)?;
    segment.hand_over(extent, party, head).map_err(|_| Error::Lost)?;
    Ok(head)
}
