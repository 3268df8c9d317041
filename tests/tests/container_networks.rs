//! Containers in networks of their own, as podman and docker make them on a host with
//! `ginnel-broker`: which connections are carried, and what `ginnel status` says of the others.
//! What is shown here stands as a table in docs/containers.md.

use crate::containers::{BOOKWORM, Release, TRIXIE, host_of, pair, redis, remove};
use crate::service;
use ginnel_tests::host::Host;
use ginnel_tests::image::Image;
use ginnel_tests::{permit, skip};
use std::time::{Duration, Instant};

/// Beyond this a hang is taken for one.
const LIMIT: Duration = Duration::from_secs(90);
/// Longer than the broker waits for the other end of a connection: what has not come by then is in
/// vain.
const IN_VAIN: Duration = Duration::from_secs(7);

/// What `ginnel status` says of an end whose other end asks nobody.
const NO_PEER: &str = "peer has no shim or uses another segment";
/// Neither root's rights nor anything to write on.
const NARROW: &str = "--device ginnel.dev/segment=u1000 --user 1000 --cap-drop all --read-only --security-opt no-new-privileges";
const G1: &str = "--device ginnel.dev/segment=g1";
const G2: &str = "--device ginnel.dev/segment=g2";

/// A host with a broker and some groups of containers; `None`, after saying why.
pub fn host_with_broker(what: &str, images: &[(&str, &Image)]) -> Option<Host> {
    host_with_broker_of(&BOOKWORM, what, images)
}

/// The same of another release.
fn host_with_broker_of(release: &Release, what: &str, images: &[(&str, &Image)]) -> Option<Host> {
    let host = host_of(release, what, images)?;
    let check = host.sh("ginnel-broker --check");
    if check.code != 0 {
        skip(what, &format!("no broker runs here: {}", check.err.trim()));
        return None;
    }
    host.must("setsid ginnel-broker >/tmp/broker.log 2>&1 </dev/null &");
    host.must("for i in $(seq 100); do test -S /run/ginnel/broker/broker.sock && exit; sleep 0.1; done; exit 1");
    host.must(
        "for g in g1 g2; do ginnel container cdi $g; done; ginnel container cdi u1000 --user 1000",
    );
    Some(host)
}

/// One server and one client, each in a container of its own, by the command `engine`.
struct Two<'a> {
    host: &'a Host,
    engine: &'a str,
}

impl Two<'_> {
    /// Starts a server with these options; returns its container's own address.
    fn serve(&self, options: &str) -> String {
        let Self { host, engine } = self;
        host.must(&format!(
            "{engine} run -d --name server {options} redis /usr/bin/redis-server --bind 0.0.0.0 --protected-mode no --save '' --dir /dev/shm"
        ));
        host.must(&format!(
            "for i in $(seq 200); do {engine} exec server /usr/bin/redis-cli ping && exit; sleep 0.1; done; exit 1"
        ));
        let address = host
            .said(&format!("{engine} inspect -f '{{{{range .NetworkSettings.Networks}}}}{{{{.IPAddress}}}} {{{{end}}}}' server"));
        address.split_whitespace().next().unwrap_or_default().to_owned()
    }

    /// Starts a client with these options, which asks at `address` for as long as it is let; looks
    /// from the host at what is carried of its connections by the directory of `group`; ends both.
    fn ask(&self, options: &str, address: &str, group: &str, wanted: Result<(), &str>) {
        let Self { host, engine } = self;
        let (at, port) = address.rsplit_once(':').expect("a port");
        host.must(&format!(
            "{engine} run -d --name client {options} redis /usr/bin/redis-benchmark -h {at} -p {port} -n 1000000000 -c 2 -t get -q"
        ));
        expect(host, group, "redis-benchmark", wanted);
        remove(host, engine, "client server");
    }

    /// The same with a client that is a program of the host.
    fn ask_from_host(&self, address: &str, group: &str, wanted: Result<(), &str>) {
        let Self { host, engine } = self;
        let (at, port) = address.rsplit_once(':').expect("a port");
        host.must(&format!(
            "GINNEL_DIR=/dev/shm/ginnel-segment-{group} setsid ginnel run -- \
             redis-benchmark -h {at} -p {port} -n 1000000000 -c 2 -t get -q >/dev/null 2>&1 </dev/null & echo $! >/tmp/client"
        ));
        expect(host, group, "redis-benchmark", wanted);
        host.must("kill $(cat /tmp/client)");
        remove(host, engine, "server");
    }
}

