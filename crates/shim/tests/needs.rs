//! What the library asks of a program's other libraries: the C library and its dynamic linker,
//! nothing else, and symbols of no later version than is promised. A program whose image lacks
//! anything of that does not start.
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

/// The folder of those that `scripts/portable.sh` made, if it did.
fn portable() -> Option<PathBuf> {
    Some(target().join("portable")).filter(|folder| folder.join("libginnel_shim.so").exists())
}

fn readelf(option: &str, library: &Path) -> String {
    let output =
        Command::new("readelf").args([option, "-W"]).arg(library).output().expect("readelf runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The libraries that it names as needed.
fn needed(library: &Path) -> Vec<String> {
    let said = readelf("--dynamic", library);
    let names = said.lines().filter(|line| line.contains("(NEEDED)"));
    names.filter_map(|line| line.split(['[', ']']).nth(1)).map(str::to_owned).collect()
}

/// A symbol that it asks other libraries for.
#[derive(Debug)]
struct Asked {
    name: String,
    /// The minor of its version `GLIBC_2.MINOR`; `None` where it has no version of glibc's.
    minor: Option<u32>,
    /// It may be missing.
    weak: bool,
}

fn asked(library: &Path) -> Vec<Asked> {
    let said = readelf("--dyn-syms", library);
    let undefined = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(6) == Some(&"UND"));
    undefined
        .filter_map(|words| {
            let (name, version) = words.get(7)?.split_once('@').unwrap_or((words.get(7)?, ""));
            let minor = version.trim_start_matches('@').strip_prefix("GLIBC_2.");
            let minor = minor.map(|minor| {
                minor.split('.').next().and_then(|minor| minor.parse().ok()).expect("a number")
            });
            Some(Asked { name: name.to_owned(), minor, weak: words.get(4) == Some(&"WEAK") })
        })
        .collect()
}

fn needs_the_c_library_alone(library: &Path) {
    let names = needed(library);
    assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
    let other =
        names.iter().find(|name| !["libc.so", "ld-linux"].iter().any(|own| name.starts_with(own)));
    assert_eq!(other, None, "{} needs {names:?}", library.display());
}

#[test]
fn the_c_library_and_nothing_else() {
    needs_the_c_library_alone(&shim());
    // What is preloaded beside it.
    needs_the_c_library_alone(&shim().with_file_name("libginnel_sysv.so"));
}

/// RHEL 7, Amazon Linux 2, Debian 8, Ubuntu 14.04 and what is later.
const PROMISED: u32 = 17;

/// What is preloaded, or loaded into programs that a container's image brings.
const LOADED: [&str; 3] = ["libginnel_shim.so", "libginnel_sysv.so", "libginnel_memcached.so"];

#[test]
fn the_portable_libraries_need_no_later_glibc_than_2_17() {
    let Some(folder) = portable() else {
        eprintln!("not tried: there is no target/portable (make portable)");
        return;
    };
    for library in LOADED.map(|name| folder.join(name)) {
        // Its libm, libpthread and libdl are part of the C library only from 2.34 on.
        let names = needed(&library);
        let parts = ["libc.so", "ld-linux", "libpthread.so", "libdl.so", "libm.so"];
        let other = names.iter().find(|name| !parts.iter().any(|own| name.starts_with(own)));
        assert_eq!(other, None, "{names:?}");
        let asked = asked(&library);
        assert!(asked.iter().any(|symbol| symbol.minor.is_some()), "{asked:?}");
        for symbol in asked {
            // A linker that finds no library with the symbol leaves its version open: it was linked
            // with a C library of 2.17, which lacks what is newer.
            // (A version is asked for of a weak symbol, too.)
            let is_there = symbol.minor.map_or(symbol.weak, |minor| minor <= PROMISED);
            assert!(is_there, "{} asks for {symbol:?}", library.display());
        }
    }
}

/// What the portable build could not have: functions that came after 2.17. (The build for this
/// machine's glibc asks for newer versions of older ones.) This is seen without a portable build.
#[test]
fn no_function_that_2_17_lacks() {
    // Moved into libc.so.6 in 2.34; functions rather than macros since 2.33; changed in 2.32. (And
    // `_dl_find_object`, which GCC's unwinder asks for: the portable build has another.)
    let renewed = |name: &str| {
        let prefixes = [
            "pthread_",
            "__pthread_",
            "dl",
            "_dl_find_object",
            "stat",
            "fstat",
            "lstat",
            "sem_",
            "shm_",
        ];
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && name != "statx"
    };
    for name in LOADED {
        let library = shim().with_file_name(name);
        let newer = |symbol: &Asked| symbol.minor.is_some_and(|minor| minor > PROMISED);
        for symbol in asked(&library).into_iter().filter(newer) {
            assert!(
                symbol.weak || renewed(&symbol.name),
                "{} asks for {symbol:?}",
                library.display()
            );
        }
    }
}
