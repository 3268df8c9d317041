//! The library that is preloaded and the one that a program is linked with (`libginnel.so`), in one
//! process and one segment.

use ginnel_tests::{Stand, build};
use std::path::Path;
use std::process::Command;

/// The program, linked with the library that was built for it in this directory.
fn program(directory: &Path) -> std::path::PathBuf {
    let root = build::tests_dir().parent().expect("the workspace");
    let built = Command::new(root.join("scripts/build-capi.sh"))
        .arg(directory)
        .env("GINNEL_BUILT", "1")
        .env("CARGO_TARGET_DIR", build::release_dir().parent().expect("the target folder"))
        .output()
        .expect("a script");
    assert!(built.status.success(), "{built:?}");
    let (source, to) = (build::tests_dir().join("programs"), directory.join("objects"));
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    compile.arg("-I").arg(source.join("include")).arg("-I").arg(directory.join("include"));
    compile.arg(source.join("objects/objects.c")).arg("-o").arg(&to);
    compile.arg("-L").arg(directory.join("lib")).args(["-lginnel", "-lpthread"]);
    compile.arg(format!("-Wl,-rpath,{}", directory.join("lib").display()));
    let compiled = compile.output().expect("cc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    to
}

#[test]
fn both_libraries_in_one_process() {
    let plain = Stand::plain("objects-plainly");
    let program = program(plain.dir());
    // Alone, the one of objects has a directory of its own.
    let expected = plain.run(plain.command(&program).env("GINNEL_DIR", plain.dir().join("own")));
    assert!(expected.success(), "{expected}");
    let stand = Stand::shimmed("objects", &[]);
    let done = stand.run(&mut stand.command(&program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert_eq!(done.stdout, expected.stdout);
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
    // Both have been in the same segment.
    let listed = Command::new(build::ginnel())
        .args(["ls", "--json"])
        .env("GINNEL_DIR", stand.dir())
        .env_remove("GINNEL_SEGMENT")
        .output()
        .expect("ginnel");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("\"lock\"") && listed.contains("\"numbers\""), "{listed}");
}
