//! Servers and their clients, each in a guest of its own, under `ginnel run`: Debian's, and a static
//! program in Go. What they answer is right, and goes through the segment.

use crate::common::{Lab, reported};
use ginnel_guest::agent::Output;
use ginnel_guest::machine::{self, Guest};
use ginnel_tests::go::{STATIC, program};
use std::time::Duration;

const NGINX: &str = "daemon off; worker_processes 1; user root root; pid /tmp/nginx.pid; error_log /tmp/nginx.log; events {}
http { access_log off; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d;
scgi_temp_path /tmp/e; server { listen 8080; root /root/pages; } }";

/// Runs a load in a guest under `ginnel run`; how much of what it received came through rings, 0 to
/// 1, and what it printed.
fn load(guest: &Guest, command: &str) -> (f64, String) {
    guest.sh("rm -f /root/report");
    let script = format!("GINNEL_REPORT=/root/report ginnel run -- {command}");
    let said = guest
        .run(&script, Duration::from_secs(120))
        .and_then(Output::good)
        .unwrap_or_else(|error| panic!("{command}: {error:#}"));
    let (ring, tcp) = (reported(guest, "ring_in"), reported(guest, "tcp_in"));
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = ring as f64 / (ring + tcp).max(1) as f64;
    println!("{command}: {:.1} % of {} bytes by the ring", share * 100.0, ring + tcp);
    (share, said)
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn nginx_redis_and_memcached_serve_another_guest() {
    let _alone = machine::alone();
    let programs = [
        "nginx",
        "wrk",
        "redis-server",
        "redis-cli",
        "redis-benchmark",
        "memcached",
        "memcaslap",
        "nc",
    ];
    let lab = Lab::boot(2, true, &programs);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let up = |port: u16| {
        two.sh(&format!(
            "for i in $(seq 100); do nc -z 10.77.0.1 {port} && exit 0; sleep 0.1; done; exit 1"
        ))
    };

    one.put("/root/nginx.conf", 0o644, NGINX.as_bytes()).expect("written");
    one.sh("mkdir -p pages /var/log/nginx /var/lib/nginx; head -c 1024 /dev/zero >pages/page; ginnel run -- nginx -c /root/nginx.conf >log 2>&1 &");
    up(8080);
    for connections in [1, 16] {
        let (share, said) =
            load(two, &format!("wrk -t1 -c{connections} -d4 http://10.77.0.1:8080/page"));
        assert!(
            share > 0.9 && !said.contains("Socket errors") && !said.contains("Non-2xx"),
            "{share}: {said}"
        );
        assert!(!said.contains(" 0 requests in"), "{said}");
    }

    one.sh("ginnel run -- redis-server --bind 0.0.0.0 --protected-mode no --save '' --port 7000 >log 2>&1 &");
    up(7000);
    let (share, said) =
        load(two, "redis-benchmark -h 10.77.0.1 -p 7000 -t set,get -n 10000 -c 50 -d 100 --csv");
    assert!(share > 0.9 && said.contains("GET") && said.contains("SET"), "{share}: {said}");
    // Byte for byte, a value larger than any ring.
    two.sh("head -c 3000000 /dev/urandom >value");
    let (_, said) = load(
        two,
        "sh -c 'redis-cli -h 10.77.0.1 -p 7000 -x set v <value && redis-cli -h 10.77.0.1 -p 7000 get v >back'",
    );
    assert_eq!(said.trim(), "OK");
    // redis-cli ends what it prints with a line feed.
    assert_eq!(two.sh("head -c 3000000 back | md5sum"), two.sh("md5sum <value"));

    one.sh("ginnel run -- memcached -u root -l 0.0.0.0 -p 7100 >log 2>&1 &");
    up(7100);
    let (share, said) = load(two, "memcaslap -s 10.77.0.1:7100 -T 1 -c 4 -x 3000");
    assert!(share > 0.9 && said.contains("get_misses: 0"), "{share}: {said}");
    assert_eq!(one.sh("grep -i -e error -e crit -e assert /tmp/nginx.log log || true"), "");
    lab.assert_healthy();
}

/// The client compares what comes back with what it sent.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_static_program_in_go_serves_another_guest() {
    let _alone = machine::alone();
    let Some(program) = program(STATIC) else { return };
    let content = std::fs::read(program).expect("a program");
    let lab = Lab::with_files(2, vec![("/root/program".to_owned(), 0o755, content)]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    one.sh("GINNEL_GO=1 ginnel run -- ./program serve 10.77.0.1:7000 >log 2>&1 & echo $! >pid; \
            for i in $(seq 300); do grep -q 7000 log && exit 0; sleep 0.1; done; exit 1");
    for (go, carried) in [("1", true), ("0", false)] {
        let ask = format!("sh -c 'GINNEL_GO={go} exec ./program ask 10.77.0.1:7000 8 300'");
        let (share, said) = load(two, &ask);
        assert_eq!(said, "OK\n");
        assert!(if carried { share > 0.8 } else { share == 0.0 }, "GINNEL_GO={go}: {share}");
    }
    assert_eq!(one.sh("kill $(cat pid); sleep 2; tail -n 1 log"), "OK\n");
    lab.assert_healthy();
}
