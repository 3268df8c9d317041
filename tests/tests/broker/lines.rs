//! Those who sleep in a pair are woken by lines, and not by tokens: in whatever call they sleep,
//! and whatever becomes of the broker. Where there are no lines, or the other process makes nothing
//! but noise on them, tokens wake as before.

use super::programs::NOISE;
use super::{PYTHON, Two};
use ginnel_tests::netns::ADDRESSES;
use ginnel_tests::{Running, Stand};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Answers each connection: in a thread of its own, or all of them by epoll or poll. Ends as
/// the others' server.
const ECHOES: &str = "import os, select, socket, sys, threading
l = socket.create_server(('0.0.0.0', 0))
def serve(c):
    while d := c.recv(70000): c.sendall(d)
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
            elif d := all[fd].recv(70000): all[fd].sendall(d)
            else:
                waits.unregister(fd)
                all.pop(fd).close()
ways = dict(threads=threads, epoll=lambda: ready(select.epoll()), poll=lambda: ready(select.poll()))
threading.Thread(target=ways[sys.argv[2]], daemon=True).start()
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
while not os.path.exists(sys.argv[1] + '.end'): threading.Event().wait(0.02)
os.remove(sys.argv[1] + '.end')
os.remove(sys.argv[1])";

/// Small messages that all come back, with pauses in which both ends sleep; waits for them in one
/// of three ways. Goes on when the next of three files is gone.
const RINGS: &str = "import os, select, socket, sys, time
host, port, way, step = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
all = [socket.create_connection((host, port)) for _ in range(int(os.environ.get('CONNECTIONS', 2)))]
waits = {'recv': None, 'poll': select.poll(), 'epoll': select.epoll()}[way]
if waits:
    for c in all: waits.register(c, 1)
def exchange(c, number):
    sent, got = b'%06d' % number, b''
    c.sendall(sent)
    while len(got) < len(sent):
        if waits: assert waits.poll() == [(c.fileno(), 1)]
        d = c.recv(len(sent) - len(got))
        assert d, 'ended'
        got += d
    assert got == sent
def talk(count):
    for number in range(count):
        for c in all: exchange(c, number)
        time.sleep(0.003)
talk(60)
print('first', flush=True)
while os.path.exists(step + '0'): talk(1)
talk(60)
print('warm', flush=True)
while os.path.exists(step + '1'): time.sleep(0.01)
talk(150)
print('done', flush=True)
while os.path.exists(step + '2'): time.sleep(0.01)";

/// Of all connections of a stand's programs that are in pairs: how they sleep, and how often they
/// have woken the other end by lines and by tokens.
fn seen(stand: &Stand) -> (Vec<String>, u64, u64) {
    let status: Value = serde_json::from_str(&stand.status()).expect("JSON");
    let all = status["connections"].as_array().expect("a list").iter();
    let of_pairs: Vec<&Value> = all.filter(|one| one["segment"] == "(pair)").collect();
    let sum = |name: &str| of_pairs.iter().map(|one| one[name].as_u64().expect("a number")).sum();
    let ways = of_pairs.iter().map(|one| one["wake"].as_str().expect("a word").to_owned());
    (ways.collect(), sum("wakes"), sum("tokens"))
}

impl Two {
    /// A client of the program [`RINGS`], that sleeps in this way whenever it waits: where an
    /// answer comes soon, one that spins may never do so. It goes on when the next of these files
    /// is gone.
    fn ring(&self, port: &str, way: &str, variables: &[(&str, &str)]) -> (Running, Vec<PathBuf>) {
        let steps: Vec<PathBuf> =
            (0..3).map(|step| self.client.dir().join(format!("step{step}"))).collect();
        for file in &steps {
            fs::write(file, "").expect("written");
        }
        let mut client = self.client.command_behind(&self.as_nobody(), PYTHON);
        client.env("GINNEL_SPIN", "0").envs(variables.iter().copied());
        client.args(["-c", RINGS, ADDRESSES[1], port, way]).arg(self.client.dir().join("step"));
        (self.client.start(&mut client), steps)
    }

    /// Ends a server that is no echo's.
    fn hear_end(&self, server: Running, client: Running, last: &PathBuf) {
        fs::remove_file(last).expect("there");
        let done = client.finish();
        assert!(done.success(), "{done}");
        self.end(server);
    }
}

