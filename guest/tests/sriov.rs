//! A guest with a virtual function of a card (SR-IOV; QEMU's emulated igb) beside a neighbour: the
//! segment carries its connections to the neighbour, the function those to the outside.

use crate::common::{SEGMENT, assert_works, program, reported};
use ginnel_guest::PATIENCE;
use ginnel_guest::bridge::Bridge;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::host::Host;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::network::Switch;
use ginnel_guest::qemu::Qemu;
use ginnel_guest::switch::VhostSwitch;
use std::path::PathBuf;
use std::time::Duration;

/// Gives a guest a card, plugged into this network, behind a port of its own: only there does it
/// have functions.
fn card(guest: &mut Spec, number: u8, netdev: &str) {
    guest.options.extend(
        ["-netdev", netdev, "-device", "pcie-root-port,id=card-port,slot=9,chassis=9"]
            .map(str::to_owned),
    );
    let card = format!("igb,bus=card-port,netdev=card,mac=52:54:00:69:00:{number:02x}");
    guest.options.extend(["-device".to_owned(), card]);
    guest.modules = ["igb", "igbvf"].map(str::to_owned).to_vec();
    guest.programs.push("ip".into());
}

/// Has the card make one function, with this hardware address, and gives it an address of IP: the
/// name of its interface.
fn function(guest: &Guest, number: u8, address: &str) -> String {
    // Without probing no driver takes a function but the one that is named for it: so the card
    // knows its hardware address before the driver asks.
    let script = format!(
        "set -e
        card=$(ls -d /sys/bus/pci/drivers/igb/0000:*)
        name=$(ls $card/net)
        ip link set $name up
        echo 0 >$card/sriov_drivers_autoprobe
        echo 1 >$card/sriov_numvfs
        ip link set $name vf 0 mac 52:54:00:6a:00:{number:02x}
        echo igbvf >$card/virtfn0/driver_override
        basename $(readlink $card/virtfn0) >/sys/bus/pci/drivers/igbvf/bind
        function=$(ls $card/virtfn0/net)
        ip link set $function up
        ip addr add {address} dev $function
        echo $function"
    );
    let name = guest.sh(&script).trim().to_owned();
    let said = guest.sh(&format!("cat /sys/class/net/{name}/address; basename $(readlink /sys/class/net/{name}/device/driver)"));
    assert_eq!(said, format!("52:54:00:6a:00:{number:02x}\nigbvf\n"));
    name
}

/// Takes the card's functions away.
fn no_function(guest: &Guest) {
    guest.sh("echo 0 >$(ls -d /sys/bus/pci/drivers/igb/0000:*)/sriov_numvfs");
}

/// Bytes that have gone through an interface of a guest, both ways.
fn bytes(guest: &Guest, interface: &str) -> u64 {
    let said = guest.sh(&format!("cat /sys/class/net/{interface}/statistics/?x_bytes"));
    said.lines().map(|line| line.parse::<u64>().expect("a number")).sum()
}

fn reaches(guest: &Guest, address: &str) -> bool {
    guest.sh(&format!("ping -c 5 -W 2 {address} >/dev/null 2>&1 && echo yes || echo no")).trim()
        == "yes"
}

/// A guest with a function, its neighbour, and the host as the outside.
struct Lab {
    guests: Vec<Guest>,
    host: Host,
    switch: VhostSwitch,
    daemon: Daemon,
    function: String,
    _outside: Switch,
    _directory: tempfile::TempDir,
}

impl Lab {
    /// `None` where the host cannot be the outside.
    fn boot() -> Option<Self> {
        let kernel = Kernel::fetch_full().expect("a kernel with igb");
        let qemu = Qemu::at_least(8).expect("a QEMU with igb");
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("outside");
        std::fs::create_dir(&place).expect("made");
        let outside = Switch::new(&place).expect("a network");
        let host = match Host::plug_in(&outside, &place, "10.78.0.100/24") {
            Ok(host) => host,
            Err(error) => {
                println!("skipped: the outside takes root, ip and /dev/net/tun: {error:#}");
                return None;
            }
        };
        let switch =
            VhostSwitch::start(directory.path(), "[port.one]\n[port.two]\n").expect("a switch");
        let daemon = Daemon::start(directory.path(), SEGMENT, true).expect("ginneld");
        let pingpong = ("/root/pingpong".to_owned(), 0o755, program(directory.path(), "pingpong"));
        let spec = |(slot, name): (u16, &str)| {
            let mut spec = switch.spec(name, &format!("10.77.0.{slot}/24")).expect("options");
            spec.options.extend(daemon.vm_args("t", slot).expect("options"));
            let programs = vec!["nc".into()];
            Spec {
                driver: true,
                files: vec![pingpong.clone()],
                programs,
                qemu: Some(qemu.clone()),
                ..spec
            }
        };
        let mut specs = [(1, "one"), (2, "two")].map(spec);
        card(&mut specs[0], 1, &outside.netdev("card"));
        let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
        let function = function(&guests[0], 1, "10.78.0.1/24");
        Some(Self {
            guests,
            host,
            switch,
            daemon,
            function,
            _outside: outside,
            _directory: directory,
        })
    }

