//! Segments of `ginneld` as programs of the host find them: by the socket at which they may join.

use ginnel_host::config::{Config, DEFAULT_FILE, SegmentConfig};
use ginnel_host::rundir::is_trusted;
use ginnel_node::join::is_socket;
use std::path::{Path, PathBuf};

/// The socket of the segment that `ginneld` serves, or is configured to serve, under this name.
pub fn socket(name: &str) -> Option<PathBuf> {
    let config = Config::of_this_host();
    let socket = config.socket(name, 0);
    // Where the daemon is away its name is not to become that of a file: the program is told. A
    // directory that somebody else may have made is no daemon's, whoever listens there.
    let configured = Path::new(DEFAULT_FILE).exists() && config.segments.contains_key(name);
    let away = configured && !config.run_dir.exists();
    (away || (configured || socket.exists() && is_socket(&socket)) && is_trusted(&config.run_dir))
        .then_some(socket)
}

/// Addresses that this host's configuration trusts in the segment at this socket.
pub fn trusted(socket: &Path) -> Vec<String> {
    let config = Config::of_this_host();
    let of = |(name, segment): (&String, &SegmentConfig)| {
        (config.socket(name, 0) == socket).then(|| segment.trust.clone())
    };
    config.segments.iter().find_map(of).unwrap_or_default()
}

/// [`socket`] of the name in `GINNEL_SEGMENT`.
pub fn from_environment() -> Option<PathBuf> {
    std::env::var("GINNEL_SEGMENT")
        .ok()
        .filter(|name| !name.contains('/'))
        .and_then(|name| socket(&name))
}

/// All that are there: (name, socket).
pub fn all() -> Vec<(String, PathBuf)> {
    let config = Config::of_this_host();
    let entries = std::fs::read_dir(&config.run_dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut all: Vec<_> = names.filter_map(|name| Some((name.clone(), socket(&name)?))).collect();
    all.sort();
    all
}
