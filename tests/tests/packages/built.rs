//! The portable build, and the packages of it: made once, and anew when what they are made of has
//! changed.

use ginnel_tests::{build, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What `make portable` builds, built where it is missing; `None`, after saying so, where it cannot
/// be.
pub fn portable() -> Option<PathBuf> {
    portable_for(std::env::consts::ARCH)
}

/// The same for another processor.
fn portable_for(machine: &str) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let source = build::tests_dir().parent().expect("it lies in the source tree");
    let folder = if machine == std::env::consts::ARCH {
        "portable".to_owned()
    } else {
        format!("portable-{machine}")
    };
    let portable = build::release_dir().with_file_name(folder);
    let list = std::fs::read_to_string(source.join("packaging/files"))
        .expect("the list of what is installed");
    let built = list
        .lines()
        .filter(|line| line.starts_with("ginnel-"))
        .filter_map(|line| line.split_whitespace().nth(1));
    if !built.map(|name| portable.join(name)).all(|file| file.exists()) {
        let built = Command::new("timeout")
            .args(["3000", "scripts/portable.sh"])
            .env("MACHINE", machine)
            .current_dir(source)
            .output()
            .expect("it starts");
        if !built.status.success() {
            skip("the portable build", &String::from_utf8_lossy(&built.stderr));
            return None;
        }
    }
    Some(portable)
}

/// The packages for this processor with this revision; `None`, after
/// saying so, where they cannot be built.
pub fn packages(machine: &str, revision: &str) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let source = build::tests_dir().parent().expect("it lies in the source tree");
    if Command::new("dh").arg("--version").output().is_err() {
        skip("packages", "debhelper is not installed (scripts/install-deps.sh packages)");
        return None;
    }
    let portable = portable_for(machine)?;
    let folder = build::release_dir().with_file_name("test-packages");
    let into = folder.join(if machine == std::env::consts::ARCH { revision } else { machine });
    let made_of = [
        "packaging",
        "packaging/debian",
        "scripts/packages.sh",
        "scripts/install.sh",
        "crates/capi/include",
        "crates/cache-capi/include",
        "crates/cache-capi/python",
        "crates/capi/python/ginnel",
        "driver",
    ]
    .map(|path| source.join(path));
    if is_newer(&into.join("Packages"), &[&made_of[..], std::slice::from_ref(&portable)].concat()) {
        return Some(into);
    }
    std::fs::create_dir_all(&into).expect("the target folder can be written");
    let others = others(&into);
    let mut make = Command::new("timeout");
    make.args(["1800", "scripts/packages.sh"])
        .env("BUILT", &portable)
        .env("INTO", &into)
        .env("REVISION", revision)
        .env("MACHINE", machine)
        .env("GINNEL", build::ginnel());
    let output = make.current_dir(source).output().expect("it starts");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    assert!(
        others.iter().all(|file| file.exists()),
        "what was there before is not the script's to remove"
    );
    Some(into)
}

/// What somebody else has in the directory: a package, and a file in a folder of any name.
fn others(into: &Path) -> [PathBuf; 2] {
    let [package, notes] = ["elsewhere_1_all.deb", "work/notes"].map(|name| into.join(name));
    let tree = tempfile::tempdir().expect("a directory");
    let control = tree.path().join("DEBIAN/control");
    for file in [&control, &notes] {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    }
    std::fs::write(&notes, "mine").expect("written");
    std::fs::write(
        &control,
        "Package: elsewhere\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n",
    )
    .expect("written");
    let built = Command::new("dpkg-deb")
        .arg("--build")
        .args([tree.path(), &package])
        .stdout(Stdio::null())
        .status();
    assert!(built.is_ok_and(|status| status.success()));
    [package, notes]
}

/// Is the file newer than these files, and all files in these folders?
fn is_newer(file: &Path, places: &[PathBuf]) -> bool {
    let time = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let Some(made) = time(file) else { return false };
    let inside = |place: &PathBuf| {
        std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let files = places.iter().flat_map(|place| inside(place).chain([place.clone()]));
    files.filter(|path| path.is_file()).filter_map(|path| time(&path)).all(|changed| changed < made)
}

/// Both revisions, made once.
pub fn both() -> Option<&'static [PathBuf; 2]> {
    static BOTH: OnceLock<Option<[PathBuf; 2]>> = OnceLock::new();
    let made = |revision| packages(std::env::consts::ARCH, revision);
    BOTH.get_or_init(|| Some([made("1")?, made("2")?])).as_ref()
}