/// Waits until both directions of the program's two connections are in rings, or until both are on
/// TCP for that reason, and stay there for longer than the broker waits for anybody.
fn expect(host: &Host, group: &str, program: &str, wanted: Result<(), &str>) {
    let is_so = || {
        let said =
            host.sh(&format!("GINNEL_DIR=/dev/shm/ginnel-segment-{group} ginnel status")).out;
        let lines: Vec<&str> = said.lines().collect();
        let is_wanted = |at: usize| {
            let words: Vec<&str> = lines[at].split_whitespace().collect();
            let carriers = (words.first() == Some(&program)).then(|| words.get(4..6)).flatten();
            match wanted {
                Ok(()) => carriers == Some(&["ring", "ring"]),
                // Why stands in the line below.
                Err(why) => {
                    carriers == Some(&["tcp", "tcp"])
                        && lines.get(at + 1).is_some_and(|line| line.contains(why))
                }
            }
        };
        ((0..lines.len()).filter(|&at| is_wanted(at)).count() == 2, said)
    };
    let until = Instant::now() + LIMIT;
    loop {
        let (done, said) = is_so();
        if done {
            break;
        }
        assert!(Instant::now() < until, "{wanted:?}: {said}");
        std::thread::sleep(Duration::from_millis(200));
    }
    if wanted.is_err() {
        std::thread::sleep(IN_VAIN);
        let (stays, said) = is_so();
        assert!(stays, "{wanted:?}: {said}");
    }
}

#[test]
#[ignore = "test-all: boots a host with podman"]
fn podmans_networks() {
    let what = "podman's networks";
    let _permit = permit::cpu(2);
    let Some(image) = redis(what) else { return };
    let Some(host) = host_with_broker(what, &[("redis", &image)]) else { return };
    host.must("podman network create n1 && podman network create n2");
    for runtime in ["crun", "runc"] {
        let two = Two { host: &host, engine: &format!("podman --runtime {runtime}") };
        // Two groups, of two users.
        let address = two.serve(G1);
        two.ask(NARROW, &format!("{address}:6379"), "u1000", Ok(()));
        // A published port, from another container: translated at both ends. The bridge's address
        // is the host's.
        two.serve(&format!("{G1} -p 8080:6379"));
        two.ask(G2, "10.88.0.1:8080", "g2", Ok(()));
        two.serve(&format!("{G1} -p 8080:6379"));
        two.ask(G1, "10.88.0.1:8080", "g1", Ok(()));
        // The same port, from the host.
        two.serve(&format!("{G1} -p 8080:6379"));
        two.ask_from_host("127.0.0.1:8080", "g2", Ok(()));
        // Networks on two bridges, masqueraded from one to the other; the host's own.
        let address = two.serve(&format!("{G1} --network n1"));
        two.ask(&format!("{G2} --network n2"), &format!("{address}:6379"), "g2", Ok(()));
        let address = two.serve(G1);
        two.ask(&format!("{G2} --network host"), &format!("{address}:6379"), "g2", Ok(()));
    }
}

#[test]
#[ignore = "test-all: boots a host with podman"]
fn what_podman_keeps_on_tcp() {
    let what = "podman's networks that are not reached";
    let _permit = permit::cpu(1);
    let Some(image) = redis(what) else { return };
    let Some(host) = host_with_broker(what, &[("redis", &image)]) else { return };
    let two = Two { host: &host, engine: "podman" };
    host.must("ginnel container cdi mapped --user 100000");
    let address = two.serve(
        "--device ginnel.dev/segment=mapped --uidmap 0:100000:65536 --gidmap 0:100000:65536",
    );
    two.ask(G1, &format!("{address}:6379"), "g1", Err("belong to different user namespaces"));
    // The users are others each time: the group's directory is none of theirs.
    host.must("for f in /etc/subuid /etc/subgid; do echo containers:2147483647:1000000 >>$f; done");
    let address = two.serve(&format!("{G1} --userns auto"));
    two.ask(G2, &format!("{address}:6379"), "g2", Err(NO_PEER));
    host.must("ginnel container cdi all --any-user --allow 10.88.0.0/16");
    let all = "--device ginnel.dev/segment=all --userns auto";
    service::assert_carried(&pair(&host, "crun", [all, all]), 50);
    // A program between them: two connections, of neither of which it has both ends.
    host.must("mkdir -p /dev/net && test -e /dev/net/tun || mknod /dev/net/tun c 10 200");
    for handler in ["rootlesskit", "slirp4netns"] {
        two.serve(&format!("{G1} --network slirp4netns:port_handler={handler} -p 8090:6379"));
        two.ask_from_host("127.0.0.1:8090", "g1", Err(NO_PEER));
    }
}

