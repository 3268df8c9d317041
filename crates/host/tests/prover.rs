//! `ginneld --prove`: programs of the host that may not read sequence numbers learn by it the
//! secrets of the connections that they hold, and of no others.

mod common;

use common::daemon::{Daemon, SMALL};
use common::{dies_with_us, wait};
use ginnel_channel::ledger::Tuple;
use ginnel_channel::proof::prover::{ANSWER, MAGIC, QUESTION, SOCKET, ask};
use ginnel_channel::proof::{Claim, Unproven, can_prove_by_itself, repair};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A daemon, and its prover as root starts it.
struct Proved {
    daemon: Daemon,
    prover: Child,
}

impl Proved {
    fn start() -> Self {
        let daemon = Daemon::alone(SMALL);
        let log = File::create(daemon.path("prover.log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ginneld"));
        command.args(["--prove", "--config"]).arg(daemon.path("ginneld.toml")).stdin(Stdio::null()).stderr(log);
        let prover = dies_with_us(&mut command).spawn().expect("it starts");
        let proved = Self { daemon, prover };
        wait("a prover", || proved.log().contains("event=proving").then_some(()));
        proved
    }

    fn log(&self) -> String {
        fs::read_to_string(self.daemon.path("prover.log")).unwrap_or_default()
    }

    fn door(&self) -> PathBuf {
        self.daemon.socket(0)
    }

    fn connect(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        let path = self.door().with_file_name(SOCKET);
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("short")).expect("it listens");
        socket
    }

    /// Sends a message with these descriptors, and gives what comes back; nothing where it hangs up.
    fn tell(&self, message: &[u8], beside: &[BorrowedFd<'_>]) -> Vec<u8> {
        let socket = self.connect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !beside.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(beside)));
        }
        rustix::net::sendmsg(&socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL).expect("sent");
        let mut answer = Vec::new();
        File::from(socket).read_to_end(&mut answer).map_or_else(|_| Vec::new(), |_| answer)
    }
}

impl Drop for Proved {
    fn drop(&mut self) {
        let _ = self.prover.kill();
        let _ = self.prover.wait();
    }
}

fn skipped() -> bool {
    let skipped = !can_prove_by_itself();
    if skipped {
        println!("skipped: needs CAP_NET_ADMIN");
    }
    skipped
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    (client, listener.accept().expect("accepted").0)
}

fn claim(stream: &TcpStream, side: u8, connected: bool) -> Claim {
    let ends = (stream.local_addr().expect("bound"), stream.peer_addr().expect("connected"));
    let octets = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(address) => address.octets(),
    };
    let (local, remote) = (octets(ends.0.ip()), octets(ends.1.ip()));
    let tuple = Tuple { label: 0, local, local_port: ends.0.port(), remote, remote_port: ends.1.port() };
    Claim { side, connected, nonces: [11, 12], tuple }
}

#[test]
fn the_secret_is_what_the_sockets_numbers_make() {
    if skipped() {
        return;
    }
    let proved = Proved::start();
    let (client, server) = pair();
    let ask = |stream: &TcpStream, side, connected| {
        ask(&proved.door(), stream.as_raw_fd(), &claim(stream, side, connected)).expect("answered")
    };
    let secret = ask(&client, 0, true);
    assert_eq!(secret, ask(&server, 1, false));
    let numbers = repair::numbers(client.as_raw_fd(), true).expect("root may");
    assert_eq!(claim(&client, 0, true).secret(numbers), secret);
    let status = fs::read_to_string(format!("/proc/{}/status", proved.prover.id())).expect("it runs");
    let capabilities = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
    assert_eq!(capabilities("CapEff:").as_deref(), Some("0000000000001000"), "CAP_NET_ADMIN (12) and nothing else");
    assert_eq!(capabilities("NoNewPrivs:").as_deref(), Some("1"));
}

#[test]
fn what_is_no_question_is_not_answered() {
    if skipped() {
        return;
    }
    let proved = Proved::start();
    let (client, _server) = pair();
    let mut good = [0u8; QUESTION];
    good[..8].copy_from_slice(&MAGIC);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let file = File::open("/dev/null").expect("there");
    let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    assert_eq!(proved.tell(&good, &[client.as_fd()]).len(), ANSWER);
    for (what, message, beside) in [
        ("no socket", &good[..], &[][..]),
        ("two sockets", &good, &[client.as_fd(), client.as_fd()]),
        ("too short", &good[1..], &[client.as_fd()]),
        ("too long", &[good.as_slice(), &[0]].concat(), &[client.as_fd()]),
        ("nothing", &[0; QUESTION], &[client.as_fd()]),
        ("UDP", &good, &[udp.as_fd()]),
        ("a listener", &good, &[listener.as_fd()]),
        ("a file", &good, &[file.as_fd()]),
        ("a unix socket", &good, &[unix.as_fd()]),
    ] {
        assert_eq!(proved.tell(message, beside), Vec::<u8>::new(), "{what}");
    }
    assert_eq!(proved.tell(&good, &[client.as_fd()]).len(), ANSWER, "it goes on");
}

/// A user who asks and says nothing further waits alone: those of another are answered.
#[test]
fn a_silent_user_keeps_nobody_waiting() {
    if skipped() {
        return;
    }
    let proved = Proved::start();
    // As another user, by a program that connects twenty times and then sits there.
    let script = "import socket, sys, time
all = []
for _ in range(20):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    all.append(s)
print('there', flush=True)
time.sleep(60)";
    fs::set_permissions(proved.daemon.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let mut silent = Command::new("setpriv");
    silent.args(["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3.11", "-c", script]);
    silent.arg(proved.door().with_file_name(SOCKET)).stdout(Stdio::piped());
    let mut silent = dies_with_us(&mut silent).spawn().expect("setpriv");
    let mut said = [0u8; 6];
    silent.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("it is there");
    let (client, _server) = pair();
    for _ in 0..50 {
        // On a busy machine the answer may take longer than a program waits, which asks again.
        wait("an answer", || match ask(&proved.door(), client.as_raw_fd(), &claim(&client, 0, true)) {
            Ok(_) => Some(()),
            Err(Unproven::Later) => None,
            Err(Unproven::Never) => panic!("it was let go: {}", proved.log()),
        });
    }
    let _ = silent.kill();
    let _ = silent.wait();
}

#[test]
fn without_a_prover_nothing_is_proved() {
    let daemon = Daemon::alone(SMALL);
    let (client, _server) = pair();
    assert_eq!(ask(&daemon.socket(0), client.as_raw_fd(), &claim(&client, 0, true)), Err(Unproven::Never));
}
