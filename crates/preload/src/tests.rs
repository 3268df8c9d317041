use super::*;
use crate::elf::MACHINE;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

fn why(path: &Path) -> Option<Unreachable> {
    look(&c(path), None).map(|finding| finding.why)
}

/// Builds a C program; `None` where there is no compiler, or not this sort of library.
fn compile(dir: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (dir.join("p.c"), dir.join(name));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("source");
    let done = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).output().ok()?;
    done.status.success().then_some(program)
}

#[test]
fn real_programs() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(why(Path::new("/bin/sh")), None);
    for (name, flags, expected) in [
        ("dynamic", &[][..], None),
        ("static", &["-static"][..], Some(Unreachable::Static)),
        ("static-pie", &["-static-pie"][..], Some(Unreachable::Static)),
        ("no-pie", &["-no-pie"][..], None),
        ("narrow", &["-m32"][..], Some(Unreachable::OtherClass)),
    ] {
        match compile(dir.path(), name, flags) {
            Some(program) => assert_eq!(why(&program), expected, "{name}"),
            None => eprintln!("not tried, cc {flags:?} fails here"),
        }
    }
}

#[test]
fn the_dynamic_linker_is_not_taken_for_a_static_program() {
    let linkers = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    for linker in linkers.map(Path::new) {
        assert_eq!(why(linker), None, "{}", linker.display());
    }
    let musl = Path::new("/lib/ld-musl-x86_64.so.1");
    assert_eq!(
        why(musl),
        Some(Unreachable::MuslAlone),
        "but musl's must not see the library for glibc"
    );
}

#[test]
fn what_is_no_program_says_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(why(dir.path()), None);
    assert_eq!(why(&dir.path().join("nothing")), None);
    let fifo = dir.path().join("fifo");
    sys::mkfifoat(libc::AT_FDCWD, &c(&fifo), 0o700).expect("a FIFO");
    assert_eq!(why(&fifo), None, "and it is not waited for");
}

#[test]
fn scripts_are_their_interpreters() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script");
    for line in ["#! /bin/sh -e\n", "#!/bin/sh", "#!\t/bin/sh\techo\n"] {
        std::fs::write(&script, line).expect("script");
        assert_eq!(why(&script), None, "{line:?}");
    }
    std::fs::write(&script, "#!\n").expect("script");
    assert_eq!(why(&script), Some(Unreachable::Unknown));
    if let Some(program) = compile(dir.path(), "interpreter", &["-static"]) {
        std::fs::write(&script, format!("#!{}\n", program.display())).expect("script");
        let outer = dir.path().join("outer");
        std::fs::write(&outer, format!("#!{} x", script.display())).expect("script");
        let found = look(&c(&outer), None).expect("found");
        assert_eq!((found.interpreter(), found.why), (Some(&*c(&program)), Unreachable::Static));
    }
    std::fs::write(&script, format!("#!{}\n", script.display())).expect("script");
    assert_eq!(why(&script), None, "its own interpreter: the kernel will say so");
}

#[test]
fn set_group_id_is_seen() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("program");
    std::fs::copy("/bin/sh", &program).expect("copy");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("mode");
    assert_eq!(why(&program), None, "set to whoever calls it anyway");
    if std::os::unix::fs::chown(&program, Some(65534), Some(65534)).is_ok() {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("mode");
        assert_eq!(why(&program), Some(Unreachable::Setuid));
    }
}

