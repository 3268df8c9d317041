//! The library in the hands of a C program and of a Python program, with a real server.

#[path = "../../cache/tests/support/product.rs"]
mod product;
#[path = "../../cache/tests/support/server.rs"]
mod server;

use product::product;
use std::path::Path;
use std::process::Command;

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{error}");
    text
}

#[test]
fn a_c_program_reads_by_itself() {
    let library = product("libginnel_cache_client.so");
    let folder = library.parent().expect("a folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = tempfile::tempdir().expect("a directory");
    let program = build.path().join("client");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"];
    let mut cc = Command::new("cc");
    cc.args(flags).arg(here.join("include")).arg(here.join("tests/client.c"));
    cc.arg("-o").arg(&program).arg("-L").arg(folder).arg("-lginnel_cache_client");
    said(&mut cc);
    // As it is installed: programs ask for it by the name that stays from version to version.
    let soname = build.path().join("libginnel_cache_client.so.0");
    std::os::unix::fs::symlink(&library, soname).expect("ours");
    let server = server::Server::start(product("ginnel-cache"), &[]);
    let mut run = Command::new(&program);
    run.arg(&server.socket).env("LD_LIBRARY_PATH", build.path());
    run.env("GINNEL_DIR", server.home.path());
    assert_eq!(said(&mut run), "direct 3 asked 2\n");
}

#[test]
fn a_python_program_reads_by_itself() {
    let server = server::Server::start(product("ginnel-cache"), &[]);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut run = Command::new("python3");
    run.arg(here.join("tests/client.py")).arg(&server.socket);
    run.env("PYTHONPATH", here.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("GINNEL_CACHE_LIBRARY", product("libginnel_cache_client.so"));
    run.env("GINNEL_DIR", server.home.path());
    assert_eq!(said(&mut run), "direct 2 asked 4\n");
}

/// The same out of the copy in a segment, as in another machine: a child of fork, too, comes to it
/// by itself.
#[test]
fn a_python_program_reads_a_copy_in_a_segment() {
    let mut command = Command::new(product("ginnel-cache"));
    command.env("GINNEL_SIZE", "256M").env_remove("GINNEL_SEGMENT").arg("--segment");
    let server = server::Server::launch(command, &[]);
    // It listens before it has a door, which is taken away: as if it ran on another kernel.
    let is_door = |path: &Path| path.to_string_lossy().contains("/cache-");
    let entries = || server.home.path().read_dir().expect("ours").map(|entry| entry.expect("ours"));
    let find = || entries().map(|entry| entry.path()).find(|path| is_door(path));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let door = loop {
        match find() {
            Some(door) => break door,
            None => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
        assert!(std::time::Instant::now() < until, "it has no door");
    };
    std::fs::remove_file(door).expect("ours");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut run = Command::new("python3");
    run.arg(here.join("tests/client.py")).arg(&server.socket);
    run.env("PYTHONPATH", here.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("GINNEL_CACHE_LIBRARY", product("libginnel_cache_client.so"));
    run.env("GINNEL_DIR", server.home.path()).env_remove("GINNEL_SEGMENT");
    assert_eq!(said(&mut run), "direct 2 asked 4\n");
}

/// What the client asks the kernel for goes by the C library, where `ginnel run` stands: a look
/// past it at a carried socket saw bytes that are none, and each question made a connection of its
/// own.
#[test]
fn a_carried_client_keeps_its_connection() {
    // Below those that the kernel gives to clients: who asks whether a server listens yet would
    // else be answered by itself.
    let first = 15_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (first..30_000).find(is_free).expect("a port").to_string();
    let mut launch = Command::new(product("ginnel"));
    launch.args(["run", "--"]).arg(product("ginnel-cache"));
    let server =
        server::Server::listen(launch, &["--no-neighbours", "-l", "127.0.0.1", "-p", &port], &port);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut run = Command::new(product("ginnel"));
    run.args(["run", "--", "python3"])
        .arg(here.join("tests/carried.py"))
        .arg(format!("127.0.0.1:{port}"));
    run.env("PYTHONPATH", here.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("GINNEL_CACHE_LIBRARY", product("libginnel_cache_client.so"));
    run.env("GINNEL_DIR", server.home.path());
    assert_eq!(said(&mut run), "direct 0 asked 2000\n");
}
