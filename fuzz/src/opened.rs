//! `ginnel-switch`'s other hosts: messages, opened, with lengths at and beyond what they may be.

use crate::Bytes;
use crate::fence::Fenced;
use ginnel_switch::hosts::handshake::Keys;
use ginnel_switch::hosts::message::{HEAD, MAX_KEYS, Message, RECORD, Seals};
use ginnel_switch::wire::{ETHERNET, HEADER, LONGEST, MESSAGE};
use std::ops::Range;

/// Where the kind of a message is, how many parts it has, and its number.
const KIND: usize = 32;
const COUNT: usize = 36;
const NUMBER: usize = 40;

/// What a message says: keys, or frames with their segments and where each is, behind its header.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Alive(Vec<u32>),
    Frames(Vec<(u32, Range<usize>)>),
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*message.get(at..)?.first_chunk()?))
}

/// The same as is written at the head of `message.rs`, a second time.
fn said(message: &[u8], number: u64) -> Option<Said> {
    let (kind, count) = (word(message, KIND)?, word(message, COUNT)? as usize);
    let [low, high] = [NUMBER, NUMBER + 4].map(|at| word(message, at));
    if u64::from(low?) | u64::from(high?) << 32 != number {
        return None;
    }
    let mut at = HEAD;
    match kind {
        1 if count <= MAX_KEYS && message.len() == HEAD + 4 * count => {
            Some(Said::Alive((0..count).filter_map(|n| word(message, HEAD + 4 * n)).collect()))
        }
        2 => {
            let mut frames = Vec::new();
            for _ in 0..count {
                let (key, len) = (word(message, at)?, word(message, at + 4)? as usize);
                let end = at + RECORD + len;
                if !(ETHERNET..=LONGEST).contains(&len) || end > message.len() {
                    return None;
                }
                frames.push((key, at + 8..end));
                at = end;
            }
            (at == message.len()).then_some(Said::Frames(frames))
        }
        _ => None,
    }
}

/// How long a frame is: at an edge of what it may be, mostly.
fn length(bytes: &mut Bytes<'_>, left: usize) -> usize {
    match bytes.byte() % 16 {
        0 => ETHERNET,
        1 => ETHERNET - 1,
        2 => 0,
        3 => LONGEST,
        4 => LONGEST + 1,
        // To the end of the longest message.
        5 => left.saturating_sub(RECORD),
        _ => ETHERNET + bytes.below(200) as usize,
    }
}

/// What stands in the place of a length.
fn claimed(bytes: &mut Bytes<'_>, is: usize) -> u32 {
    let is = is as u32;
    match bytes.byte() % 64 {
        0 => is + 1,
        1 => is.wrapping_sub(1),
        2 => u32::MAX - bytes.below(64) as u32,
        3 => is + RECORD as u32,
        4 => LONGEST as u32 + 1,
        5 => bytes.word() as u32,
        _ => is,
    }
}

fn message(bytes: &mut Bytes<'_>, seals: &mut Seals) -> Vec<u8> {
    let mut message = vec![0; HEAD];
    let count = bytes.below(5) as usize;
    if bytes.one_in(8) {
        let count = if bytes.one_in(4) { MAX_KEYS - 1 + count % 3 } else { count };
        let keys: Vec<u32> = (0..count as u32).collect();
        message.resize(MESSAGE, 0);
        let len = seals.alive(&mut message, &keys);
        message.truncate(len);
        return message;
    }
    for _ in 0..count {
        let len = length(bytes, MESSAGE.saturating_sub(message.len()));
        if message.len() + RECORD + len > MESSAGE {
            break;
        }
        message.extend(u32::from(bytes.byte() % 4).to_le_bytes());
        message.extend(claimed(bytes, len).to_le_bytes());
        message.resize(message.len() + HEADER + len, 7);
    }
    let odd = [0, 0, 0, 0, 0, 0, 1, 3][usize::from(bytes.byte() % 8)];
    message.resize((message.len() + odd).min(MESSAGE), 7);
    let count = claimed(bytes, count);
    seals.frames(&mut message, count);
    message
}

/// Messages that are sealed well, of whatever shape, and some that are not. What is opened is what
/// they say, and of no other length than a frame may have; nothing is touched behind their end.
///
/// # Panics
/// When that is not so.
pub fn opened(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let key = bytes.one_in(4).then_some([7; 32]);
    let keys = || Keys { ours: key, theirs: key };
    let (mut seals, mut opens) = (Seals::new(keys()), Seals::new(keys()));
    let (mut place, mut number) = (Fenced::new(MESSAGE), 0);
    while !bytes.is_empty() {
        let mut message = message(&mut bytes, &mut seals);
        let whole = message.clone();
        match bytes.byte() % 16 {
            0 => message.truncate(bytes.below(message.len() as u64) as usize),
            1 => {
                let at = bytes.below(message.len().min(80) as u64) as usize;
                message[at] ^= bytes.byte();
            }
            _ => {}
        }
        let wanted = said(&message, number).filter(|_| key.is_none() || message == whole);
        let there = place.put(&message);
        let got = match opens.open(there) {
            Ok(Message::Alive(keys)) => Some(Said::Alive(keys.iter().collect())),
            Ok(Message::Frames(frames)) => {
                let mut at = HEAD;
                let all = frames.map(|(key, front)| {
                    front.fill(0);
                    let range = at + 8..at + 8 + front.len();
                    at = range.end;
                    (key, range)
                });
                Some(Said::Frames(all.collect()))
            }
            Err(_) => None,
        };
        assert_eq!(got, wanted, "{} bytes", message.len());
        if got.is_none() {
            // Nothing more is believed of this connection.
            (seals, opens, number) = (Seals::new(keys()), Seals::new(keys()), 0);
        } else {
            number += 1;
        }
    }
}
