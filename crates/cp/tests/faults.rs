//! Whatever goes wrong, each file is the old one or the whole new one, and nothing is left beside.

use crate::stage::{Guarded, Place, Server, bytes, chance, is_root, names, until};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILES: u64 = 12;
const LEN: usize = 3 << 20;

fn fill(directory: &Path, version: u64) {
    fs::create_dir_all(directory).expect("made");
    for file in 0..FILES {
        fs::write(directory.join(format!("f{file}")), bytes(version * 100 + file, LEN))
            .expect("written");
    }
}

/// How many are new; each is old or new, and nothing else is there: but, of one that was killed, a
/// whole new file in the instant before it gets its name.
fn old_or_new(directory: &Path, old: u64, new: u64, killed: bool) -> u64 {
    let expected: Vec<String> = (0..FILES).map(|file| format!("f{file}")).collect();
    let mut there = names(directory);
    let instants = |name: &String| {
        let (file, random) =
            name.strip_prefix(".f")?.strip_suffix(".ginnel-tmp")?.split_once('.')?;
        Some((file.parse::<u64>().ok().filter(|_| random.len() == 8)?, name.clone()))
    };
    let left: Vec<(u64, String)> = there.iter().filter_map(instants).collect();
    if killed && left.len() < 2 {
        for (file, name) in left {
            let path = directory.join(&name);
            assert!(fs::read(&path).expect("there") == bytes(new * 100 + file, LEN), "it is whole");
            fs::remove_file(path).expect("there");
            there.retain(|one| *one != name);
        }
    }
    there.sort_by_key(|name| name.len() * 1000 + usize::from(name.as_bytes()[name.len() - 1]));
    assert_eq!(there, expected, "nothing but the files");
    let is_new = |file: u64| {
        let content = fs::read(directory.join(format!("f{file}"))).expect("there");
        let new = content == bytes(new * 100 + file, LEN);
        assert!(new || content == bytes(old * 100 + file, LEN), "f{file} is neither");
        u64::from(new)
    };
    (0..FILES).map(is_new).sum()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Client,
}

fn kill(victim: Victim, upload: bool, times: u64) {
    let place = Place::new();
    let mut server = place.serve(&["--writable"]);
    let (from, to) = if upload {
        (place.here("t"), place.root("t"))
    } else {
        (place.root("t"), place.here("t"))
    };
    let args: &[&str] = if upload { &["-rI", "t", "s:"] } else { &["-rI", "s:t", "."] };
    fill(&to, 0);
    let (mut between, mut version) = (0, 0);
    for _ in 0..times {
        let new = version + 1;
        fill(&from, new);
        let mut client = place.start(args);
        std::thread::sleep(Duration::from_micros(chance(90_000)));
        match victim {
            Victim::Server => {
                server.0.kill();
                let said = client.ends();
                let ended = [Some(0), Some(5), Some(12), Some(35)].contains(&said.code);
                assert!(ended, "{said:?}");
                server = place.serve(&["--writable"]);
            }
            Victim::Client => {
                client.kill();
                // The server sees it, and is done with its files.
                std::thread::sleep(Duration::from_millis(250));
            }
        }
        let done = old_or_new(&to, version, new, true);
        between += u64::from(done > 0 && done < FILES);
        // The next time from one version only.
        place.copies(args);
        assert_eq!(old_or_new(&to, version, new, false), FILES);
        version = new;
    }
    println!("{between} of {times} in the midst of it");
}

#[test]
fn a_server_that_is_killed_while_it_writes() {
    kill(Victim::Server, true, 12);
}

#[test]
fn a_server_that_is_killed_while_it_reads() {
    kill(Victim::Server, false, 12);
}

#[test]
fn a_client_that_is_killed_while_it_writes() {
    kill(Victim::Client, false, 12);
}

#[test]
fn a_client_that_is_killed_while_it_reads() {
    kill(Victim::Client, true, 12);
}

#[test]
#[ignore = "test-all: as above, hundreds of times"]
fn either_is_killed_again_and_again() {
    for (victim, upload) in [
        (Victim::Server, true),
        (Victim::Server, false),
        (Victim::Client, false),
        (Victim::Client, true),
    ] {
        kill(victim, upload, 150);
    }
}

#[test]
fn a_signal_stops_it_and_leaves_what_was_there() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::write(place.root("f"), bytes(1, 8 << 20)).expect("written");
    fs::write(place.here("f"), "old").expect("written");
    for signal in ["INT", "TERM"] {
        let client = place.start(&["--bwlimit", "1M", "s:f", "."]);
        client.writes();
        let pid = client.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().expect("runs").success());
        let said = client.ends();
        assert!(said.code == Some(20) && said.err.contains("signal"), "{said:?}");
        assert_eq!(
            (names(&place.path("here")), fs::read(place.here("f")).expect("there")),
            (vec!["f".into()], b"old".to_vec())
        );
    }
}