    /// Bytes through the first guest's function, and through its port at the switch.
    fn ways(&self) -> [u64; 2] {
        let port = self.switch.port("one").expect("a port");
        let at_switch =
            ["received_bytes", "sent_bytes"].map(|name| port[name].as_u64().expect("a number"));
        [bytes(&self.guests[0], &self.function), at_switch.iter().sum()]
    }

    /// The same, as far as it came while something was done.
    fn ways_of(&self, done: impl FnOnce()) -> [u64; 2] {
        let before = self.ways();
        done();
        let now = self.ways();
        [now[0] - before[0], now[1] - before[1]]
    }

    fn talks_to_neighbour(&self, port: u16) {
        assert_works(&self.guests[1], &self.guests[0], "10.77.0.2", port);
    }

    /// Four megabytes to the outside and back, whole, by a program under `ginnel run`.
    fn talks_to_outside(&self, port: u16) {
        let guest = &self.guests[0];
        let sum = guest.sh("rm -f report; head -c 4000000 /dev/urandom >data; sha256sum <data");
        let serve =
            format!("nc -l -N {port} >in </dev/null && nc -l -N {} <in && sha256sum <in", port + 1);
        let server = self.host.start(&serve).expect("started");
        let run = "GINNEL_REPORT=/root/report ginnel run -- nc";
        let again =
            |what: String| format!("for i in $(seq 100); do {what} && break; sleep 0.2; done");
        guest.sh(&again(format!("{run} -N 10.78.0.100 {port} <data")));
        let back = guest
            .sh(&(again(format!("{run} -d 10.78.0.100 {} >in", port + 1)) + "; sha256sum <in"));
        assert_eq!((server.finish(PATIENCE).expect("it ends"), &back), (sum.clone(), &sum));
        assert_eq!(reported(guest, "ring_in") + reported(guest, "ring_out"), 0, "TCP carries it");
    }
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn the_segment_carries_what_is_for_the_neighbour_and_the_function_the_rest() {
    let _alone = machine::alone();
    let Some(mut lab) = Lab::boot() else { return };
    assert!(reaches(&lab.guests[0], "10.77.0.2") && reaches(&lab.guests[0], "10.78.0.100"));
    let [by_function, by_switch] = lab.ways_of(|| lab.talks_to_outside(5001));
    println!("to the outside: {by_function} bytes by the function, {by_switch} by the switch");
    assert!(by_function > 8_000_000 && by_switch < 100_000);
    let [by_function, by_switch] = lab.ways_of(|| lab.talks_to_neighbour(6000));
    println!(
        "to the neighbour, beside the segment: {by_function} bytes by the function, {by_switch} by the switch"
    );
    assert!(by_function < 10_000 && by_switch < 1_000_000);
    // The function goes while a connection to the neighbour is open, and comes again.
    let serve = "GINNEL_REPORT=/root/report ginnel run -- ./pingpong serve 6001";
    let server = lab.guests[1].start(serve, PATIENCE).expect("started");
    let ask = "GINNEL_REPORT=/root/report ginnel run -- ./pingpong ask 10.77.0.2 6001 2000 2";
    let asked = lab.guests[0].start(ask, PATIENCE).expect("started");
    no_function(&lab.guests[0]);
    assert!(!reaches(&lab.guests[0], "10.78.0.100"), "there is no other way");
    for end in [asked, server] {
        end.finish().expect("ended").good().expect("well");
    }
    lab.talks_to_neighbour(6002);
    lab.function = function(&lab.guests[0], 1, "10.78.0.1/24");
    assert!(reaches(&lab.guests[0], "10.78.0.100"));
    lab.talks_to_outside(5003);
    lab.guests.iter().for_each(Guest::assert_healthy);
    assert!(!lab.daemon.log().contains("level=error"), "{}", lab.daemon.log());
}

/// Two guests in four networks: a segment and a port of the switch (10.77.0), functions of their
/// cards on one bridge (10.78.0), virtio-net on another (10.79.0).
struct Networks {
    guests: Vec<Guest>,
    functions: Vec<String>,
    _switch: VhostSwitch,
    _daemon: Daemon,
    _bridges: [Bridge; 2],
    _directory: tempfile::TempDir,
}

impl Networks {
    /// `None` where there can be no bridges.
    fn boot() -> Option<Self> {
        let bridges = match Bridge::new(2).and_then(|one| Ok([one, Bridge::new(2)?])) {
            Ok(bridges) => bridges,
            Err(error) => {
                println!("skipped: bridges take root, ip and /dev/net/tun: {error:#}");
                return None;
            }
        };
        let kernel = Kernel::fetch_full().expect("a kernel with igb");
        let qemu = Qemu::at_least(8).expect("a QEMU with igb");
        let directory = tempfile::tempdir().expect("a directory");
        let switch =
            VhostSwitch::start(directory.path(), "[port.one]\n[port.two]\n").expect("a switch");
        let daemon = Daemon::start(directory.path(), SEGMENT, true).expect("ginneld");
        let bench = ginnel_guest::built("ginnel-bench").expect("built");
        let spec = |(n, name): (u8, &str)| {
            let mut spec = switch.spec(name, &format!("10.77.0.{n}/24")).expect("options");
            let which = usize::from(n) - 1;
            spec.options.extend(daemon.vm_args("t", n.into()).expect("options"));
            spec.options.extend(bridges[1].options(which));
            spec.programs = vec!["nc".into(), bench.display().to_string()];
            card(&mut spec, n, &bridges[0].netdev(which, "card"));
            Spec { driver: true, qemu: Some(qemu.clone()), ..spec }
        };
        let specs = [(1, "one"), (2, "two")].map(spec);
        let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
        let mut functions = Vec::new();
        for (n, guest) in (1..).zip(&guests) {
            functions.push(function(guest, n, &format!("10.78.0.{n}/24")));
            let mac = Bridge::mac(usize::from(n) - 1);
            guest.sh(&format!(
                "card=$(basename $(dirname $(grep -l {mac} /sys/class/net/*/address)))
                ip link set $card up && ip addr add 10.79.0.{n}/24 dev $card"
            ));
        }
        Some(Self {
            guests,
            functions,
            _switch: switch,
            _daemon: daemon,
            _bridges: bridges,
            _directory: directory,
        })
    }

