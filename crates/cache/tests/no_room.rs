//! With `-M`: what a command that finds no room says and leaves, as Debian's memcached does.

use crate::commands::packet;
use crate::differential::shown;
use crate::servers::{Peer, Server};

/// Stores until there is no room; says how many there are.
fn fill(peer: &mut Peer, mut count: usize) -> usize {
    loop {
        let line = format!("set key-{count} 0 0 20000\r\n");
        let set = [line.as_bytes(), &[b'v'; 20_000], b"\r\n"].concat();
        let said = peer.ask(&set, b"\r\n");
        if said != b"STORED\r\n" {
            assert!(said.starts_with(b"SERVER_ERROR out of memory"), "{}", shown(&said));
            return count;
        }
        count += 1;
    }
}

/// With -M: what a command that finds no room says, and whether there is a value after it.
fn without_room(server: &Server) -> Vec<(String, String, bool)> {
    let mut peer = server.connect();
    let mut count = 0;
    let commands = [
        ("set key-1 0 0 20000", b"\r\n"),
        ("replace key-2 0 0 20000", b"\r\n"),
        ("append key-3 0 0 20000", b"\r\n"),
        ("prepend key-4 0 0 20000", b"\r\n"),
        ("ms key-5 20000", b"\r\n"),
        ("ms key-6 20000 MR", b"\r\n"),
        ("ms key-7 20000 MA", b"\r\n"),
        ("ms key-8 20000 q", b"\r\n"),
    ];
    let mut seen = Vec::new();
    for (line, end) in commands {
        count = fill(&mut peer, count);
        let said = peer.ask(&[line.as_bytes(), b"\r\n", &[b'n'; 20_000], b"\r\n"].concat(), end);
        let key = line.split(' ').nth(1).expect("a key");
        let after = peer.ask(format!("mg {key} s\r\n").as_bytes(), b"\r\n");
        seen.push((line.to_owned(), shown(&said), after.starts_with(b"HD")));
    }
    let mut binary = server.connect();
    for (name, opcode, key) in [("binary set", 0x01, "key-10"), ("binary replace", 0x03, "key-11")]
    {
        count = fill(&mut peer, count);
        let set = packet(opcode, &[0; 8], key.as_bytes(), &[b'n'; 20_000], 7, 0);
        let said = binary.ask(&set, b"allocating item");
        let after = peer.ask(format!("mg {key} s\r\n").as_bytes(), b"\r\n");
        seen.push((name.to_owned(), shown(&said), after.starts_with(b"HD")));
    }
    seen
}

/// A set that finds no room leaves no old value, which would be taken for the new one.
#[test]
fn what_finds_no_room_is_answered_alike() {
    let args = ["-M", "-m", "8"];
    let theirs = without_room(&Server::memcached(&args));
    let ours = without_room(&Server::ours(&args));
    assert!(theirs.iter().any(|(_, _, left)| *left) && theirs.iter().any(|(_, _, left)| !left));
    assert_eq!(ours, theirs);
}
