//! Another configuration while the switch runs: what is new comes, what is gone goes, what stays
//! notices nothing, and what is wrong changes nothing.

mod signal;

use crate::common::fabric::Net;
use crate::common::{ALL, Lab, PATIENCE, alone, frame, mac, next, talk};
use crate::hostile::lingering;
use crate::vsock::{Guest, connect};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::reload::Outcome;
use ginnel_switch::status::Status;
use ginnel_switch::vhost::message::Request;
use ginnel_switch::vsock::packet::Op;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Nothing is otherwise.
const NOTHING: [Vec<&str>; 3] = [const { Vec::new() }; 3];

fn good(outcome: &Outcome) -> [Vec<&str>; 3] {
    assert_eq!(outcome.error, None, "{outcome:?}");
    [&outcome.added, &outcome.removed, &outcome.changed].map(|names| {
        let mut names: Vec<_> = names.iter().map(String::as_str).collect();
        names.sort_unstable();
        names
    })
}

/// Waits until the front end's connection is over.
fn is_let_go(guest: &mut FrontEnd) {
    let until = Instant::now() + PATIENCE;
    while guest.number(Request::GetFeatures, &[]).is_ok() {
        assert!(Instant::now() < until, "it is still served");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn ports_come_and_go_and_others_notice_nothing() {
    let lab = Lab::new("[port.a]\n[port.b]\n[port.x]\n");
    let [mut a, mut b, mut x] = ["a", "b", "x"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    for round in 0..5 {
        assert!(a.send(1, &frame(mac(2), mac(1), 60, round)));
        let outcome = lab.reload("[port.a]\n[port.b]\n[port.c]\n");
        let gone = if round == 0 { vec!["x"] } else { vec!["d"] };
        assert_eq!(good(&outcome), [vec!["c"], gone, vec![]]);
        assert!(a.send(1, &frame(mac(2), mac(1), 60, 100 + round)));
        assert_eq!(next(&mut b), Some(frame(mac(2), mac(1), 60, round)));
        assert_eq!(next(&mut b), Some(frame(mac(2), mac(1), 60, 100 + round)));
        if round == 0 {
            is_let_go(&mut x);
            assert!(!lab.socket("x").exists());
        }
        let mut c = lab.guest("c", Options::default());
        talk((&mut c, 3), (&mut a, 1));
        assert!(next(&mut b).is_some(), "it went to all");
        let outcome = lab.reload("[port.b]\n[port.a]\n[port.d]\n");
        assert_eq!(good(&outcome), [vec!["d"], vec!["c"], vec![]]);
        is_let_go(&mut c);
        assert!(lab.addresses().iter().all(|one| one.mac != "52:54:00:00:00:03"));
    }
    for name in ["a", "b"] {
        let port = lab.port(name);
        assert_eq!((port.connections, port.state.as_str()), (1, "up"));
    }
    assert_eq!(good(&lab.reload("[port.b]\n[port.a]\n[port.d]\n")), NOTHING);
}

#[test]
fn what_a_port_may_do_changes_under_its_guest() {
    let lab = Lab::new("[port.a]\n[port.b]\n[port.c]\nkey = 7\n");
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    // To another segment, and under another name: its socket is what it is known by.
    let socket = lab.socket("a").display().to_string();
    let text = format!("[port.other]\nsocket = {socket:?}\nkey = 7\n[port.b]\n[port.c]\nkey = 7\n");
    assert_eq!(good(&lab.reload(&text)), [vec![], vec![], vec!["other"]]);
    assert!(a.send(1, &frame(mac(2), mac(1), 60, 1)));
    assert_eq!(next(&mut c), Some(frame(mac(2), mac(1), 60, 1)), "to all of its segment");
    talk((&mut a, 1), (&mut c, 3));
    let port = lab.port("other");
    assert_eq!((port.key, port.connections), (7, 1));
    assert!(b.send(1, &frame(mac(1), mac(2), 60, 1)));
    lab.until("b", |port| port.dropped.get("nobody_there") == Some(&1));
    assert_eq!(a.wait(0, Duration::from_millis(50)), None, "it is elsewhere");
    // Only what it may say from now on.
    let text = text.replace("key = 7\n[port.b]", "key = 7\nmac = \"52:54:00:00:00:09\"\n[port.b]");
    assert_eq!(good(&lab.reload(&text)), [vec![], vec![], vec!["other"]]);
    assert!(a.send(1, &frame(mac(3), mac(1), 60, 2)));
    lab.until("other", |port| port.dropped.get("spoofed_mac") == Some(&1));
    assert!(c.send(1, &frame(mac(9), mac(3), 60, 3)));
    assert_eq!(next(&mut a), Some(frame(mac(9), mac(3), 60, 3)), "its address is known");
    assert!(c.send(1, &frame(ALL, mac(9), 60, 4)), "another's");
    lab.until("c", |port| port.dropped.get("spoofed_mac") == Some(&1));
    // And anything again.
    let text = text.replace("mac = \"52:54:00:00:00:09\"\n", "broadcasts = 1\n");
    assert_eq!(good(&lab.reload(&text)), [vec![], vec![], vec!["other"]]);
    talk((&mut a, 1), (&mut c, 3));
    assert!(lab.addresses().iter().all(|one| one.age.is_some()));
}

#[test]
fn what_is_wrong_is_refused_by_name_and_changes_nothing() {
    const NOW: &str = "[port.a]\n[port.b]\n[vsock.v]\ncid = 3\n";
    let lab = Lab::new(NOW);
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let taken = lab.directory.path().join("taken.sock");
    std::fs::write(&taken, "").expect("written");
    let wrong = [
        ("[port.a]\nqueue = 2\n", "switch.toml:4: unknown field `queue`"),
        ("[port.a]\n[port.b]\nqueues = 99\n", "switch.toml:5: port.b.queues: must be 1 to 16"),
        ("[port.a]\nmac = \"x\"\n", "switch.toml:4: port.a.mac"),
        ("", "a switch has 1 to 1024 ports"),
        ("memory = \"1T\"\n[port.a]\n", "switch.toml: memory: cannot change while"),
        ("[port.a]\n[port.new]\n[port.taken]\n", "port taken: "),
        ("[port.a]\n[port.new]\n[port.t]\ntap = \"no/such\"\n", "port.t.tap"),
        (
            "[port.a]\n[port.new]\n[port.w]\nsocket = \"/proc/no/w.sock\"\n",
            "port w: /proc/no/w.sock",
        ),
        (
            "[port.a]\n[port.new]\n[vsock.w]\ncid = 4\nhost = \"/proc/no/w\"\n",
            "vsock w: /proc/no/w",
        ),
        // It is the same switch's, as something else.
        ("[port.a]\n[port.new]\n[port.w]\nsocket = \"{}/v.vsock\"\n", "port w: "),
        ("[port.a]\n[port.new]\n[fabric]\nlisten = \"nobody\"\n[fabric.hosts]\n", "fabric.listen"),
    ];
    let place = lab.directory.path().display().to_string();
    for (text, why) in wrong {
        let outcome = lab.reload(&text.replace("{}", &place));
        let said = outcome.error.as_deref().expect("it is wrong");
        assert!(said.contains(why), "{text}: {said}");
        assert_eq!((outcome.added.len(), outcome.removed.len(), outcome.changed.len()), (0, 0, 0));
        assert!(!lab.socket("new").exists(), "{text}");
        talk((&mut a, 1), (&mut b, 2));
    }
    std::fs::remove_file(lab.directory.path().join("switch.toml")).expect("removed");
    assert!(lab.ask("reload").contains("switch.toml: cannot be read"));
    assert_eq!(good(&lab.reload(NOW)), NOTHING, "it is as it was");
    assert_eq!(lab.port("a").connections, 1);
}

#[test]
fn many_ask_at_once_and_each_hears_what_came_of_it() {
    let lab = Lab::new("[port.a]\n[port.b]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    let texts = ["[port.a]\n[port.b]\n[port.c]\n", "[port.a]\n[port.b]\n", "[port.a]\n[port"];
    std::thread::scope(|scope| {
        let ask = || {
            for _ in 0..10 {
                let outcome: Outcome =
                    serde_json::from_str(&lab.ask("reload")).expect("an outcome");
                let wrong = outcome.error.unwrap_or_default();
                assert!(wrong.is_empty() || wrong.contains("switch.toml:"), "{wrong}");
            }
        };
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        while asking.iter().any(|one| !one.is_finished()) {
            for text in texts {
                // Not written in place: half a file is another's mistake.
                let text =
                    format!("run_dir = {:?}\nmetrics = \"off\"\n{text}", lab.directory.path());
                let new = lab.directory.path().join("new.toml");
                std::fs::write(&new, text).expect("written");
                std::fs::rename(&new, lab.directory.path().join("switch.toml")).expect("renamed");
                talk((&mut a, 1), (&mut b, 2));
            }
        }
    });
    // One that asks and goes takes nothing along.
    for _ in 0..4 {
        let control = lab.directory.path().join("control.sock");
        drop(ginnel_switch::control::ask(&control, "reload").expect("asked"));
    }
    assert_eq!(lab.reload("[port.a]\n[port.b]\n").error, None);
    assert!(!lab.socket("c").exists());
    talk((&mut a, 1), (&mut b, 2));
}

#[test]
fn who_looks_at_a_port_that_goes_hears_the_end() {
    let lab = Lab::new("[port.a]\n[port.b]\n");
    let control = lab.directory.path().join("control.sock");
    let mut trace = ginnel_switch::control::ask(&control, "trace b").expect("asked");
    trace.set_read_timeout(Some(PATIENCE)).expect("set");
    trace.read_exact(&mut [0; 3]).expect("it begins");
    assert_eq!(good(&lab.reload("[port.a]\n[port.c]\n")), [vec!["c"], vec!["b"], vec![]]);
    assert_eq!(trace.read(&mut [0; 8]).expect("its end"), 0);
    let [mut a, mut c] = ["a", "c"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut c, 3));
}

#[test]
fn a_port_that_goes_is_closed_where_that_holds_up_nobody() {
    if !alone("reload::a_port_that_goes_is_closed_where_that_holds_up_nobody") {
        return;
    }
    const NOW: &str = "[port.a]\n[port.b]\n";
    let lab = Lab::new(&format!("{NOW}[port.evil]\n[vsock.evil]\ncid = 3\n"));
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    let place = lab.directory.path();
    let mut stay = Vec::new();
    for path in [lab.socket("evil"), place.join("evil.vsock"), place.join("evil.host")] {
        // As long as one thing waits to be closed, who connects waits at the door, with what it has
        // brought: that is closed with the door.
        let connect = || {
            let socket = UnixStream::connect(&path).expect("connected");
            FrontEnd::prepare(socket, Options::default()).expect("made")
        };
        let bring = |front: &FrontEnd, bytes: &[u8]| {
            let thing = lingering(60);
            // It may have been let go already.
            let _ = front.raw(bytes, &[&thing]);
            // Then it is this that waits.
            std::thread::spawn(move || drop(thing));
        };
        let first = connect();
        bring(&first, &[255; 11]);
        // The last byte is refused where it is heard, and the front end let go.
        let _ = first.raw(&[255; 1], &[]);
        stay.push(first);
        for _ in 0..3 {
            let next = connect();
            bring(&next, &[255; 12]);
            stay.push(next);
        }
    }
    talk((&mut a, 1), (&mut b, 2));
    assert_eq!(good(&lab.reload(NOW))[1], ["evil", "vsock evil"]);
    talk((&mut a, 1), (&mut b, 2));
    assert!(!lab.socket("evil").exists());
    // There may be another at once.
    assert_eq!(good(&lab.reload(&format!("{NOW}[port.evil]\n"))), [vec!["evil"], vec![], vec![]]);
    let mut c = lab.guest("evil", Options::default());
    talk((&mut c, 3), (&mut a, 1));
}

#[test]
fn sockets_of_machines_come_and_go() {
    let lab = Lab::new("[port.p]\n");
    let machines = |text: &str| {
        let machines = lab.directory.path().display().to_string();
        lab.reload(&format!("[port.p]\n{}", text.replace("{}", &machines)))
    };
    let shown = || -> Vec<(String, u32)> {
        let status: Status = serde_json::from_str(&lab.ask("status")).expect("a status");
        status.vsock.into_iter().map(|one| (one.name, one.cid)).collect()
    };
    let two = "[vsock.a]\ncid = 3\n[vsock.b]\ncid = 4\n";
    assert_eq!(good(&machines(two)), [vec!["vsock a", "vsock b"], vec![], vec![]]);
    let [mut a, mut b] = [Guest::new(&lab, "a", 3), Guest::new(&lab, "b", 4)];
    connect(&mut a, &mut b);
    // A third comes and goes, and the first two's connection goes on.
    let three = format!("{two}[vsock.c]\ncid = 5\n");
    for _ in 0..3 {
        assert_eq!(good(&machines(&three)), [vec!["vsock c"], vec![], vec![]]);
        let mut c = Guest::new(&lab, "c", 5);
        c.say(7, (3, 80), Op::Request);
        a.hears((5, 7), 80, Op::Request);
        a.say(80, (5, 7), Op::Response);
        c.hears((3, 80), 7, Op::Response);
        assert_eq!(good(&machines(two)), [vec![], vec!["vsock c"], vec![]]);
        a.hears((5, 7), 80, Op::Rst);
        is_let_go(&mut c.front);
        assert!(!lab.directory.path().join("c.vsock").exists());
        assert!(!lab.directory.path().join("c.host").exists());
        b.send(b.header(80, (3, 1000), Op::Rw), b"on");
        assert_eq!(a.data((4, 80), 1000, 2), b"on");
    }
    // Another door for programs of the host.
    let door = two.replace("cid = 4", "cid = 4\nhost = \"{}/door\"");
    assert_eq!(good(&machines(&door)), [vec![], vec![], vec!["vsock b"]]);
    let stand = |path: &str| lab.directory.path().join(path);
    assert!(!stand("b.host").exists());
    let mut program = UnixStream::connect(stand("door")).expect("connected");
    program.write_all(b"CONNECT 22\n").expect("said");
    let (request, _) = b.take(PATIENCE).expect("a request");
    assert_eq!((request.from.cid, request.op), (2, Op::Request as u16));
    // To another group: what was between them ends.
    let apart = door.replace("cid = 4", "cid = 4\nkey = 1");
    assert_eq!(good(&machines(&apart)), [vec![], vec![], vec!["vsock b"]]);
    a.hears((4, 80), 1000, Op::Rst);
    a.say(1001, (4, 80), Op::Request);
    a.hears((4, 80), 1001, Op::Rst);
    // Another context id: the machine is to boot again.
    let other = two.replace("cid = 3", "cid = 9");
    assert_eq!(good(&machines(&other)), [vec![], vec![], vec!["vsock a", "vsock b"]]);
    is_let_go(&mut a.front);
    let _nine = Guest::new(&lab, "a", 9);
    assert_eq!(shown(), [("a".into(), 9), ("b".into(), 4)]);
    assert_eq!(good(&machines("")), [vec![], vec!["vsock a", "vsock b"], vec![]]);
    assert_eq!(shown(), []);
}

#[test]
fn hosts_come_and_go() {
    let Some(net) = Net::new() else { return };
    let ports = "[port.a]\n";
    let labs = [Lab::new(ports), Lab::new(ports)];
    let [mut one, mut two] = [0, 1].map(|n: usize| labs[n].guest("a", Options::default()));
    let texts = [1, 2].map(|n| format!("{ports}{}", net.text(n, 2, None)));
    // What listened at the address before may be open for a moment, in processes that other tests
    // start.
    let joins = |lab: &Lab, text: &str| {
        let until = Instant::now() + PATIENCE;
        loop {
            let outcome = lab.reload(text);
            let taken = outcome.error.as_ref().is_some_and(|error| error.contains("in use"));
            if !taken || Instant::now() > until {
                return outcome;
            }
        }
    };
    for _ in 0..2 {
        for (lab, text) in labs.iter().zip(&texts) {
            assert_eq!(good(&joins(lab, text)), [vec![], vec![], vec!["fabric"]]);
        }
        labs[0].until_host("h2", |host| host.state == "up" && host.keys == [0]);
        labs[1].until_host("h1", |host| host.state == "up" && host.keys == [0]);
        talk((&mut one, 1), (&mut two, 2));
        // A port of another segment, of which the other host hears.
        for (lab, text) in labs.iter().zip(&texts) {
            let more = text.replace(ports, "[port.a]\n[port.b]\nkey = 9\n");
            assert_eq!(good(&lab.reload(&more)), [vec!["b"], vec![], vec![]]);
        }
        labs[0].until_host("h2", |host| host.keys == [0, 9] && host.connections == 1);
        for lab in &labs {
            assert_eq!(good(&lab.reload(ports)), [vec![], vec!["b"], vec!["fabric"]]);
        }
        assert!(labs[0].addresses().iter().all(|one| one.port == "a"));
        assert_eq!(labs[0].port("a").connections, 1);
    }
}
