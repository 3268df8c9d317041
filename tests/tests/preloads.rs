//! Beside other things that put themselves between a program and the C library: allocators, and an address sanitizer.

use ginnel_tests::{Stand, build, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 4] = ["half_close", "several_sets", "threads_share", "exec_keeps"];

/// A shared library of the system's, in its folder for this kind of machine.
fn library(name: &str) -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join(name)).find(|file| file.exists())
}

fn holds(name: &str, preload: &str) {
    let plain = Stand::plain("expected");
    let expected = plain.run(&mut plain.command(build::program(name)));
    let stand = Stand::shimmed("preloads", &[("LD_PRELOAD", preload)]);
    let done = stand.run(&mut stand.command(build::program(name)));
    assert!(done.success(), "{name} with {preload}: {done}");
    assert_eq!(done.stdout, expected.stdout, "{name} with {preload}");
    assert!(done.stderr.is_empty(), "{name} with {preload}: {done}");
    assert!(stand.report().ring_bytes() > 0, "{name} with {preload}: no byte went through a ring");
}

fn beside(library_name: &str) {
    let Some(other) = library(library_name) else {
        return skip(library_name, "it is not installed");
    };
    let (shim, other) = (build::shim(), other.display().to_string());
    for name in PROGRAMS {
        holds(name, &format!("{}:{other}", shim.display()));
        holds(name, &format!("{other}:{}", shim.display()));
    }
}

#[test]
fn jemalloc() {
    beside("libjemalloc.so.2");
}

#[test]
fn tcmalloc() {
    beside("libtcmalloc_minimal.so.4");
}

/// `dlsym` takes memory before glibc 2.34, and an allocator that sets itself up with its lock held comes through hooks: functions are found without it.
#[test]
fn functions_are_found_without_dlsym() {
    let stand = Stand::shimmed("symbols", &[]);
    let (source, library) = (stand.dir().join("no_dlsym.c"), stand.dir().join("no_dlsym.so"));
    std::fs::write(
        &source,
        "#include <stdlib.h>\nvoid *dlsym(void *from, const char *name) { (void)from, (void)name; abort(); }\n",
    )
    .expect("source");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output().expect("cc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    for name in PROGRAMS {
        holds(name, &format!("{}:{}", build::shim().display(), library.display()));
    }
}

/// A program of an address sanitizer's refuses to start where another library comes before the sanitizer's own, unless it is told.
#[test]
fn address_sanitizer() {
    let stand = Stand::shimmed("sanitizer", &[]);
    let (source, program) = (build::tests_dir().join("programs"), stand.dir().join("program"));
    let mut compile = Command::new("cc");
    compile.args(["-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=address", "-I"]).arg(source.join("include"));
    compile.arg("-o").arg(&program).arg(source.join("half_close.c")).arg("-lpthread");
    let compiled = compile.output().expect("cc runs");
    if !compiled.status.success() {
        return skip("address sanitizer", &String::from_utf8_lossy(&compiled.stderr));
    }
    run_by_ginnel(&stand, &program);
}

fn run_by_ginnel(stand: &Stand, program: &Path) {
    let plain = Stand::plain("expected");
    let expected = plain.run(&mut plain.command(program));
    assert!(expected.success(), "{expected}");
    let mut command = stand.command(build::ginnel());
    let done = stand.run(command.env_remove("LD_PRELOAD").env("XDG_CONFIG_HOME", stand.dir()).args(["run", "--"]).arg(program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert_eq!(done.stdout, expected.stdout);
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}
