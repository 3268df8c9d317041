//! Frames of a port, for whoever looks at them: the switch copies them to its control socket, and
//! `ginnel-switch trace` writes them as pcapng. A reader that is slow misses frames, which are
//! counted; it never holds the switch up.

use crate::ring::Slices;
use crate::wire::HEADER;
use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What waits for one reader at most, bytes.
const ROOM: usize = 4 << 20;
/// Bytes before each frame: time, how many frames were missed before it, its length, direction.
const RECORD: usize = 8 + 4 + 4 + 4;

/// A reader.
#[derive(Debug)]
struct Reader {
    visitor: u32,
    port: u32,
    waits: Vec<u8>,
    missed: u32,
}

/// All readers.
#[derive(Debug, Default)]
pub struct Tracer {
    readers: Vec<Reader>,
}

impl Tracer {
    /// Begins to copy a port's frames for a visitor.
    pub fn add(&mut self, visitor: u32, port: u32) {
        self.readers.push(Reader { visitor, port, waits: Vec::new(), missed: 0 });
    }

    /// A visitor has gone.
    pub fn remove(&mut self, visitor: u32) {
        self.readers.retain(|reader| reader.visitor != visitor);
    }

    /// A port is no more: another in its place is nothing that they asked for.
    pub fn forget(&mut self, port: u32) {
        self.readers.retain(|reader| reader.port != port);
    }

    /// Does a visitor look at any port?
    #[must_use]
    pub fn has(&self, visitor: u32) -> bool {
        self.readers.iter().any(|reader| reader.visitor == visitor)
    }

    /// Does anybody look at this port?
    #[must_use]
    pub fn looks_at(&self, port: u32) -> bool {
        self.readers.iter().any(|reader| reader.port == port)
    }

    /// What waits for a visitor; none of it waits any more.
    pub fn take(&mut self, visitor: u32) -> Vec<u8> {
        let reader = self.readers.iter_mut().find(|reader| reader.visitor == visitor);
        reader.map(|reader| std::mem::take(&mut reader.waits)).unwrap_or_default()
    }

    /// Is there anything for anybody?
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.readers.iter().any(|reader| !reader.waits.is_empty())
    }

    /// Copies a frame, which begins with a header, to those who look at its port.
    pub fn note(&mut self, port: u32, sent: bool, front: &[u8], rest: &Slices<'_>) {
        let frame = front.get(HEADER..).unwrap_or_default();
        let len = u32::try_from(frame.len() + rest.len()).unwrap_or(u32::MAX);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for reader in self.readers.iter_mut().filter(|reader| reader.port == port) {
            if reader.waits.len() + RECORD + len as usize > ROOM {
                reader.missed = reader.missed.saturating_add(1);
                continue;
            }
            let waits = &mut reader.waits;
            waits.extend(nanos.to_le_bytes());
            waits.extend(std::mem::take(&mut reader.missed).to_le_bytes());
            waits.extend(len.to_le_bytes());
            waits.extend(u32::from(sent).to_le_bytes());
            waits.extend_from_slice(frame);
            rest.append_to(waits);
        }
    }
}

/// A frame that was copied.
struct Copied {
    time: Duration,
    missed: u32,
    sent: bool,
    bytes: Vec<u8>,
}

/// The next frame of a stream; `None` at its end.
fn next(from: &mut impl Read) -> io::Result<Option<Copied>> {
    let mut head = [0; RECORD];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| head[at + n]));
    let nanos = u64::from_le_bytes(std::array::from_fn(|n| head[n]));
    let mut bytes = vec![0; word(12) as usize & 0xf_ffff];
    from.read_exact(&mut bytes)?;
    let time = Duration::from_nanos(nanos);
    Ok(Some(Copied { time, missed: word(8), sent: word(16) != 0, bytes }))
}

/// Writes frames that come from the switch as pcapng, each as soon as it is there, until there
/// are `count`, or the switch ends. Returns how many were written and how many were missed.
///
/// # Errors
/// Those of either side; a reader of the file that has gone is none.
pub fn write_pcapng(
    from: &mut impl Read,
    to: &mut impl Write,
    name: &str,
    count: Option<u64>,
) -> anyhow::Result<(u64, u64)> {
    use pcap_file::DataLink;
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
    use pcap_file::pcapng::blocks::interface_description::{
        InterfaceDescriptionBlock, InterfaceDescriptionOption,
    };
    let mut writer = PcapNgWriter::new(to)?;
    let options = vec![
        InterfaceDescriptionOption::IfName(name.into()),
        // Nanoseconds: 10 to the power of −9.
        InterfaceDescriptionOption::IfTsResol(9),
    ];
    writer.write_pcapng_block(InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options,
    })?;
    writer.get_mut().flush()?;
    let (mut written, mut missed) = (0, 0);
    while count.is_none_or(|count| written < count) {
        let Some(frame) = next(from)? else { break };
        missed += u64::from(frame.missed);
        // Inbound for the switch is what the guest sent (pcapng, 4.3: epb_flags).
        let flags = if frame.sent { 1 } else { 2 };
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: frame.time,
            original_len: u32::try_from(frame.bytes.len())?,
            data: frame.bytes.into(),
            options: vec![EnhancedPacketOption::Flags(flags)],
        };
        let done = writer.write_pcapng_block(block).map_err(anyhow::Error::from);
        let flushed = done.and_then(|_| Ok(writer.get_mut().flush()?));
        match flushed {
            Ok(()) => written += 1,
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error.context(format!("frame {} of the trace", written + 1))),
        }
    }
    Ok((written, missed))
}

/// Has whoever reads the file gone?
fn is_gone(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn frames_become_a_file_that_others_read() {
        let mut tracer = Tracer::default();
        tracer.add(7, 1);
        let frame = [&[0; HEADER][..], &[5; 60]].concat();
        tracer.note(1, true, &frame, &Slices::new());
        tracer.note(2, true, &frame, &Slices::new());
        tracer.note(1, false, &frame[..HEADER + 20], &Slices::new());
        let stream = tracer.take(7);
        assert!(!tracer.has_news());
        let mut file = Vec::new();
        let told = write_pcapng(&mut stream.as_slice(), &mut file, "vm1", None).expect("written");
        assert_eq!(told, (2, 0));
        let mut reader = PcapNgReader::new(file.as_slice()).expect("pcapng");
        let mut lengths = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.expect("a block") {
                lengths.push(packet.data.len());
                assert!(packet.timestamp.as_secs() > 1_600_000_000, "{:?}", packet.timestamp);
            }
        }
        assert_eq!(lengths, [60, 20]);
    }

    #[test]
    fn a_slow_reader_misses_frames_and_is_told() {
        let mut tracer = Tracer::default();
        tracer.add(7, 1);
        let frame = vec![0; HEADER + 60000];
        for _ in 0..100 {
            tracer.note(1, true, &frame, &Slices::new());
        }
        let mut stream = tracer.take(7);
        assert!(stream.len() <= ROOM);
        tracer.note(1, true, &frame, &Slices::new());
        stream.extend(tracer.take(7));
        let (written, missed) =
            write_pcapng(&mut stream.as_slice(), &mut Vec::new(), "x", None).expect("written");
        assert_eq!(written + missed, 101);
        assert!(missed > 0);
    }
}
