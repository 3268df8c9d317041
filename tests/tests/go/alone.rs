//! Programs in Go that are left alone, and why: unasked, switched off, with more rights, or with
//! other code than is known. They run as ever, on TCP.

use super::{command, run, stand};
use ginnel_tests::go::{CGO, KINDS, PIE, PLUGINS, RACE, STATIC, STATIC_CGO, program};
use ginnel_tests::{Stand, build, is_root, skip};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs a word; nothing is carried, and the program works.
fn nowhere(program: &Path, words: &[&str], settings: &[(&str, &str)]) {
    let stand = stand("go-alone", settings);
    run(&stand, program, words);
    assert_eq!(stand.report().sum("ring_in"), 0, "{} {settings:?}", program.display());
}

/// Unasked: those with a dynamic linker are reached; a static one is not, since debuggers would not
/// find its file.
#[test]
fn unasked_those_with_a_dynamic_linker_are_reached() {
    for kind in [CGO, PIE, STATIC] {
        let Some(program) = program(kind) else { continue };
        let stand = Stand::shimmed("go-unasked", &[]);
        run(&stand, &program, &["echo", "4", "300"]);
        assert_eq!(stand.report().sum("ring_in") > 0, kind != STATIC, "{}", program.display());
    }
}

#[test]
fn what_the_user_switches_off_is_left_alone() {
    for program in KINDS.into_iter().filter_map(program) {
        let name = program.file_name().expect("a name").to_string_lossy().into_owned();
        nowhere(&program, &["echo", "4", "200"], &[("GINNEL_GO", "0")]);
        nowhere(
            &program,
            &["echo", "4", "200"],
            &[("GINNEL_POLICY", &format!("deny program {name}"))],
        );
        nowhere(&program, &["echo", "4", "200"], &[("GINNEL_OFF", "1")]);
    }
}

#[test]
#[ignore = "test-all: Go is asked for by name"]
fn what_has_c_code_beside_the_runtime_is_left_alone() {
    for program in [RACE, STATIC_CGO].into_iter().filter_map(program) {
        for word in ["echo", "exec", "signals"] {
            nowhere(&program, &[word], &[]);
        }
    }
}

/// What loads code of its own into the process: its calls would pass the library by.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn what_can_load_plugins_is_left_alone() {
    if let Some(program) = program(PLUGINS) {
        nowhere(&program, &["echo", "4", "200"], &[]);
        nowhere(&program, &["exec"], &[]);
    }
}

/// Programs that would run with more rights than their user are executed as they are: by `ginnel
/// run`, and by what runs under it.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn what_has_more_rights_is_left_alone() {
    if !is_root() {
        return skip("set-user-id programs in Go", "only root can make another's");
    }
    for program in KINDS.into_iter().filter_map(program) {
        let set_id = program.with_file_name(format!(
            "{}-u",
            program.file_name().expect("a name").to_string_lossy()
        ));
        build::copy_program(&program, &set_id);
        std::os::unix::fs::chown(&set_id, Some(65534), Some(65534)).expect("root may");
        std::fs::set_permissions(&set_id, std::os::unix::fs::PermissionsExt::from_mode(0o6755))
            .expect("its mode");
        let stand = stand("go-set-id", &[]);
        let done = run(&stand, &set_id, &["whoami"]);
        assert!(done.stderr.contains("set-user-id"), "{done}");
        let shell = stand.run(&mut command(
            &stand,
            Path::new("/bin/sh"),
            &["-c", &format!("{} echo 4 200", set_id.display())],
        ));
        assert!(shell.success() && shell.stdout.ends_with("OK\n"), "{shell}");
        assert_eq!(stand.report().sum("ring_in"), 0, "{}", program.display());
    }
}