/// Containers of a user who is not root: one user namespace, one network namespace of the user's
/// with the bridge in it, and a proxy for published ports.
#[test]
#[ignore = "test-all: boots a host with podman"]
fn podman_without_root() {
    let what = "podman without root";
    let _permit = permit::cpu(1);
    let Some(image) = redis(what) else { return };
    let Some(host) = host_with_broker(what, &[("redis", &image)]) else { return };
    let as_alice = as_alice(&host);
    let engine = format!("{as_alice} podman");
    host.must(&format!("{engine} network create own"));
    let options = |group: &str| {
        host.said(&format!("{as_alice} ginnel container env {group}")).trim().to_owned()
            + " --network own"
    };
    let (a, b) = (options("a"), options("b"));
    let two = Two { host: &host, engine: &engine };
    for (other, group) in [(&a, "a"), (&b, "b")] {
        let address = two.serve(&a);
        two.ask(other, &format!("{address}:6379"), group, Ok(()));
    }
    two.serve(&format!("{a} -p 8060:6379"));
    two.ask_from_host("127.0.0.1:8060", "g1", Err(NO_PEER));

    // By CDI, whose files are root's to write: that is said, and what does without.
    let said = host.sh(&format!("{as_alice} ginnel container cdi own"));
    let way_out = "`podman run $(ginnel container env own) IMAGE` does without";
    assert!(said.code == 1 && said.err.contains(way_out), "{said}");
    host.must("ginnel container cdi alice --user 1500");
    let device = "--device ginnel.dev/segment=alice --network own";
    let address = two.serve(device);
    two.ask(device, &format!("{address}:6379"), "alice", Ok(()));
}

/// Has a user who can run containers, with the image; returns what begins the user's commands.
fn as_alice(host: &Host) -> &'static str {
    host.must(
        "mkdir -p /dev/net && { test -e /dev/net/tun || mknod -m 666 /dev/net/tun c 10 200; }",
    );
    host.must(
        "useradd -m -u 1500 alice; for f in /etc/subuid /etc/subgid; do echo alice:300000:65536 >>$f; done
         install -d -o alice -m 700 /run/user/1500 && rm -f /etc/containers/storage.conf
         install -d -o alice /home/alice/.config /home/alice/.config/containers
         printf '[storage]\\ndriver = \"vfs\"\\n' >/home/alice/.config/containers/storage.conf
         printf '#!/bin/sh\\ncd && exec setpriv --reuid=1500 --regid=1500 --init-groups env HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1500 \"$@\"\\n' \
             >/usr/local/bin/as-alice && chmod 755 /usr/local/bin/as-alice",
    );
    let as_alice = "HOME=/home/alice /usr/local/bin/as-alice";
    host.must(&format!("tar -C /images/redis -c . | {as_alice} podman import -q - redis"));
    as_alice
}

/// The older of the programs that make podman's networks: CNI's plugins "bridge" and "portmap".
#[test]
#[ignore = "test-all: boots a host with podman"]
fn podmans_networks_by_cni() {
    let what = "podman's networks by CNI";
    let _permit = permit::cpu(1);
    let Some(image) = redis(what) else { return };
    let Some(host) = host_with_broker(what, &[("redis", &image)]) else { return };
    host.must(
        "sed -i 's/netavark/cni/' /etc/containers/containers.conf && podman network create --disable-dns n1 \
         && podman network create --disable-dns n2",
    );
    assert_eq!(host.said("podman info -f '{{.Host.NetworkBackend}}'").trim(), "cni");
    let two = Two { host: &host, engine: "podman" };
    let address = two.serve(G1);
    two.ask(NARROW, &format!("{address}:6379"), "u1000", Ok(()));
    two.serve(&format!("{G1} -p 8080:6379"));
    two.ask(G2, "10.88.0.1:8080", "g2", Ok(()));
    two.serve(&format!("{G1} -p 8080:6379"));
    two.ask_from_host("127.0.0.1:8080", "g2", Ok(()));
    let address = two.serve(&format!("{G1} --network n1"));
    two.ask(&format!("{G2} --network n2"), &format!("{address}:6379"), "g2", Ok(()));
}

