//! What the two ends say to each other, and how it lies in a queue's message:
//!
//! | bytes | what |
//! |---|---|
//! | from 0 | file data, whole pieces of files (only with [`Message::Data`]) |
//! | after it | a [`Message`], as `postcard` writes it |
//! | the last 4 | the length of that, little-endian |
//!
//! The data stands in front, where a buffer begins at a page, since it is read into it before what
//! says where it belongs. Whoever receives copies the [`Message`] out, once, and checks the copy.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The version of all that is in this file: the two ends must have the same.
pub const VERSION: u32 = 2;
/// How a greeting begins.
pub const MAGIC: [u8; 8] = *b"GINNELCP";
/// Bytes of a [`Message`], at most.
pub const MOST_META: usize = 64 << 10;
/// Entries of a batch, at most.
pub const MOST_ENTRIES: usize = 256;
/// Batches that the receiver has heard of and not finished, at most.
pub const MOST_BATCHES: usize = 16;

/// What a client writes into a server's queue: it has made two queues with this number in their
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// The number of its queues.
    pub id: u64,
}

/// The queue in which a server hears of clients.
#[must_use]
pub fn door(server: &str) -> String {
    format!("cp.{server}")
}

/// A client's queues: to the server, and from it.
#[must_use]
pub fn queues(server: &str, id: u64) -> [String; 2] {
    ["to", "from"].map(|way| format!("cp.{server}.{id:016x}.{way}"))
}

/// What is to be done, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command")]
#[expect(missing_docs, reason = "named as the options are, which docs/cp.md explains")]
pub struct Order {
    pub recursive: bool,
    pub links: bool,
    pub perms: bool,
    pub times: bool,
    pub owner: bool,
    pub group: bool,
    pub numeric_ids: bool,
    pub dry_run: bool,
    pub checksum: bool,
    pub ignore_times: bool,
    pub partial: bool,
    pub inplace: bool,
    pub delete: bool,
    pub fsync: bool,
    pub safe_links: bool,
    pub exclude: Vec<String>,
    /// Bytes of one piece of data, at most.
    pub chunk: u32,
}

/// What the inode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Permission bits.
    pub mode: u32,
    /// Last change of the content: seconds …
    pub mtime: i64,
    /// … and nanoseconds.
    pub nanos: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A line of a listing. Paths are relative to the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A regular file of so many bytes.
    File {
        /// Where.
        path: ByteBuf,
        /// Its attributes.
        meta: Meta,
        /// Bytes.
        size: u64,
    },
    /// A directory.
    Dir {
        /// Where; empty: the destination itself.
        path: ByteBuf,
        /// Its attributes, set when all in it is done.
        meta: Meta,
    },
    /// A symbolic link.
    Link {
        /// Where.
        path: ByteBuf,
        /// Its attributes.
        meta: Meta,
        /// What it says.
        target: ByteBuf,
    },
    /// Something that is left out, and is not to be deleted for it.
    Other {
        /// Where.
        path: ByteBuf,
    },
    /// Everything in a directory was named.
    Listed {
        /// Which directory.
        path: ByteBuf,
        /// It could be read to its end: what was not named is not there.
        whole: bool,
    },
    /// A directory and all below it were sent.
    Left {
        /// Which.
        path: ByteBuf,
        /// Its attributes.
        meta: Meta,
    },
    /// A user's name, before the first entry with its number.
    User(u32, String),
    /// A group's name, likewise.
    Group(u32, String),
}

/// What the receiver has of a file already: the first bytes, and their BLAKE3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Have {
    /// So many bytes.
    pub len: u64,
    /// Their hash.
    pub hash: [u8; 32],
    /// The rest can be added to them; else only the whole will do.
    pub extends: bool,
}

/// Whether an entry's data is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// No.
    Nothing,
    /// All of it.
    Whole,
    /// What is missing, where the hash is right; else all of it.
    Rest(Have),
}

/// What a message of data holds, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A file of the oldest batch begins, or begins anew since it changed.
    Begin {
        /// Which entry.
        entry: u32,
        /// Bytes that the receiver has.
        from: u64,
        /// Bytes of all of it.
        size: u64,
        /// As it is now.
        meta: Meta,
    },
    /// Bytes of it. Between pieces lie holes.
    Bytes {
        /// Where they belong in the file.
        at: u64,
        /// Where they lie in the message.
        pos: u32,
        /// How many.
        len: u32,
    },
    /// It is whole.
    End,
    /// A file cannot be had: what the receiver had is to stay.
    Drop {
        /// Which entry.
        entry: u32,
    },
    /// Nothing more of this batch.
    BatchEnd,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// It is no thing by itself.
    Nothing,
    /// It was there already.
    Same,
    /// It was copied.
    Copied,
    /// Only its attributes were set.
    Attributes,
    /// It was left out: of a kind that was not asked for.
    Skipped,
    /// It failed: a [`Note::Problem`] says why.
    Failed,
}

