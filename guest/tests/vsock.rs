//! Stock guests with vhost-user-vsock devices of `ginnel-switch`: to each other, to the host and
//! from it.

use crate::common::program;
use ginnel_guest::PATIENCE;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::switch::VhostSwitch;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

const MACHINES: &str = "[vsock.one]\ncid = 3\n[vsock.two]\ncid = 4\n";

/// An echo in a guest, on this port.
fn serve(guest: &Guest, port: u32) {
    let script = format!(
        "(timeout {} vsock serve {port} 65536 >/tmp/{port} 2>&1 </dev/null) >/dev/null 2>&1 & \
         for i in $(seq 100); do grep -q listening /tmp/{port} && exit 0; sleep 0.1; done; cat /tmp/{port}; exit 1",
        PATIENCE.as_secs()
    );
    guest.sh(&script);
}

fn call(guest: &Guest, cid: u32, port: u32, bytes: usize, chunk: usize) {
    let script = format!("vsock call {cid} {port} {bytes} {chunk}");
    let said = guest.run(&script, PATIENCE).expect("it answers");
    assert_eq!(
        said.good().expect("it ends well").trim(),
        format!("{bytes} good"),
        "to {cid} in pieces of {chunk}"
    );
}

#[allow(clippy::too_many_lines, reason = "one pair of guests does it all: booting costs most")]
#[test]
#[ignore = "test-all: boots guests of its own"]
fn stock_guests_have_sockets_to_each_other_and_to_the_host() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let switch = VhostSwitch::start(directory.path(), MACHINES).expect("a switch");
    let file = ("/usr/bin/vsock".to_owned(), 0o755, program(directory.path(), "vsock"));
    let spec = |name: &str| Spec {
        files: vec![file.clone()],
        ..switch.vsock_spec(name).expect("options")
    };
    let mut guests =
        Guest::boot_all(&kernel, directory.path(), &["one", "two"].map(spec)).expect("they boot");
    // Suspended in the middle, it goes on.
    serve(&guests[0], 99);
    let under_way = guests[1].start("vsock call 3 99 50000000 65536", PATIENCE).expect("started");
    let until = Instant::now() + PATIENCE;
    let begun = || {
        let status: serde_json::Value =
            serde_json::from_str(&switch.ask("status").expect("a status")).expect("JSON");
        status["vsock"][0]["received_bytes"].as_u64() > Some(0)
    };
    while !begun() {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    for command in ["stop", "cont"] {
        guests[0].qmp(serde_json::json!({"execute": command})).expect("done");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(
        under_way.finish().expect("ended").good().expect("it ends well").trim(),
        "50000000 good"
    );
    let [one, two] = guests.as_slice() else { panic!("two") };
    // Writes of 8 KiB and more have hung elsewhere.
    for (n, (bytes, chunk)) in (100..).zip([
        (1000, 1),
        (1 << 20, 8192),
        (4 << 20, 65_536),
        (4 << 20, 1 << 20),
        (300_001, 4097),
    ]) {
        serve(one, n);
        call(two, 3, n, bytes, chunk);
    }
    serve(two, 100);
    call(one, 4, 100, 1 << 20, 65_536);
    // Nobody listens there.
    assert!(one.sh("vsock call 4 999 1 1 || true").contains("connect: "));

    // To a program of the host.
    let path = switch.host_socket("one");
    let listener = UnixListener::bind(format!("{}_52", path.display())).expect("bound");
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("connected");
        let mut writer = stream.try_clone().expect("a copy");
        std::io::copy(&mut stream, &mut writer).expect("copied");
        writer.shutdown(std::net::Shutdown::Write).expect("shut");
    });
    call(one, 2, 52, 4 << 20, 65_536);
    echo.join().expect("no panic");

    // And from one.
    serve(one, 22);
    let mut stream = UnixStream::connect(&path).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    writeln!(stream, "CONNECT 22").expect("asked");
    let mut reader = BufReader::new(stream.try_clone().expect("a copy"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    assert!(line.starts_with("OK "), "{line}");
    let sent: Vec<u8> = (0..2 << 20).map(|n: u32| (n.wrapping_mul(31) >> 3) as u8).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || {
        stream.write_all(&copy).expect("written");
        stream.shutdown(std::net::Shutdown::Write).expect("shut");
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).expect("read");
    writer.join().expect("no panic");
    assert!(got == sent);
    for guest in &guests {
        guest.assert_healthy();
    }
}
