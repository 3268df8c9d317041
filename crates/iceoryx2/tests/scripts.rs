//! The project's scripts that build iceoryx2's libraries from its authors' sources.

use std::path::Path;
use std::process::{Command, Stdio};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Where they build: beside the crate's own folder, as the Makefile has both.
pub fn target() -> &'static Path {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().and_then(Path::parent);
    target.expect("a folder")
}

/// One of them.
pub fn script(name: &str) -> Command {
    let mut script = Command::new(repository().join("scripts").join(name));
    script.env("CARGO_TARGET_DIR", target()).stdin(Stdio::null());
    script
}
