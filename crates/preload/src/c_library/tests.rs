use super::*;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

/// This test's own file: it needs what any program does that was built here.
fn this() -> CString {
    c(&std::env::current_exe().expect("a test has a path"))
}

/// The C library that it runs with.
fn own() -> CString {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6")).expect("a C library");
    CString::new(line.split_whitespace().last().expect("a path")).expect("no zero byte")
}

/// A directory with a copy of the dynamic linker and what passes for a C library, with these
/// versions.
fn made(dir: &Path, versions: &[&str]) -> PathBuf {
    let nodes: Vec<String> =
        versions.iter().enumerate().map(|(i, name)| format!("{name} {{ f{i}; }};\n")).collect();
    let functions: Vec<String> =
        (0..versions.len()).map(|i| format!("void f{i}(void) {{}}\n")).collect();
    std::fs::write(dir.join("map"), nodes.concat()).expect("written");
    std::fs::write(dir.join("c.c"), functions.concat()).expect("written");
    let script = format!("-Wl,--version-script={}", dir.join("map").display());
    let mut compiled = Command::new("cc");
    compiled.args(["-shared", "-nostdlib", "-fPIC", &script, "-Wl,-soname=libc.so.6", "-o"]);
    let done = compiled.arg(dir.join("libc.so.6")).arg(dir.join("c.c")).output().expect("cc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let linker = dir.join("ld-linux-x86-64.so.2");
    std::fs::write(&linker, "not looked into").expect("written");
    linker
}

#[test]
fn the_system_can_have_what_was_built_for_it() {
    let (needed, defined) = (newest(&this(), Table::Needed), newest(&own(), Table::Defined));
    let (Newest::Minor(needed), Newest::Minor(defined)) = (needed, defined) else {
        panic!("not read")
    };
    assert!((17..=defined).contains(&needed) && (28..100).contains(&defined), "{needed} {defined}");
    assert_eq!(of_system(Some(&this())), None);
}

#[test]
fn an_older_glibc_cannot() {
    let dir = tempfile::tempdir().expect("a directory");
    let linker = made(dir.path(), &["GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.3.4", "GLIBC_PRIVATE"]);
    assert_eq!(
        newest(&c(&dir.path().join("libc.so.6")), Table::Defined),
        Newest::Minor(14),
        "as numbers, not as text"
    );
    assert_eq!(of_linker(&c(&linker), Some(&this())), Some(Unreachable::OlderGlibc));
    assert_eq!(
        of_linker(&c(&linker), None),
        None,
        "by a name that says not where the library lies"
    );
    // Through links, as it is found before glibc 2.34 and by another name of the directory.
    let other = tempfile::tempdir().expect("a directory");
    let (link, folder) = (other.path().join("ld-linux-x86-64.so.2"), other.path().join("lib"));
    std::os::unix::fs::symlink(dir.path(), &folder).expect("a link");
    std::os::unix::fs::symlink("lib/ld-linux-x86-64.so.2", &link).expect("a link");
    assert_eq!(of_linker(&c(&link), Some(&this())), Some(Unreachable::OlderGlibc));
}

#[test]
fn a_later_one_can() {
    let dir = tempfile::tempdir().expect("a directory");
    let linker = made(dir.path(), &["GLIBC_2.2.5", "GLIBC_2.99"]);
    assert_eq!(of_linker(&c(&linker), Some(&this())), None);
    assert_eq!(of_linker(&c(&linker), Some(c"/no/such/library.so")), Some(Unreachable::NoSuchFile));
}

#[test]
fn who_has_no_glibc_beside_its_linker_cannot() {
    let dir = tempfile::tempdir().expect("a directory");
    let linker = dir.path().join("ld-linux-x86-64.so.2");
    assert_eq!(of_linker(&c(&linker), Some(&this())), None, "nothing will be executed");
    std::fs::write(&linker, "").expect("written");
    assert_eq!(of_linker(&c(&linker), Some(&this())), Some(Unreachable::OtherLibrary));
    std::fs::remove_file(&linker).expect("removed");
    // As Alpine's libc6-compat has it.
    let musl = dir.path().join("libc.musl-x86_64.so.1");
    std::fs::write(&musl, "").expect("written");
    std::os::unix::fs::symlink(&musl, &linker).expect("a link");
    assert_eq!(of_linker(&c(&linker), Some(&this())), Some(Unreachable::MuslAlone));
    for other in [c"/system/bin/linker64", c"/lib/ld-uClibc.so.1"] {
        assert_eq!(of_linker(other, Some(&this())), Some(Unreachable::OtherLibrary));
    }
}

#[test]
fn links_in_a_circle_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("ld-linux-x86-64.so.2");
    std::os::unix::fs::symlink("ld-linux-x86-64.so.2", &link).expect("a link");
    assert_eq!(of_linker(&c(&link), Some(&this())), None);
}

#[test]
fn cut_and_scrambled_libraries_do_no_harm() {
    let dir = tempfile::tempdir().expect("a directory");
    made(dir.path(), &["GLIBC_2.2.5", "GLIBC_2.14"]);
    let (whole, path) =
        (std::fs::read(dir.path().join("libc.so.6")).expect("read"), dir.path().join("x"));
    let name = c(&path);
    for at in (4..whole.len()).step_by(41) {
        let mut file = whole.clone();
        file[at] ^= 0xff;
        std::fs::write(&path, &file).expect("written");
        let _ = newest(&name, Table::Defined);
        let _ = newest(&name, Table::Needed);
        std::fs::write(&path, &whole[..at]).expect("written");
        let _ = newest(&name, Table::Defined);
    }
}
