//! Clients that read the copy of the server's memory in a segment, as those in other machines do:
//! nobody hands them the memory itself, and nothing but silence and a closed connection tells them
//! that the server ended.

use crate::neighbours::by_hand::{neighbour, signal};
use crate::random::Random;
use crate::servers::{OURS, Server};
use ginnel_cache::client::Client;
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A server that keeps a copy in the segment of its own directory, and whose door is gone.
fn server(args: &[&str]) -> Server {
    let mut command = Command::new(OURS);
    command.env("GINNEL_SIZE", "256M").env_remove("GINNEL_SEGMENT").arg("--segment");
    let server = Server::launch(command, args);
    std::fs::remove_file(server.stat("memory").expect("a door")).expect("ours");
    server
}

/// The command that does `work` in a process of its own.
fn work_of(server: &Server, work: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "far::by_hand::work", "--include-ignored", "--nocapture"])
        .env("GINNEL_DIR", server.home.path())
        .env_remove("GINNEL_SEGMENT")
        .env("CACHE_WORK", work)
        .env("CACHE_SOCKET", &server.socket)
        .env("CACHE_PID", server.pid().to_string());
    command
}

fn in_process(server: &Server, work: &str) {
    crate::neighbours::said_by(work, work_of(server, work));
}

mod by_hand {
    use super::*;

    /// What a test asks for, in a process of its own.
    #[test]
    #[ignore = "by hand: other tests start it"]
    fn work() {
        let work = std::env::var("CACHE_WORK").unwrap_or_default();
        let socket = std::env::var("CACHE_SOCKET").unwrap_or_default();
        match work.as_str() {
            "reads" => crate::neighbours::by_hand::reads(&socket),
            "survives" => crate::neighbours::by_hand::survives(&socket),
            "killed" => killed(&socket),
            "stopped" => stopped(&socket),
            "warm" => warm(&socket),
            "scribbled" => scribbled(&socket),
            other => panic!("no such work: {other}"),
        }
    }

    fn killed(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"key", b"value", 0, 0).expect("stored");
        assert!(client.get(b"key").expect("read").is_some());
        assert_eq!(client.counts().direct, 1);
        signal(Signal::KILL);
        let until = Instant::now() + Duration::from_secs(2);
        while client.get(b"key").is_ok() {
            assert!(Instant::now() < until, "a server that was killed is still read");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Even what is for ever is not read for long from a server that stands still: it might be one
    /// whose machine is no more.
    fn stopped(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"ever", b"value", 0, 0).expect("stored");
        assert!(client.get(b"ever").expect("read").is_some());
        signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(5500));
        let direct = client.counts().direct;
        let ever = client.get(b"ever").map(|found| found.is_some());
        signal(Signal::CONT);
        assert!(ever.is_err(), "{ever:?}: the server could not say");
        assert_eq!(client.counts().direct, direct);
        let until = Instant::now() + Duration::from_secs(20);
        while client.counts().direct == direct {
            assert!(Instant::now() < until, "it is not read any more");
            assert!(client.get(b"ever").expect("asked").is_some());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What is read out of the copy counts as read: it stays, where others go.
    fn warm(socket: &str) {
        let mut client = neighbour(socket);
        let value = vec![b'v'; 4096];
        for key in [&b"read"[..], b"unread"] {
            client.set(key, &value, 0, 0).expect("stored");
        }
        // The server looks once a second whether there are such readers, then ten times.
        assert!(client.get(b"read").expect("read").is_some());
        std::thread::sleep(Duration::from_millis(1500));
        for at in 0..6000 {
            assert!(client.set(format!("other-{at}").as_bytes(), &value, 0, 0).expect("stored"));
            assert!(client.get(b"read").expect("read").is_some(), "gone after {at}");
            if at % 100 == 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        assert!(client.counts().direct > 5900, "{:?}", client.counts());
        assert!(client.get(b"unread").expect("asked").is_none(), "nothing was evicted");
    }

    /// Another program of the segment writes garbage into the copy all the time.
    fn scribbled(socket: &str) {
        let mut client = neighbour(socket);
        let keys: Vec<String> = (0..200).map(|at| format!("key-{at}")).collect();
        for key in &keys {
            client.set(key.as_bytes(), key.as_bytes(), 0, 0).expect("stored");
        }
        let segment = ginnel::Segment::own().expect("a segment");
        let copies = segment.objects().expect("names").into_iter().map(|object| object.name);
        let name = copies.into_iter().find(|name| name.starts_with("cache-") && name.len() == 22);
        let copy = ginnel::Memory::open(&segment, &name.expect("a copy")).expect("memory");
        let (mut random, words) = (Random::new(3), copy.len() / 8);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            for _ in 0..1000 {
                // The index above all.
                let among = if random.below(4) == 0 { words } else { words / 8 };
                let at = random.below(among);
                copy.word(at * 8).expect("inside").store(random.next() >> 40, Ordering::Relaxed);
            }
            for key in &keys {
                let _ = client.get(key.as_bytes()).expect("read, or asked");
            }
        }
        // The server never looked there.
        let mut asked = Client::connect(socket).expect("it serves");
        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        assert!(!asked.is_neighbour(), "its header is garbage");
        let found = asked.mget(&keys).expect("asked");
        let whole = |(key, item): (&&[u8], &Option<ginnel_cache::client::Owned>)| {
            item.as_ref().is_some_and(|item| item.value == *key)
        };
        assert!(keys.iter().zip(&found).all(whole));
    }
}

#[test]
fn a_reader_that_has_only_the_segment_reads() {
    let server = server(&[]);
    in_process(&server, "reads");
    assert_eq!(server.stat("neighbours").as_deref(), Some("0"));
}

#[test]
fn a_server_that_was_killed_is_not_read_from_afar() {
    in_process(&server(&[]), "killed");
}

#[test]
fn a_server_that_stands_still_is_not_read_from_afar() {
    in_process(&server(&[]), "stopped");
}

#[test]
fn a_new_server_is_followed_from_afar() {
    let mut server = server(&[]);
    let client = work_of(&server, "survives").stdout(Stdio::piped()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(1000));
    server.restart();
    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn what_is_read_from_afar_stays() {
    in_process(&server(&["-m", "8"]), "warm");
}

#[test]
fn garbage_in_the_copy_harms_readers_alone() {
    let server = server(&["-m", "8"]);
    in_process(&server, "scribbled");
    assert_eq!(server.connect().ask(b"mn\r\n", b"\n"), b"MN\r\n");
}

#[test]
fn a_segment_without_room_is_told() {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(OURS);
    command.env("GINNEL_DIR", home.path()).env("GINNEL_SIZE", "16M").env_remove("GINNEL_SEGMENT");
    std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("ours");
    let socket = home.path().join("socket");
    command.args(["-u", "root", "--segment", "-s"]).arg(socket);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--segment: "), "{said}");
}
