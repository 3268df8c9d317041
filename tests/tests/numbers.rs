//! A program may give any number to what it likes (`dup2`), also one that the library has something
//! by. What the library has goes on by another number; the program's is the program's alone:
//! nothing is written there, nothing read, and it stays open.

use ginnel_tests::{Stand, skip};
use std::path::Path;
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3.11";

/// Answers each connection: in a thread of its own, or all of them by epoll or poll. Told so, gives
/// every number that is not its own to a socket of its own; in the end it says what came there.
const TAKES_ALL: &str = "import os, select, socket, sys, threading
l = socket.create_server(('127.0.0.1', 0))
mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
other.setblocking(False)
own = {0, 1, 2, l.fileno(), mine.fileno(), other.fileno()}
taken = []
def take():
    numbers = [int(name) for name in os.listdir('/proc/self/fd')]
    taken[:] = [n for n in numbers if n not in own and os.path.lexists(f'/proc/self/fd/{n}')]
    for n in taken: os.dup2(mine.fileno(), n)
    for n in taken:
        os.write(n, b'stays')
        assert other.recv(10) == b'stays'
def answer(c):
    d = c.recv(70000)
    if d.startswith(b'take'): take()
    if d: c.sendall(d)
    return d
def serve(c):
    while answer(c): pass
def threads(all):
    every = [threading.Thread(target=serve, args=[c]) for c in all]
    for one in every: one.start()
    for one in every: one.join()
def ready(all, waits):
    if hasattr(waits, 'fileno'): own.add(waits.fileno())
    left = {c.fileno(): c for c in all}
    for c in all: waits.register(c, 1)
    while left:
        for fd, _ in waits.poll():
            if not answer(left[fd]):
                waits.unregister(fd)
                del left[fd]
print(l.getsockname()[1], flush=True)
all = [l.accept()[0] for _ in range(2)]
own.update(c.fileno() for c in all)
ways = dict(threads=threads, epoll=lambda all: ready(all, select.epoll()), poll=lambda all: ready(all, select.poll()))
ways[sys.argv[1]](all)
try: print('came', other.recv(100))
except BlockingIOError: print('nothing came to', len(taken))
for n in taken:
    os.write(n, b'still there')
    assert other.recv(20) == b'still there'";

/// Has both connections carried, and the word said on one while nobody calls on the other; then
/// goes on with both.
const SAYS_TAKE: &str = "import socket, sys, time
both = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(2)]
def exchange(c, word):
    c.sendall(word)
    assert c.recv(len(word), socket.MSG_WAITALL) == word
for c in both: c.settimeout(60)
for _ in range(60):
    for c in both:
        exchange(c, b'x' * 100)
        time.sleep(0.003)
exchange(both[0], b'take')
for _ in range(100):
    for c in both:
        exchange(c, b'x' * 1000)
        time.sleep(0.003)";

fn taken_by(way: &str) {
    if !Path::new(PYTHON).exists() {
        return skip("numbers that a program takes", "needs python3.11");
    }
    // Both ends sleep whenever they wait, and are rung.
    let stand = Stand::shimmed(&format!("numbers-{way}"), &[("GINNEL_SPIN", "0")])
        .limit(Duration::from_secs(60));
    let mut server = stand.start(stand.command(PYTHON).args(["-c", TAKES_ALL, way]));
    server.wait_for("\n");
    let port = server.output().trim().to_owned();
    let client = stand.start(stand.command(PYTHON).args(["-c", SAYS_TAKE, &port]));
    let (asked, served) = (client.finish(), server.finish());
    assert!(asked.success() && served.success(), "{way}: {asked} {served}");
    let taken = served.stdout.split("nothing came to ").nth(1).expect("nothing came there").trim();
    assert!(taken.parse::<u32>().is_ok_and(|count| count > 4), "{way}: {served}");
    let report = stand.report();
    assert!(report.sum("ring_out") > 300_000, "{way}: the rings carry on: {report:?}");
    assert!(report.sum("wakes_sent") > 100, "{way}: sleepers are rung: {report:?}");
}

#[test]
fn a_number_that_the_program_takes_is_the_programs_alone() {
    for way in ["threads", "epoll", "poll"] {
        taken_by(way);
    }
}
