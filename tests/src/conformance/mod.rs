//! Other people's test suites, plainly and under the shim, test by test.
//!
//! A [`Suite`] is prepared once (fetched by name from Debian or a language's registry, built under
//! `target/conformance`) and consists of [`Part`]s: programs that run tests and say how each ended,
//! in a form that [`reader`] understands. [`compare`] runs the parts both ways, in a network
//! namespace of their own and as a user without rights where that is possible; [`page`] writes down
//! what came of it. `make conformance` does all of it, `tests/tests/conformance.rs` a short
//! selection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

mod compare;
mod cpython;
mod fetch;
mod go;
mod go_built;
mod go_modules;
mod libuv;
mod made;
mod memcached;
mod netty;
pub mod page;
mod pypi;
mod reader;
mod redis;
mod servers;
mod tokio;

pub use compare::{Outcome, PartRecord, Progress, TestRecord, Way, compare};
pub use cpython::sockets as cpython_sockets;
pub use reader::Reader;
pub use servers::in_go as servers_in_go;

/// Stands for the folder, in an argument of a part, in which it leaves its results.
pub const RESULTS: &str = "{results}";

/// A suite that is ready to run.
#[derive(Debug, Default)]
pub struct Suite {
    /// Its version, and whose build it is.
    pub version: String,
    /// What was left out, and why.
    pub remarks: Vec<String>,
    /// What was to run and could not be built, and why.
    pub not_built: Vec<String>,
    /// What runs, in turn.
    pub parts: Vec<Part>,
}

/// One program that runs tests.
#[derive(Debug)]
pub struct Part {
    /// What it tests; with it begin the names of its tests.
    pub name: String,
    /// The program and its arguments; [`RESULTS`] in them is replaced.
    pub command: Vec<String>,
    /// Where it runs: the folder, or one of its own that is empty.
    pub dir: Option<PathBuf>,
    /// After what time it is taken for stuck, looked at and killed.
    pub limit: Duration,
    /// How it says what came of its tests.
    pub reader: Reader,
    /// So many of a hundred bytes must go through rings: one more test.
    pub least: u8,
}

/// How a suite is made ready: `base` is its own folder, which may hold what an earlier run left.
pub type Prepare = fn(base: &Path) -> Result<Suite>;

/// The name of the suite of our own scripts.
pub const SERVERS: &str = "servers";

/// All suites: name, where it comes from, how it is made ready.
pub const ALL: [(&str, &str, Prepare); 11] = [
    ("CPython", "Debian's libpython3.11-testsuite, Debian's interpreter", cpython::prepare),
    ("memcached", "t/ of Debian's source package", memcached::prepare),
    ("libuv", "Debian's source package", libuv::prepare),
    ("tokio", "the crate's own tests", tokio::prepare),
    (
        "netty",
        "netty-testsuite from Maven Central over its NIO and blocking transports, and the tests of its native epoll transport",
        netty::prepare,
    ),
    ("Go", "the standard library's net, net/http, os/exec, os/signal and runtime", go::prepare),
    (
        "Go modules",
        "own tests of NATS, etcd and gRPC-Go, from Go's module proxy",
        go_modules::prepare,
    ),
    ("Redis", "tests/ of Debian's source package, with Debian's server and tclsh", redis::prepare),
    ("Tornado", "the tests in its wheel, over asyncio's epoll", pypi::tornado),
    (
        "Twisted",
        "the tests in its wheel of two protocols over sockets, over its epoll reactor",
        pypi::twisted,
    ),
    (
        SERVERS,
        "real servers with their own clients, under load, results checked (tests/servers)",
        servers::prepare,
    ),
];

/// The source of a package on PyPI, fetched once, for its tests.
///
/// # Errors
/// When it cannot be fetched.
pub fn source_of(package: &str, version: &str) -> Result<PathBuf> {
    let dir = crate::build::release_dir().with_file_name("conformance").join(package);
    let source = dir.join(format!("{package}-{version}"));
    fetch::once(&source, || {
        fetch::said(&mut fetch::command("/usr/bin/python3", &["-m", "venv", "pip"], &dir))?;
        let wanted = format!("{package}=={version}");
        let words =
            ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package, &wanted];
        fetch::said(&mut fetch::command(
            &dir.join("pip/bin/python").to_string_lossy(),
            &words,
            &dir,
        ))?;
        let archive = format!("{package}-{version}.tar.gz");
        fetch::said(&mut fetch::command("tar", &["-xzf", &archive], &dir))?;
        Ok(())
    })?;
    Ok(source)
}

/// Compiles the Python module whose source that is, by its setup.py and with these variables, once
/// for each name; gives the folder for `PYTHONPATH`.
///
/// # Errors
/// When it cannot be compiled.
pub fn python_module(source: &Path, name: &str, variables: &[(&str, &str)]) -> Result<PathBuf> {
    let folder = source.with_file_name(name);
    let library = folder.join("lib");
    fetch::once(&folder, || {
        let (work, library) = (folder.to_string_lossy(), library.to_string_lossy());
        let words = ["setup.py", "-q", "build", "--build-base", &work, "--build-lib", &library];
        let mut command = fetch::command("/usr/bin/python3", &words, source);
        fetch::said(command.envs(variables.iter().copied()))?;
        Ok(())
    })?;
    Ok(library)
}