    /// `ginnel bench` from the second guest to the first, by each network in turn: its samples.
    fn bench(&self, options: &str, limit: Duration) -> String {
        let [one, two] = &self.guests[..] else { panic!("two guests") };
        let _serving = one.start("exec ginnel bench serve", limit).expect("started");
        two.sh("for i in $(seq 100); do nc -w 1 10.77.0.1 7411 </dev/null && exit 0; sleep 0.1; done; exit 1");
        let ways =
            "--way switch=10.77.0.1 --way function-emulated=10.78.0.1 --way virtio=10.79.0.1";
        let transports =
            "--transport ginnel,virtio,switch,function-emulated --pattern latency,stream,both";
        let commit = std::env::var("GINNEL_COMMIT").unwrap_or_default();
        let bench = format!(
            "GINNEL_COMMIT={commit} ginnel bench --connect 10.77.0.1 {ways} {transports} {options} --name functions --out run"
        );
        let said = two.run(&bench, limit).expect("it ends").good().expect("well");
        println!("{said}");
        two.sh("cat run/samples.csv")
    }
}

/// With `GINNEL_RECORD=DIRECTORY` more is measured, and what came out is left there.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_function_is_measured_beside_virtio_the_switch_and_the_segment() {
    let _alone = machine::alone();
    let Some(networks) = Networks::boot() else { return };
    let two = &networks.guests[1];
    for network in [77, 78, 79] {
        assert!(reaches(two, &format!("10.{network}.0.1")));
    }
    let before = bytes(two, &networks.functions[1]);
    let record = std::env::var_os("GINNEL_RECORD").map(PathBuf::from);
    let (options, limit) = match record {
        Some(_) => ("--full --rounds 5", Duration::from_secs(7200)),
        None => ("--sizes 64,64K --rounds 1 --seconds 0.5", Duration::from_secs(300)),
    };
    let samples = networks.bench(options, limit);
    if let Some(directory) = record {
        std::fs::create_dir_all(&directory).expect("made");
        for file in ["run.json", "samples.csv", "report.html"] {
            std::fs::write(directory.join(file), two.sh(&format!("cat run/{file}")))
                .expect("written");
        }
        return;
    }
    let head: Vec<&str> = samples.lines().next().expect("a head").split(',').collect();
    let column = |name: &str| head.iter().position(|column| *column == name).expect("a column");
    let (transport, error) = (column("transport"), column("error"));
    let rows: Vec<Vec<&str>> =
        samples.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert!(rows.len() == 3 * 2 * 4 && rows.iter().all(|row| row[error].is_empty()), "{samples}");
    for name in ["ginnel", "virtio", "switch", "function-emulated"] {
        assert_eq!(rows.iter().filter(|row| row[transport] == name).count(), 6, "{samples}");
    }
    // A stream and a half of a second and more went by the function, and are counted there.
    let by_function = bytes(two, &networks.functions[1]) - before;
    assert!(by_function > 1_000_000, "{by_function} bytes by the function");
    let report = two.sh("cat run/report.html");
    assert!(report.contains("functions of an emulated card") && report.contains("3σ"), "{report}");
    networks.guests.iter().for_each(Guest::assert_healthy);
}
