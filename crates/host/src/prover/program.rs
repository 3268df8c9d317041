//! The iterator's program: for each file of a process that is a TCP socket it writes [`Counts`]
//! into what the reader of the iterator gets.
//!
//! It is 33 instructions, put together here because three of the kernel's structures differ from
//! release to release: where their members lie is looked up in the kernel's own type information.
//! The kernel's verifier looks at each access again, by the same information.

use super::bpf::Instruction;
use super::types::Types;
use anyhow::{Context, Result};
use std::path::Path;

/// Where the kernel shows its type information (`CONFIG_DEBUG_INFO_BTF`).
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// The iterator over the files of processes (`kernel/bpf/task_iter.c`).
const ITERATOR: &str = "bpf_iter_task_file";

/// What the program writes for one socket, in this order and in the processor's byte order
/// (`struct tcp_sock`, `linux/tcp.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The descriptor.
    pub fd: u32,
    /// Sequence number of the first byte that is not acknowledged.
    pub snd_una: u32,
    /// Sequence number that is expected next.
    pub rcv_nxt: u32,
    /// Bytes that were acknowledged (RFC 4898, tcpEStatsAppHCThruOctetsAcked).
    pub bytes_acked: u64,
    /// Bytes that were received (tcpEStatsAppHCThruOctetsReceived).
    pub bytes_received: u64,
    /// Which user namespace owns the socket's network namespace: its inode's number.
    pub owner: u32,
}

impl Counts {
    /// Bytes of it as the program writes it.
    pub const SIZE: usize = 40;

    /// From what the program wrote.
    #[must_use]
    pub fn of_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let long = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        Self {
            fd: word(0),
            snd_una: word(4),
            rcv_nxt: word(8),
            bytes_acked: long(16),
            bytes_received: long(24),
            owner: word(32),
        }
    }
}

/// A program for this kernel.
#[derive(Debug)]
pub struct Program {
    /// What it does.
    pub instructions: Vec<Instruction>,
    /// The number of its iterator's type.
    pub target: u32,
}

/// Where the members of [`Counts`] lie in the kernel's structure, bytes.
struct Places {
    /// In `struct socket`, which is what a file has.
    sk: i16,
    /// In `struct sock`.
    sk_type: i16,
    snd_una: i16,
    rcv_nxt: i16,
    bytes_acked: i16,
    bytes_received: i16,
    /// In `struct sock_common`, with which `struct tcp_sock` begins: its network namespace.
    net: i16,
    /// In `struct net`.
    user_ns: i16,
    /// In `struct user_namespace`: its inode's number.
    inum: i16,
}

/// Makes the program for the kernel whose type information is at `btf`.
///
/// # Errors
/// The file cannot be read, or the kernel knows no such iterator or member.
pub fn make(btf: &Path) -> Result<Program> {
    let bytes = std::fs::read(btf)
        .with_context(|| format!("{}: read the kernel's type information", btf.display()))?;
    let types = Types::new(bytes)
        .with_context(|| format!("{}: not of the form that is known", btf.display()))?;
    let target =
        types.function(ITERATOR).context("this kernel has no iterator over files (Linux 5.8)")?;
    let place = |kind: &str, member: &str| -> Result<i16> {
        let at = types.place(kind, member);
        Ok(i16::try_from(at.with_context(|| {
            format!("this kernel's struct {kind} has no plain member {member}")
        })?)?)
    };
    let places = Places {
        sk: place("socket", "sk")?,
        sk_type: place("sock", "sk_type")?,
        snd_una: place("tcp_sock", "snd_una")?,
        rcv_nxt: place("tcp_sock", "rcv_nxt")?,
        bytes_acked: place("tcp_sock", "bytes_acked")?,
        bytes_received: place("tcp_sock", "bytes_received")?,
        net: place("sock_common", "skc_net")?,
        user_ns: place("net", "user_ns")?,
        inum: place("user_namespace", "ns")? + place("ns_common", "inum")?,
    };
    Ok(Program { instructions: instructions(&places), target })
}

/// `BPF_FUNC_seq_write`, `BPF_FUNC_skc_to_tcp_sock` and `BPF_FUNC_sock_from_file` (`linux/bpf.h`).
const SEQ_WRITE: i32 = 127;
const TO_TCP_SOCK: i32 = 137;
const SOCK_FROM_FILE: i32 = 162;

// Opcodes, as RFC 9669 has them.
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_LONG: u8 = 0x79;
const STORE_WORD: u8 = 0x63;
const STORE_LONG: u8 = 0x7b;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `struct bpf_iter__task_file`: the iterator's state, the thread, the descriptor, the file.
const CONTEXT_META: i16 = 0;
const CONTEXT_FD: i16 = 16;
const CONTEXT_FILE: i16 = 24;