/// A server in a mount namespace of its own, where `mount` is run first with the root as `$0`;
/// `None` where that is not to be had.
fn server_after(place: &Place, mount: &str) -> Option<Server> {
    let able = Command::new("unshare").args(["-m", "true"]).status();
    if !is_root() || !able.is_ok_and(|status| status.success()) {
        println!("skipped: takes root, and a mount namespace");
        return None;
    }
    let serve = "exec \"$1\" cp serve --root \"$0\" --name s --writable";
    let mut command = place.command("unshare");
    command.args(["-m", "sh", "-c", &format!("{mount} && {serve}")]);
    command.arg(place.path("root")).arg(crate::stage::program());
    Some(Server::start(command))
}

#[test]
fn without_files_that_have_no_name_it_is_the_same() {
    let place = Place::new();
    // They are found by /proc.
    let Some(mut server) = server_after(&place, "mount -t tmpfs none /proc") else { return };
    fill(&place.here("t"), 1);
    place.copies(&["-a", "t", "s:"]);
    assert_eq!(old_or_new(&place.root("t"), 0, 1, false), FILES);
    // A client that is gone leaves nothing; a server that is killed leaves what it was writing.
    fs::write(place.here("big"), bytes(9, 8 << 20)).expect("written");
    let written = || names(&place.path("root")).iter().any(|name| name.ends_with(".ginnel-tmp"));
    let mut client = place.start(&["--bwlimit", "1M", "big", "s:"]);
    until("it has begun", written);
    client.kill();
    until("it is taken back", || !written());
    let client = place.start(&["--bwlimit", "1M", "big", "s:"]);
    until("it has begun", written);
    server.0.kill();
    assert_eq!(client.ends().code, Some(12));
    assert!(!place.root("big").exists() && written());
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let place = Place::new();
    let Some(_server) = server_after(&place, "mount -t tmpfs -o size=4M none \"$0\"") else {
        return;
    };
    fs::write(place.here("f"), bytes(1, 1 << 20)).expect("written");
    place.copies(&["f", "s:"]);
    fs::write(place.here("f"), bytes(2, 6 << 20)).expect("written");
    for how in [&["f", "s:"][..], &["--partial", "f", "s:"]] {
        let said = place.cp(how);
        assert_eq!(said.code, Some(11), "{said:?}");
        assert!(
            said.err.contains("f: writing it: No space left") && said.err.contains("is kept"),
            "{said:?}"
        );
        place.copies(&["s:f", "back"]);
        assert_eq!(fs::read(place.here("back")).expect("there"), bytes(1, 1 << 20));
    }
    let list = place.copies(&["-rn", "s:", "all", "--json"]).json();
    let paths: Vec<_> = list["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| change["path"].as_str())
        .collect();
    assert!(
        paths.contains(&Some("f"))
            && paths.contains(&Some(".f.ginnel-partial"))
            && paths.len() == 2,
        "{list}"
    );
}

#[test]
fn what_is_not_permitted_is_named_and_the_rest_is_copied() {
    let place = Place::new();
    let mut command = place.command(if is_root() { "setpriv" } else { "env" });
    if is_root() {
        // Somebody who has no right to everything, and yet the segment.
        command.args(["--bounding-set", "-all", "--inh-caps", "-all", "--"]);
    }
    command.arg(crate::stage::program()).args([
        "cp",
        "serve",
        "--name",
        "s",
        "--writable",
        "--root",
    ]);
    let _server = Server::start({
        command.arg(place.path("root"));
        command
    });
    fs::create_dir_all(place.root("closed")).expect("made");
    fs::write(place.root("closed/f"), "old").expect("written");
    fs::write(place.root("unreadable"), "x").expect("written");
    fs::write(place.root("fine"), "fine").expect("written");
    let forbid = |name: &str, mode| {
        fs::set_permissions(place.root(name), fs::Permissions::from_mode(mode)).expect("set");
    };
    forbid("closed", 0o555);
    forbid("unreadable", 0);
    let said = place.cp(&["-r", "s:", "back"]);
    assert!(
        said.code == Some(23) && said.err.contains("unreadable: Permission denied"),
        "{said:?}"
    );
    assert_eq!(
        (names(&place.here("back")), names(&place.here("back/closed"))),
        (vec!["closed".into(), "fine".into()], vec!["f".into()])
    );
    fs::create_dir_all(place.here("t/closed")).expect("made");
    fs::write(place.here("t/closed/f"), "new").expect("written");
    fs::write(place.here("t/other"), "other").expect("written");
    let said = place.cp(&["-r", "t/", "s:"]);
    assert!(said.code == Some(23) && said.err.contains("closed/f"), "{said:?}");
    assert!(said.err.contains("Permission denied"), "{said:?}");
    assert_eq!(fs::read_to_string(place.root("closed/f")).expect("there"), "old");
    assert_eq!(fs::read_to_string(place.root("other")).expect("there"), "other");
    forbid("closed", 0o755);
    assert_eq!(names(&place.root("closed")), ["f"]);
}

/// Writes versions of a file in place, each of one byte only, from its beginning to its end,
/// resting between them.
fn writer(path: &Path, stop: &Arc<AtomicBool>, len: usize) -> std::thread::JoinHandle<()> {
    let (file, stop) = (File::options().write(true).open(path).expect("there"), Arc::clone(stop));
    std::thread::spawn(move || {
        for version in (0..=255u8).cycle() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let part = vec![version; 64 << 10];
            for at in (0..len).step_by(part.len()) {
                file.write_all_at(&part, at as u64).expect("written");
            }
            if version % 7 == 0 {
                // Shorter for a moment, and zeros where it was.
                file.set_len(len as u64 / 2).expect("set");
                file.set_len(len as u64).expect("set");
                file.write_all_at(&vec![version; len / 2], len as u64 / 2).expect("written");
            }
            std::thread::sleep(Duration::from_millis(chance(60)));
        }
    })
}

