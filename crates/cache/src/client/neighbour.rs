//! What a client has of its server's memory, and how it comes to it.

use super::invalid;
use crate::door::{self, Entry};
use crate::far;
use crate::hints::Sink;
use crate::memory::Mark;
use crate::reader::{self, Reader};
use std::io;

/// How often it is looked at whether the connection to a server far away is open, milliseconds.
const LOOK: u64 = 50;

/// What this process has of the server's memory.
#[derive(Debug)]
pub struct Neighbour {
    /// Looks keys up.
    pub reader: Reader,
    /// Tells the server what was read.
    pub hints: Sink,
    /// Set in the process that joined: its ring of hints is its own to write, and no child's.
    pub mark: Mark,
    place: Place,
}

/// Where the memory is.
#[derive(Debug)]
enum Place {
    /// On this kernel.
    Near {
        /// Open as long as this process reads: the server sees its end.
        _stream: std::os::unix::net::UnixStream,
    },
    /// A copy in a segment, whose server may run in another machine.
    Far {
        /// When it was looked at last whether the connection is open.
        looked: u64,
    },
}

impl Neighbour {
    /// Asks at the door that a server names for the memory of its start `generation`; where that is
    /// not on this kernel, looks for the copy that it says it keeps.
    ///
    /// # Errors
    /// Why neither is to be had.
    pub fn of(path: Option<&str>, copied: bool, generation: Option<u64>) -> io::Result<Self> {
        let unoffered = || invalid("the server offers its memory to nobody (a memcached?)");
        let near = path.ok_or_else(unoffered).and_then(|path| enter_near(path, generation));
        match (near, generation) {
            (Err(near), Some(generation)) if copied => enter_far(generation).map_err(|far| {
                let far = format!("nor is its copy in this machine's segment: {far}");
                io::Error::other(format!("{near}; {far}"))
            }),
            (near, _) => near,
        }
    }

    /// Returns whether it is time to look if the connection to the server is open: of one far away
    /// nothing else tells at once that it ended.
    #[inline]
    pub fn is_to_look(&mut self) -> bool {
        let Place::Far { looked } = &mut self.place else { return false };
        let now = reader::milliseconds();
        let is_time = now.saturating_sub(*looked) > LOOK;
        if is_time {
            *looked = now;
        }
        is_time
    }
}

fn enter_near(path: &str, generation: Option<u64>) -> io::Result<Neighbour> {
    let Entry { view, ring, generation: entered, stream } = door::enter(path.as_ref())?;
    let reader = Reader::new(view).map_err(invalid)?;
    if generation != Some(entered) || reader.generation() != entered {
        return Err(invalid("the memory is that of another server"));
    }
    let place = Place::Near { _stream: stream };
    Ok(Neighbour { reader, hints: Sink::new(ring), mark: Mark::new()?, place })
}

fn enter_far(generation: u64) -> io::Result<Neighbour> {
    let (view, hints) = far::enter(generation)?;
    let reader = Reader::new(view).map_err(invalid)?.from_afar();
    if reader.generation() != generation {
        return Err(invalid("the memory is that of another server"));
    }
    let place = Place::Far { looked: reader::milliseconds() };
    Ok(Neighbour { reader, hints, mark: Mark::new()?, place })
}