/// podman 5: its networks by nftables; containers without root have pasta for their network, which
/// makes connections of its own.
#[test]
#[ignore = "test-all: boots a host with podman"]
fn podman_5s_networks() {
    let what = "podman 5's networks";
    let _permit = permit::cpu(1);
    let Some(image) = redis(what) else { return };
    let Some(host) = host_with_broker_of(&TRIXIE, what, &[("redis", &image)]) else { return };
    let two = Two { host: &host, engine: "podman" };
    let address = two.serve(G1);
    two.ask(NARROW, &format!("{address}:6379"), "u1000", Ok(()));
    two.serve(&format!("{G1} -p 8080:6379"));
    two.ask(G2, "10.88.0.1:8080", "g2", Ok(()));
    two.serve(&format!("{G1} -p 8080:6379"));
    two.ask_from_host("127.0.0.1:8080", "g2", Ok(()));

    // pasta gives a container the addresses of the host's interface to the outside.
    host.must(
        "ip link add up0 type veth peer name up1 && ip address add 192.0.2.1/24 dev up0 && ip link set up0 up \
         && ip link set up1 up && ip route add default via 192.0.2.254",
    );
    let as_alice = as_alice(&host);
    let engine = format!("{as_alice} podman");
    let two = Two { host: &host, engine: &engine };
    let options = |group: &str| {
        host.said(&format!("{as_alice} ginnel container env {group}")).trim().to_owned()
    };
    let a = options("a") + " --network pasta";
    two.serve(&format!("{a} -p 8061:6379"));
    two.ask_from_host("192.0.2.1:8061", "g1", Err(NO_PEER));
    two.serve(&format!("{a} -p 8061:6379"));
    two.ask(&a, "host.containers.internal:8061", "a", Err(NO_PEER));
}

#[test]
#[ignore = "test-all: boots a host with docker"]
fn dockers_networks() {
    let what = "docker's networks";
    let _permit = permit::cpu(1);
    let Some(image) = redis(what) else { return };
    let Some(host) = host_with_broker(what, &[("redis", &image)]) else { return };
    host.must(
        "setsid containerd >/tmp/containerd.log 2>&1 </dev/null &
         setsid dockerd --storage-driver vfs --containerd /run/containerd/containerd.sock >/tmp/dockerd.log 2>&1 </dev/null &
         for i in $(seq 300); do docker version >/dev/null 2>&1 && break; sleep 0.1; done",
    );
    let runs = host.sh("tar -C /images/redis -c . | docker import - redis && docker run --rm redis /bin/sh -c 'echo runs'");
    if !runs.out.ends_with("runs\n") {
        return skip(what, &format!("docker runs no container here: {runs}"));
    }
    let options =
        |group: &str| host.said(&format!("ginnel container env {group}")).trim().to_owned();
    let (g1, g2) = (options("g1"), options("g2"));
    let two = Two { host: &host, engine: "docker" };
    let address = two.serve(&g1);
    two.ask(&g1, &format!("{address}:6379"), "g1", Ok(()));
    let address = two.serve(&g1);
    two.ask(&g2, &format!("{address}:6379"), "g2", Ok(()));
    let bridge = host
        .said("ip -4 -o addr show docker0 | sed 's|.*inet \\([^/]*\\)/.*|\\1|'")
        .trim()
        .to_owned();
    // A published port: translated for the host's programs, but for those that ask at 127.0.0.1 …
    two.serve(&format!("{g1} -p 8070:6379"));
    two.ask_from_host(&format!("{bridge}:8070"), "g2", Ok(()));
    // … and for other containers on the bridge: both reach docker-proxy.
    two.serve(&format!("{g1} -p 8070:6379"));
    two.ask_from_host("127.0.0.1:8070", "g2", Err(NO_PEER));
    two.serve(&format!("{g1} -p 8070:6379"));
    two.ask(&g2, &format!("{bridge}:8070"), "g2", Err(NO_PEER));
}