fn no_token_in(served: &str, asked: &str) {
    let Some(mut two) = Two::new(&format!("no tokens in {served} and {asked}"), "") else { return };
    let (server, port) = two.serve_with(ECHOES, served);
    let (mut client, steps) = two.ring(&port, asked, &[]);
    client.wait_for("first");
    two.wait_for_pairs(2);
    fs::remove_file(&steps[0]).expect("there");
    client.wait_for("warm");
    let before = [&two.server, &two.client].map(seen);
    // What is there goes on without it.
    two.broker.kill();
    fs::remove_file(&steps[1]).expect("there");
    client.wait_for("done");
    let after = [&two.server, &two.client].map(seen);
    for ((before, after), who) in before.iter().zip(&after).zip([served, asked]) {
        assert_eq!(after.2, before.2, "tokens, {who}: {before:?} {after:?}");
    }
    // The server sleeps whenever the client does.
    assert!(after[1].1 > before[1].1, "{before:?} {after:?}");
    two.hear_end(server, client, &steps[2]);
}

#[test]
fn who_waits_in_receives_is_woken_without_tokens() {
    no_token_in("threads", "recv");
}

#[test]
fn who_waits_in_epoll_is_woken_without_tokens() {
    no_token_in("epoll", "epoll");
}

#[test]
fn who_waits_in_poll_is_woken_without_tokens() {
    no_token_in("poll", "poll");
}

/// More threads sleep at once than there are lines: the others are woken by tokens, and none is
/// forgotten.
#[test]
fn more_sleepers_than_lines_are_all_woken() {
    let Some(two) = Two::new("more sleepers than lines", "") else { return };
    let (server, port) = two.serve_with(ECHOES, "threads");
    let (mut client, steps) = two.ring(&port, "recv", &[("CONNECTIONS", "9")]);
    client.wait_for("first");
    two.wait_for_pairs(9);
    for (step, said) in steps.iter().zip(["warm", "done"]) {
        fs::remove_file(step).expect("there");
        client.wait_for(said);
    }
    two.hear_end(server, client, &steps[2]);
}

/// A process that takes no lines, as one under an older Ginnel: the other has its own for nothing.
#[test]
fn who_has_no_lines_is_woken_by_tokens_and_wakes_by_them() {
    let Some(two) = Two::new("one without lines", "") else { return };
    for way in ["threads", "epoll"] {
        let (server, port) = two.serve_with(ECHOES, way);
        let (mut client, steps) = two.ring(&port, "recv", &[("GINNEL_TOKENS", "1")]);
        client.wait_for("first");
        two.wait_for_pairs(2);
        for (step, said) in steps.iter().zip(["warm", "done"]) {
            fs::remove_file(step).expect("there");
            client.wait_for(said);
        }
        let both = [&two.server, &two.client].map(seen);
        for (ways, wakes, _) in &both {
            assert!(*wakes == 0 && *ways == ["token", "token"], "{both:?}");
        }
        two.hear_end(server, client, &steps[2]);
    }
}

/// The other process of a pair does with its lines what it likes. The server goes on answering, and
/// hangs up on who rings for nothing.
fn noise(way: &str, served: &str) {
    let Some(two) = Two::new(&format!("{way} in {served}"), "") else { return };
    let (server, port) = two.serve_with(ECHOES, served);
    let mut client = two.client.command_behind(&two.as_nobody(), PYTHON);
    let stays = two.client.dir().join("stays");
    fs::write(&stays, "").expect("written");
    let mut client =
        two.client.start(client.args(["-c", NOISE, ADDRESSES[1], &port, way]).arg(&stays));
    client.wait_for("first");
    two.wait_for_pairs(1);
    fs::remove_file(stays).expect("there");
    let done = client.finish();
    assert!(done.success() && done.stdout.contains("answered"), "{done}");
    // Others are served as ever, and by lines. (Not what is armed at the end: a receive that finds
    // its bytes when it is about to sleep takes back what it armed.)
    let (mut client, steps) = two.ring(&port, "recv", &[]);
    client.wait_for("first");
    two.wait_for_pairs(2);
    fs::remove_file(&steps[0]).expect("there");
    client.wait_for("warm");
    let (_, wakes, tokens) = seen(&two.client);
    fs::remove_file(&steps[1]).expect("there");
    client.wait_for("done");
    let after = seen(&two.client);
    assert!(
        after.1 - wakes > after.2 - tokens,
        "{wakes} wake-ups and {tokens} tokens before, {after:?} after"
    );
    two.hear_end(server, client, &steps[2]);
}

#[test]
fn who_rings_without_end_is_hung_up_on_by_a_thread() {
    noise("rings", "threads");
}

#[test]
fn who_rings_without_end_is_hung_up_on_by_a_set() {
    noise("rings", "epoll");
}

#[test]
fn who_closes_its_lines_is_answered() {
    noise("closes", "threads");
    noise("closes", "epoll");
}
