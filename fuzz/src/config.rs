//! ginneld's configuration: text that somebody else may have written.

use crate::Bytes;
use ginnel_host::config::Config;
use std::path::Path;

/// Pieces of which good configurations are made, and some that are none.
const PIECES: [&str; 32] = [
    "[segment.default]\n",
    "[segment.",
    "[segment.default.slot.3]\n",
    "[segment.default.host]\n",
    "size = \"1G\"\n",
    "size = 16777216\n",
    "size = \"",
    "slots = 8\n",
    "slots = 65535\n",
    "vectors = 4\n",
    "vectors = 0\n",
    "memory = \"memfd\"\n",
    "memory = \"hugepages-2M\"\n",
    "users = [\"root\", 1000]\n",
    "groups = [",
    "processes = 16\n",
    "status = \"127.0.0.1:9190\"\n",
    "status = \"off\"\n",
    "run_dir = \"/run/ginnel\"\n",
    "]",
    "\"",
    "=",
    "99999999999999999999",
    "-1",
    "\u{0}",
    "ü",
    "..",
    "/",
    "\n",
    "'''",
    "1979-05-27",
    "{}",
];

/// Text out of these pieces, and single bytes between them. What is refused is refused in words.
pub fn target(bytes: &[u8]) {
    let mut bytes = Bytes::new(bytes);
    let mut text = String::new();
    while !bytes.is_empty() {
        match bytes.byte() {
            piece @ 0..192 => text.push_str(PIECES[usize::from(piece) % PIECES.len()]),
            byte => text.push(char::from(byte.wrapping_add(bytes.byte()))),
        }
    }
    match Config::parse(&text, Path::new("fuzz.toml")) {
        Ok(config) => {
            for (name, segment) in &config.segments {
                assert!(
                    segment.size.is_power_of_two() && (16 << 20..=1 << 40).contains(&segment.size),
                    "{text:?}"
                );
                assert!((1..=256).contains(&segment.vectors), "{text:?}");
                // A name is part of a path: it must not lead elsewhere.
                assert!(
                    config.socket(name, 1).starts_with(&config.run_dir)
                        && !name.contains('/')
                        && name != "..",
                    "{text:?}"
                );
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "{text:?}"),
    }
}
