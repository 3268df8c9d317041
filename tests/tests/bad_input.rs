//! Where there can be no shared memory, or none is left, programs run on TCP as if the shim were
//! not there, and one line says why to whoever asks.

mod no_room;

use ginnel_tests::{Stand, build, is_root, skip};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PROGRAMS: [&str; 3] = ["half_close", "several_sets", "exec_keeps"];

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A stand whose `GINNEL_DIR` is somewhere else: there it can be spoilt, and the reports still
/// written.
fn stand_in(dir: &Path, more: &[(&str, &str)]) -> Stand {
    let mut settings = vec![("GINNEL_DIR", text(dir))];
    settings.extend_from_slice(more);
    Stand::shimmed("bad", &settings).limit(Duration::from_secs(60))
}

/// Runs a program on a stand, behind `wrapper` if there is one. It must succeed and say what it
/// says on TCP.
fn holds(stand: &Stand, wrapper: &[&str], name: &str) -> String {
    let program = build::program(name);
    let command = |stand: &Stand| match wrapper {
        [] => stand.command(&program),
        _ => stand.command_behind(wrapper, &program),
    };
    // Behind the wrapper too: what it takes away must not be what the program itself needs.
    let plain = Stand::plain("expected").limit(Duration::from_secs(60));
    let expected = plain.run(&mut command(&plain));
    assert!(expected.success(), "{name}, without the shim: {expected}");
    let done = stand.run(&mut command(stand));
    assert!(done.success(), "{name}: {done}");
    assert_eq!(done.stdout, expected.stdout, "{name}: {done}");
    done.stderr
}

/// The programs hold, quietly and on TCP alone; and with `GINNEL_VERBOSE` one line says why, with
/// these words in it.
fn stays_on_tcp(dir: &Path, more: &[(&str, &str)], wrapper: &[&str], words: &[&str]) {
    let quiet = stand_in(dir, more);
    for name in PROGRAMS {
        let said = holds(&quiet, wrapper, name);
        assert!(said.is_empty(), "{name}: {said}");
    }
    let report = quiet.report();
    assert_eq!(report.ring_bytes() + report.sum("ring_out"), 0, "{report:?}");
    let mut settings = more.to_vec();
    settings.push(("GINNEL_VERBOSE", "1"));
    let said = holds(&stand_in(dir, &settings), wrapper, PROGRAMS[0]);
    assert!(said.contains("ginnel"), "nobody says why: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not among what is said: {said}");
    }
}

/// A directory with a segment in it that works, and the segment's file.
fn with_segment() -> (Stand, PathBuf, PathBuf) {
    let place = Stand::plain("place");
    let dir = place.dir().join("ginnel");
    let stand = stand_in(&dir, &[]);
    holds(&stand, &[], PROGRAMS[0]);
    assert!(
        stand.report().ring_bytes() > 0,
        "what is to be spoilt does not work: {:?}",
        stand.report()
    );
    let segment = fs::read_dir(&dir)
        .expect("the shim has made its directory")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.is_file() && starts_with(path, b"GINNELSG"))
        .expect("the shim has made a segment");
    (place, dir, segment)
}

fn starts_with(path: &Path, magic: &[u8]) -> bool {
    use std::io::Read;
    let mut start = vec![0; magic.len()];
    fs::File::open(path).and_then(|mut f| f.read_exact(&mut start)).is_ok() && start == magic
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file =
        fs::OpenOptions::new().write(true).open(path).expect("root and the owner may write");
    file.seek(SeekFrom::Start(at))
        .and_then(|_| file.write_all(bytes))
        .expect("the file can be written");
}

#[test]
fn segment_of_another_version() {
    let (_place, dir, segment) = with_segment();
    overwrite(&segment, 8, &99_u32.to_le_bytes());
    stays_on_tcp(&dir, &[], &[], &["version 99"]);
    assert!(stand_in(&dir, &[]).status().contains("version 99"), "ginnel status does not say why");
}

#[test]
fn truncated_segment() {
    let (_place, dir, segment) = with_segment();
    let whole = fs::metadata(&segment).expect("it is there").len();
    for length in [whole / 2, 5000, 100, 3, 0] {
        fs::OpenOptions::new()
            .write(true)
            .open(&segment)
            .and_then(|f| f.set_len(length))
            .expect("it can be cut");
        stays_on_tcp(&dir, &[], &[], &[]);
        assert!(
            !stand_in(&dir, &[]).status().contains("\"error\": null,\n      \"free"),
            "ginnel status takes it for good"
        );
    }
}

#[test]
fn foreign_file() {
    let (_place, dir, segment) = with_segment();
    fs::write(&segment, "This is no segment.\n".repeat(100_000)).expect("it can be written");
    stays_on_tcp(&dir, &[], &[], &["not a Ginnel segment"]);
    assert!(
        stand_in(&dir, &[]).status().contains("not a Ginnel segment"),
        "ginnel status does not say why"
    );
}

/// Every file that the shim keeps, each in turn overwritten at its start and cut short.
#[test]
fn spoilt_files_of_every_kind() {
    let (_place, dir, _) = with_segment();
    let mut spoilt = 0;
    for entry in fs::read_dir(&dir).expect("it is there").flatten().filter(|e| e.path().is_file()) {
        let path = entry.path();
        let whole = entry.metadata().expect("it is there").len();
        for spoil in 0..3 {
            match spoil {
                0 => overwrite(&path, 0, &[0xa5; 4096]),
                1 => overwrite(&path, 0, &[0xff; 64]),
                _ => fs::OpenOptions::new()
                    .write(true)
                    .open(&path)
                    .and_then(|f| f.set_len(whole / 3))
                    .expect("it can be cut"),
            }
            for name in PROGRAMS {
                holds(&stand_in(&dir, &[]), &[], name);
            }
            spoilt += 1;
        }
        // What replaces it works again.
        fs::remove_file(&path).expect("it can be removed");
        holds(&stand_in(&dir, &[]), &[], PROGRAMS[0]);
    }
    assert!(spoilt >= 3, "the shim keeps no file");
}

