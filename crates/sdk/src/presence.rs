//! This process as others in a segment know it: its party.
//!
//! A party is a page. Its number, and how often it changed hands, name the party in every word that
//! says whose something is. The page lists the objects that the party uses: these are not freed.
//!
//! | offset | what stands in a party's page |
//! |---|---|
//! | 0x08 | process number, a hint for `ginnel ls` |
//! | 0x10, 0x18 | the program's name, a hint too |
//! | 0x400 … | one word for each object that it uses: bit 63, generation (bits 16–44), entry in the table of names (0–15); with bit 62 what [`attached`] says |
//!
//! Whether a party lives is told by a lock on byte *page* of the file `parties` in the segment's
//! directory of wake-ups: the kernel takes it from a process that ends, however it ends. The lock
//! is taken before the page is claimed, so a party without it is dead, without any waiting.
//! Another user's who open the same file have their locks there, too. Processes of members that
//! have no lock there (another machine's, say) are as alive as any process of their member.
//!
//! Nothing waits for the dead: [`Presence::sweep`] frees what they held. Each of its steps is a
//! compare-and-swap from what was seen to what follows, so any number of processes may sweep at
//! once, and one that dies in between is followed by the next.

mod attached;
mod bury;
mod users;

use crate::descriptors::Own as Descriptor;
use crate::neighbour::Neighbour;
use crate::raw::ForkMark;
use crate::{Error, Result};
use ginnel_node::Waiter;
use ginnel_node::life::{LifeLock, open_lives};
use ginnel_region::sys::{self, Fd};
use ginnel_region::{Head, Owner, PAGE, Party, Segment, Use};
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

/// The file of locks beside the segment.
const PARTIES: &CStr = c"parties";
const PID: u64 = 0x08;
const NAME: u64 = 0x10;
const USES: u64 = 0x400;
/// How many objects a page lists.
const MOST_USES: u64 = (PAGE - USES) / 8;
const USED: u64 = 1 << 63;
/// How many pages a process has beside the first: enough for all names of a segment.
const MOST_FURTHER: usize = 5;

/// This process's hold on a segment.
pub(crate) struct Presence {
    pub neighbour: Neighbour,
    /// Empty where the segment had no page for this party: then it looks at objects and removes
    /// them, which is the way out of a full segment, and uses none.
    own: OnceLock<Own>,
    /// The file `parties`, to ask about others.
    parties: Descriptor,
    mark: ForkMark,
    uses: Mutex<Uses>,
}

/// The objects that this process uses.
#[derive(Default)]
struct Uses {
    /// In which page of this process's each stands, and where there, and how many handles it has.
    listed: HashMap<u64, ((Head, u64), u32)>,
    /// Places where none stands.
    free: Vec<(Head, u64)>,
    /// Pages beside the party's own: others know them as parties, which live as long as it does.
    further: Vec<Own>,
}

impl Uses {
    fn add(&mut self, head: Head) {
        self.free.extend((0..MOST_USES).rev().map(|at| (head, at)));
    }
}

/// This process's page.
struct Own {
    head: Head,
    party: Party,
    /// What stands in this word for as long as the page is this process's, and the segment there.
    standing: (&'static AtomicU64, u64),
    life: LifeLock,
}

impl Own {
    #[inline]
    fn stands(&self) -> bool {
        self.standing.0.load(Ordering::Relaxed) == self.standing.1
    }
}

fn use_word(index: u32, generation: u32) -> u64 {
    USED | u64::from(generation) << 16 | u64::from(index)
}

fn party_of(head: Head) -> Party {
    Party::new(head.page(), head.claims())
}

fn open_parties(dir: i32) -> Result<Fd> {
    let failed =
        |errno| Error::System { doing: "open the list of parties beside the segment", errno };
    open_lives(dir, PARTIES).map_err(failed)
}

impl Presence {
    /// Enters this process, or lets it look on where the segment is full.
    pub fn new(neighbour: Neighbour) -> Result<Self> {
        let failed = |errno| Error::System { doing: "enter the segment", errno };
        let mark = ForkMark::new().map_err(failed)?;
        let parties = open_parties(neighbour.wake_dir())?;
        let parties = Descriptor::new(crate::raw::owned(parties.take()));
        let (own, uses) = (OnceLock::new(), Mutex::default());
        let presence = Self { neighbour, own, parties, mark, uses };
        match presence.enter() {
            Ok(()) | Err(Error::SegmentFull { .. } | Error::NoMemory) => {}
            Err(error) => return Err(error),
        }
        presence.sweep();
        Ok(presence)
    }

