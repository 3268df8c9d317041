//! Programs of libmemcached with the library preloaded, and a real server.

#[path = "../../cache/tests/support/product.rs"]
mod product;
#[path = "../../cache/tests/support/server.rs"]
mod server;

use product::product;
use server::Server;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that has the library preloaded, in the Ginnel directory of a server.
fn preloaded(program: &str, server: &Server) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", product("libginnel_memcached.so"))
        .env("GINNEL_MEMCACHED_REPORT", "1");
    command.env("GINNEL_DIR", server.home.path()).stdin(Stdio::null());
    command
}

/// Standard output and standard error.
fn said(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    (out, err)
}

/// Python of the system, which sees the system's modules.
fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

#[test]
fn only_the_server_of_the_connection_is_read() {
    let server = Server::start(product("ginnel-cache"), &[]);
    let other = Server::start("memcached", &[]);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client.py");
    let mut run = preloaded(python(), &server);
    run.arg(program).arg(&server.socket).arg(&other.socket);
    assert_eq!(said(&mut run).0, "ok\n");
}

/// memccp and memccat, as Debian has them.
#[test]
fn debians_own_programs_read_by_themselves() {
    let server = Server::start(product("ginnel-cache"), &[]);
    let servers = format!("--servers={}", server.socket.display());
    let file = server.home.path().join("greeting");
    std::fs::write(&file, "hello\n").expect("written");
    said(preloaded("memccp", &server).arg(&servers).arg(&file));
    let (value, report) = said(preloaded("memccat", &server).arg(&servers).arg("greeting"));
    assert!(value.starts_with("hello\n"), "{value:?}");
    assert!(report.contains("1 reads out of the memory, 0 by libmemcached"), "{report}");
}

/// pylibmc, where it is installed: a module of Python, which alone sees its libmemcached.
#[test]
fn pylibmc_reads_by_itself() {
    let known =
        Command::new(python()).args(["-c", "import pylibmc"]).stderr(Stdio::null()).status();
    if !known.is_ok_and(|status| status.success()) {
        return println!("skipped: no pylibmc (python3-pylibmc)");
    }
    let server = Server::start(product("ginnel-cache"), &[]);
    let script = "import pylibmc, sys; c = pylibmc.Client([sys.argv[1]], binary=True); \
                  c.set('a', 'text'); c.set('b', [1, 2]); \
                  print(c.get('a'), c.get('b'), c.get_multi(['a', 'b']) == {'a': 'text', 'b': [1, 2]}, c.get('none'))";
    let mut run = preloaded(python(), &server);
    run.args(["-c", script]).arg(&server.socket);
    let (value, report) = said(&mut run);
    assert_eq!(value, "text [1, 2] True None\n");
    assert!(report.contains("4 reads out of the memory, 1 by libmemcached"), "{report}");
}