#[test]
fn no_directory_and_none_can_be_made() {
    let place = Stand::plain("place");
    let file = place.dir().join("file");
    fs::write(&file, "x").expect("it can be written");
    stays_on_tcp(&file, &[], &[], &[]);
    stays_on_tcp(&file.join("below"), &[], &[], &[]);
    stays_on_tcp(Path::new("/proc/ginnel"), &[], &[], &[]);
    stays_on_tcp(&place.dir().join("a".repeat(300)), &[], &[], &[]);
    stays_on_tcp(
        &place.dir().join("ginnel"),
        &[("GINNEL_SEGMENT", "/proc/self/no/segment")],
        &[],
        &[],
    );
    stays_on_tcp(&place.dir().join("ginnel"), &[("GINNEL_SEGMENT", "/dev/null")], &[], &[]);
}

#[test]
fn settings_that_mean_nothing() {
    let place = Stand::plain("place");
    let dir = place.dir().join("ginnel");
    for (key, value) in [
        ("GINNEL_AFTER", "many"),
        ("GINNEL_AFTER", "99999999999999999999"),
        ("GINNEL_RING", "0"),
        ("GINNEL_RING", "5000"),
        ("GINNEL_RING", "99999999999999999"),
        ("GINNEL_RING_MAX", "-1"),
        ("GINNEL_CHAOS", "::"),
        ("GINNEL_CHAOS", "1:0"),
        ("GINNEL_SPIN", ""),
        ("GINNEL_TOKENS", "perhaps"),
        ("GINNEL_SEGMENT", ""),
        ("GINNEL_SEGMENT", "../../x"),
        ("GINNEL_REPORT", "/proc/nowhere/report"),
    ] {
        holds(&stand_in(&dir, &[(key, value)]), &[], PROGRAMS[0]);
    }
}

/// Another user's directory and another user's segment.
#[test]
fn no_permission() {
    if !is_root() {
        skip("no_permission", "changing the user needs root");
        return;
    }
    let (place, dir, segment) = with_segment();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("own directory");
    // Where the other user can reach them.
    let reachable = |path: PathBuf| {
        let copy = place.dir().join(path.file_name().expect("a file"));
        build::copy_program(&path, &copy);
        copy
    };
    let shim = reachable(build::shim());
    let program = reachable(build::program("half_close"));
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o755)).expect("own directory");
    let own = place.dir().join("nobody");
    fs::create_dir(&own).expect("own directory");
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).expect("root may");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).expect("root may");
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let segment = text(&segment).to_owned();
    let readable = place.dir().join("readable");
    fs::create_dir(&readable).expect("own directory");
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o755)).expect("own directory");
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[("GINNEL_DIR", text(&dir))], "open directory"),
        (&[("GINNEL_DIR", text(&readable))], "belongs to user 0: set GINNEL_DIR"),
        (&[("GINNEL_DIR", text(&own)), ("GINNEL_SEGMENT", &segment)], &segment),
    ];
    for (case, word) in cases {
        for verbose in [false, true] {
            let report = own.join("report");
            let mut settings = case.to_vec();
            settings.extend([("LD_PRELOAD", text(&shim)), ("GINNEL_REPORT", text(&report))]);
            if verbose {
                settings.push(("GINNEL_VERBOSE", "1"));
            }
            let stand = Stand::shimmed("nobody", &settings).limit(Duration::from_secs(60));
            let done = stand.run(&mut stand.command_behind(&nobody, &program));
            assert!(done.success(), "{case:?}: {done}");
            assert_eq!(
                done.stderr.contains("ginnel") && done.stderr.contains(word),
                verbose,
                "{case:?}: {done}"
            );
            assert!(verbose || done.stderr.is_empty(), "{case:?}: {done}");
            let reported = fs::read_to_string(&report).unwrap_or_default();
            assert_eq!(ginnel_tests::json::sum(&reported, "ring_in"), 0, "{case:?}: {reported}");
        }
    }
}

/// The directory is emptied again and again under running programs: what they have goes on, what
/// comes stays on TCP or is new.
#[test]
fn files_removed_under_running_programs() {
    let place = Stand::plain("place");
    let dir = place.dir().join("ginnel");
    let stand = stand_in(&dir, &[]);
    for name in ["numbers_reused", "preforked_server", "edge_short_reads", "processes_share"] {
        let mut running = Some(stand.start(&mut stand.command(build::program(name))));
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let dir = &dir;
            scope.spawn(move || {
                while stopped.recv_timeout(Duration::from_millis(7))
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    let _ = fs::remove_dir_all(dir);
                }
            });
            let done = running.take().expect("it runs").finish();
            drop(stop);
            assert!(done.success(), "{name}: {done}");
        });
    }
}

/// `mlockall` locks the program's memory, and none of the library's, also where nothing is carried.
#[test]
fn a_program_that_is_not_carried_locks_its_own_memory() {
    let stand = Stand::shimmed("locks-uncarried", &[]);
    let done =
        stand.run(stand.command(build::program("locks_memory")).env("GINNEL_DIR", "/dev/null"));
    assert!(done.success() && done.stdout.starts_with("locked"), "{done}");
    assert_eq!(stand.report().ring_bytes(), 0);
}