    /// Makes this process a party, where it is none yet.
    pub fn enter(&self) -> Result<()> {
        self.check()?;
        let mut uses = self.uses.lock().unwrap_or_else(|broken| broken.into_inner());
        if self.own.get().is_some() {
            return Ok(());
        }
        let own = self.claim_own()?;
        uses.add(own.head);
        let _ = self.own.set(own);
        Ok(())
    }

    /// Claims a page for this process, and writes into it whose it is.
    fn claim_own(&self) -> Result<Own> {
        let claimed = match claim(&self.neighbour) {
            // Pages of the dead are free after a look.
            Err(Error::SegmentFull { .. }) => {
                self.sweep();
                claim(&self.neighbour)
            }
            other => other,
        };
        let (head, life) = claimed?;
        let segment = self.segment();
        segment.clear(head.page());
        self.page_word(head, PID).store(sys::pid().into(), Ordering::Relaxed);
        for (at, part) in (0..).zip(program().chunks_exact(8)) {
            let bytes = part.try_into().unwrap_or_default();
            let word = self.page_word(head, NAME + at * 8);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        let head = segment.settle(head).ok_or(Error::Lost)?;
        let (word, stands) = segment.standing(head);
        let standing = (crate::raw::lasting(word), stands);
        Ok(Own { head, party: party_of(head), standing, life })
    }

    pub fn segment(&self) -> &Segment {
        self.neighbour.segment()
    }

    /// This process as a party; one that looks on is nobody.
    #[inline]
    pub fn party(&self) -> Party {
        self.own.get().map_or(Party::new(0, 0), |own| own.party)
    }

    pub fn head(&self) -> Result<Head> {
        self.own.get().map(|own| own.head).ok_or(Error::SegmentFull { bytes: PAGE })
    }

    /// May this process use its handles?
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.mark.is_own() { Ok(()) } else { Err(Error::Forked) }
    }

    /// The same, and is the segment still there, and this party in it?
    #[inline]
    pub fn check_all(&self) -> Result<()> {
        self.check()?;
        // What stands in place of a device that was unplugged holds no such word.
        if self.own.get().is_some_and(Own::stands) { Ok(()) } else { Err(self.why_not()) }
    }

    #[cold]
    fn why_not(&self) -> Error {
        let why = if self.segment().is_gone() {
            Error::Gone
        } else {
            self.head().err().unwrap_or(Error::Lost)
        };
        if matches!(why, Error::Gone | Error::Lost) {
            self.give_up_life();
        }
        why
    }

    /// Gives up this party's life. One whose device was taken out, or whose page is another's, is
    /// dead from here on: what it had is others', also where the device comes back while this
    /// process lives. In a child that is a party itself by now, it is the child's part of its
    /// parent's.
    pub fn give_up_life(&self) {
        self.own.get().into_iter().for_each(|own| own.life.give_up());
        // Who has this list just now, this thread perhaps, asks again before it uses anything. In a
        // child, a thread of the parent's that had it is not here to let it go: pages beside the
        // first then live as long as the child.
        if let Ok(uses) = self.uses.try_lock() {
            uses.further.iter().for_each(|own| own.life.give_up());
        }
    }

    /// The same, for what one may do who only looks on.
    pub fn check_looking(&self) -> Result<()> {
        match self.check_all() {
            Err(Error::SegmentFull { .. }) => Ok(()),
            other => other,
        }
    }

    /// What is wrong, where an object holds nonsense: perhaps it is not there any more.
    pub fn corrupt(&self, name: &str) -> Error {
        self.check_all().err().unwrap_or_else(|| Error::Corrupt { name: name.to_owned() })
    }

    fn head_of(&self, party: Party) -> Option<Head> {
        let head = self.segment().head(party.page())?;
        (head.owner().kind == Use::Party && head.claims() == party.claims()).then_some(head)
    }

    /// Does a party live? One that cannot be asked for does.
    pub fn lives(&self, party: Party) -> bool {
        party == self.party() || self.head_of(party).is_some_and(|head| self.head_lives(head))
    }

    fn head_lives(&self, head: Head) -> bool {
        let member = head.owner().member;
        if member != self.neighbour.member() && !self.neighbour.member_is_beside(member) {
            return self.neighbour.member_lives(member);
        }
        sys::byte_is_shared(self.parties.as_raw_fd(), head.page().into()).unwrap_or(true)
    }

    /// The process number that a party says it has; 0 where it says none.
    pub fn pid_of(&self, party: Party) -> u32 {
        let pid = self.head_of(party).map(|head| self.page_word(head, PID).load(Ordering::Relaxed));
        pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
    }

    fn page_word(&self, head: Head, at: u64) -> &AtomicU64 {
        self.segment().word(u64::from(head.page()) * PAGE + at)
    }

