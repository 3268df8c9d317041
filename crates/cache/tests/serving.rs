//! The server among clients that are slow, greedy, gone or hostile.

use crate::servers::{Peer, Server};
use ginnel_cache::protocol::{Connections, Context, Session, Settings, Verdict};
use ginnel_cache::reader::{Look, Reader};
use ginnel_cache::store::{Limits, Put, Store};
use rustix::process::{Resource, Rlimit};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

/// KiB that a process has of its own: not the cache's memory, which is shared.
fn own_memory(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

fn store(peer: &mut Peer, key: &str, value: &[u8]) {
    let line = format!("set {key} 0 0 {}\r\n", value.len());
    let said = peer.ask(&[line.as_bytes(), value, b"\r\n"].concat(), b"\r\n");
    assert_eq!(said, b"STORED\r\n");
}

/// Writes as much as the server takes within a moment.
fn push(peer: &mut Peer, text: &[u8]) -> usize {
    peer.0.set_write_timeout(Some(Duration::from_millis(200))).expect("a time");
    let mut sent = 0;
    while sent < text.len() {
        match peer.0.write(&text[sent..]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    sent
}

/// A client that asks for gigabytes and reads nothing: it waits, the others do not, and the server
/// keeps no more for it than its bound. Once it reads, all comes, in order.
#[test]
fn who_reads_nothing_is_kept_waiting_alone() {
    let server = Server::ours(&["-t", "1"]);
    let (mut greedy, mut other) = (server.connect(), server.connect());
    let value = vec![b'v'; 500_000];
    store(&mut greedy, "big", &value);
    let before = own_memory(&server);
    let line = format!("get{}\r\n", " big".repeat(400));
    let questions = line.repeat(20);
    let sent = push(&mut greedy, questions.as_bytes());
    for _ in 0..100 {
        store(&mut other, "small", b"x");
        assert_eq!(other.ask(b"get small\r\n", b"END\r\n"), b"VALUE small 0 1\r\nx\r\nEND\r\n");
    }
    let grown = own_memory(&server).saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more for one client");
    // What was taken in is answered: that many lines of 400 values.
    let whole = sent / line.len();
    assert!(whole > 0, "not even one line was taken");
    let one = b"VALUE big 0 500000\r\n".len() + value.len() + 2;
    let mut buffer = vec![0; 1 << 20];
    let mut left = one * 400 + b"END\r\n".len();
    let mut last = Vec::new();
    while left > 0 {
        let want = left.min(buffer.len());
        let count = greedy.0.read(&mut buffer[..want]).expect("it goes on");
        assert!(count > 0, "closed with {left} bytes to come");
        left -= count;
        last.extend_from_slice(&buffer[..count]);
        let keep = last.len().saturating_sub(5);
        last.drain(..keep);
    }
    assert_eq!(last, b"END\r\n");
}

/// Values that are announced and do not come take no memory.
#[test]
fn announced_values_take_no_memory() {
    let server = Server::ours(&[]);
    let before = own_memory(&server);
    let mut peers: Vec<Peer> = (0..200).map(|_| server.connect()).collect();
    for peer in &mut peers {
        peer.0.write_all(b"set key 0 0 1000000\r\nnot much").expect("taken");
    }
    let mut one = server.connect();
    store(&mut one, "small", b"x");
    let grown = own_memory(&server).saturating_sub(before);
    assert!(grown < 20 << 10, "{grown} KiB for 200 announcements");
}

/// Bytes one at a time, and questions in one piece with the end of what a client has to say.
#[test]
fn pieces_and_ends_are_understood() {
    let server = Server::ours(&[]);
    let mut slow = server.connect();
    for byte in b"set key 5 0 7\r\nwith\r\n!\r\nmg key v f\r\n" {
        slow.0.write_all(&[*byte]).expect("taken");
    }
    assert_eq!(slow.read_to(b"!\r\n"), b"STORED\r\nVA 7 f5\r\nwith\r\n!\r\n");
    let mut short = server.connect();
    short.0.write_all(b"get key\r\nmn\r\n").expect("taken");
    short.0.shutdown(Shutdown::Write).expect("half");
    assert_eq!(short.read_to(b"never"), b"VALUE key 5 7\r\nwith\r\n!\r\nEND\r\nMN\r\n<closed>");
    let mut quits = server.connect();
    assert_eq!(
        quits
            .ask(b"version\r\nquit\r\nversion\r\n", b"never")
            .iter()
            .filter(|&&b| b == b'\n')
            .count(),
        1
    );
}

/// What a command says, to a session by itself.
fn receive(session: &mut Session, store: &mut Store, bytes: &[u8]) {
    let (settings, connections) = (Settings::default(), Connections::default());
    let mut context = Context { store, settings: &settings, connections: &connections };
    assert_eq!(session.receive(bytes, &mut context), Verdict::Open);
}

fn small_store() -> Store {
    let limits = Limits { memory: 1 << 20, max_item: 64 << 10, ..Limits::default() };
    Store::private(&limits).expect("memory")
}

/// All clients wait for what one command takes: nothing of a line is looked through again, and a
/// get of very many keys lets others come between.
#[test]
fn a_long_line_in_single_bytes_is_looked_through_once() {
    let (mut session, mut store, begun) = (Session::default(), small_store(), Instant::now());
    let line = format!("get{}\r\n", " k".repeat(500_000));
    for byte in line.bytes() {
        receive(&mut session, &mut store, &[byte]);
        assert!(begun.elapsed() < Duration::from_secs(60), "it takes hours");
    }
    while session.has_more() {
        receive(&mut session, &mut store, &[]);
    }
    assert_eq!(session.output, b"END\r\n");
}

#[test]
fn a_get_of_very_many_keys_lets_others_come_between() {
    let (mut session, mut store) = (Session::default(), small_store());
    let line = format!("get{}\r\nmn\r\n", " k".repeat(100_000));
    let mut last = 0;
    receive(&mut session, &mut store, line.as_bytes());
    loop {
        let at_once = store.counts.gets - last;
        assert!(at_once <= 5000, "{at_once} keys at once");
        last = store.counts.gets;
        if !session.has_more() {
            break;
        }
        receive(&mut session, &mut store, &[]);
    }
    assert_eq!((last, &session.output[..]), (100_000, &b"END\r\nMN\r\n"[..]));
    // Over a socket, with the end of what the client has to say behind it.
    let server = Server::ours(&[]);
    let mut peer = server.connect();
    peer.0.write_all(line.as_bytes()).expect("taken");
    peer.0.shutdown(Shutdown::Write).expect("half");
    assert_eq!(peer.read_to(b"never"), b"END\r\nMN\r\n<closed>");
}

/// A large index is emptied in parts.
#[test]
fn flush_all_lets_others_come_between() {
    let limits = Limits { memory: 64 << 20, max_item: 64 << 10, ..Limits::default() };
    let (mut session, mut store) = (Session::default(), Store::private(&limits).expect("memory"));
    for at in 0..100_000 {
        let _ = store.put(&Put::set(format!("key-{at}").as_bytes(), b"value"));
    }
    let mut reader = Reader::new(store.view()).expect("an honest header");
    receive(&mut session, &mut store, b"flush_all\r\nmn\r\n");
    let (mut last, mut parts) = (100_000, 1);
    loop {
        let at_once = last - store.counts.items;
        assert!(at_once <= 5000, "{at_once} items at once");
        last = store.counts.items;
        if !session.has_more() {
            break;
        }
        assert!(session.output.is_empty(), "acknowledged before it is done");
        receive(&mut session, &mut store, &[]);
        parts += 1;
    }
    assert_eq!((last, &session.output[..]), (0, &b"OK\r\nMN\r\n"[..]));
    assert!(parts > 20, "{parts}");
    (0..100_000).for_each(|at| assert_eq!(reader.look(format!("key-{at}").as_bytes()), Look::Miss));
    let (all, free, _) = store.segments();
    assert_eq!(all, free, "segments are still in use");
}

/// The same at a server: clients of other threads are answered while it goes on.
#[test]
fn others_are_answered_while_flush_all_goes_on() {
    let server = Server::ours(&["-m", "2048", "-t", "2"]);
    let (mut flushing, mut other) = (server.connect(), server.connect());
    for _ in 0..3 {
        push(&mut flushing, b"flush_all\r\n");
        flushing.0.set_nonblocking(true).expect("an option");
        let (mut answered, mut said) = (0, [0; 4]);
        while flushing.0.read(&mut said).is_err() {
            assert_eq!(other.ask(b"mn\r\n", b"\n"), b"MN\r\n");
            answered += 1;
        }
        assert_eq!(&said, b"OK\r\n");
        flushing.0.set_nonblocking(false).expect("an option");
        assert!(answered > 10, "{answered} answers meanwhile");
    }
}

/// Another server's door is full, and it stands still.
#[test]
fn a_server_starts_beside_one_that_stands_still() {
    let mut server = Server::ours(&[]);
    let path = server.home.path().join("cache-0000000000000001.sock");
    let door = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&door, 0).expect("a shorter queue");
    let _waits = std::os::unix::net::UnixStream::connect(&path).expect("queued");
    server.restart();
    assert_eq!(server.connect().ask(b"mn\r\n", b"\n"), b"MN\r\n");
    assert!(path.exists(), "it lives");
}

#[test]
fn lines_without_end_are_closed() {
    let server = Server::ours(&[]);
    for start in [&b"set "[..], b"mg ", b"x", b""] {
        let mut peer = server.connect();
        let said = peer.ask(&[start, &[b'k'; 3000]].concat(), b"never");
        assert_eq!(said, b"<closed>", "{start:?}");
    }
    // A multiple get may be long, and has an end all the same.
    let mut peer = server.connect();
    let line = format!("get{}\r\n", " k".repeat(20_000));
    assert_eq!(peer.ask(line.as_bytes(), b"END\r\n"), b"END\r\n");
    push(&mut peer, format!("get{}", " k".repeat(2_000_000)).as_bytes());
    assert_eq!(peer.read_to(b"never"), b"<closed>");
}

#[test]
fn there_are_as_many_connections_as_are_allowed() {
    let server = Server::ours(&["-c", "10"]);
    let mut peers: Vec<Peer> = (0..10).map(|_| server.connect()).collect();
    // The one by which the test saw that it listens may still be counted.
    let until = Instant::now() + Duration::from_secs(5);
    while peers.iter_mut().any(|peer| peer.ask(b"mn\r\n", b"\n") != b"MN\r\n") {
        assert!(Instant::now() < until, "ten are not served");
        peers = (0..10).map(|_| server.connect()).collect();
    }
    let said = server.connect().read_to(b"never");
    assert_eq!(said, b"ERROR Too many open connections\r\n<closed>");
    drop(peers.pop());
    let until = Instant::now() + Duration::from_secs(5);
    while server.connect().ask(b"mn\r\n", b"\n") != b"MN\r\n" {
        assert!(Instant::now() < until, "a place that was left is not given again");
    }
}

/// Descriptors run out, and come again; nobody else comes, who would have the server look again.
#[test]
fn who_comes_while_there_are_no_descriptors_is_served_later() {
    let server = Server::ours(&[]);
    let door = server.stat("memory").expect("it has a door");
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed()).expect("a process");
    let allow = |count| {
        let limit = Rlimit { current: Some(count), maximum: Some(4096) };
        rustix::process::prlimit(Some(pid), Resource::Nofile, limit).expect("ours");
    };
    allow(3);
    let mut peer = server.connect();
    let mut guest = Peer::connect(Path::new(&door));
    peer.0.write_all(b"mn\r\n").expect("taken");
    std::thread::sleep(Duration::from_millis(500));
    allow(4096);
    assert_eq!(peer.read_to(b"\n"), b"MN\r\n");
    let mut greeting = [0; 24];
    guest.0.read_exact(&mut greeting).expect("it is let in");
}

#[test]
fn there_are_as_many_descriptors_as_connections_may_need() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", crate::servers::OURS]);
    let server = Server::launch(command, &["-c", "200"]);
    let mut peers: Vec<Peer> = (0..150).map(|_| server.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask(b"mn\r\n", b"\n"), b"MN\r\n");
    }
}