/// What either end has to say to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// Something was not done.
    Problem {
        /// To what.
        path: ByteBuf,
        /// Why, and the way out.
        text: String,
        /// It was gone before it could be read.
        vanished: bool,
    },
    /// Something was left out, as it is meant to be.
    Skipped {
        /// What.
        path: ByteBuf,
        /// Why.
        text: String,
    },
    /// Something was deleted, or would be.
    Deleted {
        /// What.
        path: ByteBuf,
    },
}

/// All that is said. *Sender* is whose files are read, *receiver* whose are written; either may be
/// the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Server: it is here.
    Welcome {
        /// [`VERSION`].
        version: u32,
        /// It takes files.
        writable: bool,
    },
    /// Client: send me what follows.
    Get(Order),
    /// Client: one thing to be sent.
    Source(ByteBuf),
    /// Client: take what follows.
    Put {
        /// How.
        order: Order,
        /// Where to.
        to: ByteBuf,
    },
    /// Client: all is said.
    Go,
    /// Sender: what follows is one file or link, and nothing else.
    Start {
        /// That.
        single: bool,
    },
    /// Receiver: which directory the destination is, where it is one of a kernel that both may
    /// have.
    Base(Option<[u64; 3]>),
    /// Sender: a batch.
    List {
        /// Its number, from 0 on.
        batch: u32,
        /// What is in it.
        entries: Vec<Entry>,
    },
    /// Receiver: what it wants of a batch, entry by entry.
    Wants {
        /// The batch.
        batch: u32,
        /// What it wants.
        wants: Vec<Want>,
    },
    /// Sender: data.
    Data(Vec<Record>),
    /// Receiver: a batch is done.
    Done {
        /// The batch.
        batch: u32,
        /// What became of each entry.
        actions: Vec<Action>,
    },
    /// Sender: there are no more batches. Receiver: all are done.
    Finish,
    /// Either: something for the user.
    Note(Note),
    /// Either: it works, and takes its time.
    Alive,
    /// Either: it has ended.
    Fail {
        /// As an exit code.
        code: u8,
        /// Why.
        text: String,
    },
}

/// Bytes of it, behind `payload` bytes of data: the message's end.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(message).unwrap_or_default();
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes
}

/// Reads one, which must be all there is.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Message> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

impl Entry {
    /// Its path, where it has one.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Self::File { path, .. } | Self::Dir { path, .. } | Self::Link { path, .. } => path,
            Self::Other { path } | Self::Listed { path, .. } | Self::Left { path, .. } => path,
            Self::User(..) | Self::Group(..) => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let meta = Meta { mode: 0o644, mtime: -1, nanos: 999_999_999, uid: 0, gid: u32::MAX };
        let path = || ByteBuf::from(b"a\xff/\n".to_vec());
        let have = Have { len: 1 << 40, hash: [7; 32], extends: true };
        let messages = [
            Message::Put { order: Order { delete: true, ..Order::default() }, to: path() },
            Message::List {
                batch: 7,
                entries: vec![
                    Entry::File { path: path(), meta, size: u64::MAX },
                    Entry::Link { path: path(), meta, target: path() },
                    Entry::User(3, "ü".into()),
                ],
            },
            Message::Wants { batch: 0, wants: vec![Want::Nothing, Want::Rest(have)] },
            Message::Data(vec![Record::Bytes { at: 1, pos: 2, len: 3 }, Record::BatchEnd]),
        ];
        for message in messages {
            let bytes = encode(&message);
            let (body, len) = bytes.split_at(bytes.len() - 4);
            assert_eq!(len, u32::try_from(body.len()).expect("small").to_le_bytes());
            assert_eq!(decode(body), Some(message));
            assert_eq!(decode(&bytes), None, "nothing follows");
        }
    }

    #[test]
    fn lengths_beyond_what_is_there_are_refused() {
        // A list of 2^32 entries, in six bytes.
        assert_eq!(decode(&[7, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]), None);
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[200]), None);
    }
}
