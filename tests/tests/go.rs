//! Programs in Go, which make their system calls themselves: dynamic ones with cgo,
//! position-independent ones without, and static ones, which `ginnel run` and the hooks of `exec`
//! have loaded. Each behaviour is one word of `programs/go/program.go`, which knows nothing of
//! Ginnel.
//!
//! Needs a Go toolchain (1.19 or later) in `PATH`, in `/usr/local/go`, or named by
//! `GINNEL_TEST_GO`.
#![cfg(target_arch = "x86_64")]

mod alone;
mod containers;
mod crash;
mod debuggers;
mod others;
mod reached;
mod registers;
mod releases;
mod threads;

use ginnel_tests::go::{KINDS, RACE, STATIC, STRIPPED, program};
use ginnel_tests::{Done, Running, Stand, build, is_root, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn stand(name: &str, settings: &[(&str, &str)]) -> Stand {
    let all: Vec<(&str, &str)> =
        [("GINNEL_GO", "1")].into_iter().chain(settings.iter().copied()).collect();
    Stand::shimmed(name, &all).limit(Duration::from_secs(110))
}

/// `ginnel run PROGRAM WORDS`.
fn command(stand: &Stand, program: &Path, words: &[&str]) -> Command {
    let mut command = stand.command(build::ginnel());
    command.arg("run").arg(program).args(words);
    command
}

fn run(stand: &Stand, program: &Path, words: &[&str]) -> Done {
    let done = stand.run(&mut command(stand, program, words));
    assert!(
        done.success() && done.stdout.ends_with("OK\n"),
        "{} {words:?}: {done}",
        program.display()
    );
    done
}

/// Runs a word; at least so many of a hundred bytes have come out of rings.
fn carries(program: &Path, words: &[&str], share: u64) {
    let stand = stand("go", &[]);
    run(&stand, program, words);
    let report = stand.report();
    let (ring, tcp) = (report.sum("ring_in"), report.sum("tcp_in"));
    let enough = ring * (100 - share) >= tcp * share && (share == 0 || ring > 0);
    assert!(enough, "{} {words:?}: {ring} bytes out of rings, {tcp} over TCP", program.display());
}

/// The same in all kinds of program.
fn everywhere(words: &[&str], share: u64) {
    KINDS.into_iter().filter_map(program).for_each(|program| carries(&program, words, share));
}

#[test]
fn connections_are_carried() {
    everywhere(&["echo", "16", "500"], 80);
}

/// `io.Copy` from one connection to another is splice(2) in Go.
#[test]
fn what_is_copied_from_socket_to_socket_is_carried() {
    everywhere(&["forward", "8", "300"], 80);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn many_connections_come_and_go() {
    everywhere(&["many"], 30);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn http_bodies_are_whole() {
    everywhere(&["http"], 50);
}

#[test]
fn programs_are_executed_beside_traffic() {
    everywhere(&["exec"], 70);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn signals_are_told_beside_traffic() {
    everywhere(&["signals"], 60);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn the_collector_works_beside_traffic() {
    everywhere(&["collect"], 60);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn threads_end_with_their_goroutines() {
    everywhere(&["threads"], 5);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn faults_are_panics() {
    everywhere(&["fault"], 40);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn reads_have_deadlines_and_end_with_a_close() {
    everywhere(&["deadlines"], 40);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn profiles_are_taken_beside_traffic() {
    everywhere(&["profile"], 50);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn the_runtime_is_traced_beside_traffic() {
    everywhere(&["trace"], 60);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn children_have_namespaces_of_their_own() {
    if !is_root() {
        return skip("namespaces and Go", "it needs root");
    }
    everywhere(&["namespaces"], 60);
}

/// Every thread, the library's own too, is the new user.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn root_is_given_up_in_all_threads() {
    if !is_root() {
        return skip("giving up root in Go", "it needs root");
    }
    everywhere(&["user"], 0);
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_stripped_program_is_reached() {
    let Some(program) = program(STRIPPED) else { return };
    let stand = stand("go-stripped", &[]);
    run(&stand, &program, &["echo"]);
    let report = stand.report();
    assert!(report.sum("ring_in") > 2 * report.sum("tcp_in"));
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_program_knows_its_own_file() {
    for program in KINDS.into_iter().filter_map(program) {
        let path = program.to_string_lossy().into_owned();
        run(&stand("go-own", &[]), &program, &["own", &path]);
    }
}

/// The library looks at no file of `/proc` for each that the program opens.
#[test]
fn files_are_opened_as_ever() {
    everywhere(&["files"], 0);
}

/// A server, and where it listens.
fn serve(stand: &Stand, program: &Path, word: &str) -> (Running, String) {
    let mut server = stand.start(&mut command(stand, program, &[word]));
    server.wait_for("127.0.0.1:");
    server.wait_for("\n");
    let address = server.output().lines().next().expect("an address").to_owned();
    (server, address)
}

fn end(server: Running) {
    server.signal(libc::SIGTERM);
    let done = server.finish();
    assert!(done.success(), "{done}");
}

/// Each kind as server of the next.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn programs_of_all_kinds_meet() {
    let programs = KINDS.into_iter().filter_map(program).collect::<Vec<_>>();
    for (index, program) in programs.iter().enumerate() {
        let client = &programs[(index + 1) % programs.len()];
        let stand = stand("go-pairs", &[]);
        let (server, address) = serve(&stand, program, "serve");
        run(&stand, client, &["ask", &address, "8", "500"]);
        end(server);
        let report = stand.report();
        assert!(report.sum("ring_in") > 2 * report.sum("tcp_in"), "{}", program.display());
    }
}

/// Reads that find their bytes after a moment's look keep no other goroutine from its turn.
#[test]
fn who_is_answered_at_once_lets_others_run() {
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-share", &[]);
        let (server, address) = serve(&stand, &program, "serve");
        run(&stand, &program, &["share", &address]);
        end(server);
        let report = stand.report();
        assert!(report.sum("ring_in") > 2 * report.sum("tcp_in"), "{}", program.display());
    }
}

/// What a program writes just before it ends is read, whatever carried it.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn the_last_words_are_heard() {
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-exit", &[]);
        let (server, address) = serve(&stand, &program, "attend");
        let done = stand.run(&mut command(&stand, &program, &["exit", &address]));
        assert_eq!(done.status.code(), Some(7), "{done}");
        let done = server.finish();
        assert!(done.stdout.contains("the last words / EOF"), "{done}");
        assert!(stand.report().sum("ring_in") > 0);
    }
}

#[test]
fn a_client_speaks_with_redis() {
    let server_file = Path::new("/usr/bin/redis-server");
    if !server_file.exists() {
        return skip("Go and redis", "redis-server is not installed");
    }
    for (program, port) in KINDS.into_iter().filter_map(program).zip(["16391", "16392", "16393"]) {
        let stand = stand("go-redis", &[]);
        let mut start =
            command(&stand, server_file, &["--port", port, "--save", "", "--bind", "127.0.0.1"]);
        let mut server = stand.start(&mut start);
        server.wait_for("Ready to accept");
        run(&stand, &program, &["redis", &format!("127.0.0.1:{port}")]);
        server.signal(libc::SIGTERM);
        let _ = server.finish();
        let report = stand.report();
        assert!(report.sum("ring_in") > report.sum("tcp_in"), "{}", program.display());
    }
}

/// What is started by what a program starts is reached too.
#[test]
fn grandchildren_are_carried() {
    everywhere(&["descend"], 80);
}

/// A connection that was carried goes on in a child: in Go, within reach and out of it; in a shell,
/// or behind one.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_child_goes_on_with_a_connection() {
    for program in KINDS.into_iter().filter_map(program) {
        let mut children: Vec<Vec<String>> = vec![Vec::new()];
        let other = |kind| {
            self::program(kind)
                .map(|path: PathBuf| vec![path.display().to_string(), "inherited".to_owned()])
        };
        children.extend(KINDS.into_iter().filter_map(other));
        children.extend(other(RACE));
        let shell = |line: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), line];
        children.extend(KINDS.into_iter().filter_map(self::program).flat_map(|path| {
            let line = format!("{} inherited", path.display());
            [shell(format!("exec {line}")), shell(format!("{line}; true"))]
        }));
        for child in children {
            let stand = stand("go-inherit", &[]);
            let (server, address) = serve(&stand, &program, "serve");
            let mut words = vec!["inherit", address.as_str()];
            words.extend(child.iter().map(String::as_str));
            run(&stand, &program, &words);
            end(server);
        }
    }
}

/// The program becomes itself, by `execve`.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_program_replaces_itself() {
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-replace", &[]);
        let (server, address) = serve(&stand, &program, "serve");
        run(&stand, &program, &["replace", &address]);
        end(server);
        assert!(stand.report().sum("ring_in") > 0);
    }
}

/// Whoever executes what the kernel refuses to execute hears of it, and what is executed by a
/// descriptor that is closed then is executed.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn what_cannot_be_loaded_is_executed_as_ever() {
    const SCRIPT: &str = "import os, subprocess, sys
bytes = open(sys.argv[1], 'rb').read()
fd = os.memfd_create('program')
os.write(fd, bytes)
for place in '/proc/self', '/dev':
    pid = os.posix_spawn(f'{place}/fd/{fd}', ['x', 'whoami'], os.environ)
    print('by descriptor', os.waitpid(pid, 0)[1])
try: subprocess.run([sys.argv[2], 'whoami'])
except PermissionError: print('refused')
try: os.posix_spawn(sys.argv[2], ['x', 'whoami'], os.environ)
except PermissionError: print('refused')";
    let Some(program) = program(STATIC) else { return };
    let stand = stand("go-refused", &[]);
    let copy = stand.dir().join("not-executable");
    std::fs::copy(&program, &copy).expect("a copy");
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .expect("its mode");
    let mut python = command(&stand, Path::new("/usr/bin/python3"), &["-c", SCRIPT]);
    let done = stand.run(python.arg(&program).arg(&copy));
    assert!(
        done.stdout.matches("by descriptor 0\n").count() == 2
            && done.stdout.ends_with("refused\nrefused\n"),
        "{done}"
    );
}

/// What a program in C starts is reached too: by exec, and by a spawn.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn a_shell_starts_static_programs() {
    let Some(program) = program(STATIC) else { return };
    let stand = stand("go-shell", &[]);
    let path = program.to_string_lossy();
    let (name, folder) =
        (program.file_name().expect("a name"), program.parent().expect("a folder"));
    let line = format!(
        "{path} own {path} && PATH={}:$PATH && {} echo 4 200",
        folder.display(),
        name.display()
    );
    let done = stand.run(command(&stand, Path::new("/bin/sh"), &["-c", &line]).current_dir("/"));
    assert!(done.success() && done.stdout == "OK\nOK\n", "{done}");
    let report = stand.report();
    assert!(report.sum("ring_in") > 2 * report.sum("tcp_in"), "{done}");
}

/// Whether a static program is reached says the environment that it is to have, not that of the
/// program that starts it.
#[test]
fn a_shell_asks_for_one_command() {
    let Some(program) = program(STATIC) else { return };
    for (shells, commands) in [("0", "1"), ("1", "0")] {
        let stand = Stand::shimmed("go-command", &[("GINNEL_GO", shells)]);
        let line = format!("GINNEL_GO={commands} {} echo 4 200; true", program.display());
        let done = stand.run(&mut command(&stand, Path::new("/bin/sh"), &["-c", &line]));
        assert!(done.success() && done.stdout == "OK\n", "{done}");
        assert_eq!(
            stand.report().sum("ring_in") > 0,
            commands == "1",
            "the shell {shells}, the command {commands}: {done}"
        );
    }
}
