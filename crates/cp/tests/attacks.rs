//! What was thought of to make `ginnel cp` break its promise: the old file or the whole new one,
//! and a server that goes on.

use crate::stage::{Guarded, Place, Said, Server, bytes, chance, is_root, names, program, until};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A server whose command begins with `before`, a shell's words.
fn serve_with(place: &Place, before: &str, stderr: Stdio) -> Guarded {
    let mut command = place.command("sh");
    let serve = "exec \"$0\" cp serve -v --name s --writable --root \"$1\"";
    command.args(["-c", &format!("{before}{serve}")]).arg(program()).arg(place.path("root"));
    command.stdin(Stdio::null()).stderr(stderr);
    Guarded(command.spawn().expect("sh starts"))
}

/// Copies as soon as the server is there.
fn copies_soon(place: &Place, args: &[&str]) -> Said {
    let mut said = None;
    until("it is served", || {
        let one = place.cp(args);
        let is_there = one.code != Some(5);
        said = Some(one);
        is_there
    });
    said.expect("said")
}

/// A log on a full disk is the very disk that a copy may have filled.
#[test]
fn a_server_whose_words_cannot_be_written_goes_on() {
    let full = Stdio::from(File::create("/dev/full").expect("there"));
    let (reading, writing) = std::io::pipe().expect("a pipe");
    drop(reading);
    for stderr in [full, Stdio::from(writing)] {
        let place = Place::new();
        fs::write(place.here("f"), "f").expect("written");
        let mut server = serve_with(&place, "", stderr);
        assert_eq!(copies_soon(&place, &["f", "s:"]).code, Some(0));
        // What it would say of each.
        assert_eq!(place.cp(&["s:none", "."]).code, Some(23));
        place.copies(&["s:f", "back"]);
        // Nor does a copy end, whose names go into a closed pipe.
        let mut client = place.command("sh");
        let piped = "{ \"$0\" cp -Iv s:f back; echo $? >code; } | true";
        assert!(client.args(["-c", piped]).arg(program()).status().expect("sh").success());
        assert_eq!(fs::read_to_string(place.here("code")).expect("written"), "0\n");
        assert!(server.0.try_wait().expect("a child").is_none(), "the server has ended");
    }
}

/// A write behind `ulimit -f` raises a signal that ends a program (setrlimit(2)).
#[test]
fn a_limit_of_a_files_size_is_an_error_of_that_file() {
    let place = Place::new();
    let _segment = place.segment();
    let (large, small) = (bytes(1, 3 << 20), bytes(2, 1000));
    for of in ["here/large", "root/large"] {
        fs::write(place.path(of), &large).expect("written");
    }
    fs::write(place.here("small"), &small).expect("written");
    fs::write(place.root("there"), "old").expect("written");
    let mut server = serve_with(&place, "ulimit -f 2048; ", Stdio::null());
    let said = copies_soon(&place, &["-I", "large", "s:there"]);
    assert!(said.code == Some(23) && said.err.contains("File too large"), "{said:?}");
    assert_eq!(fs::read(place.root("there")).expect("there"), b"old");
    assert!(server.0.try_wait().expect("a child").is_none(), "the server has ended");
    let said = place.cp(&["-I", "large", "small", "s:"]);
    assert!(said.code == Some(23) && said.err.contains("large: "), "{said:?}");
    assert_eq!(fs::read(place.root("small")).expect("copied"), small);

    // And a client's own.
    let mut client = place.command("sh");
    let limited = "ulimit -f 2048; exec \"$0\" cp s:large back";
    let output = client.args(["-c", limited]).arg(program()).output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(23) && words.contains("File too large"), "{words}");
    assert!(!place.here("back").exists());
}

/// Files of /proc say that they are empty.
#[test]
fn a_file_whose_length_is_not_known_does_not_arrive_empty() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let said = place.cp(&["/proc/cpuinfo", "s:"]);
    assert!(said.code == Some(23) && said.err.contains("no length"), "{said:?}");
    assert_eq!(names(&place.path("root")), [""; 0]);
    fs::write(place.here("empty"), "").expect("written");
    place.copies(&["empty", "s:"]);
    assert_eq!(fs::metadata(place.root("empty")).expect("there").len(), 0);
}

/// Processor time of a process, in ticks.
fn ticks(server: &Server) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.0.0.id())).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
}

