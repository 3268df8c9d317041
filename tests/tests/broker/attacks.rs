//! The other process of a pair against those who sleep on lines: it rings when nobody listens, and
//! sets what it likes in the memory of the pair. Nobody hangs, nobody spins, and nothing is kept.

use super::{LIMIT, PYTHON, Two};
use ginnel_tests::netns::ADDRESSES;
use ginnel_tests::{Running, build};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Answers by epoll, with one set and a thread that sleeps on it. Told so, forks: while its own
/// thread looks elsewhere, the child sleeps on the set for two seconds, in which nothing comes, and
/// says how much of a processor that took; then the parent goes on. Or a process that was forked
/// before is sent the set, or one that has it in it. Told so otherwise, forks beside the thread
/// that sleeps.
const FORKS: &str = "import os, select, socket, sys, threading, time
sent = socket.socketpair()
def sleeps_on(waits):
    begun = time.process_time()
    heard = select.poll()
    heard.register(waits, 1)
    heard = heard.poll(2000)
    print('heard', heard, 'in', time.process_time() - begun, flush=True)
    os._exit(0 if not heard and time.process_time() - begun < 0.2 else 1)
by_sending = sys.argv[2] in ('sent', 'within')
stranger = os.fork() if by_sending else None
if stranger == 0: sleeps_on(socket.recv_fds(sent[1], 1, 1)[1][0])
l = socket.create_server(('0.0.0.0', 0))
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
c = l.accept()[0]
waits = select.epoll()
waits.register(c, 1)
asked = threading.Event()
def child():
    begun = time.process_time()
    heard = waits.poll(2)
    print('heard', heard, 'in', time.process_time() - begun, flush=True)
    os._exit(0 if not heard and time.process_time() - begun < 0.2 else 1)
def serve():
    while True:
        assert waits.poll() == [(c.fileno(), 1)]
        d = c.recv(70000)
        if not d: return
        if d == b'fork':
            c.sendall(b'fork')
            if by_sending:
                outer = waits
                if sys.argv[2] == 'within':
                    outer = select.epoll()
                    outer.register(waits, 1)
                socket.send_fds(sent[0], [b's'], [outer.fileno()])
                who = stranger
            else: who = os.fork() or child()
            assert os.waitpid(who, 0)[1] == 0, 'the child span'
            c.sendall(b'done')
        else:
            if d == b'beside': asked.set()
            c.sendall(d)
def beside():
    asked.wait()
    time.sleep(0.2)
    if not os.fork(): time.sleep(30); os._exit(0)
    print('forked', flush=True)
if sys.argv[2] == 'beside': threading.Thread(target=beside, daemon=True).start()
serve()";

/// Rings all its lines past the library, from now until it has been told that the child has slept.
const RINGS_MEANWHILE: &str = "
import ctypes, os, platform, socket, sys, time
syscall = ctypes.CDLL('libc.so.6', use_errno=True).syscall
SENDTO, GETSOCKOPT = (44, 55) if platform.machine() == 'x86_64' else (206, 209)
def option(fd, name):
    value, length = ctypes.c_int(-1), ctypes.c_uint(4)
    syscall(GETSOCKOPT, fd, 1, name, ctypes.byref(value), ctypes.byref(length))
    return value.value
def lines():
    numbers = [int(name) for name in os.listdir('/proc/self/fd')]
    return [fd for fd in numbers if (option(fd, 39), option(fd, 3)) == (socket.AF_UNIX, socket.SOCK_STREAM)]
def exchange(word):
    c.sendall(word)
    assert c.recv(len(word), socket.MSG_WAITALL) == word
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.settimeout(60)
print('first', flush=True)
while os.path.exists(sys.argv[3]):
    exchange(b'x' * 1000)
    time.sleep(0.003)
# Its thread sleeps on a line by now.
for _ in range(20):
    exchange(b'x' * 1000)
    time.sleep(0.01)
if sys.argv[4] == 'beside':
    exchange(b'beside')
    while os.path.exists(sys.argv[3] + '2'): time.sleep(0.01)
    exchange(b'once more')
else:
    exchange(b'fork')
    own = lines()
    assert len(own) == 4, own
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for fd in own: syscall(SENDTO, fd, b'x', 1, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, None, 0)
        time.sleep(0.001)
    assert c.recv(4, socket.MSG_WAITALL) == b'done'
for _ in range(20): exchange(b'x' * 1000)
print('answered', flush=True)";

