//! What those who have no rights, or few, can do to the daemon: nothing. Needs root, to be several
//! users.

use crate::common::daemon::{Daemon, SMALL};
use crate::common::{PATIENCE, skip, wait};
use ginnel_ivshmem::client::Client;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::fs::{self, Permissions};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// No user of the system: nobody else has descriptors under way in its name.
const DAEMON: u32 = 2_004_318_071;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Descriptors that were sent and not received count against the daemon's user, and closing takes
/// none of them back.
#[test]
fn who_reads_nothing_costs_another_segment_nothing() {
    if !is_root() {
        return;
    }
    let other = SMALL.replace("segment.t", "segment.u");
    let daemon = Daemon::as_user(&format!("{SMALL}{other}"), DAEMON, 256);
    let mut unread = Vec::new();
    let mut come = |slot: u16, speaks: bool| {
        let mut socket = UnixStream::connect(daemon.socket(slot)).expect("connected");
        if speaks {
            // For this it is let go; what it was sent stays unread. It may have been refused, and
            // closed, by then.
            let _ = socket.write_all(b"x");
        }
        unread.push(socket);
    };
    for round in 0..150 {
        come(3, round % 3 != 0);
        come(0, round % 3 != 0);
    }
    // The loop is one: once it has answered, it is done with what came before.
    daemon.status();
    for socket in ["1.sock", "2.sock", "host.sock"] {
        let mut joiner = Client::connect(&daemon.path("run/u").join(socket)).expect("connected");
        joiner
            .settle(2, Instant::now() + PATIENCE)
            .unwrap_or_else(|error| panic!("{socket}: {error}"));
        assert_eq!(joiner.peers().count(), 4);
    }
    // Nor another slot of the same.
    daemon.join(1);
}

/// Starts the daemon of a user who has neither a session nor a home: what it says, and its exit
/// status.
fn start(program: &Path, uid: u32) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    command
        .arg("5")
        .arg(program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .uid(uid)
        .gid(uid);
    let output = command.output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A folder in /tmp whose name anybody can guess, made by somebody else, with a link in the lock's
/// place.
#[test]
fn a_directory_of_somebody_elses_is_not_used() {
    if !is_root() || Path::new("/run/ginnel").exists() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("set");
    let program = place.path().join("ginneld");
    ginnel_tests::build::copy_program(Path::new(crate::ginneld()), &program);
    let uid = DAEMON + 1;
    let home = place.path().join("home");
    fs::create_dir(&home).expect("made");
    let file = home.join("file");
    fs::write(&file, "precious").expect("written");
    for path in [&home, &file] {
        chown(path, Some(uid), Some(uid)).expect("given");
    }
    let guessed = PathBuf::from(format!("/tmp/ginneld-{uid}"));
    let _ = fs::remove_dir_all(&guessed);
    fs::create_dir(&guessed).expect("made");
    fs::set_permissions(&guessed, Permissions::from_mode(0o777)).expect("set");
    chown(&guessed, Some(65534), None).expect("given");
    symlink(&file, guessed.join("lock")).expect("made");
    let (code, said) = start(&program, uid);
    let now = fs::read_to_string(&file).expect("there");
    fs::remove_dir_all(&guessed).expect("removed");
    assert_eq!(now, "precious");
    assert_eq!(code, Some(1), "{said}");
    let path = guessed.display().to_string();
    assert!(
        said.contains(&path)
            && said.contains("belongs to user 65534 and has mode 777")
            && said.contains("run_dir"),
        "{said}"
    );
}

/// A TCP socket of which the last close waits for a thousand seconds: it lingers over bytes that
/// nobody acknowledges, as their receiver reads nothing.
fn lingers() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let receiver = listener.accept().expect("accepted").0;
    rustix::net::sockopt::set_socket_linger(&sender, Some(Duration::from_secs(1000))).expect("set");
    sender.set_nonblocking(true).expect("set");
    while (&sender).write(&[0; 65536]).is_ok() {}
    (sender, receiver)
}

/// A stranger who is refused sends a lingering socket behind more bytes than the daemon looks at of
/// one who must not speak: it is closed unread. The receiver of what lingers is the caller's to
/// keep.
fn hands_over(daemon: &Daemon) -> Result<TcpStream, Errno> {
    let stranger = UnixStream::connect(daemon.socket(1)).expect("connected");
    // Without its receiver, which goes first, nothing lingers.
    let (sender, receiver) = lingers();
    let beside = [sender.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&beside)));
    rustix::net::send(&stranger, &[0; 65], SendFlags::NOSIGNAL)?;
    rustix::net::sendmsg(&stranger, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(receiver)
}

/// One who may not join hands the daemon the last of a socket that lingers, beside his bytes:
/// whoever closes it waits. Where the kernel has SO_PASSRIGHTS he cannot; elsewhere the daemon does
/// not wait.
#[test]
fn a_socket_that_lingers_stops_nobody() {
    let daemon = Daemon::alone(SMALL);
    let _one = daemon.join(1);
    // The daemon may have closed the stranger's socket before he spoke: then he comes again.
    let handed = (0..200)
        .map(|_| hands_over(&daemon))
        .find(|sent| !matches!(sent, Err(Errno::PIPE | Errno::CONNRESET)));
    let _receiver = match handed.expect("the daemon closes before it is spoken to, each time") {
        Err(Errno::PERM) => return,
        sent => sent.expect("sent"),
    };
    // Several times: it is closed at one of the daemon's next rounds.
    for _ in 0..20 {
        drop(daemon.join(2));
        wait("slot 2", || (daemon.slots() == [1]).then_some(()));
    }
}
