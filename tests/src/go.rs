//! The test programs in Go, `programs/go/program.go` and `programs/go/random`, built in each way
//! that matters.

use crate::{build, skip};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// How the program is built: name, flags, cgo.
pub type Kind = (&'static str, &'static [&'static str], bool);

/// With the C library's threads.
pub const CGO: Kind = ("cgo", &[], true);
/// With a dynamic linker, and Go's own threads.
pub const PIE: Kind = ("pie", &["-buildmode=pie"], false);
/// Without a dynamic linker.
pub const STATIC: Kind = ("static", &[], false);
/// Likewise, without symbols.
pub const STRIPPED: Kind = ("stripped", &["-ldflags=-s -w", "-trimpath"], false);
/// Without a build id, by which Go's programs are mostly told from others.
pub const NAMELESS: [Kind; 3] = [
    ("nameless-cgo", &["-ldflags=-buildid="], true),
    ("nameless-pie", &["-ldflags=-buildid=", "-buildmode=pie"], false),
    ("nameless", &["-ldflags=-buildid="], false),
];
/// With a C library of its own.
pub const STATIC_CGO: Kind =
    ("static-cgo", &["-ldflags=-linkmode external -extldflags -static"], true);
/// With the race detector.
pub const RACE: Kind = ("race", &["-race"], true);
/// It can load plugins.
pub const PLUGINS: Kind = ("plugins", &[], true);

/// Those that are reached.
pub const KINDS: [Kind; 3] = [CGO, PIE, STATIC];

/// The releases about the one that the tests otherwise use: a late one of each.
pub const RELEASES: [&str; 5] = ["go1.22.12", "go1.23.12", "go1.24.9", "go1.25.4", "go1.27.2"];

/// The toolchain.
fn go() -> Option<PathBuf> {
    let named = std::env::var_os("GINNEL_TEST_GO").map(PathBuf::from);
    let path = std::env::var_os("PATH")?;
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("go"));
    named
        .into_iter()
        .chain(in_path)
        .chain([PathBuf::from("/usr/local/go/bin/go")])
        .find(|file| file.is_file())
}

/// Delve, the debugger for Go, from Go's module proxy; `None`, with a word, where it cannot be had.
#[must_use]
pub fn delve() -> Option<PathBuf> {
    const DELVE: &str = "github.com/go-delve/delve/cmd/dlv@v1.27.2";
    let folder = build::release_dir().join("go-programs");
    let file = folder.join("dlv");
    let mut command = Command::new(go()?);
    command.args(["install", DELVE]).env("GOBIN", &folder).env("GOFLAGS", "");
    if !file.exists() && !command.status().is_ok_and(|status| status.success()) {
        skip("delve", "it cannot be had");
        return None;
    }
    Some(file)
}

/// Go's own tests of a package of its standard library, built; `None`, with a word, where there is
/// no toolchain.
///
/// # Panics
/// Where it does not build them.
#[must_use]
pub fn own_tests(package: &str, (name, flags, cgo): Kind) -> Option<PathBuf> {
    let Some(go) = go() else {
        skip(name, "there is no Go toolchain");
        return None;
    };
    let output = build::release_dir().join("go-programs").join(format!("{package}-{name}.test"));
    let mut command = Command::new(go);
    command.args(["test", "-c"]).args(flags).arg("-o").arg(&output).arg(package);
    command.env("CGO_ENABLED", if cgo { "1" } else { "0" }).env("GOFLAGS", "");
    let done = command.output().expect("go runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(output)
}

/// What was built, or could not be, by its name.
type Built = Vec<(String, Option<PathBuf>)>;

/// The program of words, built; `None`, with a word, where that cannot be.
///
/// # Panics
/// Where a toolchain that is there does not build it.
#[must_use]
pub fn program(kind: Kind) -> Option<PathBuf> {
    once(
        kind,
        None,
        &format!("go-{}", kind.0),
        if kind == PLUGINS { &["program.go", "plugins.go"] } else { &["program.go"] },
    )
}

/// The program of words, built by the toolchain of this release, which Go fetches where it does not
/// have it.
///
/// # Panics
/// As [`program`].
#[must_use]
pub fn program_of(kind: Kind, release: &str) -> Option<PathBuf> {
    once(kind, Some(release), &format!("go-{}{release}", kind.0), &["program.go"])
}

/// The random program, built by the usual toolchain or by the one of this release.
///
/// # Panics
/// As [`program`].
#[must_use]
pub fn random(kind: Kind, release: Option<&str>) -> Option<PathBuf> {
    let output = format!("random-{}{}", kind.0, release.unwrap_or_default());
    once(
        kind,
        release,
        &output,
        &[
            "random/main.go",
            "random/disturb.go",
            "random/transfer.go",
            "random/streams.go",
            "random/ends.go",
            "random/hands.go",
            "random/loops.go",
            "random/web.go",
            "random/starts.go",
            "random/apart.go",
        ],
    )
}

fn once(kind: Kind, release: Option<&str>, output: &str, sources: &[&str]) -> Option<PathBuf> {
    static BUILT: Mutex<Built> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, path)) = built.iter().find(|(name, _)| name == output) {
        return path.clone();
    }
    let path = compile(kind, release, output, sources);
    built.push((output.to_owned(), path.clone()));
    path
}

fn compile(
    (name, flags, cgo): Kind,
    release: Option<&str>,
    output: &str,
    sources: &[&str],
) -> Option<PathBuf> {
    let Some(go) = go() else {
        skip(name, "there is no Go toolchain");
        return None;
    };
    let folder = build::release_dir().join("go-programs");
    std::fs::create_dir_all(&folder).expect("a folder for programs");
    // Programs are told apart by it in reports: the kernel keeps 15 letters of a name.
    let output = folder.join(output);
    let mut command = Command::new(go);
    command.arg("build").args(flags).arg("-o").arg(&output).args(sources);
    command
        .current_dir(build::tests_dir().join("programs/go"))
        .env("CGO_ENABLED", if cgo { "1" } else { "0" });
    command.env("GOFLAGS", "");
    match release {
        Some(release) => command.env("GOTOOLCHAIN", release),
        None => command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off"),
    };
    if std::env::var_os("HOME").is_none() {
        command.env("GOCACHE", folder.join("cache"));
    }
    let done = command.output().expect("go runs");
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(cgo || said.contains("download"), "{said}");
        skip(name, "this toolchain cannot build with cgo, has no race detector, or cannot be had");
        return None;
    }
    Some(output)
}