/// The least file with the headers given: (type, bytes of the part).
fn made(class: u8, machine: u8, parts: &[(u32, &[u8])]) -> Vec<u8> {
    let mut file = vec![0u8; 64 + 56 * parts.len()];
    file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
    file[18] = machine;
    file[32] = 64;
    file[54] = 56;
    file[56] = u8::try_from(parts.len()).expect("few");
    for (i, (kind, bytes)) in parts.iter().enumerate() {
        let at = 64 + 56 * i;
        let offset = file.len() as u64;
        file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
        file[at + 32..at + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        file.extend_from_slice(bytes);
    }
    file
}

#[test]
fn made_programs() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("program");
    let own = u8::try_from(MACHINE).expect("small");
    let glibc: (u32, &[u8]) = (3, b"/lib64/ld-linux-x86-64.so.2\0");
    let go: (u32, &[u8]) = (4, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
    let gnu: (u32, &[u8]) = (4, b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd");
    let both = [gnu.1, go.1].concat();
    let many = vec![(1, &[0u8; 100][..]); 60];
    for (file, expected) in [
        (made(2, own, &[glibc, gnu]), None),
        (made(2, own, &[gnu]), Some(Unreachable::Static)),
        (made(2, own, &[glibc, gnu, go]), Some(Unreachable::Go)),
        (made(2, own, &[glibc, (4, &both)]), Some(Unreachable::Go)),
        (made(2, own, &[go]), Some(Unreachable::StaticGo)),
        (made(2, own, &[go, (3, b"/lib/ld-musl-x86_64.so.1\0")]), Some(Unreachable::MuslGo)),
        (made(2, own, &[&many[..], &[glibc]].concat()), None),
        (made(2, own, &[(3, b"/lib/ld-musl-x86_64.so.1\0")]), Some(Unreachable::MuslAlone)),
        (made(2, 250, &[glibc]), Some(Unreachable::OtherMachine)),
        (made(1, 3, &[glibc]), Some(Unreachable::OtherClass)),
        (b"\x7fELF".to_vec(), Some(Unreachable::Unknown)),
        (b"just text".to_vec(), Some(Unreachable::Unknown)),
        (Vec::new(), Some(Unreachable::Unknown)),
    ] {
        std::fs::write(&path, &file).expect("write");
        assert_eq!(why(&path), expected);
    }
}

#[test]
fn a_library_for_musl_reaches_programs_for_musl() {
    let dir = tempfile::tempdir().expect("a directory");
    let (library, program) = (dir.path().join("libginnel_shim.so"), dir.path().join("program"));
    let own = u8::try_from(MACHINE).expect("small");
    std::fs::write(&program, made(2, own, &[(3, b"/lib/ld-musl-x86_64.so.1\0")])).expect("write");
    let found = |library: &Path| look(&c(&program), Some(&c(library))).expect("found");
    let without = found(&library);
    assert_eq!((without.why, without.preload()), (Unreachable::MuslAlone, Preload::TokenOnly));
    std::fs::create_dir(dir.path().join(LIB)).expect("a directory");
    std::fs::write(dir.path().join(LIB).join("libginnel_shim.so"), "not looked into")
        .expect("write");
    let with = found(&library);
    assert_eq!((with.why, with.preload()), (Unreachable::Musl, Preload::Either));
    assert_eq!(
        found(&dir.path().join(LIB).join("libginnel_shim.so")).why,
        Unreachable::Musl,
        "by either name"
    );
    std::fs::write(&program, made(2, own, &[])).expect("write");
    assert_eq!(
        (found(&library).why, found(&library).preload()),
        (Unreachable::Static, Preload::Either)
    );
}

#[test]
fn the_librarys_path_is_known_in_each_form() {
    let own = Some((&b"/l/g"[..], &b"shim.so"[..]));
    for path in
        ["/l/g/shim.so".to_owned(), format!("/l/g/{LIB}/shim.so"), format!("{TOKEN}/l/g/shim.so")]
    {
        assert_eq!(parts(path.as_bytes()), own, "{path}");
    }
    assert_eq!(parts(b"/shim.so"), Some((&b""[..], &b"shim.so"[..])));
    for path in [&b"shim.so"[..], b"./shim.so", b"$LIB/shim.so", b""] {
        assert_eq!(parts(path), None);
    }
}

#[test]
fn ways() {
    assert_eq!(way(None, false), Way::Preload);
    assert_eq!(way(Some(Unreachable::StaticGo), false), Way::None);
    assert_eq!(way(Some(Unreachable::Static), true), Way::None);
    assert_eq!(way(Some(Unreachable::Setuid), true), Way::None);
    assert_eq!(way(Some(Unreachable::Musl), false), Way::Preload);
    assert_eq!(way(Some(Unreachable::MuslGo), true), Way::None);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(way(Some(Unreachable::Go), false), Way::Preload);
        assert_eq!(way(Some(Unreachable::StaticGo), true), Way::Loader);
    }
    assert_eq!(loaded(), None, "a test is not the loader");
}

#[test]
fn cut_and_scrambled_programs_do_no_harm() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("program");
    let whole = made(
        2,
        u8::try_from(MACHINE).expect("small"),
        &[(4, b"\xff\xff\xff\xff\xff\xff\xff\xff\x04\0\0\0X"), (3, b"x")],
    );
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).expect("write");
        let _ = why(&path);
    }
    for at in 4..whole.len() {
        let mut file = whole.clone();
        file[at] = 0xff;
        std::fs::write(&path, &file).expect("write");
        let _ = why(&path);
    }
}
