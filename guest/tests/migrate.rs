//! A machine with open, busy connections is detached, unplugged, live-migrated to another QEMU,
//! plugged in again and attached: no connection breaks, no byte is lost or repeated, and the
//! connections are upgraded again.

use crate::common::stream::{Stream, are_carried, ends};
use crate::common::{Lab, program_of_one_kernel, wait};
use ginnel_guest::machine;

const NGINX: &str = "daemon off; worker_processes 1; user root root; pid /tmp/nginx.pid; error_log /tmp/nginx.log; events {}
http { access_log off; keepalive_requests 1000000000; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;
uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e; server { listen 8080; root /root/pages; } }";

/// Connections of each of the loads.
const EACH: usize = 3;
/// How long wrk goes on at most: it is ended before, once the machine has moved, however long that
/// takes.
const SECONDS: u32 = 1000;

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
    two.sh("pkill -INT wrk");
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
    let streams = [Stream::start(&lab.guests, 0, 1, 5000), Stream::start(&lab.guests, 1, 0, 5001)];
    start_loads(&lab);
    are_carried(&lab.guests, 2 + 2 * EACH);
    for stream in &streams {
        stream.moves_on(&lab.guests);
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
    streams.iter().for_each(|stream| stream.moves_on(&lab.guests));
    lab.unplug(1);
    lab.guests[1].sh("! test -e /dev/ginnel0");
    streams.iter().for_each(|stream| stream.moves_on(&lab.guests));
    let before = lab.guests[1].pid();
    lab.migrate(1);
    assert_ne!(lab.guests[1].pid(), before, "another QEMU");
    streams.iter().for_each(|stream| stream.moves_on(&lab.guests));
    lab.plug(1);
    println!("{}", lab.guests[1].sh("ginnel attach"));
    are_carried(&lab.guests, 2 + 2 * EACH);
    streams.iter().for_each(|stream| stream.moves_on(&lab.guests));
    end_loads(&lab);
    streams.iter().for_each(|stream| stream.end(&lab.guests));
    lab.assert_healthy();
}
