//! Clients that read the server's memory: what they see, who may, and what happens when either
//! side ends.

use crate::servers::{OURS, Server};
use ginnel_cache::client::{Client, Counts};
use ginnel_cache::hints::RING_BYTES;
use ginnel_cache::memory;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns the command that does `work` in a process of its own, with that Ginnel directory: this
/// very executable, asked for one test that is none by itself.
fn work_of(server: &Server, work: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "neighbours::by_hand::work", "--include-ignored", "--nocapture"])
        .env("GINNEL_DIR", directory)
        .env("CACHE_WORK", work)
        .env("CACHE_SOCKET", &server.socket)
        .env("CACHE_PID", server.pid().to_string());
    command
}

fn in_process(server: &Server, work: &str) -> String {
    in_directory(server, work, server.home.path())
}

fn in_directory(server: &Server, work: &str, directory: &Path) -> String {
    said_by(work, work_of(server, work, directory))
}

/// Runs what `command` asks for, and returns what it says.
pub fn said_by(work: &str, mut command: Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{work}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

pub mod by_hand {
    use super::*;

    /// What a test asks for, in a process of its own.
    #[test]
    #[ignore = "by hand: other tests start it"]
    fn work() {
        let work = std::env::var("CACHE_WORK").unwrap_or_default();
        let socket = std::env::var("CACHE_SOCKET").unwrap_or_default();
        match work.as_str() {
            "reads" => reads(&socket),
            "survives" => survives(&socket),
            "expires" => expires(&socket),
            "stopped" => stopped(&socket),
            "paused" => paused(&socket),
            "moved" => moved(&socket),
            "idle" => idle(&socket),
            "stranger" => {
                let mut client = Client::connect(&socket).expect("it listens");
                println!("neighbour: {}, {}", client.is_neighbour(), client.why());
                client.set(b"key", b"value", 0, 0).expect("stored");
                assert_eq!(client.get(b"key").expect("asked").expect("found").value, b"value");
                assert_eq!(client.counts().direct, 0);
            }
            other => panic!("no such work: {other}"),
        }
    }

    pub fn neighbour(socket: &str) -> Client {
        let client = Client::connect(socket).expect("it listens");
        assert!(client.is_neighbour(), "{}", client.why());
        client
    }

    pub fn reads(socket: &str) {
        let mut client = neighbour(socket);
        let value: Vec<u8> = (0..5000).map(|at| at as u8).collect();
        for len in [0, 1, 7, 8, 9, 1023, 1024, 5000] {
            let key = format!("key-{len}");
            assert!(client.set(key.as_bytes(), &value[..len], 7, 0).expect("stored"));
            let found = client.get(key.as_bytes()).expect("read").expect("found");
            assert_eq!((found.value, found.flags), (&value[..len], 7));
        }
        assert_eq!(client.counts(), Counts { direct: 8, asked: 0 }, "a server was asked");
        let cas = client.get(b"key-8").expect("read").expect("found").cas;
        assert!(!client.cas(b"key-8", b"late", 0, 0, cas + 100).expect("asked"));
        assert!(client.cas(b"key-8", b"in time", 0, 0, cas).expect("asked"));
        let keys: [&[u8]; 4] = [b"key-8", b"none", b"key-1", b"key-8"];
        let found = client.mget(&keys).expect("read");
        let values: Vec<Option<&[u8]>> =
            found.iter().map(|item| item.as_ref().map(|item| &item.value[..])).collect();
        assert_eq!(values, [Some(&b"in time"[..]), None, Some(&[0][..]), Some(&b"in time"[..])]);
        // More than a server takes in a line.
        let many: Vec<String> = (0..6000).map(|at| format!("{at:0200}")).collect();
        client.set(many[5999].as_bytes(), b"last", 0, 1000).expect("stored");
        let keys: Vec<&[u8]> = many.iter().map(|key| key.as_bytes()).collect();
        let found = client.mget(&keys).expect("asked");
        assert!(found[..5999].iter().all(Option::is_none));
        assert_eq!(found[5999].as_ref().expect("there").value, b"last");
        assert!(client.delete(b"key-8").expect("asked"));
        assert!(client.get(b"key-8").expect("asked").is_none());
        for key in [&b""[..], b"with blank", b"line\n", &[b'k'; 251]] {
            assert!(client.get(key).is_err(), "{key:?}");
        }
    }

    /// The server is killed, and another begins at the same address.
    pub fn survives(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"key", b"old", 0, 0).expect("stored");
        assert_eq!(client.get(b"key").expect("read").expect("found").value, b"old");
        println!("ready");
        let until = Instant::now() + Duration::from_secs(20);
        // Whatever it reads meanwhile: the old value while the old server lives, an error while
        // none does, and nothing once there is a new one.
        loop {
            match client.get(b"key") {
                Ok(Some(found)) => assert_eq!(found.value, b"old"),
                Ok(None) => break,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            assert!(Instant::now() < until, "no new server");
        }
        client.set(b"key", b"new", 0, 0).expect("stored");
        let until = Instant::now() + Duration::from_secs(5);
        while !client.is_neighbour() {
            assert!(Instant::now() < until, "{}", client.why());
            client.get(b"other").expect("asked");
            std::thread::sleep(Duration::from_millis(50));
        }
        let before = client.counts().direct;
        assert_eq!(client.get(b"key").expect("read").expect("found").value, b"new");
        assert_eq!(client.counts().direct, before + 1);
    }

    fn expires(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"key", b"value", 0, 2).expect("stored");
        assert!(client.get(b"key").expect("read").is_some());
        assert_eq!(client.counts(), Counts { direct: 1, asked: 0 });
        let until = Instant::now() + Duration::from_secs(10);
        while client.get(b"key").expect("read").is_some() {
            assert!(Instant::now() < until, "it does not expire");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(client.counts().asked, 1, "the server was asked, and knew no more of it");
    }

    /// A server that stands still: what is for ever is still read, what may be over is not.
    fn stopped(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"ever", b"value", 0, 0).expect("stored");
        client.set(b"short", b"value", 0, 3).expect("stored");
        assert!(client.get(b"short").expect("read").is_some());
        signal(rustix::process::Signal::STOP);
        std::thread::sleep(Duration::from_millis(5500));
        let ever = client.get(b"ever").map(|found| found.is_some());
        let short = client.get(b"short").map(|found| found.is_some());
        signal(rustix::process::Signal::CONT);
        assert!(matches!(ever, Ok(true)), "{ever:?}");
        assert!(short.is_err(), "{short:?}: the server could not say");
        // A thread of the server may answer before another has moved its clock, as memcached's do.
        let until = Instant::now() + Duration::from_secs(20);
        while client.get(b"short").expect("asked").is_some() {
            assert!(Instant::now() < until, "it does not expire");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(signal: rustix::process::Signal) {
        let pid = std::env::var("CACHE_PID").expect("a number").parse().expect("a number");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, signal).expect("ours");
    }

    /// As `stopped`, but the reader looks for the first time since the clock moved: that it moved
    /// says nothing of when.
    fn paused(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"short", b"value", 0, 4).expect("stored");
        assert!(client.get(b"short").expect("read").is_some());
        std::thread::sleep(Duration::from_millis(2100));
        signal(rustix::process::Signal::STOP);
        std::thread::sleep(Duration::from_millis(4500));
        let short = client.get(b"short").map(|found| found.is_some());
        signal(rustix::process::Signal::CONT);
        assert!(short.is_err(), "{short:?}: the server could not say");
    }

    /// The server closes a connection over which nothing comes; the next set is none the worse.
    fn idle(socket: &str) {
        let mut client = neighbour(socket);
        for value in [b"first", b"later"] {
            assert!(client.set(b"key", value, 0, 0).expect("acknowledged"));
            std::thread::sleep(Duration::from_millis(3500));
        }
        assert_eq!(client.get(b"key").expect("read").expect("found").value, b"later");
    }

    /// Another server takes over the address, while the one whose memory is read goes on.
    fn moved(socket: &str) {
        let mut client = neighbour(socket);
        client.set(b"key", b"old", 0, 0).expect("stored");
        assert_eq!(client.get(b"key").expect("read").expect("found").value, b"old");
        let other = std::env::var("CACHE_OTHER").expect("a path");
        std::fs::rename(other, socket).expect("ours");
        // The connection is made anew, as after any error.
        client.set_timeout(Duration::from_secs(2));
        assert!(client.set(b"key", b"new", 0, 0).expect("acknowledged"));
        assert_eq!(client.get(b"key").expect("read").expect("found").value, b"new");
        assert_eq!(client.get(b"key").expect("read").expect("found").value, b"new");
    }
}

