//! Between machines and programs of the host.

use super::guest::{Guest, THREE, WINDOW, bytes, connect, pair};
use crate::common::{Lab, PATIENCE};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::vsock::packet::{HOST, Header, Op};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

#[test]
fn a_machine_reaches_programs_of_the_host() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let listener = UnixListener::bind(lab.directory.path().join("a.host_52")).expect("bound");
    a.say(1000, (HOST, 52), Op::Request);
    let (answer, _) = a.hears((HOST, 52), 1000, Op::Response);
    assert!(answer.buf_alloc >= 65536);
    let (mut program, _) = listener.accept().expect("connected");
    program.set_read_timeout(Some(PATIENCE)).expect("set");
    // Much more than its window, as it is told of room.
    let (sent, mut told, mut read) = (bytes(1 << 20, 3), 0, vec![0; 1 << 20]);
    let reader = std::thread::spawn(move || {
        program.read_exact(&mut read).expect("read");
        (program, read)
    });
    let mut done = 0;
    while done < sent.len() {
        let room = (told + answer.buf_alloc as usize - done).min(sent.len() - done).min(50_000);
        if room > 0 {
            a.send(a.header(1000, (HOST, 52), Op::Rw), &sent[done..done + room]);
            done += room;
        } else {
            told = a.hears((HOST, 52), 1000, Op::CreditUpdate).0.fwd_cnt as usize;
        }
    }
    let (mut program, read) = reader.join().expect("read");
    assert!(read == sent);
    // And back, within what the machine can keep.
    let writer = std::thread::spawn(move || {
        program.write_all(&bytes(1 << 20, 4)).expect("written");
        program.shutdown(std::net::Shutdown::Write).expect("shut");
        program
    });
    let mut got = Vec::new();
    let mut program = loop {
        let (header, data) = a.take(PATIENCE).expect("a packet");
        match Op::of(header.op) {
            Some(Op::Rw) => got.extend(data),
            Some(Op::CreditUpdate) => continue,
            Some(Op::Shutdown) => {
                assert_eq!(header.flags, 2);
                break writer.join().expect("written");
            }
            other => panic!("{other:?}"),
        }
        assert!(got.len() <= 1 << 20);
        if got.len() % (128 << 10) < 2048 {
            let update = a.header(1000, (HOST, 52), Op::CreditUpdate);
            a.send(Header { fwd_cnt: got.len() as u32, ..update }, &[]);
        }
    };
    assert!(got == bytes(1 << 20, 4));
    let update = a.header(1000, (HOST, 52), Op::Shutdown);
    a.send(Header { flags: 3, fwd_cnt: 1 << 20, ..update }, &[]);
    a.hears((HOST, 52), 1000, Op::Rst);
    assert_eq!(program.read(&mut [0]).expect("the end"), 0);
}

/// Credit comes with any packet: a machine that answers with data need not tell of room besides.
#[test]
fn room_that_data_tells_of_is_used() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let listener = UnixListener::bind(lab.directory.path().join("a.host_52")).expect("bound");
    let request = a.header(1000, (HOST, 52), Op::Request);
    a.send(Header { buf_alloc: 1000, ..request }, &[]);
    a.hears((HOST, 52), 1000, Op::Response);
    let (mut program, _) = listener.accept().expect("connected");
    program.write_all(&bytes(3000, 5)).expect("written");
    let mut got = a.data((HOST, 52), 1000, 1000);
    for taken in [1000, 2000] {
        let said = a.header(1000, (HOST, 52), Op::Rw);
        a.send(Header { buf_alloc: 1000, fwd_cnt: taken, ..said }, b"x");
        got.extend(a.data((HOST, 52), 1000, 1000));
    }
    assert!(got == bytes(3000, 5));
}

