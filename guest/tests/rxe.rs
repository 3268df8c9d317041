//! Two guests as two hosts whose switches talk by verbs: RoCE in software (Linux' rdma_rxe) over
//! their virtio cards. A process in each is the machine at its switch's port.

use ginnel_guest::PATIENCE;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::network::Switch;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where Debian has what reads rdma_rxe's devices, and libibverbs looks for it.
const PROVIDER: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "/etc/libibverbs.d/rxe.driver"];

/// What a host has: `None` where this one lacks some of it.
fn host(n: u8, netdev: String) -> Option<Spec> {
    let built = |name| ginnel_guest::built(name).expect("built").display().to_string();
    let programs = [built("ginnel-switch"), built("ginnel-guest-frames")];
    let installed = ["fi_info", "rdma", "ip"].map(str::to_owned);
    if PROVIDER.iter().any(|path| !Path::new(path).exists()) {
        println!("skipped: needs ibverbs-providers and libfabric-bin");
        return None;
    }
    let files = PROVIDER.map(|path| (path.to_owned(), 0o755, std::fs::read(path).expect("read")));
    // By their names, as their hosts would find each other.
    let names = "127.0.0.1 localhost\n10.79.0.1 host1\n10.79.0.2 host2\n";
    let hosts = ("/root/hosts".to_owned(), 0o644, names.into());
    let modules = ["crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm", "tun"].map(str::to_owned);
    Some(Spec {
        programs: programs.into_iter().chain(installed).collect(),
        files: files.into_iter().chain([hosts]).collect(),
        modules: modules.into(),
        netdev: Some(netdev),
        address: Some(format!("10.79.0.{n}/24")),
        ..Spec::new(&format!("host{n}"))
    })
}

fn configuration(n: u8, in_place: &str) -> String {
    format!(
        "run_dir = \"/run/sw\"\nmetrics = \"off\"\n[port.vm]\nmemory = \"16M\"\n[port.tap]\n\
         tap = \"frames\"\n[fabric]\nlisten = \"10.79.0.{n}\"\nprovider = \"verbs\"\n\
         in_place = {in_place}\n[fabric.hosts]\nh1 = \"10.79.0.1\"\nh2 = \"10.79.0.2\"\n"
    )
}

/// Starts a switch in each, and waits until they have found each other.
fn start(guests: &[Guest], in_place: &str) {
    for (n, guest) in (1..).zip(guests) {
        guest
            .put("/root/switch.toml", 0o644, configuration(n, in_place).as_bytes())
            .expect("written");
        guest.sh("mkdir -p /run/sw; (ginnel-switch --config /root/switch.toml >/root/log 2>&1 & echo $! >/root/pid)
            for i in $(seq 100); do ip link set frames up 2>/dev/null && exit 0; sleep 0.2; done; cat /root/log; exit 1");
        guest.sh(&format!("ip addr add 198.51.100.{n}/24 dev frames"));
    }
    let until = Instant::now() + PATIENCE;
    for guest in guests {
        while status(guest)["hosts"][0]["state"] != "up" {
            assert!(Instant::now() < until, "{}\n{}", status(guest), logs(guests));
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

fn status(guest: &Guest) -> serde_json::Value {
    let said = guest.sh("ginnel-switch status --json --control /run/sw/control.sock");
    serde_json::from_str(&said).expect("JSON")
}

fn logs(guests: &[Guest]) -> String {
    guests.iter().map(|guest| guest.sh("echo; cat /root/log")).collect()
}

fn stop(guests: &[Guest]) {
    for guest in guests {
        guest.sh("kill -9 $(cat /root/pid); sleep 0.5");
    }
}

/// One machine sends the other so many frames of this length.
fn exchange(guests: &[Guest], count: u32, len: u32) {
    let run = |role: &str, own, other| {
        format!("ginnel-guest-frames /run/sw/vm.sock {role} {own} {other} {count} {len}")
    };
    let answers = guests[1].start(&run("answer", 2, 1), PATIENCE).expect("started");
    // It says where it is until it is sent something.
    let sent = guests[0].run(&run("send", 1, 2), PATIENCE).expect("it ends").good();
    let answered = answers.finish().expect("it ends").good();
    let (Ok(sent), Ok(answered)) = (&sent, &answered) else {
        panic!("{sent:?} {answered:?}\n{}", logs(guests))
    };
    assert!(sent.starts_with(&format!("{count} good")), "{sent}");
    assert_eq!(answered, &format!("{count} good\n"));
}

fn in_place(guest: &Guest) -> u64 {
    status(guest)["hosts"][0]["in_place_frames"].as_u64().expect("a number")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn two_hosts_talk_by_verbs_and_long_frames_go_without_a_copy() {
    let _alone = machine::alone();
    let kernel = Kernel::fetch_full().expect("a kernel with rdma_rxe");
    let directory = tempfile::tempdir().expect("a directory");
    let network = Switch::new(directory.path()).expect("a network");
    let specs: Option<Vec<_>> = (1..=2).map(|n| host(n, network.netdev("net"))).collect();
    let Some(specs) = specs else { return };
    let guests = Guest::boot_all(&kernel, directory.path(), &specs).expect("they boot");
    for guest in &guests {
        guest.sh("cat /root/hosts >/etc/hosts; rdma link add rxe0 type rxe netdev eth0; rdma link");
        let said = guest.sh("fi_info -p verbs 2>&1 || true");
        assert!(said.contains("FI_EP_MSG"), "{said}\n{}", guest.said());
    }
    // Copied, and from where they lie.
    start(&guests, "\"off\"");
    exchange(&guests, 20, 60_000);
    assert_eq!(in_place(&guests[0]), 0);
    stop(&guests);
    start(&guests, "4096");
    exchange(&guests, 20, 60_000);
    exchange(&guests, 20, 9000);
    assert!(in_place(&guests[0]) >= 30, "{}", in_place(&guests[0]));
    let said = guests[0].sh("ping -c 3 -W 2 198.51.100.2 | tail -2");
    assert!(said.contains("3 packets received"), "{said}");
    // A switch that is killed is found again, and what was registered goes with the machine.
    guests[1].sh("kill -9 $(cat /root/pid); sleep 1; rm -rf /run/sw/*");
    let down =
        "for i in $(seq 100); do ginnel-switch status --control /run/sw/control.sock | grep -q '0 of them up; this' && exit 0
        sleep 0.2; done; cat /root/log; exit 1";
    guests[0].sh(down);
    guests[0].sh("kill -9 $(cat /root/pid); sleep 1");
    start(&guests, "4096");
    exchange(&guests, 5, 60_000);
    for guest in &guests {
        guest.assert_healthy();
    }
}