#[test]
fn a_reader_that_paused_lets_nothing_live_longer() {
    in_process(&Server::ours(&[]), "paused");
}

#[test]
fn a_connection_that_the_server_closed_is_made_anew() {
    in_process(&Server::ours(&["-o", "idle_timeout=1"]), "idle");
}

#[test]
fn the_memory_of_a_server_that_lost_its_address_is_not_read() {
    let (server, other) = (Server::ours(&[]), Server::ours(&[]));
    let mut command = work_of(&server, "moved", server.home.path());
    let output = command.env("CACHE_OTHER", &other.socket).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Hands over a ring of hints, as a client does.
fn hand_over_ring(door: &UnixStream, greeting: &[u8]) {
    let (_, ring) = memory::create("hints", RING_BYTES).expect("memory");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let ring = [ring.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&ring)));
    let bytes = [IoSlice::new(greeting)];
    rustix::net::sendmsg(door, &bytes, &mut control, SendFlags::NOSIGNAL).expect("sent");
}

/// Of huge pages a hole that is read may be SIGBUS, where none is free or allowed.
#[test]
fn memory_of_huge_pages_is_not_mapped() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB | MemfdFlags::ALLOW_SEALING;
    let Ok(file) = rustix::fs::memfd_create("huge", flags) else {
        return println!("skipped: the kernel has no huge pages of 2 MiB");
    };
    rustix::fs::ftruncate(&file, 2 << 20).expect("a size");
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    let refused = memory::open(&file).expect_err("it is of huge pages");
    assert!(refused.to_string().contains("ordinary pages"), "{refused}");
}

