//! Threads that are none of the C library's and none that Go's scheduler knows, and how many there
//! are.

use super::{command, end, serve, stand};
use ginnel_tests::go::{KINDS, STATIC, own_tests, program};
use ginnel_tests::{is_root, permit, skip};
use std::process::{Command, Stdio};
use std::time::Duration;

/// `runtime.newosproc0` makes a thread without an `m`. Go's own test of it.
#[test]
#[ignore = "test-all: compiles the runtime's tests"]
fn a_thread_without_an_m_runs() {
    let Some(tests) = own_tests("runtime", STATIC) else { return };
    let stand = stand("go-bare", &[]);
    let done = stand.run(&mut command(&stand, &tests, &["-test.v", "-test.run=^TestNewOSProc0$"]));
    assert!(done.success() && done.stdout.contains("--- PASS: TestNewOSProc0"), "{done}");
}

/// Threads of a process.
fn threads(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    tasks.flatten().map(|task| task.file_name().to_string_lossy().into_owned()).collect()
}

/// A thread loses the processor, which strace plays here, while it wakes the other end. The other
/// goroutines' writes do not wait for it: each that did would have Go start another thread for the
/// next, as many as there are connections.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn who_is_held_up_while_it_wakes_holds_up_no_other() {
    const HELD: &str = "inject=write:delay_enter=400000:when=1";
    let works = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    if !is_root() || !works.is_ok_and(|status| status.success()) {
        return skip("threads of a program in Go", "it takes root, and strace");
    }
    let _permit = permit::cpu(2);
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-held", &[("GOMAXPROCS", "1")]);
        let (server, address) = serve(&stand, &program, "serve");
        let client = stand.start(&mut command(&stand, &program, &["talk", &address, "64"]));
        std::thread::sleep(Duration::from_secs(2));
        let before = threads(server.id());
        let log = stand.dir().join("held");
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-e", "trace=write", "-e", HELD, "-o"]).arg(&log);
        strace.args(before.iter().flat_map(|thread| ["-p", thread]));
        let mut strace = strace.stderr(Stdio::null()).spawn().expect("strace runs");
        let mut most = 0;
        for _ in 0..300 {
            std::thread::sleep(Duration::from_millis(10));
            most = most.max(threads(server.id()).len());
        }
        // SAFETY: touches no memory; it was not waited for yet.
        unsafe { libc::kill(strace.id().cast_signed(), libc::SIGINT) };
        let _ = strace.wait();
        client.signal(libc::SIGTERM);
        let done = client.finish();
        assert!(done.success() && done.stdout.ends_with("OK\n"), "{}: {done}", program.display());
        end(server);
        let held = std::fs::read_to_string(&log).expect("strace's log");
        assert!(held.contains("\"\\0\", 1"), "nobody was held up: {held}");
        println!("{}: {} threads, {most} then", program.display(), before.len());
        assert!(most < 3 * before.len().max(8), "{} threads, {most} then", before.len());
    }
}
