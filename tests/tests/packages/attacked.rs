//! dpkg killed at any moment of an upgrade, and a purge, while a service and a connection run.

use super::{INSTALL, base, both, ended, goes_on, pair};
use ginnel_tests::host::Host;
use ginnel_tests::permit;

/// What is there works, whatever dpkg has left of either revision.
fn all_is_well(host: &Host, what: &str) {
    goes_on(host);
    assert_eq!(host.said("redis-cli ping").trim(), "PONG", "{what}");
    // Its manager counts how often it is started.
    let restart = "systemctl reset-failed redis-server; systemctl restart redis-server";
    let said = host.sh(&format!("ginnel run -- true && {{ {restart}; }}"));
    assert_eq!(said.code, 0, "{what}: {said}");
}

/// Kills dpkg ever later in one upgrade after the other, until one is through.
fn upgrade_and_kill(host: &Host) {
    let mut killed = 0;
    for round in 0..40 {
        let after = 0.05 * 1.2_f64.powi(round);
        let said = host.sh(&format!(
            "cd /packages/{} && timeout -s KILL {after:.2} dpkg --install ginnel_*.deb ginneld_*.deb; exit $?",
            2 - round % 2
        ));
        if said.code == 0 {
            break;
        }
        assert_eq!(said.code, 137, "{after:.2} s: {said}");
        killed += 1;
        all_is_well(host, &format!("killed after {after:.2} s"));
    }
    println!("dpkg was killed {killed} times");
    assert!(killed > 5, "it was through at once");
}

#[test]
#[ignore = "test-all: makes packages, and a root of Debian 12"]
fn a_killed_dpkg_and_a_purge_disturb_nobody() {
    let _permit = permit::cpu(1);
    let what = "a killed dpkg";
    let Some([one, _]) = both() else { return };
    let Some(root) = base("bookworm", what) else { return };
    let packages = (one.parent().expect("a folder"), "/packages");
    let Some(host) = Host::boot(what, Some(&root), &[packages]) else { return };
    host.must(INSTALL);
    host.must("systemctl start redis-server && ginnel service enable --now redis-server");
    let connection = pair(&host);
    upgrade_and_kill(&host);
    host.must("dpkg --configure -a && cd /packages/2 && dpkg --install ginnel_*.deb ginneld_*.deb");
    assert_eq!(host.said("dpkg --audit"), "");
    assert_eq!(host.said("systemctl is-active ginneld").trim(), "active");

    // All at once, under a service and a connection. What anybody made in /dev/shm stops nothing.
    host.must(
        "cd /dev/shm && mkdir -p ginnel-segment-a/s.wake 'ginnel-segment-\u{1b}[2J' && \
         ln -s /dev/tty ginnel-segment-a/s.wake/m1 && mkfifo ginnel-segment-a/s.wake/m2",
    );
    host.must("dpkg --purge ginnel-switch ginnel-cache ginneld ginnel");
    goes_on(&host);
    assert_eq!(host.said("redis-cli ping").trim(), "PONG");
    assert!(!host.path("/etc/systemd/system/redis-server.service.d").exists());
    assert!(!host.path("/dev/shm/ginnel-segment-a").exists());
    host.must("systemctl restart redis-server && ! test -e /etc/ginnel");
    goes_on(&host);

    // And it comes again, beside who still has the library that is gone.
    host.must(INSTALL);
    host.must("ginnel service enable --now redis-server");
    host.must(
        "GINNEL_REPORT=/tmp/again setpriv --reuid=redis --regid=redis --clear-groups \
         ginnel run -- redis-benchmark -n 20000 -c 4 -t set,get -q",
    );
    crate::service::assert_carried(&host.said("cat /tmp/again"), 90);
    ended(&host, connection);
}
