//! Beside other things that put themselves between a program and the C library, or the kernel:
//! allocators, an address sanitizer, a filter of system calls. And programs that have another C
//! library, or one of their own.

use ginnel_tests::{Crowd, Done, Stand, build, port, skip};
use std::ffi::OsStr;
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

/// `dlsym` takes memory before glibc 2.34, and an allocator that sets itself up with its lock held
/// comes through hooks: functions are found without it.
#[test]
fn functions_are_found_without_dlsym() {
    let stand = Stand::shimmed("symbols", &[]);
    let (source, library) = (stand.dir().join("no_dlsym.c"), stand.dir().join("no_dlsym.so"));
    std::fs::write(
        &source,
        "#include <stdlib.h>\nvoid *dlsym(void *from, const char *name) { (void)from, (void)name; abort(); }\n",
    )
    .expect("source");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .output()
        .expect("cc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    for name in PROGRAMS {
        holds(name, &format!("{}:{}", build::shim().display(), library.display()));
    }
}

/// A library that stands between this one and the C library goes on seeing every call, also on a
/// connection that nobody carries, where this one makes the system calls itself.
#[test]
fn a_library_behind_it_sees_every_call() {
    let stand = Stand::shimmed("behind", &[]);
    let (source, library) = (stand.dir().join("counts.c"), stand.dir().join("counts.so"));
    let counts = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <sys/types.h>\nstatic long calls;\n\
        ssize_t recv(int fd, void *to, size_t n, int flags) {\n\
            static ssize_t (*next)(int, void *, size_t, int);\n\
            if (!next) next = (ssize_t (*)(int, void *, size_t, int))dlsym(RTLD_NEXT, \"recv\");\n\
            calls++;\n\
            return next(fd, to, n, flags);\n\
        }\n\
        __attribute__((destructor)) static void counted(void) { dprintf(1, \"%ld calls\\n\", calls); }\n";
    std::fs::write(&source, counts).expect("source");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .output()
        .expect("cc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let calls = |stand: &Stand, preload: String| {
        let done =
            stand.run(stand.command(build::program("cancels_itself")).env("LD_PRELOAD", preload));
        assert!(done.success(), "{done}");
        let count =
            done.stdout.lines().find_map(|line| line.strip_suffix(" calls")?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{done}"))
    };
    let library = library.display();
    // As many messages it receives on that connection; on its other one, rings carry some.
    const RECEIVES: u64 = 5000;
    let expected = calls(&Stand::plain("expected"), library.to_string());
    assert!(expected >= RECEIVES, "{expected}");
    let seen = calls(&stand, format!("{}:{library}", build::shim().display()));
    assert!(seen >= RECEIVES, "{seen} of {expected}");
}

/// A program of an address sanitizer's refuses to start where another library comes before the
/// sanitizer's own, unless it is told.
#[test]
fn address_sanitizer() {
    let stand = Stand::shimmed("sanitizer", &[]);
    let (source, program) = (build::tests_dir().join("programs"), stand.dir().join("program"));
    let mut compile = Command::new("cc");
    compile
        .args(["-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=address", "-I"])
        .arg(source.join("include"));
    compile.arg("-o").arg(&program).arg(source.join("half_close.c")).arg("-lpthread");
    let compiled = compile.output().expect("cc runs");
    if !compiled.status.success() {
        return skip("address sanitizer", &String::from_utf8_lossy(&compiled.stderr));
    }
    run_by_ginnel(&stand, &program);
}

/// A command that only `ginnel run` brings the library into.
fn by_ginnel(stand: &Stand, wrapper: &[&OsStr], program: &Path) -> Command {
    let ginnel = build::ginnel();
    let words =
        [wrapper, &[ginnel.as_os_str(), OsStr::new("run"), OsStr::new("--"), program.as_os_str()]]
            .concat();
    let mut command = stand.command(words[0]);
    command.args(&words[1..]).env_remove("LD_PRELOAD").env("XDG_CONFIG_HOME", stand.dir());
    command
}

fn run_by_ginnel(stand: &Stand, program: &Path) {
    let plain = Stand::plain("expected");
    let expected = plain.run(&mut plain.command(program));
    assert!(expected.success(), "{expected}");
    let done = stand.run(&mut by_ginnel(stand, &[], program));
    assert!(done.success() && done.stderr.is_empty(), "{done}");
    assert_eq!(done.stdout, expected.stdout);
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}

/// An accelerated server and a client out of reach: they speak on TCP, and the server's ends say
/// that there is nobody to meet. Returns what the client said.
fn meets_nobody(stand: &Stand, client: &dyn Fn() -> Command) -> Done {
    let command = |side, program: &Path| if side == 1 { client() } else { stand.command(program) };
    let crowd = Crowd::start(stand, command, ("127.0.0.1", &port::free()), 3, 1000);
    let status = stand.status();
    assert_eq!(status.matches("\"reason\": \"no_peer\"").count(), 3, "{status}");
    assert!(!status.contains("\"ring\""), "{status}");
    let [client, server] = crowd.end();
    assert!(server.stderr.is_empty(), "{server}");
    let report = stand.report();
    // But for the program that may have started the client.
    let with_library = report.processes() - report.processes_of("env");
    assert_eq!(
        (with_library, report.ring_bytes()),
        (1, 0),
        "the server has the library, the client has not: {report:?}"
    );
    client
}

/// A folder with the library for glibc, and none for musl.
fn without_musls() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(build::release_dir()).expect("a directory");
    build::copy_program(&build::shim(), &folder.path().join("libginnel_shim.so"));
    folder
}

#[test]
fn a_program_for_musl_where_there_is_no_library_for_it() {
    let Some(program) = build::musl_program("crowd") else {
        return skip("a program for musl", "musl-gcc is not installed");
    };
    let (stand, folder) = (Stand::shimmed("musl", &[]), without_musls());
    let shim = folder.path().join("libginnel_shim.so");
    let client = || {
        let mut command = by_ginnel(&stand, &[], &program);
        command.env("GINNEL_SHIM", &shim);
        command
    };
    let said = meets_nobody(&stand, &client).stderr;
    let why = "uses another C library (musl), and ginnel's library for that is not there";
    assert_eq!(said, format!("ginnel: {} {why}: it stays on TCP\n", program.display()));
}

/// Nobody sees what a program without the library starts, and all that it starts is handed the same
/// environment: programs of glibc's have the library, those of musl's, where there is none for it,
/// run as ever. Whether `ginnel run` or an accelerated program (`env`) started that one.
#[test]
fn children_of_programs_out_of_reach() {
    // Becomes the program that it is told.
    let starter = build::static_program("forbids");
    let start = |stand: &Stand, wrapper: &[&OsStr], parent: &Path, child: &Path| {
        let words = [wrapper, &[parent.as_os_str(), OsStr::new(""), child.as_os_str()]].concat();
        let mut command = by_ginnel(stand, &[], Path::new(words[0]));
        command.args(&words[1..]);
        command
    };
    let wrappers: [&[&OsStr]; 2] = [&[], &[OsStr::new("env")]];
    for parent in [Some(starter.clone()), build::musl_program("forbids")].into_iter().flatten() {
        for wrapper in wrappers {
            let stand = Stand::shimmed("children", &[]);
            let done =
                stand.run(&mut start(&stand, wrapper, &parent, &build::program("half_close")));
            // `ginnel run` says why the program that it starts itself stays on TCP.
            let stays =
                wrapper.is_empty() && (parent == starter || !build::shim_of_either().exists());
            assert!(done.success() && done.stderr.lines().count() == usize::from(stays), "{done}");
            assert!(
                stand.report().ring_bytes() > 0,
                "{}: its child was not carried",
                parent.display()
            );
        }
    }
    let Some(client) = build::musl_program("crowd") else {
        return skip("a program for musl", "musl-gcc is not installed");
    };
    for wrapper in wrappers {
        let (stand, folder) = (Stand::shimmed("musl-child", &[]), without_musls());
        let shim = folder.path().join("libginnel_shim.so");
        let client = || {
            let mut command = start(&stand, wrapper, &starter, &client);
            command.env("GINNEL_SHIM", &shim);
            command
        };
        let _ = meets_nobody(&stand, &client);
    }
}

/// Names of the library that are not its path: one that is stale keeps nobody from the next, and
/// one that is looked for elsewhere is not shown to a program for musl.
#[test]
fn other_names_of_the_library() {
    let list = format!("/no/such/folder/libginnel_shim.so:{}", build::shim().display());
    let stand = Stand::shimmed("stale", &[("LD_PRELOAD", &list)]);
    let mut start = stand.command("env");
    let done = stand
        .run(start.arg(build::static_program("forbids")).arg("").arg(build::program("half_close")));
    assert!(done.success() && stand.report().ring_bytes() > 0, "{done}");
    let Some(program) = build::musl_program("forbids") else {
        return skip("a program for musl", "musl-gcc is not installed");
    };
    let stand = Stand::shimmed("relative", &[("LD_PRELOAD", "./libginnel_shim.so")]);
    let mut start = stand.command("env");
    let done = stand.run(start.current_dir(build::release_dir()).arg(program).args(["", "env"]));
    assert!(
        done.success() && done.stderr.is_empty() && !done.stdout.contains("LD_PRELOAD"),
        "{done}"
    );
}

/// Never under `ginnel run`: as a program of another's, say.
#[test]
fn a_static_client_that_knows_nothing_of_it() {
    let program = build::static_program("crowd");
    let (stand, bare) = (Stand::shimmed("static", &[]), Stand::plain("static-client"));
    let client = meets_nobody(&stand, &|| bare.command(&program));
    assert!(client.stderr.is_empty(), "{client}");
}

/// Under a filter that somebody else set before the program, and `ginnel run`, began: what it does
/// not allow, the library does without.
fn without(calls: &str, programs: &[&str], carried: bool) {
    let forbids = build::program("forbids");
    for name in programs {
        let (plain, stand, program) =
            (Stand::plain("expected"), Stand::shimmed("forbidden", &[]), build::program(name));
        let expected = plain.run(plain.command(&forbids).arg(calls).arg(&program));
        assert!(expected.success(), "{name} itself needs {calls}: {expected}");
        let done =
            stand.run(&mut by_ginnel(&stand, &[forbids.as_os_str(), OsStr::new(calls)], &program));
        assert!(done.success() && done.stderr.is_empty(), "{name} without {calls}: {done}");
        assert_eq!(done.stdout, expected.stdout, "{name} without {calls}");
        let report = stand.report();
        assert!(report.processes() > 0, "{name} without {calls}: the library was not there");
        assert_eq!(report.ring_bytes() > 0, carried, "{name} without {calls}: {report:?}");
    }
}

const FEW: &str = "membarrier,mknodat,memfd_create";

/// Tokens wake, as there are no FIFOs, and every call is counted.
#[test]
fn a_filter_of_few_calls() {
    without(FEW, &PROGRAMS, true);
}

/// All that older ones do not know or allow.
#[test]
fn a_filter_as_of_an_old_container() {
    without(
        &format!(
            "{FEW},process_vm_readv,process_vm_writev,pidfd_getfd,close_range,epoll_pwait2,clone3"
        ),
        &PROGRAMS,
        true,
    );
}

/// Nobody would see to a ring: all stays on TCP.
#[test]
fn a_filter_of_threads() {
    without(&format!("{FEW},clone3,threads"), &["half_close", "several_sets", "exec_keeps"], false);
}
