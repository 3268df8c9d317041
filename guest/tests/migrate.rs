//! A machine with open, busy connections is detached, unplugged, live-migrated to another QEMU,
//! plugged in again and attached: no connection breaks, no byte is lost or repeated, and the
//! connections are upgraded again.

use crate::common::{Lab, PATIENCE, program_of_one_kernel, status, wait};
use ginnel_guest::machine::{self, Guest};
use serde_json::Value;
use std::time::{Duration, Instant};

const NGINX: &str = "daemon off; worker_processes 1; user root root; pid /tmp/nginx.pid; error_log /tmp/nginx.log; events {}
http { access_log off; keepalive_requests 1000000000; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;
uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e; server { listen 8080; root /root/pages; } }";

/// Connections of each of the loads.
const EACH: usize = 3;
/// How long wrk goes on: the machine has moved by then.
const SECONDS: u32 = 60;

/// A checked stream from one guest to another (`tests/programs/path`), which goes on until it is
/// told to end.
struct Stream {
    from: usize,
    to: usize,
    port: u16,
}

impl Stream {
    fn start(lab: &Lab, from: usize, to: usize, port: u16) -> Self {
        let address = format!("10.77.0.{}", from + 1);
        // Each in a session of its own, with its output in files: no command of the agent's is
        // under way while the machine moves.
        let run = |guest: &Guest, role: &str| {
            let command = format!(
                "ginnel run -- ./path {role} {address} {port} >{role}.{port} 2>&1; echo $? >{role}.{port}.status"
            );
            guest.sh(&format!("setsid sh -c '{command}' </dev/null >/dev/null 2>&1 &"));
        };
        run(&lab.guests[from], "server");
        lab.guests[from].sh(&format!("until grep -q listening server.{port}; do sleep 0.1; done"));
        run(&lab.guests[to], "client");
        Self { from, to, port }
    }

    fn at(&self, lab: &Lab) -> u64 {
        let said = lab.guests[self.to].sh(&format!("tail -n 3 client.{}; true", self.port));
        said.lines().rev().find_map(|line| line.parse().ok()).unwrap_or(0)
    }

    fn moves_on(&self, lab: &Lab) {
        let before = self.at(lab);
        wait("bytes", || (self.at(lab) > before + 50_000).then_some(()));
    }

    fn end(&self, lab: &Lab) {
        let Self { from, to, port } = self;
        lab.guests[*from]
            .sh(&format!("pkill -USR1 -f '^./path server 10.77.0.{} {port}'", from + 1));
        for (guest, role) in [(from, "server"), (to, "client")] {
            let guest = &lab.guests[*guest];
            let ended = || {
                guest
                    .run(&format!("cat {role}.{port}.status"), PATIENCE)
                    .ok()
                    .filter(|said| said.status == 0)
            };
            let status = wait("the stream's end", ended).out;
            let said = guest.sh(&format!("tail -n 5 {role}.{port}"));
            assert!(
                status.trim() == "0" && said.contains("all of"),
                "{role} {port}: {status}{said}"
            );
        }
    }
}

/// Ends of connections in a guest: those in rings, both ways, and all.
fn ends(guest: &Guest) -> (usize, usize, Value) {
    let seen = status(guest);
    let all = seen["connections"].as_array().expect("a list");
    let carried = all
        .iter()
        .filter(|one| one["in_carrier"] == "ring" || one["out_carrier"] == "ring")
        .count();
    (carried, all.len(), seen)
}

/// Waits until so many connections of each guest are in rings.
fn are_carried(lab: &Lab, least: usize) {
    for guest in &lab.guests {
        let until = Instant::now() + PATIENCE;
        loop {
            let (carried, _, seen) = ends(guest);
            if carried >= least {
                break;
            }
            assert!(Instant::now() < until, "{carried} of {least} connections in rings: {seen:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Loads from the second guest on servers in the first, in the background.
fn start_loads(lab: &Lab) {
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    one.put("/root/nginx.conf", 0o644, NGINX.as_bytes()).expect("written");
    one.sh("mkdir -p pages /var/log/nginx /var/lib/nginx; head -c 1024 /dev/zero >pages/page");
    for (server, port) in [
        ("nginx -c /root/nginx.conf", 8080),
        ("redis-server --bind 0.0.0.0 --protected-mode no --save '' --port 7000", 7000),
    ] {
        one.sh(&format!("setsid ginnel run -- {server} >log.{port} 2>&1 </dev/null &"));
        two.sh(&format!(
            "for i in $(seq 100); do nc -z 10.77.0.1 {port} && exit 0; sleep 0.1; done; exit 1"
        ));
    }
    // Both check what they are answered, and end or complain at the first connection that breaks.
    let wrk =
        format!("wrk -t1 -c{EACH} -d{SECONDS} --timeout 20 http://10.77.0.1:8080/page >wrk 2>&1");
    let redis = format!(
        "redis-benchmark -h 10.77.0.1 -p 7000 -t get -c {EACH} -n 100000000 -q >redis 2>&1"
    );
    two.sh(&format!(
        "(setsid ginnel run -- {wrk} </dev/null &); (setsid ginnel run -- {redis} </dev/null &)"
    ));
}

fn end_loads(lab: &Lab) {
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let said = wait("the end of wrk", || {
        Some(two.sh("cat wrk")).filter(|said| said.contains("Requests/sec"))
    });
    assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
    two.sh("pidof redis-benchmark && killall redis-benchmark");
    assert_eq!(
        two.sh(
            "tr '\\r' '\\n' <redis | grep -v -e 'rps=' -e '^ *$' -e 'requests per second' || true"
        ),
        ""
    );
    assert_eq!(one.sh("grep -i -e error -e crit -e assert /tmp/nginx.log log.* || true"), "");
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn connections_move_with_their_machine() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(
        2,
        true,
        &["nc", "setsid", "pkill", "pidof", "nginx", "wrk", "redis-server", "redis-benchmark"],
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = program_of_one_kernel(directory.path(), "path");
    lab.guests.iter().for_each(|guest| guest.put("/root/path", 0o755, &path).expect("written"));
    let streams = [Stream::start(&lab, 0, 1, 5000), Stream::start(&lab, 1, 0, 5001)];
    start_loads(&lab);
    are_carried(&lab, 2 + 2 * EACH);
    for stream in &streams {
        stream.moves_on(&lab);
    }

    let said = lab.guests[1].sh("ginnel detach");
    println!("{said}");
    let (carried, all, seen) = ends(&lab.guests[1]);
    assert!(carried == 0 && all >= 2 + 2 * EACH, "{seen}");
    // The ends there are on TCP. A reader in the other machine hears of it by that way, which takes
    // its time, or finds it when it next reads.
    wait("the other ends", || {
        Some(ends(&lab.guests[0])).filter(|(carried, all, _)| *carried == 0 && *all >= 2 + 2 * EACH)
    });
    streams.iter().for_each(|stream| stream.moves_on(&lab));
    lab.unplug(1);
    lab.guests[1].sh("! test -e /dev/ginnel0");
    streams.iter().for_each(|stream| stream.moves_on(&lab));
    let before = lab.guests[1].pid();
    lab.migrate(1);
    assert_ne!(lab.guests[1].pid(), before, "another QEMU");
    streams.iter().for_each(|stream| stream.moves_on(&lab));
    lab.plug(1);
    println!("{}", lab.guests[1].sh("ginnel attach"));
    are_carried(&lab, 2 + 2 * EACH);
    streams.iter().for_each(|stream| stream.moves_on(&lab));
    end_loads(&lab);
    streams.iter().for_each(|stream| stream.end(&lab));
    lab.assert_healthy();
}
