//! `make rpms`, and what the packages do in a root that knows rpm: installed with all that they
//! require, used, upgraded, removed, by rpm and by dnf. There is no distribution of rpm's here: the
//! root is Debian's, and a package that has nothing says what its C library provides, as rpm's own
//! tools read it.

use crate::packages::portable;
use ginnel_tests::host::Host;
use ginnel_tests::{build, debian, permit, skip};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const BASE: [&str; 8] =
    ["systemd", "systemd-sysv", "dbus", "redis-server", "redis-tools", "iproute2", "rpm", "dnf"];

/// Installs a package that provides what the root has.
const WHAT_IS_THERE: &str = r#"cd /tmp && cat >base.spec <<SPEC && rpmbuild -bb --define '_topdir /tmp/base' base.spec && rpm -i base/RPMS/noarch/*.rpm
Name: base
Version: 1
Release: 1
Summary: What the root has
License: none
BuildArch: noarch
AutoReqProv: no
Provides: /bin/sh /sbin/ldconfig /usr/bin/pkg-config rtld(GNU_HASH)
$(cd /lib/x86_64-linux-gnu && ls $PWD/{libc.so.6,libpthread.so.0,libdl.so.2,libm.so.6,libgcc_s.so.1,ld-linux-x86-64.so.2} |
    /usr/lib/rpm/find-provides | sed 's/^/Provides: /')
%description
What the root has.
%files
SPEC"#;

/// All files that packages and their scripts could leave behind, but for what rpm, the users' list
/// and services keep; and Ginnel's own folders. (Others belong to packages that are not here.)
const FILES: &str = "find /etc /usr /var/lib -xdev \\( -path /var/lib/rpm -o -path /var/lib/dnf -o -path /var/lib/systemd -o -path /var/lib/redis \
    -o -path /etc/.pwd.lock -o -name '*-' -o -path /etc/ld.so.cache \\) -prune -o \\( -not -type d -o -path '*ginnel*' \\) -print | sort";

const ALL: &str =
    "ginnel ginneld ginnel-switch ginnel-cache libginnel0 libginnel-cache-client0 libginnel-devel";

/// The packages with this release.
fn rpms(release: &str) -> Option<PathBuf> {
    let source = build::tests_dir().parent().expect("it lies in the source tree");
    if Command::new("rpmbuild").arg("--version").output().is_err() {
        skip("rpm packages", "rpmbuild is not installed (scripts/install-deps.sh packages)");
        return None;
    }
    let portable = portable()?;
    let into = build::release_dir().with_file_name("test-rpms").join(release);
    let other = into.join(format!("elsewhere-1-1.{}.rpm", std::env::consts::ARCH));
    std::fs::create_dir_all(&into)
        .and_then(|()| std::fs::write(&other, ""))
        .expect("the target folder can be written");
    let mut make = Command::new("timeout");
    make.args(["1800", "scripts/rpms.sh"])
        .env("BUILT", &portable)
        .env("INTO", &into)
        .env("RELEASE", release);
    let output = make.current_dir(source).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&other).expect("what was there before is not the script's to remove");
    Some(into)
}

/// Both releases, made once.
fn both() -> Option<&'static [PathBuf; 2]> {
    static BOTH: OnceLock<Option<[PathBuf; 2]>> = OnceLock::new();
    BOTH.get_or_init(|| Some([rpms("1")?, rpms("2")?])).as_ref()
}

/// A host that knows rpm, with the packages of both releases.
fn host(what: &str) -> Option<Host> {
    let [one, _] = both()?;
    let root = debian::root("bookworm-dnf", "bookworm", &BASE, what)?;
    let host = Host::boot(what, Some(&root), &[(one.parent().expect("a folder"), "/rpms")])?;
    host.must(WHAT_IS_THERE);
    Some(host)
}

/// What is there of [`FILES`] that was not before.
fn assert_nothing_is_left(host: &Host, before: &str) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, after) = (lines(before), lines(&host.said(FILES)));
    let left: Vec<_> = after.difference(&before).collect();
    assert_eq!(left, [""; 0], "left behind");
}

#[test]
#[ignore = "test-all: makes packages, and a root with rpm"]
fn the_rpm_packages_live_and_go() {
    let _permit = permit::cpu(1);
    let Some(host) = host("rpm packages") else { return };
    let before = host.said(FILES);

    host.must("rpm -i /rpms/1/*.rpm");
    host.must(&format!("rpm -V {ALL}"));
    host.must("systemctl start ginneld");
    assert_eq!(
        host.said("stat -c %U /proc/$(pidof ginneld)").trim(),
        "ginnel",
        "the daemon runs, as its own user"
    );
    host.must("systemctl start redis-server && ginnel service enable --now redis-server");
    host.must("GINNEL_REPORT=/tmp/report setpriv --reuid=redis --regid=redis --clear-groups ginnel run -- redis-benchmark -n 20000 -c 4 -t set,get -q");
    crate::service::assert_carried(&host.said("cat /tmp/report"), 90);

    host.must("echo '# mine' >>/etc/ginnel/switch.toml");
    let daemon = host.said("systemctl show --value -p MainPID ginneld");
    host.must("rpm -U /rpms/2/*.rpm");
    assert_ne!(
        host.said("systemctl show --value -p MainPID ginneld"),
        daemon,
        "the new daemon runs"
    );
    host.must("systemctl is-active ginneld && grep -q '# mine' /etc/ginnel/switch.toml");
    assert!(host.said("rpm -q ginnel").contains("-2."), "it was upgraded");

    host.must(&format!("systemctl start redis-server; rpm -e {ALL}"));
    assert!(
        !host.path("/etc/systemd/system/redis-server.service.d").exists(),
        "the drop-in went with the command"
    );
    assert_ne!(host.sh("systemctl is-active ginneld").code, 0, "it was stopped");
    // What the administrator wrote is the administrator's.
    host.must("rm /etc/ginnel/switch.toml.rpmsave && rmdir /etc/ginnel");
    assert_nothing_is_left(&host, &before);
}

/// dnf, as on Fedora or RHEL, finds in them what they require of each other and of the system.
#[test]
#[ignore = "test-all: makes packages, and a root with rpm"]
fn dnf_installs_upgrades_and_removes_them() {
    let _permit = permit::cpu(1);
    let Some(host) = host("rpm packages by dnf") else { return };
    let dnf = "dnf -y --disablerepo='*' --releasever=1";
    // What dnf makes at its first use is its own.
    host.must(&format!("{dnf} repolist"));
    let before = host.said(FILES);
    host.must(&format!("{dnf} install /rpms/1/*.rpm"));
    host.must(&format!("rpm -V {ALL} && ginnel --version && systemctl start ginneld"));
    let daemon = host.said("systemctl show --value -p MainPID ginneld");
    host.must(&format!("{dnf} upgrade /rpms/2/*.rpm"));
    assert!(host.said("rpm -q ginnel").contains("-2."), "it was upgraded");
    assert_ne!(host.said("systemctl show --value -p MainPID ginneld"), daemon, "the new one runs");
    host.must(&format!("{dnf} remove {ALL}"));
    assert_ne!(host.sh("systemctl is-active ginneld").code, 0, "it was stopped");
    assert_nothing_is_left(&host, &before);
}
