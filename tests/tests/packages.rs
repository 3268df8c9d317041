//! `make packages`, and what the packages do in clean roots of Debian: installed, used, upgraded
//! with connections open, removed, purged.

mod attacked;
mod built;
mod compiled;

use built::both;
pub use built::{packages, portable};
use ginnel_tests::host::Host;
use ginnel_tests::{debian, permit};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// What an administrator has before: a system, and programs to accelerate.
const BASE: [&str; 7] = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "redis-server",
    "redis-tools",
    "python3-minimal",
    "iproute2",
];

/// All files of the system's that packages and their scripts could leave behind, but for what apt
/// and dpkg, the users' list and the journal keep.
const FILES: &str = "find /etc /usr /var/lib /run/ginnel /dev/shm -xdev \\( -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/systemd \
    -o -path /etc/.pwd.lock -o -name '*-' -o -path /var/lib/redis -o -path /etc/ld.so.cache \\) -prune -o -type f -print -o -type l -print \
    -o -type d -print 2>/dev/null | sort";

const INSTALL: &str = "cd /packages/1 && dpkg --install ginnel_*.deb ginneld_*.deb ginnel-switch_*.deb ginnel-cache_*.deb";
const UPGRADE: &str = "cd /packages/2 && dpkg --install ginnel_*.deb ginneld_*.deb ginnel-switch_*.deb ginnel-cache_*.deb";

/// Sets an item and gets it back, as a client of memcached.
const ASK_CACHE: &str = "python3 -c \"import socket, time
for _ in range(100):
    try: s = socket.create_connection(('127.0.0.1', 11299)); break
    except OSError: time.sleep(0.05)
s.sendall(b'set k 0 0 5\\r\\nhello\\r\\nget k\\r\\nquit\\r\\n')
print(b''.join(iter(lambda: s.recv(100), b'')))\"";

/// A pair that holds a connection open and counts on it: an echo server, and a client that goes on
/// until the file /tmp/enough is there, and then says how far it came.
const SERVER: &str = "import socket
l = socket.create_server(('127.0.0.1', 7000))
c, _ = l.accept()
while d := c.recv(1000): c.sendall(d)
";
const CLIENT: &str = "import os, socket, time
for _ in range(200):
    try: c = socket.create_connection(('127.0.0.1', 7000)); break
    except OSError: time.sleep(0.05)
n = 0
while not os.path.exists('/tmp/enough'):
    c.sendall(b'%06d' % n)
    assert c.recv(6) == b'%06d' % n
    n += 1
    open('/tmp/count', 'w').write(str(n))
    time.sleep(0.001)
c.close()
print('exchanged', n)
";

/// A root directory of that release with these programs.
pub fn base(suite: &str, what: &str) -> Option<PathBuf> {
    debian::root(suite, suite, &BASE, what)
}

fn count(host: &Host) -> u64 {
    host.sh("cat /tmp/count").out.trim().parse().unwrap_or(0)
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("in a minute there was not: {what}");
}

/// The whole life of the packages in a root of `suite`.
#[allow(clippy::too_many_lines, reason = "one machine's life, from installing to removing")]
fn lives_in(suite: &str) {
    let _permit = permit::cpu(1);
    let Some([one, _]) = both() else { return };
    let what = format!("packages in {suite}");
    let Some(root) = base(suite, &what) else { return };
    let Some(host) =
        Host::boot(&what, Some(&root), &[(one.parent().expect("a folder"), "/packages")])
    else {
        return;
    };
    let before = host.said(FILES);

    host.must(INSTALL);
    let during = host.said(FILES);
    assert!(
        ["/usr/bin/ginnel", "/run/ginnel", "/etc/ginnel/ginneld.toml"]
            .iter()
            .all(|file| during.contains(file)),
        "{during}"
    );
    assert_eq!(
        host.said("systemctl is-active ginneld").trim(),
        "active",
        "the daemon runs, as its own user"
    );
    for service in ["ginnel-prover", "ginnel-broker"] {
        assert_eq!(
            host.sh(&format!("systemctl is-enabled {service}")).out.trim(),
            "disabled",
            "it is there, and enabled by hand"
        );
    }
    assert_eq!(
        host.said("ps -o user= -C ginneld || stat -c %U /proc/$(pidof ginneld)").trim(),
        "ginnel"
    );
    assert!(
        host.said("ginnel doctor").contains("serves segment default"),
        "the command finds what the daemon serves"
    );
    host.must("test -e /usr/share/man/man1/ginnel-run.1.gz -a -e /usr/share/bash-completion/completions/ginnel");

    // One command, and the connections of a service are carried.
    host.must("systemctl start redis-server && ginnel service enable --now redis-server");
    host.must("GINNEL_REPORT=/tmp/report setpriv --reuid=redis --regid=redis --clear-groups ginnel run -- redis-benchmark -n 20000 -c 4 -t set,get -q");
    crate::service::assert_carried(&host.said("cat /tmp/report"), 90);

    // As far as this kernel lets it, which is not what is looked at here.
    let _ = host.sh("systemctl start ginnel-prover ginnel-broker");
    switch_and_cache(&host);
    upgraded(&host);
    assert_eq!(
        host.said("systemctl is-active ginnel-switch ginnel-cache@redis").trim(),
        "active\nactive"
    );

    // Removed: what was switched on with it is off; its configuration stays, until it is purged.
    host.must(
        "systemctl start redis-server; dpkg --remove ginnel ginneld ginnel-switch ginnel-cache",
    );
    assert!(
        !host.path("/etc/systemd/system/redis-server.service.d").exists(),
        "the drop-in went with the command"
    );
    host.must("test -e /etc/ginnel/ginneld.toml && ! test -e /usr/bin/ginneld && systemctl restart redis-server");
    assert_ne!(host.sh("systemctl is-active ginneld").code, 0);
    for service in ["ginnel-prover", "ginnel-broker", "ginnel-switch", "ginnel-cache@redis"] {
        assert_ne!(
            host.sh(&format!("systemctl is-active {service}")).code,
            0,
            "{service} was stopped"
        );
    }
    // What the administrator wrote is the administrator's.
    host.must("rm /etc/ginnel/cache-redis.conf && dpkg --purge ginneld ginnel-switch");
    host.must("systemctl stop redis-server; rm -rf /dev/shm/ginnel-*");
    let gone =
        |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let (before, after) = (gone(&before), gone(&host.said(FILES)));
    let left: Vec<_> = after.difference(&before).collect();
    assert_eq!(left, [""; 0], "left behind");
}

