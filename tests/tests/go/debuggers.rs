//! Debuggers that come to a server at work, look, and go: gdb, and delve, Go's own.

use super::{command, end, serve, stand};
use ginnel_tests::go::{KINDS, STATIC, delve, program};
use ginnel_tests::skip;
use std::path::Path;
use std::process::Command;

/// What a debugger says of a server of each kind, while clients exchange with it; `line`: the
/// debugger's command for a process and its program. The server goes on. `None`: nobody may attach.
fn of_each_kind(line: impl Fn(u32, &Path) -> Vec<String>, mut says: impl FnMut(bool, &str)) {
    for kind in KINDS {
        let Some(program) = program(kind) else { continue };
        let stand = stand("go-debugger", &[]);
        let (server, address) = serve(&stand, &program, "serve");
        let client = stand.start(&mut command(&stand, &program, &["ask", &address, "4", "4000"]));
        let mut debugger = Command::new("timeout");
        debugger.args(["-s", "KILL", "60"]).args(line(server.id(), &program));
        let seen = debugger.stdin(std::process::Stdio::null()).output().expect("it runs");
        let text = [seen.stdout, seen.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let done = client.finish();
        assert!(done.success() && done.stdout.ends_with("OK\n"), "{done}");
        end(server);
        if text.contains("peration not permitted") {
            return skip("debuggers and Go", "nobody may attach here");
        }
        says(kind == STATIC, &text);
    }
}

/// Of a static program it is told where the symbols are.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn gdb_may_attach() {
    if !Path::new("/usr/bin/gdb").exists() {
        return skip("gdb and Go", "gdb is not installed");
    }
    let line = |pid: u32, program: &Path| {
        let (pid, symbols) = (pid.to_string(), format!("add-symbol-file {}", program.display()));
        let mut words = vec!["gdb", "-nx", "-batch", "-p", &pid];
        if program.ends_with("go-static") {
            words.extend(["-ex", &symbols]);
        }
        words.extend(["-ex", "thread apply all backtrace 8"]);
        words.into_iter().map(str::to_owned).collect()
    };
    of_each_kind(line, |_, said| assert!(said.contains("runtime."), "{said}"));
}

/// It finds the goroutines of those with a dynamic linker. A static one it takes for the loader,
/// and lets go.
#[test]
#[ignore = "test-all: Go is asked for by name; delve is fetched"]
fn delve_may_attach() {
    let Some(delve) = delve() else { return };
    let stand = stand("go-delve", &[]);
    let script = stand.dir().join("script");
    std::fs::write(&script, "break main.answer\ngoroutines\nclear 1\nexit\n").expect("a script");
    let line = |pid: u32, _: &Path| {
        let (delve, script) = (delve.to_string_lossy(), script.to_string_lossy());
        let words = [&*delve, "attach", &pid.to_string(), "--init", &script];
        let more = ["--allow-non-terminal-interactive=true"];
        words.into_iter().chain(more).map(str::to_owned).collect()
    };
    of_each_kind(line, |is_static, said| {
        let found = ["Breakpoint 1 set at", "main.serve", "cleared at"];
        assert_eq!(found.iter().all(|word| said.contains(word)), !is_static, "{said}");
    });
}
