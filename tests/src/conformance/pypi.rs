//! Event loops in Python whose packages bring their tests: Tornado's (over asyncio's epoll) and
//! Twisted's own reactor.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, RESULTS, Reader, Suite, fetch};

const TORNADO: &str = "6.4.2";
const TWISTED: &str = "24.11.0";
const PYTEST: &str = "8.3.4";

/// Its modules of tests that open sockets.
const OF_TORNADO: [&str; 11] = [
    "curl_httpclient_test",
    "http1connection_test",
    "httpclient_test",
    "httpserver_test",
    "ioloop_test",
    "iostream_test",
    "netutil_test",
    "simple_httpclient_test",
    "tcpclient_test",
    "tcpserver_test",
    "websocket_test",
];

/// Of Twisted, those in which most bytes go over connections that live long enough to be carried:
/// two of its protocols, over sockets.
const OF_TWISTED: [&str; 2] = ["spread.test.test_pb", "test.test_amp"];

/// Each module a part.
///
/// # Errors
/// When it cannot be fetched.
pub fn tornado(base: &Path) -> Result<Suite> {
    let python = environment(base, &[&format!("tornado=={TORNADO}")])?;
    let parts =
        OF_TORNADO.iter().map(|module| part(&python, module, &format!("tornado.test.{module}")));
    Ok(Suite {
        version: format!("{TORNADO} (PyPI)"),
        remarks: Vec::new(),
        parts: parts.collect(),
        ..Suite::default()
    })
}

/// Each module a part.
///
/// # Errors
/// When it cannot be fetched.
pub fn twisted(base: &Path) -> Result<Suite> {
    let python = environment(
        base,
        &[&format!("twisted=={TWISTED}"), "pyopenssl==24.2.1", "service-identity==24.2.0"],
    )?;
    let parts = OF_TWISTED.iter().map(|module| part(&python, module, &format!("twisted.{module}")));
    Ok(Suite {
        version: format!("{TWISTED} (PyPI)"),
        remarks: Vec::new(),
        parts: parts.collect(),
        ..Suite::default()
    })
}

/// A Python of its own that has these packages.
fn environment(base: &Path, packages: &[&str]) -> Result<String> {
    let dir = base.join("venv");
    let python = dir.join("bin/python").to_string_lossy().into_owned();
    fetch::once(&dir, || {
        fetch::said(&mut fetch::command("/usr/bin/python3", &["-m", "venv", "."], &dir))?;
        let pytest = format!("pytest=={PYTEST}");
        let words = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", &pytest];
        fetch::said(fetch::command(&python, &words, &dir).args(packages))?;
        Ok(())
    })?;
    Ok(python)
}

fn part(python: &str, name: &str, module: &str) -> Part {
    let results = format!("--junit-xml={RESULTS}/results.xml");
    // Neither caches nor folders of its own beside the package, which another user owns.
    // Tornado's tests have five seconds each, which full rings on a busy machine may take.
    let words = [
        "env",
        "ASYNC_TEST_TIMEOUT=60",
        python,
        "-B",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        &results,
        "--pyargs",
        module,
    ];
    Part {
        name: name.to_owned(),
        command: words.map(str::to_owned).to_vec(),
        dir: None,
        limit: Duration::from_secs(600),
        reader: Reader::Junit,
        least: 0,
    }
}
