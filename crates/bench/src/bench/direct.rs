//! Ginnel's ring between two processes, in a segment of their own, without sockets: `ginnel bench`
//! measures it beside the sockets, to tell what these cost above it.
//!
//! It is the rings' own code (positions, copies, the handshake with a sleeper) and the sleepers'
//! FIFOs, and nothing else: one connection for a segment, one process an end, rings of one size.
//! (Programs have named objects for this, `crates/sdk`. A stream of theirs is no measure of the
//! rings: it is made of messages in queues, which have names and outlive deaths.)
//!
//! The page that heads the segment's one group holds, for each direction (0: the client's bytes, 1:
//! the server's), 1 KiB of words:
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0x000 | tail | writer |
//! | 0x040 | 1: the writer will put in no more | writer |
//! | 0x080 | first byte of the ring, its size | server, before the client comes |
//! | 0x0c0 | who waits for room | writer arms, reader claims |
//! | 0x100 | head | reader |
//! | 0x140 | who waits for bytes | reader arms, writer claims |

#[expect(unsafe_code, reason = "bytes are copied into and out of shared memory")]
mod end;

pub use end::End;
use end::{PLACE, RINGS, SIZE, words};
use ginnel_region::{Config, Corrupt, Owner, PAGE, Segment, Untrusted, Use};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A segment that waits for its other end.
pub struct Listener {
    segment: Segment,
    page: u32,
    path: PathBuf,
}

impl Listener {
    /// Makes the segment (a file of this name, best in memory: /dev/shm), two rings of so many
    /// bytes in it, and the FIFOs PATH.up and PATH.down.
    ///
    /// # Errors
    /// Where the file exists or cannot be made, or the size is no power of two from 4 KiB to 1 GiB.
    pub fn bind(path: &Path, ring: u64) -> Result<Self> {
        let ring = Untrusted::new(ring)
            .power_of_two(*RINGS.start(), *RINGS.end())
            .map_err(|Corrupt| Error::new(ErrorKind::InvalidInput, "a ring of this size"))?;
        let config = Config { size: 2 * ring + (16 << 20), ..Config::default() };
        let segment = Segment::create(path, &config).map_err(Error::other)?;
        let head = segment.claim_head(Owner::new(0, Use::Channel)).map_err(Error::other)?;
        segment.clear(head.page());
        let pages = u32::try_from(ring / PAGE).map_err(Error::other)?;
        for number in 0..2 {
            let owner = Owner { tag: Some(head.page()), ..Owner::new(0, Use::Ring) };
            let place = segment.claim(pages, owner).map_err(Error::other)?;
            let words = words(head.page(), number);
            segment.word(words + PLACE).store(place.offset(), Ordering::Relaxed);
            segment.word(words + SIZE).store(ring, Ordering::Relaxed);
        }
        for bell in bells(path) {
            mkfifoat(CWD, bell, Mode::RUSR | Mode::WUSR)?;
        }
        // Who finds the group ready finds it whole: Release here, Acquire in `Segment::owned`.
        let head =
            segment.settle(head).ok_or_else(|| Error::other("the segment is somebody else's"))?;
        Ok(Self { segment, page: head.page(), path: path.to_owned() })
    }

    /// Waits for the other end; then the names go, and what they named stays as long as an end
    /// does.
    ///
    /// # Errors
    /// Those of opening the FIFOs.
    pub fn accept(self) -> Result<End> {
        let [up, down] = bells(&self.path);
        let bell = File::open(&up)?;
        let other = OpenOptions::new().write(true).open(&down)?;
        for name in [&self.path, &up, &down] {
            std::fs::remove_file(name)?;
        }
        End::new(self.segment, self.page, [1, 0], bell, other)
    }
}

/// Joins a segment that a [`Listener`] made.
///
/// # Errors
/// Where there is none, or it is none of a listener.
pub fn connect(path: &Path) -> Result<End> {
    let segment = Segment::open(path).map_err(Error::other)?;
    let made = segment.owned().find(|(page, owner)| {
        owner.kind == Use::Channel && segment.head(*page).is_some_and(|head| head.was_made())
    });
    let (page, _) = made.ok_or_else(|| Error::other("nobody listens in this segment"))?;
    let [up, down] = bells(path);
    let other = OpenOptions::new().write(true).open(up)?;
    let bell = File::open(down)?;
    End::new(segment, page, [0, 1], bell, other)
}

fn bells(path: &Path) -> [PathBuf; 2] {
    ["up", "down"].map(|kind| {
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(kind);
        name.into()
    })
}
