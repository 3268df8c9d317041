//! What a receiver did not agree to do itself: completing checksums, and cutting large segments of
//! TCP (RFC 1071, RFC 9293). Works on a private copy of the frame.

use crate::wire::{Checksum, ETHERNET, Offload, Segments};

const VLAN: [u8; 2] = [0x81, 0x00];
const TCP: u8 = 6;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Segments into which one frame is cut at most: 64 KiB in pieces of 256 bytes. Whoever asks for
/// pieces of a byte would have everybody wait for them.
const MAX_SEGMENTS: usize = 256;

/// The frame is not what its header says (no TCP over IP, or shorter than its headers), or would
/// become more than [`MAX_SEGMENTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTcp;

/// The sum of the Internet checksum, not yet folded.
fn sum(bytes: &[u8], from: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    from + words + rest.first().map_or(0, |&byte| u64::from(byte) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Completes a checksum in place. The field holds the sum of the pseudo header, as the sender left
/// it there; [`Offload::parse`] has made sure that it lies in the frame.
pub fn complete(frame: &mut [u8], Checksum { start, offset }: Checksum) {
    let Some(body) = frame.get_mut(usize::from(start)..) else { return };
    let checksum = fold(sum(body, 0));
    let field = usize::from(offset);
    if let Some(place) = body.get_mut(field..field + 2) {
        // Zero stands for "none" in UDP (RFC 768), and means the same as all ones.
        place.copy_from_slice(&(if checksum == 0 { 0xffff } else { checksum }).to_be_bytes());
    }
}

/// Where the headers of a frame of TCP over IP lie.
struct Layers {
    ip: usize,
    tcp: usize,
    /// Where the payload begins.
    data: usize,
}

impl Layers {
    fn of(frame: &[u8], v6: bool) -> Option<Self> {
        let ip = if frame.get(12..14)? == VLAN { ETHERNET + 4 } else { ETHERNET };
        let first = frame.get(ip)?;
        let tcp = if v6 {
            // Extension headers would have to be walked; who sends them and segments is not known.
            if first >> 4 != 6 || *frame.get(ip + 6)? != TCP {
                return None;
            }
            ip + 40
        } else {
            let words = usize::from(first & 15);
            if first >> 4 != 4 || words < 5 || *frame.get(ip + 9)? != TCP {
                return None;
            }
            ip + 4 * words
        };
        let words = usize::from(frame.get(tcp + 12)? >> 4);
        let data = tcp + 4 * words;
        (words >= 5 && data <= frame.len()).then_some(Self { ip, tcp, data })
    }
}

/// Cuts a frame into the segments that it stands for, and gives each to `each`, with its checksums
/// complete.
///
/// # Errors
/// [`NotTcp`].
pub fn cut(
    frame: &[u8],
    segments: Segments,
    segment: &mut Vec<u8>,
    mut each: impl FnMut(&mut [u8]),
) -> Result<(), NotTcp> {
    let layers = Layers::of(frame, segments.v6).ok_or(NotTcp)?;
    let (headers, data) = frame.split_at_checked(layers.data).ok_or(NotTcp)?;
    let size = usize::from(segments.size).max(1);
    let count = data.len().div_ceil(size).max(1);
    if count > MAX_SEGMENTS {
        return Err(NotTcp);
    }
    for index in 0..count {
        let start = index * size;
        let piece = &data[start..data.len().min(start + size)];
        segment.clear();
        segment.extend_from_slice(headers);
        segment.extend_from_slice(piece);
        let place = Place { index, start, is_last: index + 1 == count };
        mend(segment, &layers, segments.v6, place).ok_or(NotTcp)?;
        each(segment);
    }
    Ok(())
}

/// Which segment of its frame one is.
struct Place {
    index: usize,
    start: usize,
    is_last: bool,
}

fn word(frame: &mut [u8], at: usize) -> Option<&mut [u8; 2]> {
    frame.get_mut(at..)?.first_chunk_mut()
}

/// Sets lengths, number, flags and checksums of one segment.
fn mend(frame: &mut [u8], layers: &Layers, v6: bool, place: Place) -> Option<()> {
    let Layers { ip, tcp, .. } = *layers;
    if v6 {
        let len = u16::try_from(frame.len() - ip - 40).ok()?;
        *word(frame, ip + 4)? = len.to_be_bytes();
    } else {
        let len = u16::try_from(frame.len() - ip).ok()?;
        *word(frame, ip + 2)? = len.to_be_bytes();
        let id = word(frame, ip + 4)?;
        *id = u16::from_be_bytes(*id).wrapping_add(place.index as u16).to_be_bytes();
        *word(frame, ip + 10)? = [0, 0];
        let header = frame.get(ip..tcp)?;
        *word(frame, ip + 10)? = fold(sum(header, 0)).to_be_bytes();
    }
    let sequence: &mut [u8; 4] = frame.get_mut(tcp + 4..)?.first_chunk_mut()?;
    *sequence = u32::from_be_bytes(*sequence).wrapping_add(place.start as u32).to_be_bytes();
    let flags = frame.get_mut(tcp + 13)?;
    if !place.is_last {
        *flags &= !(FIN | PSH);
    }
    if place.index > 0 {
        *flags &= !CWR;
    }
    *word(frame, tcp + 16)? = [0, 0];
    let addresses = if v6 { frame.get(ip + 8..ip + 40)? } else { frame.get(ip + 12..ip + 20)? };
    let pseudo = sum(addresses, u64::from(TCP) + (frame.len() - tcp) as u64);
    let checksum = fold(sum(frame.get(tcp..)?, pseudo));
    *word(frame, tcp + 16)? = checksum.to_be_bytes();
    Some(())
}

/// Makes a frame into what a receiver takes that agreed on `agreed`: gives `each` one frame or
/// several, with what is still left to be done of each.
///
/// # Errors
/// [`NotTcp`].
pub fn adapt(
    frame: &mut [u8],
    offload: Offload,
    agreed: u64,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&mut [u8], Offload),
) -> Result<(), NotTcp> {
    if offload.suits(agreed) {
        each(frame, offload);
        return Ok(());
    }
    match (offload.segments, offload.checksum) {
        (Some(segments), _) => {
            cut(frame, segments, scratch, |segment| each(segment, Offload::default()))
        }
        (None, Some(checksum)) => {
            complete(frame, checksum);
            each(frame, Offload::default());
            Ok(())
        }
        (None, None) => {
            each(frame, offload);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