fn forks(way: &str) {
    let Some(two) = Two::new(&format!("a set that is forked, {way}"), "") else { return };
    let (mut server, port) = two.serve_with(FORKS, way);
    let [stays, second] = ["stays", "stays2"].map(|name| two.client.dir().join(name));
    for file in [&stays, &second] {
        fs::write(file, "").expect("written");
    }
    let mut client = two.client.command_behind(&two.as_nobody(), PYTHON);
    client.args(["-c", RINGS_MEANWHILE, ADDRESSES[1], &port]).arg(&stays).arg(way);
    let mut client = two.client.start(&mut client);
    client.wait_for("first");
    two.wait_for_pairs(1);
    two.server.wait_until(LIMIT, "a line", || two.server.status().contains("\"wake\": \"line\""));
    fs::remove_file(stays).expect("there");
    if way == "beside" {
        server.wait_for("forked");
        fs::remove_file(second).expect("there");
    }
    let (asked, served) = (client.finish(), server.finish());
    assert!(
        asked.success() && asked.stdout.contains("answered") && served.success(),
        "{asked} {served}"
    );
}

/// The kernel's set is the parent's and the child's: the child, which has no line, was told of one
/// without end, as long as the parent looked elsewhere.
#[test]
fn who_rings_while_the_parent_looks_elsewhere_keeps_no_child_busy() {
    forks("elsewhere");
}

/// The same of a set that is sent to another process, and of one within such a set.
#[test]
fn who_rings_keeps_nobody_busy_who_was_sent_the_set() {
    forks("sent");
    forks("within");
}

/// The parent's thread sleeps on a line while another thread forks: it arms anew, or nobody would
/// wake it.
#[test]
fn who_sleeps_on_a_line_beside_a_fork_is_woken() {
    forks("beside");
}

/// Answers each connection, in threads, by epoll or by poll, however it ends. Ends as the others'
/// server.
const ENDURES: &str = "import os, select, socket, sys, threading
l = socket.create_server(('0.0.0.0', 0))
def answer(c, flags=0):
    try:
        d = c.recv(70000, flags)
        if d: c.sendall(d)
        return d
    except OSError: return b''
def serve(c):
    while answer(c): pass
    c.close()
def threads():
    while True: threading.Thread(target=serve, args=l.accept()[:1], daemon=True).start()
def ready(waits):
    all = {}
    waits.register(l, 1)
    while True:
        for fd, _ in waits.poll():
            if fd == l.fileno():
                c = l.accept()[0]
                all[c.fileno()] = c
                waits.register(c, 1)
            elif not answer(all[fd]):
                waits.unregister(fd)
                all.pop(fd).close()
ways = dict(threads=threads, epoll=lambda: ready(select.epoll()), poll=lambda: ready(select.poll()))
threading.Thread(target=ways[sys.argv[2]], daemon=True).start()
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
while not os.path.exists(sys.argv[1] + '.end'): threading.Event().wait(0.05)";

/// Answers by epoll, or by receives. Told so, gives the numbers of its lines to a socket of its
/// own, as dup2(2) allows; in the end it says what came there, which is nothing.
const TAKES_NUMBERS: &str = "import ctypes, os, platform, select, socket, sys
syscall = ctypes.CDLL('libc.so.6', use_errno=True).syscall
GETSOCKOPT = 55 if platform.machine() == 'x86_64' else 209
def option(fd, name):
    value, length = ctypes.c_int(-1), ctypes.c_uint(4)
    syscall(GETSOCKOPT, fd, 1, name, ctypes.byref(value), ctypes.byref(length))
    return value.value
l = socket.create_server(('0.0.0.0', 0))
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
c = l.accept()[0]
waits = select.epoll()
if sys.argv[2] == 'epoll': waits.register(c, 1)
mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
other.setblocking(False)
while True:
    if sys.argv[2] == 'epoll': assert waits.poll() == [(c.fileno(), 1)]
    d = c.recv(70000)
    if not d: break
    if d == b'take':
        numbers = [int(name) for name in os.listdir('/proc/self/fd')]
        lines = [fd for fd in numbers if (option(fd, 39), option(fd, 3)) == (socket.AF_UNIX, socket.SOCK_STREAM)]
        assert len(lines) == 4, lines
        for fd in lines: os.dup2(mine.fileno(), fd)
        for fd in lines: mine.send(b'stays')
        for fd in lines: assert other.recv(10) == b'stays'
    c.sendall(d)
try: print('came', other.recv(100), flush=True)
except BlockingIOError: print('nothing came', flush=True)
for fd in lines: os.write(fd, b'still there')
for fd in lines: assert other.recv(20) == b'still there'";

/// The same client as above: says the word, and is answered still.
const SAYS_TAKE: &str = "import os, socket, sys, time
def exchange(word):
    c.sendall(word)
    assert c.recv(len(word), socket.MSG_WAITALL) == word
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.settimeout(60)
while os.path.exists(sys.argv[3]): exchange(b'x' * 1000); time.sleep(0.003)
for _ in range(20): exchange(b'x' * 1000); time.sleep(0.01)
exchange(b'take')
for _ in range(60): exchange(b'x' * 1000); time.sleep(0.01)";

