//! Header, library and pkg-config file, used by programs in C11 and C++17 that know nothing else.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The library as it is installed, linked from what `make product` built.
pub fn installed(to: &Path) {
    let built =
        ran(Command::new(root().join("scripts/build-capi.sh")).arg(to).env("GINNEL_BUILT", "1"));
    assert!(built.status.success(), "{built:?}");
}

/// Runs a command. One that has not ended after ten minutes, which only a hang takes, is ended and
/// has failed. What it prints is read meanwhile: nobody waits for room in a pipe.
pub fn ran(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id().to_string();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    match told.recv_timeout(Duration::from_secs(600)) {
        Ok(output) => output.expect("a child"),
        Err(_) => {
            let _ = Command::new("kill").args(["-9", &pid]).status();
            panic!("{command:?} hangs");
        }
    }
}

fn compiled(place: &Path, compiler: &str, standard: &str, source: &str) -> PathBuf {
    let name = Path::new(source).file_name().expect("a file").to_string_lossy();
    let program = place.join(name.replace('.', "-"));
    let flags = ran(Command::new("pkg-config")
        .args(["--cflags", "--libs", "ginnel"])
        .env("PKG_CONFIG_PATH", place.join("lib/pkgconfig")));
    let flags = String::from_utf8(flags.stdout).expect("text");
    // Where pkg-config is not installed, what it would say.
    let own = format!("-I{0}/include -L{0}/lib -lginnel", place.display());
    let flags = if flags.trim().is_empty() { own } else { flags };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-g"];
    let done = ran(Command::new(compiler)
        .args([standard, "-D_GNU_SOURCE"])
        .args(warnings)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}/lib", place.display())));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

fn run_in(place: &Path, program: &Path) {
    let done = ran(Command::new(program)
        .env("GINNEL_DIR", place.join("own"))
        .env_remove("GINNEL_SEGMENT"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
}

pub fn place() -> tempfile::TempDir {
    let base = ["/dev/shm", "/tmp"].into_iter().find(|base| Path::new(base).is_dir());
    tempfile::tempdir_in(base.expect("a place")).expect("a directory")
}

#[test]
fn a_program_in_c_shares_memory_queues_and_locks_with_its_children() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "objects.c");
    run_in(place.path(), &program);
}

#[test]
fn a_program_in_c_talks_to_its_child_by_streams() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "streams.c");
    run_in(place.path(), &program);
}

#[test]
fn a_newcomers_program_in_c() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "newcomer.c");
    run_in(place.path(), &program);
}

#[test]
fn what_ends_with_a_thread_or_a_child_is_the_callers_no_more() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "ends.c");
    run_in(place.path(), &program);
}

#[test]
fn processes_in_c_wait_for_each_other() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "waiting.c");
    run_in(place.path(), &program);
}

#[test]
fn what_serves_one_thread_says_so_to_another() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "threads.c");
    run_in(place.path(), &program);
}

#[test]
fn the_header_is_cpp_too() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "c++", "-std=c++17", "objects.cpp");
    run_in(place.path(), &program);
}

/// Nothing is shown but what the header declares, each under the version that added it.
#[test]
fn the_library_shows_what_the_header_declares() {
    let place = place();
    installed(place.path());
    let listed = ran(Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(place.path().join("lib/libginnel.so")));
    let listed = String::from_utf8(listed.stdout).expect("text");
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    let mut shown: Vec<&str> = names.filter(|name| !name.starts_with("GINNEL_")).collect();
    shown.sort_unstable();
    let header = std::fs::read_to_string(place.path().join("include/ginnel.h")).expect("there");
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '}', 't']));
    let name = |line: &str| {
        let before = line.split('(').next().unwrap_or_default();
        before.rsplit([' ', '*']).next().unwrap_or_default().to_owned() + "@@GINNEL_0.1"
    };
    let mut declared: Vec<String> =
        declared.filter(|line| line.contains("ginnel_")).map(name).collect();
    declared.retain(|name| name.starts_with("ginnel_"));
    declared.sort_unstable();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(shown, declared);
}

/// What programs were compiled with stays as it was: `programs/abi.c` is the snapshot.
#[test]
fn what_version_0_1_promised_is_kept() {
    let place = place();
    installed(place.path());
    let program = compiled(place.path(), "cc", "-std=c11", "abi.c");
    run_in(place.path(), &program);
    // The snapshot is whole: each function that the library shows is in it.
    let snapshot = include_str!("programs/abi.c");
    let map = include_str!("../ginnel.map");
    let names = map.lines().map(|line| line.trim().trim_end_matches(';'));
    let names: Vec<_> = names.filter(|name| name.starts_with("ginnel_")).collect();
    assert!(
        names.len() > 60 && names.iter().all(|name| snapshot.contains(&format!("(any){name},")))
    );
}

/// Each example in C of the guide is a whole program.
#[test]
fn the_guides_examples_run() {
    let place = place();
    installed(place.path());
    let guide = std::fs::read_to_string(root().join("docs/sdk.md")).expect("there");
    let examples = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut count = 0;
    for example in examples {
        let source = place.path().join(format!("example{count}.c"));
        std::fs::write(&source, example).expect("written");
        let program = compiled(place.path(), "cc", "-std=c11", source.to_str().expect("UTF-8"));
        run_in(place.path(), &program);
        count += 1;
    }
    assert!(count > 0);
}
