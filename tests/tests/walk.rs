//! What a new user does: the commands at the top of docs/install.md and docs/containers.md, as they
//! stand there, on a host that never had Ginnel. (Those of docs/kubernetes.md: kubernetes/cluster.sh.)

use crate::containers::{BOOKWORM, Release, TRIXIE, booted, has_podman, redis};
use crate::packages;
use ginnel_tests::host::Host;
use ginnel_tests::{build, permit};
use std::time::{Duration, Instant};

/// Beyond this a hang is taken for one.
const LIMIT: Duration = Duration::from_secs(90);

/// The commands of a page's first block, without what is said of them behind.
fn commands(page: &str) -> Vec<String> {
    let page = build::tests_dir().with_file_name("docs").join(page);
    let text = std::fs::read_to_string(page).expect("it is there");
    let block = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = block.expect("it begins with commands").lines();
    lines.map(|line| line.split("  #").next().unwrap_or(line).trim_end().to_owned()).collect()
}

/// Asks until the answer is as it should be.
fn wait(host: &Host, command: &str, is_so: impl Fn(&str) -> bool) {
    let until = Instant::now() + LIMIT;
    loop {
        let said = host.sh(command);
        if is_so(&said.out) {
            return;
        }
        assert!(Instant::now() < until, "{command}: {said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Starts a command in the background.
fn start(host: &Host, command: &str) {
    host.must(&format!("setsid {command} >/tmp/said 2>&1 </dev/null & echo $! >/tmp/started"));
}

/// Whether `ginnel status` has a connection of `program` to or from `address` by this carrier both
/// ways, and says this of it, beside it or below.
fn shows(status: &str, program: &str, address: &str, carrier: &str, why: &str) -> bool {
    let lines: Vec<&str> = status.lines().collect();
    (0..lines.len()).any(|at| {
        let words: Vec<&str> = lines[at].split_whitespace().collect();
        let said = [Some(&lines[at]), lines.get(at + 1)];
        words.first() == Some(&program)
            && words.get(3).is_some_and(|remote| remote.starts_with(address))
            && words.get(4..6) == Some(&[carrier, carrier])
            && said.iter().flatten().any(|line| line.contains(why))
    })
}

/// docs/install.md: a service, a program of its user, and off again.
fn a_service(host: &Host) {
    let said = commands("install.md");
    let [install, enable, run, status] = said.as_slice() else { panic!("{said:?}") };
    let install = install.strip_prefix("make packages && ").expect("they are made before");
    host.must("systemctl start redis-server");
    host.must(install);
    host.must(enable);
    start(host, run);
    wait(host, status, |said| {
        shows(said, "redis-server", "127.0.0.1:", "ring", "")
            && shows(said, "redis-benchmark", "127.0.0.1:", "ring", "")
    });
    host.must("kill $(cat /tmp/started)");
    let maps = "cat /proc/$(systemctl show --value -p MainPID redis-server)/maps";
    assert!(host.said(maps).contains("libginnel_shim"));
    host.must("ginnel service disable --now redis-server");
    assert!(!host.said(maps).contains("libginnel_shim"), "it is off");
    assert_eq!(host.said("systemctl is-active redis-server").trim(), "active");
    host.must("systemctl stop redis-server");
}

/// docs/containers.md: two containers, and a third without the device, of which is said why it is
/// on TCP.
fn containers(host: &Host) {
    let said = commands("containers.md");
    let [once, run, status] = said.as_slice() else { panic!("{said:?}") };
    host.must(once);
    let container = |name: &str, run: &str, command: &str| {
        let run = run.replace("podman run", &format!("podman run -d --name {name}"));
        host.must(&run.replace("IMAGE", &format!("redis {command}")));
        let inspect = format!("podman inspect -f '{{{{.NetworkSettings.IPAddress}}}}' {name}");
        host.said(&inspect).trim().to_owned()
    };
    let server =
        "/usr/bin/redis-server --bind 0.0.0.0 --protected-mode no --save '' --dir /dev/shm";
    let server = container("server", run, server);
    wait(host, &format!("redis-cli -h {server} ping"), |said| said.trim() == "PONG");
    let client = format!("/usr/bin/redis-benchmark -h {server} -n 1000000000 -c 2 -t get -q");
    let first = container("first", run, &client);
    let third = container("third", "podman run IMAGE", &client);
    let why = "peer has no shim or uses another segment";
    wait(host, status, |said| {
        shows(said, "redis-benchmark", &server, "ring", "")
            && shows(said, "redis-server", &first, "ring", "")
            && shows(said, "redis-server", &third, "tcp", why)
    });
    crate::containers::remove(host, "podman", "server first third");
    wait(host, "ginnel container remove g1", |said| said.contains("Removed"));
}

fn walked_in(release: &Release, what: &str) {
    let _permit = permit::cpu(2);
    let Some(packages) = packages::packages(std::env::consts::ARCH, "1") else { return };
    let Some(image) = redis(what) else { return };
    let place = (packages.as_path(), "/target/packages");
    let Some(host) = booted(release, what, &[("redis", &image)], place) else { return };
    assert_ne!(host.sh("command -v ginnel").code, 0, "it never had Ginnel");
    a_service(&host);
    if has_podman(&host, what) {
        containers(&host);
    }
}

#[test]
#[ignore = "test-all: makes packages, and boots a host with podman"]
fn the_docs_first_commands_do_what_they_say_in_debian_12() {
    walked_in(&BOOKWORM, "the docs' first commands in Debian 12");
}

#[test]
#[ignore = "test-all: makes packages, and boots a host with podman"]
fn the_docs_first_commands_do_what_they_say_in_debian_13() {
    walked_in(&TRIXIE, "the docs' first commands in Debian 13");
}