/// Nobody can connect before the socket has the permissions that were asked for.
#[test]
fn a_unix_socket_has_its_permissions_before_anybody_can_connect() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-e", "trace=bind,listen,chmod,fchmodat", "-o"]).arg(log.path());
    if std::process::Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_err() {
        println!("skipped: strace is not installed");
        return;
    }
    let server = Server::launch(with(command, crate::servers::OURS), &["-A", "-a", "700"]);
    assert_eq!(server.connect().ask(b"shutdown\r\n", b"never"), b"<closed>");
    let said = std::fs::read_to_string(log.path()).expect("text");
    let lines: Vec<&str> = said.lines().filter(|line| line.ends_with("= 0")).collect();
    let at = |what: &dyn Fn(&str) -> bool| lines.iter().position(|line| what(line));
    let path = server.socket.to_str().expect("UTF-8");
    let bound = at(&|line| line.contains("bind(") && line.contains(path)).expect("it binds");
    let allowed = at(&|line| line.contains("chmod") && line.contains(path)).expect("and chmods");
    let listens = lines.iter().skip(bound).position(|line| line.contains("listen("));
    assert!(allowed < bound + listens.expect("it listens"), "{said}");
}

fn with(mut command: std::process::Command, argument: &str) -> std::process::Command {
    command.arg(argument);
    command
}

