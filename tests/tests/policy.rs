//! The user's policy keeps connections on TCP, by address, port and program, and `ginnel status`
//! says so.

use ginnel_tests::{Crowd, Stand, build, skip};

const PYTHON: &str = "/usr/bin/python3.11";

const HELD: &str = "import socket, sys, time
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname())
s, _ = l.accept()
for i in range(50):
    c.sendall(b'%06d' % i)
    s.sendall(s.recv(6))
    assert c.recv(6) == b'%06d' % i
print('held', flush=True)
time.sleep(60)";

fn carried(rules: &str) -> u64 {
    let stand = Stand::shimmed("policy", &[("GINNEL_POLICY", rules)]);
    let done = stand.run(&mut stand.command(build::program("half_close")));
    assert!(done.success(), "{rules}: {done}");
    stand.report().ring_bytes()
}

#[test]
fn what_a_rule_denies_stays_on_tcp() {
    for rules in [
        "deny",
        "deny address 127.0.0.0/8",
        "deny program half_close",
        "allow port 1\ndeny",
        "nonsense",
    ] {
        assert_eq!(carried(rules), 0, "{rules}");
    }
    for rules in [
        "allow",
        "deny address 10.0.0.0/8",
        "deny program half_closed; deny port 1",
        "allow program half_close; deny",
    ] {
        assert!(carried(rules) > 0, "{rules}");
    }
}

#[test]
fn and_status_says_why() {
    if !std::path::Path::new(PYTHON).exists() {
        return skip("policy and status", "python3.11 is not installed");
    }
    for (rules, word) in [("deny program python3.11", "\"denied\""), ("allow", "\"ring\"")] {
        let stand = Stand::shimmed("policy-status", &[("GINNEL_POLICY", rules)]);
        let mut held = stand.start(stand.command(PYTHON).args(["-c", HELD]));
        held.wait_for("held");
        let status = stand.status();
        assert!(status.contains(word) && status.contains("\"127.0.0.1:"), "{rules}: {status}");
    }
}

/// A server on `port` and a client of it, each with rules of its own; how many ends are on rings in
/// both directions, and how many say that they are denied.
fn ends(port: &str, rules: [&str; 2]) -> [usize; 2] {
    let stand = Stand::shimmed("policy-port", &[]);
    let command = |side: usize, program: &std::path::Path| {
        let mut command = stand.command(program);
        command.env("GINNEL_POLICY", rules[side]);
        command
    };
    let crowd = Crowd::start(&stand, command, ("127.0.0.1", port), 2, 1000);
    let status = stand.status();
    let ends: Vec<_> = status.split("\"cookie\"").skip(1).collect();
    assert_eq!(
        ends.iter().filter(|end| end.contains(&format!("127.0.0.1:{port}\""))).count(),
        4,
        "{status}"
    );
    let with = |what: &[&str]| {
        ends.iter().filter(|end| what.iter().all(|what| end.contains(what))).count()
    };
    let found = [
        with(&["\"in_carrier\": \"ring\"", "\"out_carrier\": \"ring\""]),
        with(&["\"reason\": \"denied\"", "\"in_carrier\": \"tcp\""]),
    ];
    crowd.end();
    assert_eq!(stand.report().ring_bytes() > 0, found[0] > 0, "{rules:?}: {status}");
    found
}

/// Whether the port is its own or the other end's; one end's word is enough.
#[test]
fn a_denied_port_stays_on_tcp_at_both_ends() {
    let port = "4741";
    assert_eq!(ends(port, ["deny port 4741", "deny port 4741"]), [0, 4]);
    for rules in [["deny port 4741", "allow"], ["allow", "deny port 4741"]] {
        let [carried, denied] = ends(port, rules);
        assert_eq!(carried, 0, "{rules:?}");
        assert!(denied >= 2, "{rules:?}: the end that denies says so");
    }
    let [carried, denied] = ends(port, ["deny port 4742", "deny port 4742"]);
    assert!(carried > 0 && denied == 0, "another port's rule keeps nothing on TCP");
}
