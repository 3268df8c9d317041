//! Whoever has a segment, and nothing else, does not take the place of the other end of a member's
//! connection: `src/bin/hijack.rs`, as another user, against a client whose server is not under
//! Ginnel. Where the client trusts the address the same program succeeds, so it can.

use ginnel_tests::daemon::Daemon;
use ginnel_tests::{Stand, build, is_root, json, permit, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3.11";
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
const LIMIT: Duration = Duration::from_secs(90);

const SERVER: &str = "import socket, threading
l = socket.create_server(('127.0.0.1', 0))
print('port', l.getsockname()[1], flush=True)
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while d := c.recv(1000):
        c.sendall(b'right ' + d)
while True:
    threading.Thread(target=serve, args=l.accept()[:1], daemon=True).start()";

/// Several connections, as each bears only so many attempts. It does not block: whether bytes
/// that the stranger put there are taken is not to hang on a wake-up.
const CLIENT: &str = "import socket, sys, time
right = forged = 0
def ask(c, number):
    try:
        c.sendall(b'secret %06d' % number)
    except ConnectionResetError:
        return b''
    got, end = b'', time.monotonic() + 2
    while len(got) < 19 and time.monotonic() < end:
        try:
            got += c.recv(19 - len(got))
        except BlockingIOError:
            time.sleep(0.001)
        except ConnectionResetError:
            break
    return got
for connection in range(int(sys.argv[2])):
    c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    c.setblocking(False)
    for number in range(int(sys.argv[3])):
        got = ask(c, number)
        right += got == b'right secret %06d' % number
        forged += got.startswith(b'forged')
        if not got.startswith(b'right') or forged > 20:
            break
        time.sleep(0.002)
    c.close()
print(right, 'right,', forged, 'forged')";

/// A segment that everybody may open: a file.
fn file_of_all(place: &Stand) -> String {
    let segment = place.dir().join("shared").to_str().expect("UTF-8").to_owned();
    let mut create = Command::new(build::ginnel());
    create.args(["segment", "create", &segment, "--mode", "666", "--size", "64M"]);
    assert!(create.status().expect("ginnel").success());
    segment
}

/// What the client said, and what the stranger, in a segment. `exchanges`: how many connections,
/// and how many exchanges on each.
fn attacked(place: &Stand, segment: &str, policy: &str, exchanges: [&str; 2]) -> (String, String) {
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    // Where another user may run it.
    let hijack = place.dir().join("hijack");
    build::copy_program(Path::new(env!("CARGO_BIN_EXE_hijack")), &hijack);

    let mut server = place.start(place.command(PYTHON).args(["-c", SERVER]));
    server.wait_for("\n");
    let port = server.output().trim().rsplit(' ').next().expect("a port").to_owned();
    let mut stranger = place.command("setpriv");
    stranger.args(NOBODY).arg(hijack).args([segment, &port, "60"]);
    let stranger = place.start(&mut stranger);
    let victim = Stand::shimmed("victim", &[("GINNEL_POLICY", policy)]).limit(LIMIT);
    let mut client = victim.command(build::ginnel());
    client
        .env_remove("LD_PRELOAD")
        .args(["run", "--segment", segment, "--", PYTHON, "-c", CLIENT, &port])
        .args(exchanges);
    let done = victim.run(&mut client);
    assert!(done.success(), "{done}");
    // It ends an attempt, and says so, soon after the last connection.
    std::thread::sleep(Duration::from_secs(2));
    stranger.signal(libc::SIGKILL);
    let said = stranger.finish();
    (done.stdout, said.stdout + &said.stderr)
}

/// A counter in the last line of JSON that the stranger wrote.
fn last(said: &str, counter: &str) -> u64 {
    let line = said.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    json::numbers(line, counter).first().copied().unwrap_or(0)
}

fn possible(what: &str) -> bool {
    let possible = is_root() && Path::new(PYTHON).exists();
    if !possible {
        skip(what, "needs root and python3.11");
    }
    possible
}

/// The stranger got nothing, and the client all of its answers.
fn assert_in_vain(client: &str, stranger: &str) {
    assert_eq!(client, "3600 right, 0 forged\n", "{stranger}");
    // It was at it.
    assert!(last(stranger, "met") >= 2, "{stranger}");
    for gain in ["counts", "agreed", "stolen", "forged"] {
        assert_eq!(last(stranger, gain), 0, "{gain}: {stranger}");
    }
}

/// All who may open it are on one kernel, whose numbers are no proof: the client shows nothing.
#[test]
fn a_stranger_in_a_file_of_all_gets_nothing_and_sees_no_count() {
    if !possible("a stranger in a file of all") {
        return;
    }
    let _permit = permit::cpu(2);
    let place = Stand::plain("possession");
    let (client, stranger) = attacked(&place, &file_of_all(&place), "", ["3", "1200"]);
    assert_in_vain(&client, &stranger);
    assert_eq!(last(&stranger, "proofs"), 0, "{stranger}");
}

/// In a segment of `ginneld` the client, root, reads its numbers and begins the exchange.
#[test]
fn a_stranger_in_a_segment_of_ginneld_gets_nothing_and_sees_no_count() {
    if !possible("a stranger in a segment of ginneld") {
        return;
    }
    if !ginnel_tcp::proof::can_prove_by_itself() {
        return skip("a stranger in a segment of ginneld", "needs CAP_NET_ADMIN");
    }
    let _permit = permit::cpu(2);
    let daemon = Daemon::start("[segment.t.host]\nusers = [0, 65534]\n");
    let (place, socket) = (Stand::plain("possession"), daemon.socket());
    for directory in socket.ancestors().skip(1).take(3) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let (client, stranger) = attacked(&place, socket.to_str().expect("UTF-8"), "", ["3", "1200"]);
    assert_in_vain(&client, &stranger);
    assert!(last(&stranger, "proofs") > 0, "{stranger}");
}

/// Both ends in one program, root's. With `shared` a child has the socket before it is connected,
/// and looks all the while whether it is under repair.
const ENDS: &str = "import os, socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while d := c.recv(100):
        c.sendall(d)
c = socket.socket()
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
come, go = os.pipe()
if sys.argv[1] == 'shared' and os.fork() == 0:
    os.close(go)
    os.set_blocking(come, False)
    seen = 0
    while True:
        seen += c.getsockopt(socket.IPPROTO_TCP, 19) != 0
        try:
            os.read(come, 1)
            break
        except BlockingIOError:
            pass
    print('seen under repair:', seen, flush=True)
    os._exit(0)
c.connect(listener.getsockname())
threading.Thread(target=lambda: serve(listener.accept()[0]), daemon=True).start()
for number in range(600):
    c.sendall(b'%06d' % number)
    assert c.recv(100) == b'%06d' % number
os.close(go)
if sys.argv[1] == 'shared':
    os.wait()";

/// Root's repair of a socket would give whoever has it too what only CAP_NET_ADMIN may do (a port
/// that is another's, for one).
#[test]
fn a_socket_that_a_child_had_before_it_was_connected_is_not_put_under_repair() {
    if !possible("a shared socket") || !ginnel_tcp::proof::can_prove_by_itself() {
        return skip("a shared socket", "needs root with CAP_NET_ADMIN, and python3.11");
    }
    let daemon = Daemon::start("");
    let socket = daemon.socket();
    for (mode, carried) in [("alone", true), ("shared", false)] {
        let stand = Stand::shimmed("shared-socket", &[]).limit(LIMIT);
        let mut ends = stand.command(build::ginnel());
        ends.env_remove("LD_PRELOAD")
            .args(["run", "--segment"])
            .arg(&socket)
            .args(["--", PYTHON, "-c", ENDS, mode]);
        let done = stand.run(&mut ends);
        assert!(done.success(), "{mode}: {done}");
        assert_eq!(done.stdout, if carried { "" } else { "seen under repair: 0\n" });
        assert_eq!(stand.report().ring_bytes() > 0, carried, "{mode}");
    }
}

#[test]
fn the_same_stranger_succeeds_where_the_address_is_trusted() {
    if !possible("a stranger and a trusted address") {
        return;
    }
    let _permit = permit::cpu(2);
    // The stranger must be there when the client is, which is the scheduler's business: once of a
    // few times shows that he can.
    let mut said = String::new();
    let succeeds = (0..5).any(|_| {
        let place = Stand::plain("possession");
        let (client, stranger) =
            attacked(&place, &file_of_all(&place), "trust address 127.0.0.0/8", ["3", "1200"]);
        said = format!("{stranger}\n{client}");
        let gains = ["met", "counts", "agreed", "stolen", "forged"]
            .iter()
            .all(|gain| last(&stranger, gain) > 0);
        gains && !client.ends_with(" 0 forged\n")
    });
    assert!(succeeds, "{said}");
}
