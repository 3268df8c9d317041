//! What there is: the words in the channel, the kernel's two byte queues, and what each end knows
//! privately.
//!
//! Ring offsets are counted from zero and stay below a dozen, so everything is a `u8`. TCP offsets
//! are counted from the byte the reader is to read next, and so may be negative: runs that differ
//! only in what is past are then one.

/// Ring capacity, in bytes. Two is the least that tells "full", "partly read" and "empty" apart.
pub const RING: u8 = 2;
/// What one direction of the kernel holds, sent and not yet read; the FIN needs no room.
const QUEUE: usize = 6;
/// "No byte follows this ring offset" is not yet known.
pub const NO_EOF: u8 = u8::MAX;

/// One place in the kernel's queue. The reader cannot see which it is: only its offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Item {
    /// Nothing (an unused place of [`Queue`]).
    #[default]
    Nothing,
    /// The program's byte number `i`.
    Data(u8),
    /// A wake-up: nobody's data.
    Token,
    /// The end of the direction.
    Fin,
}

/// The kernel's queue of one direction, both hosts' buffers and the wire in one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Queue {
    items: [Item; QUEUE],
    len: u8,
    /// How many of the first places have reached the reader's kernel.
    pub arrived: u8,
}

impl Queue {
    /// How many places are taken.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// The oldest item that the reader's kernel has.
    pub fn front(&self) -> Option<Item> {
        (self.arrived > 0).then(|| self.items[0])
    }

    /// What the reader's FIONREAD says: bytes that have arrived.
    pub fn readable(&self) -> u8 {
        let fin = self.items[..self.arrived as usize].contains(&Item::Fin);
        self.arrived - u8::from(fin)
    }

    /// Whether the FIN has arrived, behind whatever is still unread.
    pub fn fin_arrived(&self) -> bool {
        self.items[..self.arrived as usize].contains(&Item::Fin)
    }

    /// Adds at the writer's end.
    pub fn push(&mut self, item: Item) {
        self.items[self.len as usize] = item;
        self.len += 1;
    }

    /// Takes the oldest item, which must have arrived.
    pub fn pop(&mut self) -> Item {
        assert!(self.arrived > 0, "the model read what had not arrived");
        let item = self.items[0];
        self.items.copy_within(1.., 0);
        self.items[QUEUE - 1] = Item::Nothing;
        self.len -= 1;
        self.arrived -= 1;
        item
    }

    /// Looks at the next item to arrive.
    pub fn next_to_arrive(&self) -> Option<Item> {
        (self.arrived < self.len).then(|| self.items[self.arrived as usize])
    }

    /// Loses what has not arrived: a reset came.
    pub fn drop_in_flight(&mut self) {
        self.items[self.arrived as usize..].fill(Item::Nothing);
        self.len = self.arrived;
    }

    /// Loses one item in flight: it reached a socket that is no more.
    pub fn drop_next(&mut self) {
        let at = self.arrived as usize;
        self.items.copy_within(at + 1.., at);
        self.items[QUEUE - 1] = Item::Nothing;
        self.len -= 1;
    }
}

/// A word in which one end says how it is to be woken: by a token, or by a waiter that the writer
/// cannot ring. (One that it can ring is simpler.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Word {
    /// Nobody sleeps.
    None,
    /// Wake me with one byte over TCP.
    Token,
    /// `want_data` only: a waiter that the writer has no way to ring.
    Unheard,
    /// `want_data` only: nobody is armed, and yet so many tokens are on their way: the writer
    /// downgrades, or could not ring a waiter.
    Promised(u8),
    /// `want_data` only: the reader has closed.
    Closed,
}

/// The last upgrade or downgrade.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    pub tcp: i8,
    pub ring: u8,
}

/// One direction: end `d` writes it, the other reads it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Direction {
    // In the channel, written by the writer (but for the exchanges of `want_space`).
    pub epoch: u8,
    pub up: Record,
    pub down: Record,
    pub tail: u8,
    pub eof: u8,
    pub want_space: Word,
    pub ring: [u8; RING as usize],
    // In the channel, written by the reader (but for the exchanges of `want_data`).
    pub ack: u8,
    pub head: u8,
    pub want_data: Word,
    pub freeze: Option<(u8, u8)>,
    // In the channel, one word of both.
    /// The reader wants no upgrade.
    pub hold: bool,
    /// The writer upgrades, or has.
    pub taken: bool,
    // The writer's own.
    /// The next byte the program will write: also how many it has written.
    pub next: u8,
    pub sent: i8,
    /// Tokens claimed and not yet accepted by the kernel.
    pub owed: u8,
    /// Ring bytes to send again over TCP, after a freeze.
    pub resend: (u8, u8),
    /// The FIN is sent.
    pub shut: bool,
    // The reader's own.
    pub received: i8,
    pub phase: u8,
    /// How many bytes the program has read.
    pub got: u8,
    /// What the kernel has.
    pub queue: Queue,
}

