//! Programs that use musl, with the library that was built for it: carried like those of glibc,
//! between both, and from one to the other through exec.
//!
//! Needs `musl-gcc` (Debian: musl-tools) and Rust's target for musl: `scripts/build-musl.sh` says
//! what is missing, and the tests that they were skipped.

use ginnel_tests::{Running, Stand, build, image::Image, json, programs, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The library, by the name that each dynamic linker follows to its own; `None`, after saying so,
/// where there is none.
fn shim(what: &str) -> Option<PathBuf> {
    let shim = build::shim_of_either();
    if shim.exists() && build::musl_program("pair").is_some() {
        return Some(shim);
    }
    skip(what, "there is no library for musl (scripts/build-musl.sh)");
    None
}

fn stand(name: &str, shim: &Path, settings: &[(&str, &str)]) -> Stand {
    let library = shim.to_string_lossy();
    let all: Vec<(&str, &str)> =
        [("LD_PRELOAD", &*library)].into_iter().chain(settings.iter().copied()).collect();
    Stand::shimmed(name, &all)
}

/// `ginnel run PROGRAM ARGUMENTS`.
fn command(stand: &Stand, program: &Path, arguments: &[&str]) -> Command {
    let mut command = stand.command(build::ginnel());
    command.env_remove("LD_PRELOAD").args(["run", "--"]).arg(program).args(arguments);
    command
}

fn serve(stand: &Stand, command: &mut Command) -> (Running, String) {
    let mut server = stand.start(command);
    server.wait_for("127.0.0.1:");
    server.wait_for("\n");
    let address = server.output().lines().next().expect("an address").to_owned();
    (server, address)
}

fn end(running: Running) {
    running.signal(libc::SIGTERM);
    let done = running.finish();
    assert!(done.success() && done.stderr.is_empty(), "{done}");
}

/// A server and a client: `ginnel status` says that rings carry most of what they say.
fn meet(name: &str, server: &Path, client: &Path) {
    const CONNECTIONS: usize = 8;
    let stand = Stand::shimmed(name, &[]);
    let (server, address) = serve(&stand, &mut command(&stand, server, &["serve"]));
    let mut client = stand.start(&mut command(
        &stand,
        client,
        &["ask", &address, &CONNECTIONS.to_string(), "1000"],
    ));
    client.wait_for("all came back");
    let status = stand.status();
    let (ring, tcp) = (json::sum(&status, "in_ring"), json::sum(&status, "in_tcp"));
    assert!(ring > 9 * tcp, "{name}: {ring} bytes out of rings, {tcp} over TCP: {status}");
    end(client);
    end(server);
    assert_eq!(
        stand.report().processes_of("pair-musl") + stand.report().processes_of("pair"),
        2,
        "both have reported"
    );
}

#[test]
fn both_ends_with_musl() {
    if shim("both ends with musl").is_some()
        && let Some(musl) = build::musl_program("pair")
    {
        meet("musl-both", &musl, &musl);
    }
}

#[test]
fn musl_and_glibc_meet() {
    if shim("musl and glibc").is_some()
        && let Some(musl) = build::musl_program("pair")
    {
        let glibc = build::program("pair");
        meet("musl-client", &glibc, &musl);
        meet("musl-server", &musl, &glibc);
    }
}

/// A program of one C library becomes one of the other, and again: each has its own library.
#[test]
fn programs_of_both_start_each_other() {
    let (Some(_), Some(musl)) = (shim("programs of both"), build::musl_program("pair")) else {
        return;
    };
    let glibc = build::program("pair");
    let stand = Stand::shimmed("musl-chain", &[]);
    let (server, address) = serve(&stand, &mut command(&stand, &glibc, &["serve"]));
    let name = |program: &Path| program.to_string_lossy().into_owned();
    for (index, chain) in [[&musl, &glibc, &musl], [&glibc, &musl, &glibc]].into_iter().enumerate()
    {
        let words = ["run", &name(chain[1]), "run", &name(chain[2]), "ask", &address, "2", "500"];
        let mut client = stand.start(&mut command(&stand, chain[0], &words));
        client.wait_for("all came back");
        let ring = json::sum(&stand.status(), "in_ring");
        assert!(ring > 0, "{index}: {}", stand.status());
        end(client);
    }
    end(server);
}

/// What hands its environment on without the library (a static program), to programs of either
/// kind.
#[test]
fn a_static_program_starts_programs_of_both() {
    let (Some(_), Some(musl)) = (shim("a static program starts both"), build::musl_program("pair"))
    else {
        return;
    };
    let starter = build::static_program("pair");
    let stand = Stand::shimmed("musl-static", &[]);
    let glibc = build::program("pair").to_string_lossy().into_owned();
    let (server, address) = serve(
        &stand,
        stand
            .command(build::ginnel())
            .args(["run", "--"])
            .arg(&starter)
            .args(["run", &glibc, "serve"]),
    );
    let musl = musl.to_string_lossy().into_owned();
    let mut client =
        stand.start(&mut command(&stand, &starter, &["run", &musl, "ask", &address, "2", "500"]));
    client.wait_for("all came back");
    let ring = json::sum(&stand.status(), "in_ring");
    assert!(ring > 0, "{}", stand.status());
    for running in [client, server] {
        running.signal(libc::SIGTERM);
        let done = running.finish();
        // `ginnel run` has said that the first of them stays on TCP.
        assert!(done.success() && done.stderr.lines().count() == 1, "{done}");
    }
}

/// An image for musl, with the folder of the libraries mounted: a container's.
#[test]
fn an_image_for_musl_has_its_own() {
    let (Some(shim), Some(program)) =
        (shim("an image for musl"), build::musl_program("half_close"))
    else {
        return;
    };
    let Some(image) = Image::bare("an image for musl") else { return };
    let linker = format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    for file in [&program, Path::new(&linker), &build::shim(), &shim] {
        image.copy(file);
    }
    let stand = stand("musl-container", &shim, &[]);
    let done = stand.run(&mut image.command_of_accelerated(&stand, &program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}

/// The library asks musl for nothing that it has not had for long, and no other library for
/// anything.
#[test]
fn the_library_needs_musl_alone() {
    let Some(shim) = shim("what the library for musl needs") else { return };
    let said = Command::new("readelf")
        .args(["--dynamic", "-W"])
        .arg(&shim)
        .output()
        .expect("readelf runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let needed: Vec<&str> = said.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.len() == 1 && needed[0].contains("[libc.so]"), "{needed:?}");
}

/// The behaviour programs, compiled for musl: they say what those for glibc say, and are carried.
fn same_with_musl(names: &[&str], ways: &[&str]) {
    let Some(shim) = shim("programs with musl") else { return };
    let library = shim.to_string_lossy().into_owned();
    for name in names {
        let program = build::musl_program(name).expect("there is a compiler");
        let run = |stand: &Stand| {
            let mut command = stand.command(&program);
            let done = stand.run(command.args(program.parent()));
            assert!(done.success() && !done.stdout.is_empty(), "{name}: {done}");
            done.stdout
        };
        let plain = run(&Stand::plain(name).limit(Duration::from_secs(40)));
        let mut carried = 0;
        for (way, settings) in programs::ways(name).filter(|way| ways.contains(&way.0)) {
            let settings: Vec<_> =
                [("LD_PRELOAD", &*library)].into_iter().chain(settings.iter().copied()).collect();
            let stand = Stand::shimmed(&format!("{name}-musl-{way}"), &settings)
                .limit(Duration::from_secs(40));
            assert_eq!(run(&stand), plain, "{name}, {way}");
            carried += stand.report().ring_bytes();
        }
        assert!(carried > 0, "{name}: no byte went through a ring");
    }
}

#[test]
fn some_behaviours_with_musl() {
    same_with_musl(&["half_close", "edge_once", "message_calls", "signals_interrupt"], &["fifo"]);
}

/// Those that musl has all the functions for.
#[test]
#[ignore = "test-all: musl is asked for by name"]
fn behaviours_with_musl() {
    same_with_musl(&BEHAVIOURS, &["fifo", "tokens", "tiny"]);
}

const BEHAVIOURS: [&str; 24] = [
    "becomes_another",
    "both_ways",
    "broken_pipe",
    "child_carries",
    "disconnects",
    "duplicates_in_epoll",
    "edge_short_reads",
    "edge_short_writes",
    "epoll_across_fork",
    "exclusive",
    "exec_keeps",
    "exit_without_close",
    "full_connection",
    "killed_peer",
    "mixed_descriptors",
    "nested_edges",
    "numbers_reused",
    "on_standard_streams",
    "oneshot",
    "preforked_server",
    "receive_timeout",
    "several_sets",
    "signal_storm",
    "threads_share",
];
