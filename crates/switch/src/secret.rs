//! What the hosts of one fabric have in common: by it they know each other.

use blake3::{Hash, keyed_hash};
use std::fmt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a secret file at least, and at most.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=4096;

/// What the hosts of one fabric have in common.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// From what the file holds.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(blake3::derive_key("ginnel-switch fabric secret, November 2026", bytes))
    }

    /// Reads it from a file that only its owner can read, who is this user or root.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub fn load(file: &Path) -> Result<Self, String> {
        let mut options = std::fs::OpenOptions::new();
        // A pipe would keep the switch waiting.
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let cannot = |error| format!("cannot be read: {error}");
        let mut open = options.open(file).map_err(cannot)?;
        let meta = open.metadata().map_err(cannot)?;
        let own = rustix::process::geteuid().as_raw();
        if !meta.is_file() {
            return Err("is no file".into());
        }
        if meta.mode() & 0o077 != 0 {
            return Err("others may read it: chmod 600 it".into());
        }
        if meta.uid() != own && meta.uid() != 0 {
            return Err("belongs to another user: chown it to the switch's".into());
        }
        let mut bytes = Vec::new();
        let limit = *LENGTH.end() as u64 + 1;
        std::io::Read::read_to_end(&mut std::io::Read::take(&mut open, limit), &mut bytes)
            .map_err(cannot)?;
        // An editor ends the file with a newline, and another does not.
        let text = bytes.trim_ascii();
        if !LENGTH.contains(&text.len()) {
            let (least, most) = (LENGTH.start(), LENGTH.end());
            let how = "openssl rand -hex 32 makes one";
            return Err(format!("must hold {least} to {most} bytes: {how}"));
        }
        Ok(Self::new(text))
    }

    /// What only who has it can make of these parts.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> Hash {
        keyed_hash(&self.0, &parts.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("secret");
        let write = |text: &str, mode| {
            std::fs::write(&file, text).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).expect("set");
            Secret::load(&file)
        };
        assert_eq!(write("0123456789abcdef\n", 0o600), Ok(Secret::new(b"0123456789abcdef")));
        assert!(write("0123456789abcdef", 0o640).is_err_and(|why| why.contains("chmod 600")));
        assert!(write("0123456789", 0o600).is_err_and(|why| why.contains("openssl")));
        assert!(write(&"0".repeat(5000), 0o600).is_err());
        assert!(Secret::load(place.path()).is_err_and(|why| why.contains("no file")));
        assert!(Secret::load(&place.path().join("none")).is_err());
    }
}
