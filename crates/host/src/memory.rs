//! A segment's memory: a memfd whose size nobody can change any more.
//!
//! A peer that could cut the file short would end every other with SIGBUS; the seals SHRINK and
//! GROW forbid it to everybody, the daemon included, and SEAL keeps them as they are
//! (memfd_create(2), fcntl(2)).

use crate::config::{Backing, SegmentConfig};
use anyhow::{Context, Result, ensure};
use ginnel_region::{Config, Segment};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use std::os::fd::{AsFd, OwnedFd};

/// What every segment is sealed with.
pub const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Bytes of the memory that is given to those who may not join: the smallest that a PCI device can
/// have.
const DUMMY: u64 = 4096;

/// Makes the memory of a segment, formatted and sealed.
///
/// # Errors
/// What failed; for huge pages also what to do.
pub fn create(name: &str, config: &SegmentConfig) -> Result<OwnedFd> {
    let huge = match config.memory {
        Backing::Memfd => MemfdFlags::empty(),
        Backing::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        Backing::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    };
    let memory = memfd_create(
        format!("ginnel-{name}"),
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge,
    )
    .with_context(|| format!("no memory of the kind {:?} on this kernel", config.memory))?;
    if let Some(page) = config.memory.huge_page() {
        // All at once: a huge page that is missing later is a SIGBUS in a guest.
        let reserved = rustix::fs::ftruncate(&memory, config.size).and_then(|()| {
            rustix::fs::fallocate(&memory, rustix::fs::FallocateFlags::empty(), 0, config.size)
        });
        reserved.with_context(|| {
            let (pages, kib) = (config.size / page, page >> 10);
            format!(
                "segment {name} needs {pages} huge pages of {kib} KiB that are free; reserve them \
                 (echo N > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages), or set memory = \"memfd\""
            )
        })?;
    }
    Segment::format(memory.as_fd(), &Config { size: config.size, ..Config::default() })?;
    fcntl_add_seals(&memory, SEALS).context("seal the memory")?;
    Ok(memory)
}

/// Checks memory that an earlier instance made; gives its size in bytes. Nothing is read from it:
/// every peer can write there, and one that spoils the header must not make the daemon give the
/// others' segment up.
///
/// # Errors
/// If it is not sealed as it should be, or can be no segment.
pub fn adopt(memory: impl AsFd) -> Result<u64> {
    let seals = fcntl_get_seals(&memory).context("it is no memfd")?;
    ensure!(seals.contains(SEALS), "its size can be changed: seals {seals:?}");
    let size = u64::try_from(fstat(&memory)?.st_size)?;
    ensure!(size.is_power_of_two() && size > DUMMY, "it has {size} bytes, which no segment has");
    Ok(size)
}

/// Bytes that are really taken.
#[must_use]
pub fn resident(memory: impl AsFd) -> u64 {
    fstat(memory).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

/// Memory for those who may not join: a sentence that says so, and nothing else. A new one for
/// each, so that they cannot use it together.
///
/// # Errors
/// What failed.
pub fn dummy() -> Result<OwnedFd> {
    let memory = memfd_create("ginnel-refused", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, DUMMY)?;
    rustix::io::pwrite(&memory, b"GINNELNO refused by ginneld; its log on the host says why\n", 0)?;
    fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::fd::AsRawFd;

    fn config() -> SegmentConfig {
        let toml = "[segment.a]\nsize = \"16M\"";
        crate::config::Config::parse(toml, "t".as_ref())
            .expect("good")
            .segments
            .remove("a")
            .expect("there")
    }

    /// facts.md: "peers may resize the file: SIGBUS".
    #[test]
    fn nobody_can_resize_it() {
        let memory = create("a", &config()).expect("made");
        assert_eq!(rustix::fs::ftruncate(&memory, 4096), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&memory, 32 << 20), Err(Errno::PERM));
        assert_eq!(
            fcntl_add_seals(&memory, SealFlags::WRITE),
            Err(Errno::PERM),
            "nor take the writing away"
        );
        assert_eq!(adopt(&memory).expect("ours"), 16 << 20);
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        assert_eq!(Segment::open(path.as_ref()).expect("a segment").len(), 16 << 20);
        assert!(resident(&memory) < 4 << 20, "taken only as it is used");
    }

    #[test]
    fn only_sealed_segments_are_adopted() {
        let unsealed =
            memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("made");
        assert!(
            adopt(&unsealed).expect_err("unsealed").to_string().contains("size can be changed")
        );
        assert!(
            adopt(dummy().expect("made"))
                .expect_err("foreign")
                .to_string()
                .contains("which no segment has")
        );
        assert!(adopt(std::io::pipe().expect("a pipe").0).is_err());
    }

    #[test]
    fn huge_pages_that_are_missing_are_an_error_that_says_what_to_do() {
        let huge = SegmentConfig { memory: Backing::Huge2M, size: 1 << 40, ..config() };
        let error = format!("{:#}", create("a", &huge).expect_err("no host has that many"));
        assert!(
            error.contains("needs 524288 huge pages of 2048 KiB") && error.contains("nr_hugepages"),
            "{error}"
        );
    }
}
