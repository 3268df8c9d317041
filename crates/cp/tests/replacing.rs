//! What takes the place of what: nothing else goes, nothing is in between, and no bytes get rights
//! that other bytes had.

use crate::stage::{Place, Server, bytes, is_root, names, snapshot, until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("there")
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
}

/// Names that look like those of files on their way are users' names, too.
#[test]
fn names_like_those_of_new_files_are_left_alone() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let own = [".f.ginnel-new", ".f.0badcafe.ginnel-tmp", ".f.ginnel-partial"];
    for name in own {
        write(place.root(name), name);
        write(place.here("t").join(name), name);
    }
    write(place.root("f"), "old");
    write(place.here("f"), "new");
    write(place.here("t/f"), "new");
    place.copies(&["-I", "f", "s:"]);
    assert_eq!(read(place.root("f")), "new");
    for name in own {
        assert_eq!(read(place.root(name)), name);
    }
    // Of a tree, too, of which all was told to be copied.
    for _ in 0..2 {
        place.copies(&["-aI", "t", "s:"]);
        assert_eq!(snapshot(&place.root("t")), snapshot(&place.here("t")));
    }
    fs::remove_file(place.root(own[0])).expect("there");
    fs::create_dir(place.root(own[0])).expect("made");
    place.copies(&["-I", "f", "s:"]);
    assert_eq!(fs::symlink_metadata(place.root(own[0])).map(|meta| meta.is_dir()).ok(), Some(true));
}

#[test]
fn a_directory_stays_until_the_file_in_its_place_is_whole() {
    let place = Place::new();
    let mut server = place.serve(&["--writable"]);
    fs::create_dir(place.here("t")).expect("made");
    fs::write(place.here("t/d"), bytes(1, 4 << 20)).expect("written");
    write(place.root("t/d/deep/x"), "x");
    let args = ["-r", "--delete", "--bwlimit", "2M", "t/", "s:t"];
    let client = place.start(&args);
    server.0.writes();
    server.0.kill();
    assert_eq!(client.ends().code, Some(12));
    assert_eq!(read(place.root("t/d/deep/x")), "x");
    let _server = place.serve(&["--writable"]);
    // Nor does it go where some of it may not.
    let said = place.cp(&["-r", "--delete", "--exclude", "x", "t/", "s:t"]);
    assert!(said.code == Some(23) && said.err.contains("excluded"), "{said:?}");
    assert_eq!(read(place.root("t/d/deep/x")), "x");
    place.copies(&["-r", "--delete", "t/", "s:t"]);
    assert!(fs::read(place.root("t/d")).expect("there") == bytes(1, 4 << 20));
    assert_eq!(names(&place.root("t")), ["d"]);
}

#[test]
fn each_kind_takes_the_place_of_each_other() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let kinds = ["file", "directory", "link", "fifo"];
    let make = |kind: &str, path: &Path| match kind {
        "file" => write(path, kind),
        "directory" => write(path.join("in/it"), kind),
        "link" => symlink("elsewhere", path).expect("made"),
        _ => assert!(Command::new("mkfifo").arg(path).status().expect("runs").success()),
    };
    for how in [&["-a"][..], &["-a", "--partial"], &["-a", "--inplace"]] {
        for new in &kinds[..3] {
            for old in kinds {
                let (from, to) = (place.here("t"), place.root("t"));
                for path in [&from, &to] {
                    let _ = fs::remove_dir_all(path);
                    fs::create_dir(path).expect("made");
                }
                make(new, &from.join("x"));
                make(old, &to.join("x"));
                let said = place.cp(&[how, &["t/", "s:t"]].concat());
                if old == "directory" && *new != old {
                    assert!(said.code == Some(23) && said.err.contains("--delete"), "{said:?}");
                    place.copies(&[how, &["--delete", "t/", "s:t"]].concat());
                } else {
                    assert_eq!(said.code, Some(0), "{new} over {old}: {said:?}");
                }
                assert_eq!(snapshot(&to), snapshot(&from), "{new} over {old}, {how:?}");
            }
        }
    }
}