/// Gives a file a capability (NET_BIND_SERVICE), as setcap(8) does; see capabilities(7).
fn grant(file: &Path) {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let name = std::ffi::CString::new(file.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: both names end with a zero, and the value is as long as is said.
    let done = unsafe {
        libc::setxattr(
            name.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Nobody's program, which has a capability by its file: executed as it is. Without that it is
/// reached.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn what_has_capabilities_is_left_alone() {
    const NOBODY: u32 = 65534;
    if !is_root() {
        return skip("file capabilities of programs in Go", "only root can give them");
    }
    let place = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let copy = |from: &Path| {
        let at = place.path().join(from.file_name().expect("a name"));
        build::copy_program(from, &at);
        at
    };
    let (ginnel, shim) = (copy(&build::ginnel()), copy(&build::shim()));
    copy(&build::go_loader());
    for program in KINDS.into_iter().filter_map(program).map(|path| copy(&path)) {
        for capable in [false, true] {
            if capable {
                grant(&program);
            }
            let stand = stand("go-capable", &[("LD_PRELOAD", &shim.to_string_lossy())]);
            std::os::unix::fs::chown(stand.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
            let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            let mut run = stand.command_behind(&wrapper, &ginnel);
            let done = stand.run(run.arg("run").arg(&program).args(["echo", "4", "300"]));
            assert!(done.success() && done.stdout.ends_with("OK\n"), "{done}");
            assert_eq!(done.stderr.contains("has file capabilities"), capable, "{done}");
            let carried = stand.report().sum("ring_in") > 0;
            assert_eq!(carried, !capable, "{}: {done}", program.display());
        }
    }
}

/// A function that does the same by other instructions is not one that is known.
#[test]
fn other_code_is_left_alone() {
    // mov $0, %rbx; and xor %ebx, %ebx, with five bytes that do nothing.
    let (known, other): (&[u8], &[u8]) =
        (b"\x48\xc7\xc3\0\0\0\0\xc3\x48\x89\xd3", b"\x31\xdb\x0f\x1f\x44\0\0\xc3\x48\x89\xd3");
    for program in KINDS.into_iter().filter_map(program) {
        let mut bytes = std::fs::read(&program).expect("a program");
        let places = bytes.windows(known.len()).enumerate().filter(|(_, part)| *part == known);
        let places = places.map(|(at, _)| at).collect::<Vec<_>>();
        assert!(!places.is_empty(), "{}", program.display());
        for at in places {
            bytes[at..at + other.len()].copy_from_slice(other);
        }
        let changed = program.with_file_name(format!(
            "{}-o",
            program.file_name().expect("a name").to_string_lossy()
        ));
        build::executable(&changed, &bytes);
        nowhere(&changed, &["echo", "4", "200"], &[]);
        nowhere(&changed, &["exec"], &[]);
    }
}

/// Where no new code may be executed (PR_SET_MDWE, Linux 6.3) nothing is changed.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn where_new_code_is_forbidden_it_is_left_alone() {
    const FORBID: &str = "import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): print('cannot'); sys.exit()
os.execv(sys.argv[1], sys.argv[1:])";
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-forbidden", &[]);
        let mut forbids = stand.command("/usr/bin/python3");
        forbids
            .args(["-c", FORBID])
            .arg(build::ginnel())
            .arg("run")
            .arg(&program)
            .args(["echo", "4", "200"]);
        let done = stand.run(&mut forbids);
        if done.stdout == "cannot\n" {
            return skip("PR_SET_MDWE", "this kernel does not know it");
        }
        assert!(done.success() && done.stdout == "OK\n", "{done}");
        assert_eq!(stand.report().sum("ring_in"), 0, "{}", program.display());
    }
}

/// A static program in C stays on TCP, and `ginnel run` says so; of Go's it does not.
#[test]
fn what_stays_on_tcp_is_said() {
    let stand = stand("go-said", &[]);
    let done = stand.run(&mut command(&stand, &build::static_program("echo_raw"), &[]));
    assert!(done.stderr.contains("is statically linked: it stays on TCP"), "{done}");
    for program in KINDS.into_iter().filter_map(program) {
        let done = run(&stand, &program, &["whoami"]);
        assert_eq!(done.stderr, "", "{}", program.display());
        let off = stand.run(command(&stand, &program, &["whoami"]).env("GINNEL_GO", "0"));
        assert!(off.success() && off.stderr.contains("written in Go"), "{off}");
    }
}
