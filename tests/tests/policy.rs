//! The user's policy keeps connections on TCP, by address, port and program, and `ginnel status` says so.

use ginnel_tests::{Stand, build, skip};

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
    for rules in ["deny", "deny address 127.0.0.0/8", "deny program half_close", "allow port 1\ndeny", "nonsense"] {
        assert_eq!(carried(rules), 0, "{rules}");
    }
    for rules in ["allow", "deny address 10.0.0.0/8", "deny program half_closed; deny port 1", "allow program half_close; deny"] {
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