#[test]
fn programs_of_the_host_reach_a_machine() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let path = lab.directory.path().join("a.host");
    let call = |line: &str| {
        let mut program = UnixStream::connect(&path).expect("connected");
        program.set_read_timeout(Some(PATIENCE)).expect("set");
        program.write_all(line.as_bytes()).expect("written");
        program
    };
    // What follows the line is for the machine.
    let mut program = call("CONNECT 22\nearly");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    assert_eq!((request.from.cid, request.to.port, request.op), (HOST, 22, Op::Request as u16));
    let port = request.from.port;
    a.say(22, (HOST, port), Op::Response);
    let mut answer = vec![0; format!("OK {port}\n").len()];
    program.read_exact(&mut answer).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&answer), format!("OK {port}\n"));
    assert_eq!(a.data((HOST, port), 22, 5), b"early");
    a.send(Header { fwd_cnt: 5, ..a.header(22, (HOST, port), Op::Rw) }, b"late");
    let mut data = [0; 4];
    program.read_exact(&mut data).expect("data");
    assert_eq!(&data, b"late");
    // Refused, malformed, gone before it was answered.
    for (line, answered) in
        [("CONNECT 23\n", true), ("CONNECT x\n", false), ("GET / HTTP/1.1\r\n", false)]
    {
        let mut program = call(line);
        if answered {
            let (request, _) = a.take(PATIENCE).expect("a packet");
            a.say(23, (HOST, request.from.port), Op::Rst);
        }
        assert_eq!(program.read(&mut [0]).expect("the end"), 0, "{line}");
    }
    let gone = call("CONNECT 24\n");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    drop(gone);
    a.hears((HOST, request.from.port), 24, Op::Rst);
    // A line that never ends.
    let mut endless = call(&"x".repeat(100));
    // What it did not read is thrown away with it.
    assert!(endless.read(&mut [0]).is_ok_and(|len| len == 0) || endless.write(b"x").is_err());
}

/// As `echo CONNECT 22 | socat - UNIX-CONNECT:HOST` does: it has nothing to say, and waits for what
/// the machine says.
#[test]
fn a_program_that_says_no_more_before_it_is_answered_hears_the_machine() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let mut program = UnixStream::connect(lab.directory.path().join("a.host")).expect("connected");
    program.set_read_timeout(Some(PATIENCE)).expect("set");
    program.write_all(b"CONNECT 22\n").expect("written");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    program.shutdown(std::net::Shutdown::Write).expect("shut");
    a.quiet();
    let host = (HOST, request.from.port);
    a.say(22, host, Op::Response);
    assert_eq!(a.hears(host, 22, Op::Shutdown).0.flags, 2);
    a.send(a.header(22, host, Op::Rw), b"late");
    a.send(Header { flags: 2, ..a.header(22, host, Op::Shutdown) }, &[]);
    let mut heard = String::new();
    program.read_to_string(&mut heard).expect("read");
    assert_eq!(heard, format!("OK {}\nlate", host.1));
}

/// A guest of Linux that closes waits eight seconds for the other end, and resets the connection.
#[test]
fn what_a_machine_sent_reaches_a_program_that_reads_later_than_the_end() {
    let lab = Lab::new(THREE);
    let mut a = Guest::new(&lab, "a", 3);
    let listener = UnixListener::bind(lab.directory.path().join("a.host_52")).expect("bound");
    let sent = bytes(WINDOW as usize, 5);
    for goes in [false, true] {
        a.say(1000, (HOST, 52), Op::Request);
        a.hears((HOST, 52), 1000, Op::Response);
        let (mut program, _) = listener.accept().expect("connected");
        program.set_read_timeout(Some(PATIENCE)).expect("set");
        for piece in sent.chunks(50_000) {
            a.send(a.header(1000, (HOST, 52), Op::Rw), piece);
        }
        a.send(Header { flags: 3, ..a.header(1000, (HOST, 52), Op::Shutdown) }, &[]);
        a.say(1000, (HOST, 52), Op::Rst);
        // Nobody listens there. Once that is answered, all that was said before was heard.
        a.say(1001, (HOST, 53), Op::Request);
        while a.take(PATIENCE).expect("an answer").0.to.port != 1001 {}
        if goes {
            drop(a);
            a = Guest::new(&lab, "a", 3);
        }
        let mut read = Vec::new();
        program.read_to_end(&mut read).expect("read");
        assert!(read == sent, "{} of {} bytes", read.len(), sent.len());
    }
}

#[test]
fn descriptors_of_programs_hold_up_nobody() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = pair(&lab);
    let path = lab.directory.path().join("a.host");
    let program = UnixStream::connect(&path).expect("connected");
    let program = FrontEnd::prepare(program, Options::vsock()).expect("made");
    program.raw(b"CONNECT 22\n", &[]).expect("told");
    // Its last close takes long. It is not read before the machine has answered, so that this is
    // not the last one.
    program.raw(b"x", &[&crate::hostile::lingering(120)]).expect("told");
    let (request, _) = a.take(PATIENCE).expect("a packet");
    let port = request.from.port;
    a.say(22, (HOST, port), Op::Response);
    a.hears((HOST, port), 22, Op::Rst);
    connect(&mut a, &mut b);
}