    /// Lists the object of an entry as used by this process, so that it is not freed.
    ///
    /// The word is written first, then the entry looked at again; whoever frees an object takes its
    /// name first, then looks at these words (Dekker, as hazard pointers do: Michael, 2004).
    pub fn start_use(&self, index: u32, generation: u32) -> Result<()> {
        let word = use_word(index, generation);
        self.head()?;
        let mut uses = self.uses.lock().unwrap_or_else(|broken| broken.into_inner());
        if let Some((_, count)) = uses.listed.get_mut(&word) {
            *count += 1;
            return Ok(());
        }
        let place = self.free_place(&mut uses)?;
        self.page_word(place.0, USES + place.1 * 8).store(word, Ordering::Release);
        fence(Ordering::SeqCst);
        uses.listed.insert(word, (place, 1));
        Ok(())
    }

    /// A word of this process's that stands for nothing; of one more page, where there is none
    /// left.
    fn free_place(&self, uses: &mut Uses) -> Result<(Head, u64)> {
        if uses.free.is_empty() {
            if uses.further.len() == MOST_FURTHER {
                return Err(Error::TooManyObjects);
            }
            let own = self.claim_own()?;
            uses.add(own.head);
            uses.further.push(own);
        }
        uses.free.pop().ok_or(Error::TooManyObjects)
    }

    /// Takes it off the list. Frees it, where its name was taken away and nobody else uses it.
    pub fn end_use(&self, index: u32, generation: u32) {
        if self.check_all().is_err() {
            return;
        }
        let word = use_word(index, generation);
        let mut uses = self.uses.lock().unwrap_or_else(|broken| broken.into_inner());
        let Some(((head, at), count)) = uses.listed.get_mut(&word) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let place = (*head, *at);
        self.page_word(place.0, USES + place.1 * 8).store(0, Ordering::Release);
        uses.listed.remove(&word);
        uses.free.push(place);
        drop(uses);
        fence(Ordering::SeqCst);
        self.bury_removed();
    }

    /// Makes a waiter, of a page that was a dead one's where no other is free.
    pub fn waiter(&self) -> Result<Waiter> {
        let full = |error: &ginnel_region::Error| *error == ginnel_region::Error::Full;
        let made = self.neighbour.waiter().or_else(|error| {
            let swept = full(&error).then(|| self.sweep());
            swept.map_or(Err(error), |()| self.neighbour.waiter())
        });
        made.map_err(|error| match error {
            error if full(&error) => {
                self.check_all().err().unwrap_or(Error::SegmentFull { bytes: PAGE })
            }
            error => error.into(),
        })
    }

    /// Every party, and whether it lives.
    fn parties(&self) -> impl Iterator<Item = (Head, bool)> + '_ {
        let heads = self.segment().heads_within_reach();
        let parties = heads.filter(|head| head.owner().kind == Use::Party);
        let own = self.head().ok();
        parties.map(move |head| (head, own == Some(head) || self.head_lives(head)))
    }
}

/// Claims a page whose byte was locked before: one whose byte nobody else has, where there is one.
/// A process that was taken for dead may live on, and have its byte. Who had the same one would
/// count as living for as long as that process does.
fn claim(neighbour: &Neighbour) -> Result<(Head, LifeLock)> {
    let parties = open_parties(neighbour.wake_dir())?;
    let is_anothers = |page: u32| sys::byte_is_shared(parties.0, page.into()) == Ok(true);
    match claim_unless(neighbour, is_anothers) {
        Err(Error::SegmentFull { .. }) => claim_unless(neighbour, |_| false),
        done => done,
    }
}

fn claim_unless(
    neighbour: &Neighbour,
    is_anothers: impl Fn(u32) -> bool,
) -> Result<(Head, LifeLock)> {
    let (segment, mut from) = (neighbour.segment(), 0);
    let owner = Owner::new(neighbour.member(), Use::Party);
    loop {
        let page = segment.free_page(from).ok_or(Error::SegmentFull { bytes: PAGE })?;
        from = page + 1;
        if is_anothers(page) {
            continue;
        }
        let life = LifeLock::new(neighbour.wake_dir(), PARTIES, page.into())
            .map_err(|errno| Error::System { doing: "enter the segment", errno })?;
        match segment.claim_page(page, owner) {
            Ok(head) => return Ok((head, life)),
            Err(ginnel_region::Error::Full) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// This program's name, zero-padded.
fn program() -> [u8; 16] {
    let mut name = [0; 16];
    let text = sys::read_file(c"/proc/self/comm");
    for (to, from) in name.iter_mut().take(15).zip(text.iter().take_while(|&&byte| byte != b'\n')) {
        *to = *from;
    }
    name
}
