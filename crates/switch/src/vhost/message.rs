//! Messages of vhost-user: their numbers, and what is in them. Everything is little-endian.

use std::fmt;

/// Bytes of a header: request, flags, size of the payload.
pub const HEADER: usize = 12;
/// The longest payload that this back end takes. The longest that makes sense is a table of eight
/// regions, 264 bytes.
pub const MAX_PAYLOAD: usize = 512;
/// Regions in one table (`VHOST_MEMORY_BASELINE_NREGIONS`).
pub const MAX_TABLE: usize = 8;

/// Version 1 in the header's flags, and what else they say.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// `VHOST_VRING_F_LOG` in the flags of a queue's address.
pub const RING_LOG: u32 = 1;

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// What a front end asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are those of vhost-user.rst, which explains them")]
        pub enum Request { $($(#[$doc])* $name = $number),* }

        impl Request {
            /// All, for tests and fuzzing.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// By its number.
            #[must_use]
            pub fn of(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

requests! {
    GetFeatures = 1, SetFeatures = 2, SetOwner = 3, ResetOwner = 4, SetMemTable = 5,
    SetLogBase = 6, SetLogFd = 7, SetVringNum = 8, SetVringAddr = 9, SetVringBase = 10,
    GetVringBase = 11, SetVringKick = 12, SetVringCall = 13, SetVringErr = 14,
    GetProtocolFeatures = 15, SetProtocolFeatures = 16, GetQueueNum = 17, SetVringEnable = 18,
    SendRarp = 19, NetSetMtu = 20, GetConfig = 24, ResetDevice = 34, GetMaxMemSlots = 36, AddMemReg = 37,
    RemMemReg = 38, SetStatus = 39, GetStatus = 40,
}

/// A message that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Another version, or an answer where a request was due.
    Flags(u32),
    /// No request of that number is known here.
    Unknown(u32),
    /// The payload has another size than such a request has.
    Size(u32),
    /// More descriptors came beside it than such a message has, or fewer.
    Descriptors(usize),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flags(flags) => write!(f, "a message has the flags {flags:#x}"),
            Self::Unknown(number) => write!(f, "request {number} is not known"),
            Self::Size(size) => write!(f, "a payload of {size} bytes does not fit its request"),
            Self::Descriptors(count) => write!(f, "{count} descriptors do not fit their request"),
        }
    }
}

impl std::error::Error for Malformed {}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What is asked for.
    pub request: Request,
    /// An answer is wanted also where the request has none of its own.
    pub need_reply: bool,
    /// Bytes of the payload: at most [`MAX_PAYLOAD`].
    pub size: usize,
}

impl Head {
    /// From the bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: [u8; HEADER]) -> Result<Self, Malformed> {
        let words: [u32; 3] =
            std::array::from_fn(|n| u32::from_le_bytes(std::array::from_fn(|i| bytes[4 * n + i])));
        let [number, flags, size] = words;
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(Malformed::Flags(flags));
        }
        if size as usize > MAX_PAYLOAD {
            return Err(Malformed::Size(size));
        }
        let request = Request::of(number).ok_or(Malformed::Unknown(number))?;
        Ok(Self { request, need_reply: flags & NEED_REPLY != 0, size: size as usize })
    }

    /// The bytes of a request: for those who play the front end.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER] {
        let flags = VERSION | if self.need_reply { NEED_REPLY } else { 0 };
        head(self.request, flags, self.size)
    }
}

fn head(request: Request, flags: u32, size: usize) -> [u8; HEADER] {
    let words = [request as u32, flags, u32::try_from(size).unwrap_or(u32::MAX)];
    let mut bytes = [0; HEADER];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// An answer with this payload.
#[must_use]
pub fn reply(request: Request, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(request, VERSION | REPLY, payload.len()).to_vec();
    bytes.extend(payload);
    bytes
}

/// Takes numbers off a payload.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Of this payload.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let short = Malformed::Size(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        let (bytes, rest) = self.0.split_first_chunk().ok_or(short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// The next four bytes.
    ///
    /// # Errors
    /// [`Malformed::Size`] at the end.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    ///
    /// # Errors
    /// [`Malformed::Size`] at the end.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    /// Is nothing left, as must be?
    ///
    /// # Errors
    /// [`Malformed::Size`] where something is.
    pub fn end(self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(Malformed::Size(u32::try_from(left).unwrap_or(u32::MAX))),
        }
    }
}

/// A payload that is one number.
///
/// # Errors
/// [`Malformed::Size`].
pub fn number(payload: &[u8]) -> Result<u64, Malformed> {
    let mut fields = Fields::new(payload);
    let number = fields.u64()?;
    fields.end().map(|()| number)
}

/// A queue and a number: `struct vhost_vring_state`.
///
/// # Errors
/// [`Malformed::Size`].
pub fn state(payload: &[u8]) -> Result<(u32, u32), Malformed> {
    let mut fields = Fields::new(payload);
    let state = (fields.u32()?, fields.u32()?);
    fields.end().map(|()| state)
}

/// A queue's places: `struct vhost_vring_addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The queue.
    pub index: u32,
    /// [`RING_LOG`].
    pub flags: u32,
    /// Its descriptors, at the front end's address.
    pub descriptors: u64,
    /// Its used ring.
    pub used: u64,
    /// Its available ring.
    pub available: u64,
    /// Its used ring, at the guest's address.
    pub log: u64,
}

impl Addresses {
    /// From a payload.
    ///
    /// # Errors
    /// [`Malformed::Size`].
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(payload);
        let (index, flags) = (fields.u32()?, fields.u32()?);
        let (descriptors, used) = (fields.u64()?, fields.u64()?);
        let (available, log) = (fields.u64()?, fields.u64()?);
        fields.end().map(|()| Self { index, flags, descriptors, used, available, log })
    }
}

/// The answer to GET_CONFIG, whose payload is `asked`: that part of a configuration space. Nothing
/// where it has no such part (vhost-user.rst).
///
/// # Errors
/// [`Malformed::Size`].
pub fn config(asked: &[u8], space: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut fields = Fields::new(asked);
    let (offset, size, _flags) = (fields.u32()? as usize, fields.u32()? as usize, fields.u32()?);
    let part = offset.checked_add(size).and_then(|end| space.get(offset..end));
    let header = asked.get(..12).unwrap_or_default();
    Ok(part.map_or_else(Vec::new, |part| [header, part].concat()))
}

/// A region of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionAt {
    /// Guest physical address.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// The front end's address.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

impl RegionAt {
    fn take(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let (guest, size) = (fields.u64()?, fields.u64()?);
        Ok(Self { guest, size, user: fields.u64()?, offset: fields.u64()? })
    }

    /// From the payload of ADD_MEM_REG and REM_MEM_REG, which begins with padding.
    ///
    /// # Errors
    /// [`Malformed::Size`].
    pub fn single(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(payload);
        fields.u64()?;
        let region = Self::take(&mut fields)?;
        fields.end().map(|()| region)
    }

    /// A whole table: at most [`MAX_TABLE`].
    ///
    /// # Errors
    /// [`Malformed::Size`].
    pub fn table(payload: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut fields = Fields::new(payload);
        let count = fields.u32()?;
        fields.u32()?;
        if count as usize > MAX_TABLE {
            return Err(Malformed::Size(count));
        }
        let regions = (0..count).map(|_| Self::take(&mut fields)).collect::<Result<_, _>>()?;
        // QEMU sends exactly so many; a front end that sends room for more is heard too.
        Ok(regions)
    }
}