/// A file of holes costs who makes it nothing, and hours to hash.
#[test]
fn nobody_hashes_for_a_client_that_is_gone() {
    let place = Place::new();
    for of in ["here/holes", "root/holes"] {
        File::create(place.path(of)).expect("made").set_len(1 << 40).expect("a length");
    }
    let server = place.serve(&["--writable"]);
    let mut client = place.start(&["-cI", "holes", "s:"]);
    let before = ticks(&server);
    until("it hashes", || ticks(&server) > before + 5);
    client.kill();
    let mut last = ticks(&server);
    until("it rests", || {
        std::thread::sleep(Duration::from_secs(3));
        let now = ticks(&server);
        now == std::mem::replace(&mut last, now)
    });
    // Nor for oneself, once one is told to stop.
    let client = place.start(&["-c", "s:holes", "."]);
    std::thread::sleep(Duration::from_millis(700));
    let pid = rustix::process::Pid::from_child(&client.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let said = client.ends();
    assert_eq!(said.code, Some(20), "{said:?}");
}

/// Several copies of different bytes to the same names at once: each name has one's bytes.
fn at_once(rounds: u64) {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    const CLIENTS: u64 = 3;
    const FILES: u64 = 6;
    let of = |client: u64, file: u64| bytes(client * 100 + file, 200_000 + 1000 * client as usize);
    for client in 0..CLIENTS {
        let folder = place.here(&format!("{client}/t"));
        fs::create_dir_all(&folder).expect("made");
        for file in 0..FILES {
            fs::write(folder.join(format!("f{file}")), of(client, file)).expect("written");
        }
    }
    for round in 0..rounds {
        let how = [&["-rI"][..], &["-rIt"], &["-rI", "--partial"]][(round % 3) as usize];
        let upload = |client: u64| {
            let from = format!("{client}/t");
            place.start(&[how, &[&from, "s:"]].concat())
        };
        let mut clients: Vec<Guarded> = (0..CLIENTS).map(upload).collect();
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_micros(chance(30_000)));
            clients[chance(CLIENTS) as usize].kill();
        }
        let codes: Vec<Option<i32>> = clients.into_iter().map(|one| one.ends().code).collect();
        // With --partial there is one unfinished file of a name, and who finds it taken says so.
        let fits = |code: &Option<i32>| matches!(code, None | Some(0 | 23));
        assert!(codes.iter().all(fits), "{codes:?}");
        for file in 0..FILES {
            let Ok(content) = fs::read(place.root(&format!("t/f{file}"))) else {
                assert!(!codes.contains(&Some(0)), "f{file} is not there: {codes:?}");
                continue;
            };
            let whose = (0..CLIENTS).filter(|&client| content == of(client, file)).count();
            assert_eq!(whose, 1, "f{file} of round {round} is nobody's");
        }
    }
}

#[test]
fn copies_to_the_same_names_at_once_leave_one_of_each() {
    at_once(9);
}

#[test]
#[ignore = "test-all: as above, hundreds of times"]
fn many_copies_to_the_same_names_at_once_leave_one_of_each() {
    at_once(200);
}

/// With `--partial`, either side is killed again and again; and now and then garbage gets into what
/// is unfinished.
fn goes_on(rounds: u64) {
    const LEN: usize = 6 << 20;
    let place = Place::new();
    let mut server = place.serve(&["--writable"]);
    let mut old = Vec::new();
    for round in 1..=rounds {
        let (there, partial) = (place.root("f"), place.root(".f.ginnel-partial"));
        let new = bytes(round, LEN + chance(5000) as usize);
        fs::write(place.here("f"), &new).expect("written");
        for _ in 0..chance(4) {
            let mut client = place.start(&["--partial", "-I", "f", "s:"]);
            std::thread::sleep(Duration::from_micros(chance(40_000)));
            if chance(2) == 0 {
                client.kill();
            } else {
                server.0.kill();
                drop(client);
                server = place.serve(&["--writable"]);
            }
            let is = fs::read(&there).unwrap_or_default();
            assert!(is == old || is == new, "round {round}: {} bytes of neither", is.len());
            spoil(&partial);
        }
        let mut last = None;
        // A server that has not seen yet that a client died holds its lock.
        until("it is copied", || {
            let said = place.cp(&["--partial", "-I", "f", "s:"]);
            let done = said.code == Some(0);
            last = Some(said);
            done
        });
        assert!(fs::read(&there).expect("copied") == new, "round {round}: {last:?}");
        assert_eq!(names(&place.path("root")), ["f"]);
        old = new;
    }
}

/// Writes over a part of a file, or makes it longer or shorter. Not while somebody works on it: a
/// server whose client was killed may have all of it, and be about to give it its name.
fn spoil(path: &Path) {
    let Ok(file) = File::options().write(true).open(path) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let len = file.metadata().expect("there").len();
    match chance(5) {
        0 => file.write_all_at(&bytes(chance(99), 100), chance(len + 1)).expect("written"),
        1 => file.set_len(chance(len + 1)).expect("cut"),
        2 => file.set_len(len + chance(9 << 20)).expect("longer"),
        _ => {}
    }
}

#[test]
fn what_is_unfinished_is_gone_on_with_whatever_happens_to_it() {
    goes_on(8);
}

#[test]
#[ignore = "test-all: as above, for minutes"]
fn what_is_unfinished_is_gone_on_with_whatever_happens_for_long() {
    goes_on(150);
}

