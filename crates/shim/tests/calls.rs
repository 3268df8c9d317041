//! `calls.c` makes the calls that the shim stands before, and prints what each answered: the same
//! with and without the shim, whatever carries the bytes.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

fn shim() -> PathBuf {
    ginnel_tests::build::shim()
}

/// Compiles `calls.c` with `flags`, under a name of its own.
fn compiled(name: &str, flags: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls.c");
    let status = Command::new("cc")
        .args(flags)
        .arg("-w")
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(["-lutil", "-lrt", "-pthread"])
        .status();
    assert!(status.expect("cc runs").success());
    program
}

fn printed(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// What the program prints through the shim, which upgrades a connection after so many exchanges.
fn through_shim(program: &Path, after: &str) -> String {
    let directory = program.with_extension("segments");
    std::fs::create_dir_all(&directory).expect("a directory");
    // As the ledger wants it: the user's alone.
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&directory, own).expect("it is ours");
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", shim()).env("GINNEL_DIR", directory).env("GINNEL_AFTER", after);
    printed(finished(&mut command))
}

/// Runs a program to its end. One that hangs tells its stacks, and is killed.
fn finished(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let pid = child.id().to_string();
    let (over, waits) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(90)) == Err(RecvTimeoutError::Timeout) {
            let stacks = Command::new("gdb")
                .args(["-p", &pid, "-batch", "-ex", "thread apply all bt"])
                .output();
            eprintln!(
                "it hangs:\n{}",
                stacks.map_or_else(
                    |error| error.to_string(),
                    |said| String::from_utf8_lossy(&said.stdout).into()
                )
            );
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
    });
    let output = child.wait_with_output().expect("it ends");
    drop(over);
    watchdog.join().expect("no panic");
    output
}

fn compare(name: &str, flags: &[&str]) {
    let program = compiled(name, flags);
    let plain = printed(Command::new(&program).output().expect("runs"));
    assert!(plain.lines().count() > 200, "{plain}");
    for after in ["3", "0"] {
        let through = through_shim(&program, after);
        for (line, (plain, through)) in plain.lines().zip(through.lines()).enumerate() {
            assert_eq!(
                plain, through,
                "line {line}: without the shim (left) and with it, upgrading after {after} (right)"
            );
        }
        assert_eq!(plain.lines().count(), through.lines().count());
    }
}

#[test]
fn calls_answer_as_without_the_shim() {
    compare("calls-plain", &["-O0"]);
}

#[test]
fn fortified_calls_answer_as_without_the_shim() {
    compare("calls-fortified", &["-O2", "-D_FORTIFY_SOURCE=2"]);
}

#[test]
fn large_file_calls_answer_as_without_the_shim() {
    compare("calls-large", &["-O2", "-D_FILE_OFFSET_BITS=64"]);
}

/// Every function that the program takes from the C library and that the shim exports is taken from
/// the shim, whatever its version.
#[test]
fn the_loader_binds_to_the_shim() {
    let program = compiled("calls-bound", &["-O2", "-D_FORTIFY_SOURCE=2"]);
    let names = |library: &Path, which: &str| -> BTreeSet<String> {
        let list =
            printed(Command::new("nm").args(["-D", which]).arg(library).output().expect("nm runs"));
        let symbols = list.lines().filter_map(|line| line.split_whitespace().last());
        symbols.map(|symbol| symbol.split('@').next().unwrap_or(symbol).to_owned()).collect()
    };
    let exported = names(&shim(), "--defined-only");
    let wanted: BTreeSet<_> =
        names(&program, "--undefined-only").intersection(&exported).cloned().collect();
    for fortified in [
        "__read_chk",
        "__recv_chk",
        "__recvfrom_chk",
        "__poll_chk",
        "__ppoll_chk",
        "__dprintf_chk",
        "__vdprintf_chk",
    ] {
        assert!(wanted.contains(fortified), "the program does not use {fortified}");
    }
    let log =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bindings-{}", std::process::id()));
    let mut child = Command::new(&program)
        .env("LD_PRELOAD", shim())
        .env("GINNEL_OFF", "1")
        .env("LD_BIND_NOW", "1")
        .env("LD_DEBUG", "bindings")
        .env("LD_DEBUG_OUTPUT", &log)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("runs");
    let file = format!("{}.{}", log.display(), child.id());
    assert!(child.wait().expect("ends").success());
    let log = std::fs::read_to_string(file).expect("the loader's log");
    let from_program = format!(
        "binding file {} [0] to {} [0]: normal symbol `",
        program.display(),
        shim().display()
    );
    let bound: BTreeSet<_> = log
        .lines()
        .filter_map(|line| line.split_once(&from_program)?.1.split_once('\''))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_eq!(wanted.difference(&bound).collect::<Vec<_>>(), [""; 0], "not bound to the shim");
}