/// Root's server that becomes another user leaves its socket and its memory to that user.
#[test]
fn who_becomes_another_user_keeps_nothing_of_roots() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const NOBODY: u32 = 65_534;
    let home = tempfile::tempdir().expect("a directory");
    let mode = |bits| std::fs::Permissions::from_mode(bits);
    chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    std::fs::set_permissions(home.path(), mode(0o700)).expect("ours");
    let socket = home.path().join("socket");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ginnel-cache"))
        .args(["-u", "nobody", "-s"])
        .arg(&socket)
        .env("GINNEL_DIR", home.path())
        .spawn()
        .expect("it starts");
    let until = Instant::now() + Duration::from_secs(20);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < until, "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Peer::connect(&socket).ask(b"mn\r\n", b"\n"), b"MN\r\n");
    let entries = home.path().read_dir().expect("ours").flatten();
    let owners: Vec<u32> = entries.map(|entry| entry.metadata().expect("a file").uid()).collect();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(owners, [NOBODY; 2], "socket and door");
    for line in ["Uid:", "Gid:"] {
        let ids = status.lines().find_map(|text| text.strip_prefix(line)).expect("a line");
        assert!(ids.split_whitespace().all(|id| id == "65534"), "{line} {ids}");
    }
}

#[test]
fn who_is_silent_for_long_is_closed_where_that_is_asked_for() {
    let server = Server::ours(&["-o", "idle_timeout=1"]);
    let mut peer = server.connect();
    assert_eq!(peer.ask(b"mn\r\n", b"\n"), b"MN\r\n");
    assert_eq!(peer.read_to(b"never"), b"<closed>");
}

/// Garbage of both protocols: the server goes on, for others at least.
#[test]
fn garbage_does_no_harm() {
    let server = Server::ours(&["-m", "8", "-I", "64k"]);
    let mut random = crate::random::Random::new(3);
    for round in 0..300 {
        let mut peer = server.connect();
        let mut bytes: Vec<u8> = (0..random.below(400)).map(|_| random.next() as u8).collect();
        if round % 2 == 0 {
            bytes.insert(0, 0x80);
        }
        for _ in 0..random.below(5) {
            bytes.extend(crate::commands::text(&mut random));
            bytes.extend(crate::commands::binary(&mut random));
        }
        let _ = peer.0.write_all(&bytes);
        let _ = peer.0.shutdown(Shutdown::Write);
        peer.0.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        let said = peer.read_to(b"<never>");
        assert!(said.ends_with(b"<closed>"), "round {round}: silence");
    }
    assert_eq!(server.connect().ask(b"mn\r\n", b"\n"), b"MN\r\n");
}
