//! CPython's tests of everything that holds a socket.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Part, RESULTS, Reader, Suite, fetch};

const PYTHON: &str = "/usr/bin/python3.11";

const MODULES: [&str; 26] = [
    "test_socket",
    "test_selectors",
    "test_epoll",
    "test_poll",
    "test_select",
    "test_asyncio",
    "test_ssl",
    "test_socketserver",
    "test_httplib",
    "test_httpservers",
    "test_ftplib",
    "test_smtplib",
    "test_imaplib",
    "test_poplib",
    "test_telnetlib",
    "test_urllib2_localnet",
    "test_xmlrpc",
    "test_multiprocessing_fork",
    "test_multiprocessing_spawn",
    "test_multiprocessing_forkserver",
    "test_asyncore",
    "test_asynchat",
    "test_os",
    "test_subprocess",
    "test_signal",
    "test_threading",
];

/// Each module a part.
///
/// # Errors
/// When it is not installed.
pub fn prepare(base: &Path) -> Result<Suite> {
    suite(base, &MODULES)
}

/// Those of sockets and selectors alone.
///
/// # Errors
/// When it is not installed.
pub fn sockets(base: &Path) -> Result<Suite> {
    suite(base, &MODULES[..5])
}

fn suite(base: &Path, modules: &[&str]) -> Result<Suite> {
    ensure!(
        Path::new(PYTHON).exists() && Path::new("/usr/lib/python3.11/test/test_socket.py").exists(),
        "libpython3.11-testsuite is not installed"
    );
    let version = fetch::said(&mut fetch::command(
        "dpkg-query",
        &["-W", "-f", "${Version}", "libpython3.11-testsuite"],
        base,
    ))?;
    let parts = modules.iter().map(|module| Part {
        name: (*module).to_owned(),
        // VSOCK's address here is the machine's own, whatever the namespace. -B: no .pyc files.
        command: [
            PYTHON,
            "-B",
            "-m",
            "test",
            "-u",
            "network",
            "-i",
            "*VSOCK*",
            "--timeout",
            "300",
            "--junit-xml",
            &format!("{RESULTS}/results.xml"),
            module,
        ]
        .map(str::to_owned)
        .to_vec(),
        dir: None,
        limit: Duration::from_secs(360),
        reader: Reader::Junit,
        least: 0,
    });
    Ok(Suite {
        version: format!("3.11 (Debian {version})"),
        remarks: Vec::new(),
        parts: parts.collect(),
        ..Suite::default()
    })
}
