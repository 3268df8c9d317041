//! Memory by name: bytes that several processes and machines share.

use crate::object::{self, Object, Shape};
use crate::raw::Area;
use crate::{Error, Keep, Kind, Result, Segment};
use ginnel_region::PAGE;
use std::sync::atomic::AtomicU64;

/// Memory by name, zeroed when it is made, aligned to 4 KiB.
///
/// Anybody in the segment can write it at any time. So bytes are *copied* in and out, and words are
/// atomic: what a hostile process does there shows in what you read, and nowhere else. A program
/// whose segment was opened as [trusting](crate::Options::trusting) may have the bytes themselves
/// ([`Self::in_place`]).
///
/// The memory stays when its users end, until [`Segment::remove`] or `ginnel rm` takes its name
/// ([`Keep`] says otherwise); it is freed when nobody uses it any more.
///
/// ```
/// # let directory = ginnel::testing::directory();
/// use std::sync::atomic::Ordering;
/// let segment = ginnel::Segment::open("example")?;
/// let memory = ginnel::Memory::create(&segment, "picture", 1 << 20)?;
/// memory.write(4096, b"pixels")?;
/// memory.word(0)?.store(6, Ordering::Release);
///
/// // In another process, container or machine:
/// let memory = ginnel::Memory::open(&segment, "picture")?;
/// let mut pixels = vec![0; memory.word(0)?.load(Ordering::Acquire) as usize];
/// memory.read(4096, &mut pixels)?;
/// assert_eq!(pixels, b"pixels");
/// # drop(directory);
/// # Ok::<(), ginnel::Error>(())
/// ```
pub struct Memory {
    object: Object,
    area: Area,
    trusting: bool,
}

shown! {
    Memory as "Memory": |own| { name: own.name(), len: own.len() };
}

impl Memory {
    /// Makes memory of `size` bytes, at least 1, that keeps its name until it is removed.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::SegmentFull`], [`Error::NoMemory`], [`Error::Name`] and others.
    pub fn create(segment: &Segment, name: &str, size: u64) -> Result<Self> {
        Self::create_keeping(segment, name, size, Keep::UntilRemoved)
    }

    /// As [`Self::create`], for as long as `keep` says.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_keeping(segment: &Segment, name: &str, size: u64, keep: Keep) -> Result<Self> {
        if size == 0 {
            return Err(Error::Invalid { what: "memory has at least 1 byte".to_owned() });
        }
        let shape =
            Shape { kind: Kind::Memory, size, pages: size.div_ceil(PAGE), numbers: [0; 3], keep };
        Self::of(Object::create(segment.inner, name, &shape, |_, _| {})?, segment)
    }

    /// Opens memory that is there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::WrongKind`], [`Error::Corrupt`] and others.
    pub fn open(segment: &Segment, name: &str) -> Result<Self> {
        Self::of(Object::open(segment.inner, name, Kind::Memory)?, segment)
    }

    /// Opens it, or makes it with `size` bytes where it is not there.
    ///
    /// # Errors
    /// [`Error::WrongShape`] where it has another size, else as [`Self::create`] and
    /// [`Self::open`].
    pub fn open_or_create(segment: &Segment, name: &str, size: u64) -> Result<Self> {
        let open = || {
            let memory = Self::open(segment, name)?;
            let (what, is, wanted) = ("size", memory.len() as u64, size);
            if is != wanted {
                return Err(Error::WrongShape { name: name.to_owned(), what, is, wanted });
            }
            Ok(memory)
        };
        object::open_or_create(name, || Self::create(segment, name, size), open)
    }

    fn of(object: Object, segment: &Segment) -> Result<Self> {
        let area = object.body().and_then(|body| body.part(0, object.size as usize));
        let area = area.filter(|area| area.len() > 0).ok_or_else(|| object.corrupt())?;
        Ok(Self { object, area, trusting: segment.is_trusting() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object.name
    }

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.area.len()
    }

    fn check(&self, at: usize, len: usize) -> Result<()> {
        self.object.presence().check()?;
        if at.checked_add(len).is_some_and(|end| end <= self.area.len()) {
            return Ok(());
        }
        let (name, has) = (&self.object.name, self.area.len());
        let what = format!("{len} bytes at {at} do not lie in {name:?}, which has {has}");
        Err(Error::Invalid { what })
    }

    /// Copies bytes out, from `at` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they do not lie in the memory; [`Error::Forked`].
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.check(at, bytes.len())?;
        self.area.copy_out(at, bytes);
        Ok(())
    }

    /// Copies bytes in, from `at` on.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.check(at, bytes.len())?;
        self.area.copy_in(at, bytes);
        Ok(())
    }

    /// The atomic word at `at`, a multiple of 8. It holds what any process of the segment wrote
    /// last.
    ///
    /// # Errors
    /// As [`Self::read`], and where `at` is no multiple of 8.
    pub fn word(&self, at: usize) -> Result<&AtomicU64> {
        self.check(at, 8)?;
        if !at.is_multiple_of(8) {
            return Err(Error::Invalid {
                what: format!("a word begins at a multiple of 8, not {at}"),
            });
        }
        Ok(self.area.word(at))
    }

    /// Where it lies in this process, for as long as this value lives.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.area.as_ptr()
    }

    /// The bytes themselves.
    ///
    /// # Errors
    /// [`Error::NotTrusting`] unless the segment was opened as trusting; [`Error::Forked`].
    ///
    /// # Safety
    /// No process writes them for as long as the reference lives.
    #[expect(unsafe_code, reason = "in place, for those that trust")]
    pub unsafe fn in_place(&self) -> Result<&[u8]> {
        self.trusted()?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.area.bytes() })
    }

    /// The bytes themselves, to be written.
    ///
    /// # Errors
    /// As [`Self::in_place`].
    ///
    /// # Safety
    /// No process reads or writes them for as long as the reference lives.
    #[expect(unsafe_code, reason = "in place, for those that trust")]
    pub unsafe fn in_place_mut(&mut self) -> Result<&mut [u8]> {
        self.trusted()?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.area.bytes_mut() })
    }

    fn trusted(&self) -> Result<()> {
        self.object.presence().check()?;
        if self.trusting { Ok(()) } else { Err(Error::NotTrusting) }
    }

    /// Takes its name away; who uses it goes on using it. False where somebody else did before.
    pub fn remove(&self) -> bool {
        self.object.presence().check().is_ok() && self.object.remove()
    }
}