/// Was this once what the file held? A writer that the kernel lets stand still between two writes
/// has made a state of it, too: a version, then the one before it, or zeros. What a reader makes
/// that is overtaken is the other way round.
fn is_a_state(content: &[u8], len: usize) -> bool {
    let mut runs: Vec<u8> = content.to_vec();
    runs.dedup();
    match runs[..] {
        [version] => content.len() == len || content.len() == len / 2 && version % 7 == 0,
        [version, before] => version == before.wrapping_add(1) || before == 0 && version % 7 == 0,
        _ => false,
    }
}

fn changes(seconds: f64) {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let len = 4 << 20;
    let (stop, mut copied, mut refused) = (Arc::new(AtomicBool::new(false)), 0, 0);
    for (path, to, args) in [
        (place.here("f"), place.root("f"), ["f", "s:"]),
        (place.root("f"), place.here("f"), ["s:f", "."]),
    ] {
        stop.store(false, Ordering::Relaxed);
        for path in [&path, &to] {
            fs::write(path, vec![0; len]).expect("written");
        }
        let writing = writer(&path, &stop, len);
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            let said = place.cp(&[&["-I"], &args[..]].concat());
            let content = fs::read(&to).expect("there");
            assert!(is_a_state(&content, len), "a mixture of versions: {said:?}");
            match said.code {
                Some(0) => copied += 1,
                Some(23) if said.err.contains("f: it changed while it was read") => refused += 1,
                _ => panic!("{said:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        writing.join().expect("no panic");
    }
    println!("{copied} copied, {refused} refused");
    assert!(copied > 0, "not once");
}

#[test]
fn a_file_that_changes_while_it_is_read_arrives_whole_or_not() {
    changes(3.0);
}

#[test]
#[ignore = "test-all: as above, for minutes"]
fn a_file_that_changes_for_long_arrives_whole_or_not() {
    changes(60.0);
}

#[test]
fn what_vanishes_is_said_to() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    fs::create_dir_all(place.here("t")).expect("made");
    for file in 0..40 {
        fs::write(place.here(&format!("t/f{file:02}")), bytes(file, 200 << 10)).expect("written");
    }
    let client = place.start(&["-r", "--bwlimit", "4M", "t", "s:"]);
    // All are listed by then.
    until("it has begun", || place.root("t/f00").exists());
    fs::remove_file(place.here("t/f39")).expect("there");
    let said = client.ends();
    assert!(said.code == Some(24) && said.err.contains("t/f39: No such file"), "{said:?}");
    assert_eq!(names(&place.root("t")).len(), 39);
}

#[test]
fn a_server_that_stands_still_is_noticed() {
    let place = Place::new();
    let server = place.serve(&["--writable"]);
    fs::write(place.root("f"), bytes(1, 8 << 20)).expect("written");
    let signal = |name: &str| {
        let pid = server.0.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().expect("runs").success());
    };
    let client = place.start(&["--bwlimit", "2M", "--timeout", "2", "s:f", "."]);
    client.writes();
    signal("STOP");
    let said = client.ends();
    assert!(said.code == Some(30) && said.err.contains("silent for 2 s"), "{said:?}");
    assert_eq!(names(&place.path("here")), Vec::<String>::new());
    // Before the first word, too.
    let began = Instant::now();
    let said = place.cp(&["s:f", "."]);
    assert!(said.code == Some(35) && began.elapsed() < Duration::from_secs(20), "{said:?}");
    signal("CONT");
    place.copies(&["s:f", "."]);
    let _: &Guarded = &server.0;
}
