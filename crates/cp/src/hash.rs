//! BLAKE3 of the first bytes of a file.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often whoever waits is told that it goes on, and it is looked at whether anybody waits.
const OFTEN: Duration = Duration::from_secs(1);

/// The hash of the first `len` bytes; `None` where there are fewer. `alive` is called once a second
/// and says whether to go on: a file with holes may be longer than anybody's patience.
///
/// # Errors
/// The system's; `Other` where it was not to go on.
pub fn of_start(
    file: impl AsFd,
    len: u64,
    mut alive: impl FnMut() -> bool,
) -> Result<Option<[u8; 32]>> {
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; 256 << 10]);
    let (mut at, mut told) = (0, Instant::now());
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = match rustix::io::pread(&file, &mut buffer[..part], at).map_err(Error::from) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if read == 0 {
            return Ok(None);
        }
        hasher.update(&buffer[..read]);
        at += read as u64;
        if told.elapsed() > OFTEN {
            if !alive() {
                return Err(Error::other("nobody waits for it any more"));
            }
            told = Instant::now();
        }
    }
    Ok(Some(*hasher.finalize().as_bytes()))
}