/// Both are there by the time the server looks, which it is told once.
#[test]
fn who_hands_over_a_ring_and_leaves_at_once_has_left() {
    let server = Server::ours(&[]);
    let path = server.stat("memory").expect("it has a door");
    let come = || {
        let mut stream = UnixStream::connect(&path).expect("a door");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        let mut greeting = [0; 24];
        stream.read_exact(&mut greeting).expect("a greeting");
        (stream, greeting)
    };
    let guests: Vec<_> = (0..32).map(|_| come()).collect();
    assert_eq!(server.stat("neighbours").as_deref(), Some("32"));
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("ours");
    for (stream, greeting) in guests {
        hand_over_ring(&stream, &greeting);
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("ours");
    let until = Instant::now() + Duration::from_secs(10);
    while server.stat("neighbours").as_deref() != Some("0") {
        assert!(Instant::now() < until, "{:?} are still there", server.stat("neighbours"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `connect` until it is refused or given up, or hangs.
fn is_given_up(connect: impl Fn() -> Result<Client, std::io::Error> + Send + 'static) {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Some are queued, and then silent; the next is not even that.
        (0..5).for_each(|_| drop(connect()));
        let _ = tell.send(());
    });
    told.recv_timeout(Duration::from_secs(30)).expect("it hangs");
}

/// A server that stands still, with as many waiting as can.
#[test]
fn a_server_that_lets_nobody_in_is_given_up() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("socket").to_str().expect("UTF-8").to_owned();
    let unix = UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&unix, 0).expect("a shorter queue");
    is_given_up(move || Client::connect(&path));
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    rustix::net::listen(&tcp, 0).expect("a shorter queue");
    let address = tcp.local_addr().expect("bound").to_string();
    is_given_up(move || Client::connect(&address));
}

#[test]
fn a_neighbour_reads_what_was_stored() {
    in_process(&Server::ours(&[]), "reads");
}

/// Returns the command that does the same in a pid namespace of its own, which ends with it.
fn apart(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    outer.args(["--pid", "--fork", "--kill-child"]).arg(command.get_program());
    outer.args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer
}

/// As in two containers of one user: to neither end has the kernel a number for the other.
#[test]
fn a_neighbour_in_another_pid_namespace_reads() {
    if !apart(&Command::new("true")).status().is_ok_and(|status| status.success()) {
        return println!("skipped: unshare makes no pid namespace here");
    }
    let server = Server::launch(apart(&Command::new(OURS)), &[]);
    // The server has no number for the reader; then neither has one for the other.
    in_process(&server, "reads");
    said_by("reads", apart(&work_of(&server, "reads", server.home.path())));
    // The reader alone has none.
    let server = Server::ours(&[]);
    said_by("reads", apart(&work_of(&server, "reads", server.home.path())));
}

#[test]
fn what_expires_is_not_read_any_more() {
    in_process(&Server::ours(&[]), "expires");
}

#[test]
fn a_stopped_server_lets_nothing_live_longer() {
    in_process(&Server::ours(&[]), "stopped");
}

#[test]
fn a_memcached_is_asked() {
    let said = in_process(&Server::memcached(&[]), "stranger");
    assert!(said.contains("neighbour: false, the server offers its memory to nobody"), "{said}");
}

#[test]
fn a_server_that_offers_nothing_is_asked() {
    let said = in_process(&Server::ours(&["--no-neighbours"]), "stranger");
    assert!(said.contains("neighbour: false"), "{said}");
}

/// A directory that others may write could have anybody's socket in it.
#[test]
fn a_directory_of_others_is_not_believed() {
    let server = Server::ours(&[]);
    let open = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let said = in_directory(&server, "stranger", open.path());
    assert!(said.contains("chmod 700"), "{said}");
    let empty = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .expect("a directory");
    let said = in_directory(&server, "stranger", empty.path());
    assert!(said.contains("neighbour: false"), "{said}");
}

/// Killed, so that it can do nothing: readers see it at once, and follow to the next one.
#[test]
fn a_new_server_is_followed() {
    let mut server = Server::ours(&[]);
    let client = work_of(&server, "survives", server.home.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    std::thread::sleep(Duration::from_millis(1000));
    server.restart();
    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