#[test]
fn new_bytes_do_not_get_the_rights_of_old_ones() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::write(place.here("tool"), bytes(1, 2 << 20)).expect("written");
    for how in [&["-I"][..], &["-I", "--partial"], &["-I", "--inplace"], &["-It"]] {
        fs::write(place.root("tool"), "trusted").expect("written");
        set_mode(&place.root("tool"), 0o6755);
        place.copies(&[how, &["tool", "s:"]].concat());
        assert_eq!(mode(&place.root("tool")), 0o755, "{how:?}");
    }
    // Nor while they come.
    set_mode(&place.root("tool"), 0o6755);
    let mut client = place.start(&["-I", "--inplace", "--bwlimit", "256K", "tool", "s:"]);
    std::thread::sleep(Duration::from_millis(1000));
    let ino = || fs::metadata(place.root("tool")).expect("there").mtime_nsec();
    let was = ino();
    until("it writes", || ino() != was);
    assert_eq!(mode(&place.root("tool")), 0o755);
    client.kill();
    // What is there already keeps its own.
    place.copies(&["-t", "tool", "s:"]);
    set_mode(&place.root("tool"), 0o4755);
    place.copies(&["-t", "tool", "s:"]);
    assert_eq!(mode(&place.root("tool")), 0o4755);
}

#[test]
fn a_file_on_its_way_runs_as_nobody_else() {
    if !is_root() {
        return println!("skipped: takes root");
    }
    let place = Place::new();
    let _server = place.serve(&["--writable", "--owners"]);
    fs::write(place.here("tool"), bytes(1, 2 << 20)).expect("written");
    std::os::unix::fs::chown(place.here("tool"), Some(12345), Some(12345)).expect("root may");
    set_mode(&place.here("tool"), 0o6755);
    let mut client = place.start(&["-a", "--inplace", "--bwlimit", "256K", "tool", "s:"]);
    until("it has begun", || place.root("tool").exists());
    // Root's still, and written by root.
    assert_eq!(mode(&place.root("tool")) & 0o6000, 0);
    client.kill();
    place.copies(&["-a", "--inplace", "tool", "s:"]);
    let meta = fs::metadata(place.root("tool")).expect("there");
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (12345, 0o6755));
}

/// Calls of a server, as strace(1) shows them with paths for descriptors; `None` without it.
fn calls(place: &Place, args: &[&str]) -> Option<String> {
    let works = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        println!("skipped: takes strace");
        return None;
    }
    let log = place.path("calls");
    let mut command = place.command("strace");
    command.args([
        "-f",
        "-qq",
        "-y",
        "-e",
        "trace=fsync,linkat,renameat,renameat2,mkdirat,symlinkat",
    ]);
    command.arg("-o").arg(&log).arg(crate::stage::program());
    command.args(["cp", "serve", "--name", "s", "--writable", "--root"]).arg(place.path("root"));
    let mut server = Server::start(command);
    place.copies(args);
    server.0.kill();
    let calls = fs::read_to_string(&log).expect("written");
    // Whom it traced outlives it.
    let pid = calls.split(' ').next().expect("a call").to_owned();
    assert!(Command::new("kill").args(["-s", "KILL", &pid]).status().expect("runs").success());
    Some(calls)
}

/// The path of the `n`th descriptor of a call.
fn descriptor(call: &str, n: usize) -> Option<&str> {
    let part = call.split('<').nth(n + 1)?;
    part.split('>').next()
}

#[test]
fn with_fsync_all_is_on_the_disk_before_it_is_done() {
    let place = Place::new();
    for name in ["t/a", "t/sub/deep/b", "t/over"] {
        write(place.here(name), "new");
    }
    symlink("a", place.here("t/link")).expect("made");
    write(place.root("new/t/over"), "old");
    fs::remove_dir_all(place.root("new")).expect("removed");
    let Some(log) = calls(&place, &["-a", "--fsync", "t", "s:new/"]) else { return };
    let root = place.path("root").display().to_string();
    let ours = |call: &&str| call.ends_with("= 0") && call.contains(&root);
    let calls: Vec<&str> = log.lines().filter(ours).collect();
    let synced = |from: usize, path: &str| {
        calls[from..]
            .iter()
            .any(|call| call.contains("fsync(") && descriptor(call, 0) == Some(path))
    };
    let mut seen = 0;
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| !call.contains("fsync(")) {
        // Where the name is: linkat's and renameat's second descriptor, else the only one.
        let last = usize::from(call.contains("linkat(") && !call.contains("symlinkat("));
        let directory =
            descriptor(call, last).or_else(|| descriptor(call, 0)).expect("a directory");
        assert!(synced(at, directory), "{directory} is not synced after {call}\n{log}");
        seen += 1;
        if call.contains(" linkat(") {
            let before = calls[at - 1];
            assert!(before.contains("fsync("), "{before}\n{call}: no sync before its name\n{log}");
        }
    }
    assert!(seen >= 7, "{log}");
}