impl Direction {
    /// Moves the zero of TCP offsets to the byte that the reader is to read next. What lies further
    /// back than a frozen ring can reach is one and the same past.
    pub fn count_from_here(&mut self) {
        let past = self.received;
        for offset in [&mut self.sent, &mut self.received, &mut self.up.tcp, &mut self.down.tcp] {
            *offset = (*offset - past).max(-RING.cast_signed());
        }
    }
}

/// Where a writer stands between two steps that others can see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Writing {
    Idle,
    /// `tail` is published, `want_data` not yet looked at. Holds the send lock.
    Published,
    /// A waiter was claimed, and could not be rung. Holds the send lock.
    Unrung,
    /// No hold can come before the upgrade any more; it is not yet published. Holds the send lock.
    Upgrading,
    /// The upgrade is published, `hold` not yet looked at again. Holds the send lock.
    Upgraded,
    /// The downgrade's token is promised; the downgrade to this ring offset is not yet published.
    /// Holds the send lock.
    Downgrading {
        ring: u8,
    },
    /// `eof` is published, the FIN not yet sent. Holds the send lock.
    Ending,
    /// The ring was full and tokens can come: about to arm.
    Full,
    /// Armed, not yet looked again.
    Armed,
    Asleep,
    /// Shut down: no more is written.
    Done,
    /// The kernel said ECONNRESET or EPIPE.
    Broken,
}

/// Where a reader stands between two steps that others can see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reading {
    Idle,
    /// The kernel was asked: so many bytes, a FIN, a reset.
    Looked {
        bytes: u8,
        fin: bool,
        reset: bool,
    },
    /// Only in a mutant: `epoch` was read before the kernel was asked.
    ReadEpoch {
        epoch: u8,
    },
    /// `head` moved, `want_space` not yet looked at.
    HeadMoved,
    /// The ring was empty: about to arm.
    Empty,
    /// Armed, not yet looked again.
    Armed,
    /// Asleep, armed, on the TCP socket.
    Asleep,
    /// Asleep on the TCP socket alone.
    AsleepTcp,
    /// Sent a probe to an end that seems dead; asleep on the TCP socket.
    Probed,
    /// Read end-of-file.
    Eof,
    /// Read ECONNRESET.
    Reset,
    /// Handed to a program without the shim, which reads the bare socket.
    HandedOver,
}

/// How far an end is with closing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Life {
    Open,
    /// `eof` is published.
    Closing,
    /// `want_data` is CLOSED.
    DataClosed,
    /// `want_space` is taken back too; waits for the tokens it was promised.
    Waiting,
    Closed,
    Dead,
}

/// One end: a process with a thread that writes, a thread that reads, and the service thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct End {
    pub writing: Writing,
    pub reading: Reading,
    pub life: Life,
    /// TOKEN was put into `want_data`, and it is not known to be claimed.
    pub armed_data: bool,
    /// TOKEN was put into `want_space`, and it is not known to be claimed.
    pub armed_space: bool,
    /// Tokens known to be claimed, less those that came.
    pub to_come: i8,
    /// Another thread of this end bade the writer look again.
    pub kick: bool,
    /// The kernel's socket was reset.
    pub reset: bool,
    /// A token is left unread on purpose: the program may trust a level-triggered set to report it.
    pub token_kept: bool,
    /// How often this end may still switch of its own will.
    pub upgrades: u8,
    pub downgrades: u8,
    pub freezes: u8,
    /// How often it may still send a token for nothing.
    pub nudges: u8,
}

/// What must never be: the numbers are those of "What must hold".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// 1: bytes lost, doubled or out of order.
    WrongByte,
    /// 1: end-of-file before the last byte, or from a writer that has not ended.
    EarlyEof,
    /// 2: a token handed out as data.
    TokenAsData,
    /// 2: data thrown away as a token.
    DataAsToken,
    /// 5: a close without unread data made the kernel send RST.
    ResetAfterCleanClose,
    /// 5: ECONNRESET though the other end neither died nor closed with unread data.
    ResetForNothing,
}

/// The whole: `dirs[e]` is written by `ends[e]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub dirs: [Direction; 2],
    pub ends: [End; 2],
    pub fault: Option<Fault>,
}