/// A number that the program gives to what it likes is no line's any more: nothing is written
/// there, nothing read, and it is not closed.
#[test]
fn a_number_that_the_program_takes_is_no_lines() {
    for way in ["receive", "epoll"] {
        let Some(two) = Two::new(&format!("the numbers of lines, {way}"), "") else { return };
        let (server, port) = two.serve_with(TAKES_NUMBERS, way);
        let stays = two.client.dir().join("stays");
        fs::write(&stays, "").expect("written");
        let mut client = two.client.command_behind(&two.as_nobody(), PYTHON);
        // It sleeps whenever it waits, and is rung.
        client.env("GINNEL_SPIN", "0");
        let client =
            two.client.start(client.args(["-c", SAYS_TAKE, ADDRESSES[1], &port]).arg(&stays));
        two.wait_for_pairs(1);
        two.server
            .wait_until(LIMIT, "a line", || two.server.status().contains("\"wake\": \"line\""));
        fs::remove_file(stays).expect("there");
        let (asked, served) = (client.finish(), server.finish());
        assert!(
            asked.success() && served.success() && served.stdout.contains("nothing came"),
            "{way}: {asked} {served}"
        );
    }
}

/// The processor time that a process has had, in hundredths of a second.
fn spent(id: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let after = stat.rsplit_once(") ").expect("a name").1;
    after.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

fn descriptors(id: u32) -> usize {
    fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count()
}

/// What a process has of memory, KiB: its own, and what of shared memory it has touched.
fn memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let of = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("there");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    of("RssAnon:") + of("RssShmem:")
}

impl Two {
    /// A stranger of the program `stranger`, while it attacks in this way, and the file by which it
    /// ends. The server's line was there before.
    fn attack(&self, program: &Path, port: &str, way: &str) -> (Running, std::path::PathBuf) {
        let [stays, second] = ["stays", "stays2"].map(|name| self.client.dir().join(name));
        for file in [&stays, &second] {
            fs::write(file, "").expect("written");
        }
        let mut client = self.client.command_behind(&self.as_nobody(), program);
        let mut client = self.client.start(client.args([ADDRESSES[1], port, way]).arg(&stays));
        self.wait_for_pairs(1);
        self.server
            .wait_until(LIMIT, "a line", || self.server.status().contains("\"wake\": \"line\""));
        fs::remove_file(stays).expect("there");
        client.wait_for("attacks");
        (client, second)
    }
}

/// What the server and the broker may have of memory more after all that, KiB.
const GROWN: u64 = 8 << 10;

/// Whatever the other process does with lines and pages: the server sleeps soon, serves others, and
/// has as many descriptors afterwards as before, and no more memory. So has the broker.
fn endures(served: &str) {
    let Some(two) = Two::within(4 * LIMIT, &format!("strangers and {served}"), "") else { return };
    let program = two.broker.place.dir().join("stranger");
    build::copy_program(&build::program("stranger"), &program);
    let (server, port) = two.serve_with(ENDURES, served);
    let mut before = None;
    for way in [
        "nothing", "bits", "sleeps", "silent", "rings", "urgent", "fills", "rights", "shuts",
        "closes",
    ] {
        let (client, stays) = two.attack(&program, &port, way);
        // It may be woken for nothing some times, and then hangs up.
        thread::sleep(Duration::from_millis(800));
        let begun = spent(server.id());
        thread::sleep(Duration::from_millis(1500));
        let took = spent(server.id()) - begun;
        assert!(took < 20, "{way}: {took} hundredths of a second");
        fs::remove_file(stays).expect("there");
        let done = client.finish();
        assert!(done.success() && done.stdout.contains("closed"), "{way}: {done}");
        println!(
            "{served}, {way}: {took} hundredths of a second, {} descriptors",
            descriptors(server.id())
        );
        if before.is_none() {
            let maps =
                || fs::read_to_string(format!("/proc/{}/maps", server.id())).expect("it runs");
            two.server.wait_until(LIMIT, "no pair", || !maps().contains("ginnel-pair"));
            before = Some([server.id(), two.broker.pid()].map(|id| (descriptors(id), memory(id))));
        }
    }
    let before = before.expect("counted");
    let is_as_before = || {
        [server.id(), two.broker.pid()]
            .iter()
            .zip(before)
            .all(|(id, (open, had))| descriptors(*id) <= open && memory(*id) <= had + GROWN)
    };
    two.server.wait_until(LIMIT, "all descriptors are closed, and memory is free", is_as_before);
    println!(
        "{served}: {before:?} before, {:?} KiB after",
        [server.id(), two.broker.pid()].map(memory)
    );
    two.end(server);
}

#[test]
fn strangers_keep_no_set_busy_and_leave_nothing_behind() {
    endures("epoll");
}

#[test]
#[ignore = "test-all: a minute"]
fn strangers_keep_no_thread_busy_and_leave_nothing_behind() {
    endures("threads");
    endures("poll");
}