/// Neither is enabled by being installed; each runs once it is.
fn switch_and_cache(host: &Host) {
    assert_eq!(host.sh("systemctl is-enabled ginnel-switch").out.trim(), "disabled");
    assert_ne!(host.sh("systemctl is-active ginnel-switch").code, 0);
    host.must("getent group kvm || groupadd --system kvm");
    host.must("systemctl start ginnel-switch");
    wait("ports", || host.sh("ginnel-switch ports").out.contains("vm1"));
    assert_eq!(
        host.said("stat -c %G /run/ginnel-switch/vm1.sock").trim(),
        "kvm",
        "QEMU may connect"
    );

    host.must("echo 'OPTIONS=-p 11299 -m 16' >/etc/ginnel/cache-redis.conf && systemctl start ginnel-cache@redis");
    assert!(host.said(ASK_CACHE).contains("VALUE k 0 5"), "it answers");
    assert_eq!(
        host.said("ps -o user= -C ginnel-cache || stat -c %U /proc/$(pidof ginnel-cache)").trim(),
        "redis"
    );
    host.must("ls /dev/shm/ginnel-$(id -u redis)");
    host.must("test -e /usr/share/man/man8/ginnel-switch.8.gz -a -e /usr/share/man/man1/ginnel-cache.1.gz");
}

/// Starts a server and its client, with a connection that goes on until [`ended`].
fn pair(host: &Host) -> [Child; 2] {
    let start = |report: &str, script: &str, text: &str| {
        std::fs::write(host.path(&format!("/tmp/{script}")), text).expect("written");
        let line = format!("GINNEL_REPORT=/tmp/{report} exec ginnel run -- python3 /tmp/{script}");
        host.command(&line, Duration::from_secs(600))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    };
    let pair = [start("server", "server.py", SERVER), start("client", "client.py", CLIENT)];
    wait("traffic", || count(host) > 100);
    pair
}

/// The pair's connection still gets through what it is given.
fn goes_on(host: &Host) {
    let so_far = count(host);
    wait("more traffic", || count(host) > so_far + 100);
}

/// Ends the pair: all was well, and carried.
fn ended(host: &Host, [mut server, mut client]: [Child; 2]) {
    host.must("touch /tmp/enough");
    let mut said = String::new();
    client.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(client.wait().expect("ours").success() && said.starts_with("exchanged"), "{said}");
    assert!(server.wait().expect("ours").success());
    crate::service::assert_carried(&host.said("cat /tmp/client"), 50);
}

/// With a connection open, whose bytes go on, and machines' memory in the daemon.
fn upgraded(host: &Host) {
    let pair = pair(host);
    let daemon = host.said("systemctl show --value -p MainPID ginneld");
    let stored = host.said("systemctl show --value -p NFileDescriptorStore ginneld");
    host.must(UPGRADE);
    assert_ne!(
        host.said("systemctl show --value -p MainPID ginneld"),
        daemon,
        "the new daemon runs"
    );
    assert_eq!(
        host.said("systemctl show --value -p NFileDescriptorStore ginneld"),
        stored,
        "with what the old one kept"
    );
    goes_on(host);
    // Somebody who starts now meets who runs: by the new library, over the old one's segment.
    host.must("GINNEL_REPORT=/tmp/after setpriv --reuid=redis --regid=redis --clear-groups ginnel run -- redis-benchmark -n 20000 -c 4 -t set,get -q");
    crate::service::assert_carried(&host.said("cat /tmp/after"), 90);
    ended(host, pair);
}

#[test]
#[ignore = "test-all: makes packages, and a root of Debian 12"]
fn the_packages_live_and_go_in_debian_12() {
    lives_in("bookworm");
}

#[test]
#[ignore = "test-all: makes packages, and a root of Debian 13"]
fn the_packages_live_and_go_in_debian_13() {
    lives_in("trixie");
}

/// apt installs from the directory as from any repository.
#[test]
#[ignore = "test-all: makes packages"]
fn the_directory_is_an_apt_repository() {
    let Some([one, _]) = both() else { return };
    let list = std::fs::read_to_string(one.join("Packages")).expect("an index");
    for name in [
        "ginnel",
        "ginneld",
        "ginnel-dkms",
        "ginnel-switch",
        "ginnel-cache",
        "libginnel0",
        "libginnel-dev",
        "python3-ginnel",
        "python3-ginnel-cache",
        "libginnel-cache-client0",
    ] {
        assert!(list.contains(&format!("Package: {name}\n")), "{list}");
    }
    let Some(root) = base("bookworm", "an apt repository") else { return };
    let Some(host) = Host::boot("an apt repository", Some(&root), &[(Path::new(one), "/packages")])
    else {
        return;
    };
    host.must("echo 'deb [trusted=yes] file:/packages ./' >/etc/apt/sources.list && rm -f /etc/apt/sources.list.d/*");
    host.must("apt-get -qq update && apt-get -qq -y install ginnel && ginnel --version");
}