/// Files without room: bytes or inodes, at any moment of a copy, on either side.
fn without_room(rounds: u64) {
    let able = Command::new("unshare").args(["-m", "true"]).status();
    if !is_root() || !able.is_ok_and(|status| status.success()) {
        println!("skipped: takes root, and a mount namespace");
        return;
    }
    for round in 0..rounds {
        let place = Place::new();
        let files = 40;
        fs::create_dir_all(place.here("t/d")).expect("made");
        let name =
            |file: u64| format!("t/{}f{file}", if file.is_multiple_of(2) { "d/" } else { "" });
        let of = |file: u64, version: u64| bytes(version * 1000 + file, 1000 * (file as usize + 1));
        for file in 0..files {
            fs::write(place.here(&name(file)), of(file, 1)).expect("written");
        }
        let limits =
            [format!("size={}k", 64 + chance(900)), format!("nr_inodes={}", 4 + chance(44))];
        let limit = &limits[(round % 2) as usize];
        let mut command = place.command("unshare");
        let script = format!(
            "mount -t tmpfs -o {limit} none \"$0\" && mkdir -p \"$0/t/d\" && \
             cp \"$2/t/f1\" \"$0/t/f3\" && exec \"$1\" cp serve --root \"$0\" --name s --writable"
        );
        command.args(["-m", "sh", "-c", &script]).arg(place.path("root"));
        let _server = Server::start({
            command.arg(program()).arg(place.path("here"));
            command
        });
        let said = place.cp(&["-rI", "t", "s:"]);
        assert!(matches!(said.code, Some(0 | 11)), "{limit}: {said:?}");
        place.copies(&["-r", "s:t", "back"]);
        for file in 0..files {
            let path = place.here(&format!("back/{}", name(file)));
            let Ok(content) = fs::read(&path) else { continue };
            let is_old = file == 3 && content == of(1, 1);
            assert!(content == of(file, 1) || is_old, "{limit}: f{file} is neither");
        }
        let mut there = names(&place.here("back/t"));
        there.extend(names(&place.here("back/t/d")));
        assert!(there.iter().all(|name| name == "d" || name.starts_with('f')), "{there:?}");
    }
}

#[test]
fn a_disk_that_fills_at_any_moment_has_whole_files() {
    without_room(8);
}

#[test]
#[ignore = "test-all: as above, more often"]
fn a_disk_that_fills_at_many_moments_has_whole_files() {
    without_room(200);
}

/// What is neither file, directory nor link is left out; long names and holes arrive.
#[test]
fn strange_things_in_a_tree_do_not_stop_it() {
    let place = Place::new();
    let _server = place.serve(&["--writable"]);
    let long = "n".repeat(255);
    fs::create_dir_all(place.here("t")).expect("made");
    fs::write(place.here(&format!("t/{long}")), "long").expect("written");
    let holes = File::create(place.here("t/holes")).expect("made");
    holes.set_len(1 << 40).expect("a length");
    holes.write_all_at(b"in the midst", 1 << 39).expect("written");
    let _socket = std::os::unix::net::UnixListener::bind(place.here("t/socket")).expect("bound");
    let fifo = Command::new("mkfifo").arg(place.here("t/fifo")).status().expect("mkfifo");
    assert!(fifo.success());
    // As deep as names go by system calls, and deeper.
    let deep = "d".repeat(200);
    let mut at = std::os::fd::OwnedFd::from(File::open(place.here("t")).expect("there"));
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &deep, Mode::from_raw_mode(0o755)).expect("made");
        at = rustix::fs::openat(&at, &deep, OFlags::DIRECTORY, Mode::empty()).expect("there");
    }
    let said = place.cp(&["-a", "t", "s:"]);
    assert!(said.code == Some(23) && said.err.contains("its path is too long"), "{said:?}");
    for left in ["socket", "fifo"] {
        assert!(said.err.contains(&format!("t/{left}: left out")), "{said:?}");
        assert!(!place.root(&format!("t/{left}")).exists());
    }
    assert_eq!(fs::read(place.root(&format!("t/{long}"))).expect("copied"), b"long");
    let arrived = File::open(place.root("t/holes")).expect("copied");
    let mut middle = [0; 12];
    arrived.read_exact_at(&mut middle, 1 << 39).expect("read");
    let meta = arrived.metadata().expect("there");
    assert_eq!((&middle, meta.len()), (b"in the midst", 1 << 40));
    assert!(meta.blocks() < 1000, "{} blocks", meta.blocks());
    // What is in the way is replaced, and nobody waits for its other end.
    let fifo = Command::new("mkfifo").arg(place.root("f")).status().expect("mkfifo");
    assert!(fifo.success());
    fs::write(place.here("f"), "f").expect("written");
    place.copies(&["f", "s:"]);
    assert!(!fs::metadata(place.root("f")).expect("there").file_type().is_fifo());
}