/// A jump to the end, whose way is not known yet.
const TO_THE_END: i16 = i16::MIN;

fn instructions(places: &Places) -> Vec<Instruction> {
    let one = |opcode, destination: u8, source: u8, offset, constant| Instruction {
        opcode,
        registers: source << 4 | destination,
        offset,
        constant,
    };
    let end_if_null = |register| one(JUMP_IF_EQUAL, register, 0, TO_THE_END, 0);
    // Where Counts is put together, below the frame pointer, register 10.
    let counts = -(Counts::SIZE as i16);
    let mut program = vec![
        one(MOVE, 6, 1, 0, 0),
        one(LOAD_LONG, 1, 6, CONTEXT_FILE, 0),
        // At the end of the walk there is no file.
        end_if_null(1),
        one(CALL, 0, 0, 0, SOCK_FROM_FILE),
        // It is no socket; it has none of the network's; it is no stream; it is no TCP socket. The
        // kernel's function only asks for the protocol's number, which a raw socket may have too:
        // what it calls a TCP socket's counts then is other memory.
        end_if_null(0),
        one(LOAD_LONG, 1, 0, places.sk, 0),
        end_if_null(1),
        one(LOAD_HALF, 2, 1, places.sk_type, 0),
        one(JUMP_IF_NOT_EQUAL, 2, 0, TO_THE_END, libc::SOCK_STREAM),
        one(CALL, 0, 0, 0, TO_TCP_SOCK),
        end_if_null(0),
    ];
    for (load, store, from, place, to) in [
        (LOAD_WORD, STORE_WORD, 6, CONTEXT_FD, counts),
        (LOAD_WORD, STORE_WORD, 0, places.snd_una, counts + 4),
        (LOAD_WORD, STORE_LONG, 0, places.rcv_nxt, counts + 8),
        (LOAD_LONG, STORE_LONG, 0, places.bytes_acked, counts + 16),
        (LOAD_LONG, STORE_LONG, 0, places.bytes_received, counts + 24),
    ] {
        program.push(one(load, 1, from, place, 0));
        program.push(one(store, 10, 1, to, 0));
    }
    program.extend([
        // Each of the three is there as long as the socket is.
        one(LOAD_LONG, 1, 0, places.net, 0),
        one(LOAD_LONG, 1, 1, places.user_ns, 0),
        one(LOAD_WORD, 1, 1, places.inum, 0),
        one(STORE_LONG, 10, 1, counts + 32, 0),
        one(LOAD_LONG, 1, 6, CONTEXT_META, 0),
        // struct bpf_iter_meta begins with the file that is written into.
        one(LOAD_LONG, 1, 1, 0, 0),
        one(MOVE, 2, 10, 0, 0),
        one(ADD_CONSTANT, 2, 0, 0, counts.into()),
        one(MOVE_CONSTANT, 3, 0, 0, Counts::SIZE as i32),
        one(CALL, 0, 0, 0, SEQ_WRITE),
        one(MOVE_CONSTANT, 0, 0, 0, 0),
        one(EXIT, 0, 0, 0, 0),
    ]);
    // The end is the last two: what is returned is set.
    let end = program.len() - 2;
    for (at, instruction) in
        program.iter_mut().enumerate().filter(|(_, one)| one.offset == TO_THE_END)
    {
        instruction.offset = (end - at - 1) as i16;
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All jumps lead to the instruction that sets what is returned.
    #[test]
    fn jumps_lead_to_the_end() {
        let program = instructions(&Places {
            sk: 24,
            sk_type: 80,
            snd_una: 8,
            rcv_nxt: 16,
            bytes_acked: 24,
            bytes_received: 32,
            net: 40,
            user_ns: 48,
            inum: 56,
        });
        let jumps = program
            .iter()
            .enumerate()
            .filter(|(_, one)| matches!(one.opcode, JUMP_IF_EQUAL | JUMP_IF_NOT_EQUAL));
        let targets: Vec<usize> = jumps.map(|(at, one)| at + 1 + one.offset as usize).collect();
        assert_eq!(targets, [program.len() - 2; 5]);
    }

    #[test]
    fn counts_are_read_as_they_were_written() {
        let mut bytes = [0; Counts::SIZE];
        for (at, value) in [(0, 9u32), (4, 1), (8, 2)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[16..24].copy_from_slice(&3u64.to_ne_bytes());
        bytes[24..32].copy_from_slice(&4u64.to_ne_bytes());
        bytes[32..36].copy_from_slice(&5u32.to_ne_bytes());
        let expected =
            Counts { fd: 9, snd_una: 1, rcv_nxt: 2, bytes_acked: 3, bytes_received: 4, owner: 5 };
        assert_eq!(Counts::of_bytes(&bytes), expected);
    }
}
