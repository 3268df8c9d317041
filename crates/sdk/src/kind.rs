//! Kinds of objects, and how long their names stay.

use std::fmt;

/// What a named object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum Kind {
    /// Something that a newer Ginnel made.
    Unknown = 0,
    /// [`crate::Memory`].
    Memory = 1,
    /// [`crate::Sender`] and [`crate::Receiver`].
    Queue = 2,
    /// [`crate::Mutex`].
    Mutex = 3,
    /// [`crate::Semaphore`].
    Semaphore = 4,
    /// [`crate::Event`].
    Event = 5,
    /// [`crate::RwLock`].
    RwLock = 6,
    /// [`crate::Barrier`].
    Barrier = 7,
    /// A System V shared memory segment, of an unmodified program.
    SystemVMemory = 8,
    /// A set of System V semaphores, of an unmodified program.
    SystemVSemaphores = 9,
    /// Something of iceoryx2's, whose memory is this segment (`ginnel-iceoryx2`).
    Iceoryx2 = 10,
}

impl Kind {
    #[doc(hidden)]
    #[must_use]
    pub fn of(number: u16) -> Self {
        match number {
            1 => Self::Memory,
            2 => Self::Queue,
            3 => Self::Mutex,
            4 => Self::Semaphore,
            5 => Self::Event,
            6 => Self::RwLock,
            7 => Self::Barrier,
            8 => Self::SystemVMemory,
            9 => Self::SystemVSemaphores,
            10 => Self::Iceoryx2,
            _ => Self::Unknown,
        }
    }

    /// Its name, as `ginnel ls` shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Memory => "memory",
            Self::Queue => "queue",
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::Event => "event",
            Self::RwLock => "rwlock",
            Self::Barrier => "barrier",
            Self::SystemVMemory => "shm",
            Self::SystemVSemaphores => "sem",
            Self::Iceoryx2 => "iceoryx2",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How long an object keeps its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Keep {
    /// Until it is removed, whoever lives.
    #[default]
    UntilRemoved,
    /// Until the process that made it ends, however it ends. Who uses it then goes on using it.
    WithCreator,
}
