//! Unmodified programs in two guests, `ginnel run` in each: correct, and carried by the segment.

use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::network::Switch;
use serde_json::Value;
use std::time::{Duration, Instant};

const SEGMENT: &str = "[segment.t]\nsize = \"64M\"\nslots = 3\nvectors = 3\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// Guests with one segment and one network.
struct Lab {
    guests: Vec<Guest>,
    daemon: Daemon,
    _switch: Switch,
    _directory: tempfile::TempDir,
}

impl Lab {
    /// Boots guests 1 to `count`, with the driver or without, and with these programs.
    fn boot(count: u16, driver: bool, programs: &[&str]) -> Self {
        let kernel = Kernel::fetch().expect("a kernel");
        let directory = tempfile::tempdir().expect("a directory");
        let daemon = Daemon::start(directory.path(), SEGMENT, true).expect("ginneld");
        let switch = Switch::new(directory.path()).expect("a switch");
        let spec = |slot: u16| Spec {
            programs: programs.iter().map(|&name| name.to_owned()).collect(),
            netdev: Some(switch.netdev("net")),
            address: Some(format!("10.77.0.{slot}/24")),
            options: daemon.vm_args("t", slot).expect("options"),
            driver,
            ..Spec::new(&format!("guest{slot}"))
        };
        let specs: Vec<Spec> = (1..=count).map(spec).collect();
        let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
        Self { guests, daemon, _switch: switch, _directory: directory }
    }

    fn assert_healthy(&self) {
        self.guests.iter().for_each(Guest::assert_healthy);
        let log = self.daemon.log();
        assert!(!log.contains("level=error"), "{log}");
    }
}

fn status(guest: &Guest) -> Value {
    serde_json::from_str(&guest.sh("ginnel status --json")).expect("JSON")
}

/// Waits until `ready` gives something.
fn wait<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Sums of the counters that the processes of a guest reported when they ended.
fn reported(guest: &Guest, counter: &str) -> u64 {
    let text = guest.sh("cat /root/report 2>/dev/null || true");
    text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")[counter].as_u64().unwrap_or(0)).sum()
}

/// 15 MB through netcat each way, one after the other (both at once are more than netcat bears, with or without Ginnel: it ends when one way
/// does): the same bytes, by the ring, and nothing of the segment is lost afterwards.
fn netcat(lab: &Lab) {
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let free = |guest: &Guest| status(guest)["segments"][0]["free_pages"].as_u64().expect("pages");
    for (server, client, from, to) in
        [("-N -l 5000 <out", "-d 10.77.0.1 5000 >in", one, two), ("-d -l 5000 >in", "-N 10.77.0.1 5000 <out", two, one)]
    {
        from.sh("head -c 15000000 /dev/urandom >out; rm -f report");
        to.sh("rm -f report");
        let nc = "GINNEL_REPORT=/root/report ginnel run -- nc";
        let server = one.start(&format!("{nc} {server}"), PATIENCE).expect("started");
        two.sh(&format!("for i in $(seq 60); do {nc} {client} && exit 0; sleep 0.2; done; exit 1"));
        server.finish().expect("ended").good().expect("well");
        assert_eq!(to.sh("md5sum <in"), from.sh("md5sum <out"));
        // A stream without pauses begins on TCP, and is moved when the reader has caught up.
        let (tcp, ring) = (reported(to, "tcp_in"), reported(to, "ring_in"));
        assert!(tcp + ring == 15_000_000 && ring > 1_000_000, "{ring} bytes out of the ring: {}", to.sh("cat report"));
    }
    let all = status(one)["segments"][0]["pages"].as_u64().expect("pages");
    wait("all pages free", || (free(one) == all && free(two) == all).then_some(()));
}

#[test]
fn netcat_between_two_guests_without_the_driver() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, false, &["nc"]);
    netcat(&lab);
    lab.assert_healthy();
}

#[test]
fn netcat_and_iperf3_between_two_guests() {
    let _alone = machine::alone();
    let lab = Lab::boot(2, true, &["nc", "iperf3"]);
    netcat(&lab);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let server = one.start("ginnel run -- iperf3 -s -1", PATIENCE).expect("started");
    let client = two
        .start(
            "for i in 1 2 3 4 5 6 7 8; do ginnel run -- iperf3 -c 10.77.0.1 -t 10 -J >result && break; sleep 0.3; done; cat result",
            PATIENCE,
        )
        .expect("started");
    // While it runs, the status of both ends says how.
    std::thread::scope(|scope| {
        for (guest, counter) in [(one, "in_ring"), (two, "out_ring")] {
            scope.spawn(move || {
                wait("a ring that carries bytes", || {
                    let seen = status(guest);
                    let all = seen["connections"].as_array().expect("a list");
                    all.iter().any(|one| one[counter].as_u64() > Some(1_000_000)).then_some(())
                })
            });
        }
    });
    let result: Value = serde_json::from_str(&client.finish().expect("ended").good().expect("well")).expect("JSON");
    let (sent, got) = (&result["end"]["sum_sent"]["bytes"], &result["end"]["sum_received"]["bytes"]);
    assert!(got.as_u64() > Some(10_000_000), "{sent} sent, {got} received");
    server.finish().expect("ended").good().expect("well");
    lab.assert_healthy();
}
