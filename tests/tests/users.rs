//! Two users share a segment that both may open: each has a list of sockets of his own. Their
//! connections are carried where both ends prove that they hold them, or trust the address; then
//! each can wake the other's sleepers.

use ginnel_tests::{Report, Running, Stand, build, is_root, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const NOBODY: u32 = 65534;
const PYTHON: &str = "/usr/bin/python3.11";
const SERVER: &str = "import os, socket, sys, time
l = socket.create_server(('127.0.0.1', 0))
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
c, _ = l.accept()
while d := c.recv(1000):
    time.sleep(0.003)
    c.sendall(d)";
const CLIENT: &str = "import os, socket, sys, time
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
c.settimeout(20)
for i in range(200):
    c.sendall(b'%06d' % i)
    assert c.recv(6) == b'%06d' % i
    time.sleep(0.002)
print('200 messages', flush=True)
while os.path.exists(sys.argv[2]):
    c.sendall(b'goes o')
    assert c.recv(6) == b'goes o'
    time.sleep(0.01)";

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// What became of a connection between root and nobody.
struct Outcome {
    /// Of root's processes and nobody's.
    reports: [Report; 2],
    /// What `ginnel status --json` said of nobody's end while it lived.
    status: String,
}

/// A segment that everybody may open, and a stand of each user's, whose programs are in it.
struct Shared {
    place: Stand,
    segment: PathBuf,
    root: Stand,
    other: Stand,
}

const LIMIT: Duration = Duration::from_secs(60);

impl Shared {
    fn new(policy: &str) -> Self {
        let place = Stand::plain("users");
        open_to_all(place.dir(), 0o755);
        let segment = place.dir().join("shared");
        let shown = segment.to_str().expect("UTF-8");
        let mut create = Command::new(build::ginnel());
        create.args(["segment", "create", shown, "--mode", "666", "--size", "64M"]);
        assert!(create.status().expect("ginnel").success());
        // Where the other user may read it.
        let shim = place.dir().join("libginnel_shim.so");
        build::copy_program(&build::shim(), &shim);
        let settings = [("GINNEL_SEGMENT", shown), ("GINNEL_POLICY", policy)];
        let root = Stand::shimmed("root", &settings).limit(LIMIT);
        let readable = shim.to_str().expect("UTF-8");
        let other = [settings[0], settings[1], ("LD_PRELOAD", readable)];
        let other = Stand::shimmed("nobody", &other).limit(LIMIT);
        chown(other.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
        Self { place, segment, root, other }
    }

    /// Root's server, and the port at which it listens.
    fn serve(&self, program: &str) -> (Running, String) {
        let port = self.place.dir().join("port");
        let mut server = self.root.command(PYTHON);
        let server = self.root.start(server.args(["-c", program]).arg(&port));
        self.root.wait_until(LIMIT, "a server that listens", || port.exists());
        (server, fs::read_to_string(port).expect("it listens"))
    }

    /// Nobody's client, who has these capabilities ("" or setpriv's name of one), and a file that
    /// it waits for to go.
    fn ask(&self, program: &str, port: &str, capability: &str) -> (Running, PathBuf) {
        let (inherited, ambient) =
            (format!("--inh-caps=+{capability}"), format!("--ambient-caps=+{capability}"));
        let mut wrapper = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        if !capability.is_empty() {
            wrapper.extend([&*inherited, &*ambient]);
        }
        let mut client = self.other.command_behind(&wrapper, PYTHON);
        let goes_on = self.place.dir().join("goes-on");
        fs::write(&goes_on, "").expect("written");
        client.args(["-c", program, port]).args([&goes_on, &self.segment]);
        (self.other.start(&mut client), goes_on)
    }
}

/// Two hundred messages between root's server and nobody's client, who has these capabilities.
fn exchange(policy: &str, capability: &str) -> Outcome {
    let shared = Shared::new(policy);
    let Shared { root, other, .. } = &shared;
    let (server, port) = shared.serve(SERVER);
    let (mut client, goes_on) = shared.ask(CLIENT, &port, capability);
    client.wait_for("200 messages");
    // The ends look for each other at fewer and fewer calls: on a busy machine that may take more.
    let has_decided = |status: &str| status.contains("\"unproven\"") || status.contains("\"ring\"");
    let begun = Instant::now();
    let mut status = other.status();
    while !has_decided(&status) && begun.elapsed() < LIMIT / 2 {
        std::thread::sleep(Duration::from_millis(50));
        status = other.status();
    }
    fs::remove_file(goes_on).expect("there");
    let done = client.finish();
    assert!(done.success(), "{done}");
    let served = server.finish();
    assert!(served.success(), "{served}");
    Outcome { reports: [root.report(), other.report()], status }
}

impl Outcome {
    /// The ring carried the messages, and each end woke the other.
    fn assert_carried(&self) {
        for (report, who) in self.reports.iter().zip(["root", "nobody"]) {
            assert!(
                report.sum("ring_out") > 500 && report.sum("wakes_sent") > 50,
                "{who}: {report:?}"
            );
        }
    }

    /// No ring carried anything, and nobody's end says why.
    fn assert_unproven(&self) {
        for report in &self.reports {
            assert_eq!(report.sum("ring_out") + report.sum("ring_in"), 0, "{report:?}");
        }
        assert!(self.status.contains("\"unproven\""), "{}", self.status);
    }
}

fn is_possible(what: &str) -> bool {
    let possible = is_root() && Path::new(PYTHON).exists();
    if !possible {
        skip(what, "needs root and python3.11");
    }
    possible
}

/// Nothing is a proof there: nobody's end says why it stays on TCP.
#[test]
fn of_one_segment_stay_on_tcp_without_proof() {
    if !is_possible("two users without proof") {
        return;
    }
    exchange("", "").assert_unproven();
}

#[test]
fn of_one_segment_wake_each_other_where_they_trust() {
    if is_possible("two users who trust") {
        exchange("trust address 127.0.0.1", "").assert_carried();
    }
}

/// Who may read sequence numbers is told nothing by those of his own kernel: they are no proof.
#[test]
fn of_one_segment_stay_on_tcp_whatever_they_may_read() {
    if !is_possible("two users who may read numbers") {
        return;
    }
    exchange("", "net_admin").assert_unproven();
}

/// Answers by epoll. Told so, forks: the child sleeps on the set for two seconds, in which nothing
/// comes, while its parent looks elsewhere, and says how much of a processor that took.
const FORKS: &str = "import os, select, socket, sys, time
l = socket.create_server(('127.0.0.1', 0))
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
c = l.accept()[0]
waits = select.epoll()
waits.register(c, 1)
def child():
    begun = time.process_time()
    heard = waits.poll(2)
    took = time.process_time() - begun
    print('heard', heard, 'in', took, flush=True)
    os._exit(0 if not heard and took < 0.2 else 1)
while True:
    assert waits.poll() == [(c.fileno(), 1)]
    d = c.recv(70000)
    if not d: break
    if d == b'fork':
        c.sendall(d)
        pid = os.fork() or child()
        assert os.waitpid(pid, 0)[1] == 0, 'the child span'
        c.sendall(b'done')
    else: c.sendall(d)";

/// Has the server's set sleep by its FIFO; then rings everybody's, past the library, for a second.
const RINGS: &str = "import os, socket, sys, time
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
c.settimeout(40)
def exchange(word):
    c.sendall(word)
    assert c.recv(len(word), socket.MSG_WAITALL) == word
print('first', flush=True)
while os.path.exists(sys.argv[2]):
    exchange(b'x' * 100)
    time.sleep(0.003)
for _ in range(20):
    exchange(b'x' * 100)
    time.sleep(0.01)
exchange(b'fork')
wake = sys.argv[3] + '.wake'
fifos = [os.open(f'{wake}/{name}', os.O_RDWR | os.O_NONBLOCK) for name in os.listdir(wake) if name[0] == 'w']
assert fifos
end = time.monotonic() + 1
while time.monotonic() < end:
    for fd in fifos:
        try: os.write(fd, b'x')
        except BlockingIOError: pass
    time.sleep(0.001)
assert c.recv(4, socket.MSG_WAITALL) == b'done'
for _ in range(20): exchange(b'x' * 100)
print('answered', flush=True)";

/// The kernel's set is the parent's and the child's: the child, which has not that FIFO, was told
/// of it without end, as long as the parent looked elsewhere.
#[test]
fn of_one_segment_keep_no_forked_child_busy() {
    if !is_possible("two users, and a set that is forked") {
        return;
    }
    let shared = Shared::new("trust address 127.0.0.1");
    let (server, port) = shared.serve(FORKS);
    let (mut client, goes_on) = shared.ask(RINGS, &port, "");
    client.wait_for("first");
    shared.root.wait_until(LIMIT, "a ring", || shared.root.status().contains("\"wake\": \"fifo\""));
    fs::remove_file(goes_on).expect("there");
    let (asked, served) = (client.finish(), server.finish());
    assert!(
        asked.success() && asked.stdout.contains("answered") && served.success(),
        "{asked} {served}"
    );
}
