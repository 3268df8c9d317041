//! What several of the tests use.

use std::path::Path;
use std::process::Command;

/// `programs/NAME.c`, compiled for the host and so for its guests.
pub fn program(directory: &Path, name: &str) -> Vec<u8> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let (source, to) = (tests.join(format!("{name}.c")), directory.join(name));
    let mut compiler = Command::new("cc");
    compiler.args(["-D_GNU_SOURCE", "-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../driver")).arg("-o").arg(&to).arg(&source);
    assert!(compiler.status().expect("cc").success(), "{} does not compile", source.display());
    std::fs::read(&to).expect("compiled")
}
