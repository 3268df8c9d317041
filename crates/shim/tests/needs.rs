//! What the library asks of a program's other libraries: the C library and its dynamic linker, nothing
//! else, and symbols of no later version than is promised. A program whose image lacks anything of that
//! does not start.
use std::path::{Path, PathBuf};
use std::process::Command;

fn target() -> PathBuf {
    let this = std::env::current_exe().expect("a test has a path");
    this.ancestors().nth(3).expect("target/PROFILE/deps/TEST").to_owned()
}

/// The release build.
fn shim() -> PathBuf {
    target().join("release/libginnel_shim.so")
}

/// The one that `scripts/portable.sh` made, if it did.
fn portable() -> Option<PathBuf> {
    Some(target().join("portable/libginnel_shim.so")).filter(|file| file.exists())
}

fn readelf(option: &str, library: &Path) -> String {
    let output = Command::new("readelf").args([option, "-W"]).arg(library).output().expect("readelf runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The libraries that it names as needed.
fn needed(library: &Path) -> Vec<String> {
    let said = readelf("--dynamic", library);
    let names = said.lines().filter(|line| line.contains("(NEEDED)"));
    names.filter_map(|line| line.split(['[', ']']).nth(1)).map(str::to_owned).collect()
}

/// The minors of the versions `GLIBC_2.MINOR` of which it needs a symbol.
fn minors(library: &Path) -> Vec<u32> {
    let said = readelf("--version-info", library);
    let words = said.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_2."));
    words.filter_map(|version| version.split('.').next()?.parse().ok()).collect()
}

fn needs_the_c_library_alone(library: &Path) {
    let names = needed(library);
    assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
    let other = names.iter().find(|name| !["libc.so", "ld-linux"].iter().any(|own| name.starts_with(own)));
    assert_eq!(other, None, "{} needs {names:?}", library.display());
}

#[test]
fn the_c_library_and_nothing_else() {
    needs_the_c_library_alone(&shim());
}

/// Debian 10, RHEL 8 and what is later.
#[test]
fn the_portable_library_needs_no_later_glibc_than_2_28() {
    let Some(library) = portable() else {
        eprintln!("not tried: there is no target/portable (make portable)");
        return;
    };
    // Its libm, libpthread and libdl are part of the C library only from 2.34 on.
    let names = needed(&library);
    let parts = ["libc.so", "ld-linux", "libpthread.so", "libdl.so", "libm.so"];
    let other = names.iter().find(|name| !parts.iter().any(|own| name.starts_with(own)));
    assert_eq!(other, None, "{names:?}");
    let minors = minors(&library);
    assert!(minors.iter().max().is_some_and(|minor| *minor <= 28), "{minors:?}");
}
