//! Who owns a page of a segment and what for: the owner word, and what is read from it.

use crate::PAGE;
use crate::header::MAX_SIZE;

pub(crate) const MADE: u64 = 1 << 63;
pub(crate) const USED: u64 = 1 << 62;
pub(crate) const BUSY: u64 = 1 << 61;
const KIND_AT: u32 = 57;
const KINDS: u64 = 0xf;
const CLAIM: u64 = 1 << 42;
pub(crate) const CLAIMS: u64 = 0x7fff << 42;
const MEMBER_AT: u32 = 28;
const MEMBERS: u64 = 0x3fff;
const TAG: u64 = (1 << MEMBER_AT) - 1;

const _: () = assert!(MAX_SIZE / PAGE - 1 <= TAG);

crate::numbered! {
    /// What claimed pages are for. Four bits of the owner word: a value that this version does not
    /// know is somebody's page, which is left alone.
    pub enum Use: u8 {
        /// A channel's header; its tag is its own page.
        Channel = 1,
        /// A ring's bytes; its tag is the channel's page, or the endpoint's.
        Ring = 2,
        /// A waiter: the flags by which a sleeper is found; its tag is its own page.
        Waiter = 3,
        /// A process that uses named objects; its tag is its own page.
        Party = 4,
        /// The first page of a named object; its tag is its own page.
        Object = 5,
        /// Further pages of a named object, whose page is their tag; or, while the object is being
        /// made, of the party that makes it.
        Data = 6,
        /// What endpoints of messages between many processes have (`ginnel_fabric`): an endpoint, a
        /// ring from one to another, memory that they use directly. The page's first word says
        /// which; its tag is its own page.
        Endpoint = 7,
    }
}

impl Use {
    pub(crate) fn of(word: u64) -> Option<Self> {
        Self::numbered(((word >> KIND_AT) & KINDS) as u8)
    }

    /// Does a page of this use head a group, rather than belong to another page's?
    #[must_use]
    pub fn heads(self) -> bool {
        !matches!(self, Self::Ring | Self::Data)
    }
}

/// Who owns pages and what for. Layout of the owner word: bit 63 was made, bit 62 used, bit 61
/// being made or freed (both of a page that heads a group), bits 57–60 use, bits 42–56 how often
/// the page changed hands, bits 28–41 member, bits 0–27 tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The member of the segment (see `ginnel_node`), 0 … 16383.
    pub member: u16,
    /// What the pages are for.
    pub kind: Use,
    /// The page that heads the group these pages are freed with; `None`: their own first page.
    pub tag: Option<u32>,
}

impl Owner {
    /// Pages that head their own group.
    #[must_use]
    pub fn new(member: u16, kind: Use) -> Self {
        Self { member, kind, tag: None }
    }

    /// The word of a page that is claimed now, whose word was `old`.
    pub(crate) fn word(self, first: u32, old: u64) -> u64 {
        let busy = if self.kind.heads() { BUSY } else { 0 };
        busy | self.bits(first) | next_claim(old)
    }

    /// The word without what tells how often the page changed hands.
    pub(crate) fn bits(self, first: u32) -> u64 {
        let tag = u64::from(self.tag.unwrap_or(first)) & TAG;
        USED | (self.kind as u64) << KIND_AT | (u64::from(self.member) & MEMBERS) << MEMBER_AT | tag
    }

    pub(crate) fn of(word: u64) -> Option<Self> {
        let kind = Use::of(word)?;
        if word & USED == 0 {
            return None;
        }
        Some(Self {
            member: (word >> MEMBER_AT & MEMBERS) as u16,
            kind,
            tag: Some((word & TAG) as u32),
        })
    }
}

pub(crate) fn next_claim(word: u64) -> u64 {
    (word & CLAIMS).wrapping_add(CLAIM) & CLAIMS
}

/// How often the page changed hands, modulo 32768.
pub(crate) fn claims(word: u64) -> u16 {
    u16::try_from((word & CLAIMS) / CLAIM).unwrap_or(0)
}

/// The word of a page that is nobody's any more.
pub(crate) fn freed(word: u64) -> u64 {
    word & CLAIMS
}

/// A page that heads a group, as it was seen: no longer what it was once it changed hands, even for
/// the same use by the same member.
///
/// It is busy from its claim until its maker has it [ready](Segment::settle), and again from when
/// somebody [takes](Segment::take) it to free the group, or a part: only who made it busy goes on.
/// Where that process died, another may take it from there, who has seen it so for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub(crate) page: u32,
    pub(crate) word: u64,
    pub(crate) owner: Owner,
}

impl Head {
    /// Its number.
    #[must_use]
    pub fn page(self) -> u32 {
        self.page
    }

    /// Whose it is, and what for.
    #[must_use]
    pub fn owner(self) -> Owner {
        self.owner
    }

    /// Its number, and a word that is another once it changed.
    #[must_use]
    pub fn parts(self) -> (u32, u64) {
        (self.page, self.word)
    }

    /// How often its page changed hands, modulo 32768: together with its number it names this use
    /// of it.
    #[must_use]
    pub fn claims(self) -> u16 {
        claims(self.word)
    }

    /// Is somebody making or freeing it?
    #[must_use]
    pub fn is_busy(self) -> bool {
        self.word & BUSY != 0
    }

    /// Was it ready at any time since its claim?
    #[must_use]
    pub fn was_made(self) -> bool {
        self.word & MADE != 0
    }
}

/// Claimed pages, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of the first page, from the segment's start.
    pub page: u32,
    /// How many.
    pub pages: u32,
}

impl Extent {
    /// Bytes from the segment's start.
    #[must_use]
    pub fn offset(self) -> u64 {
        u64::from(self.page) * PAGE
    }
}
