//! What is compiled with what the packages have: programs in C, and the driver.

use super::{FILES, both};
use ginnel_tests::host::Host;
use ginnel_tests::{build, debian, permit};
use std::path::Path;
use std::time::Duration;

/// Programs in C, compiled with what the headers' package has, and run with what the libraries'
/// have; and one in Python.
fn compiled_in(suite: &str) {
    let _permit = permit::cpu(1);
    let Some([one, _]) = both() else { return };
    let what = format!("programs in C in {suite}");
    let packages = ["systemd", "systemd-sysv", "dbus", "gcc", "libc6-dev", "pkgconf", "python3"];
    let Some(root) = debian::root(&format!("{suite}-cc"), suite, &packages, &what) else { return };
    let Some(host) =
        Host::boot(&what, Some(&root), &[(one.parent().expect("a folder"), "/packages")])
    else {
        return;
    };
    let before = host.said(FILES);
    let crates = build::tests_dir().parent().expect("it lies in the source tree").join("crates");
    for source in [
        "capi/tests/programs/objects.c",
        "capi/tests/python/objects.py",
        "cache-capi/tests/client.c",
        "cache-capi/tests/client.py",
    ] {
        let source = crates.join(source);
        let to = Path::new("/tmp").join(source.file_name().expect("a file")).display().to_string();
        std::fs::copy(source, host.path(&to)).expect("copied");
    }
    host.must(
        "cd /packages/1 && dpkg --install libginnel0_*.deb libginnel-cache-client0_*.deb libginnel-dev_*.deb python3-ginnel_*.deb python3-ginnel-cache_*.deb ginnel-cache_*.deb",
    );
    host.must("cd /tmp && cc -std=c11 -D_GNU_SOURCE -Wall -Werror objects.c $(pkg-config --cflags --libs ginnel) -o objects");
    host.must("cd /tmp && cc -std=c11 -Wall -Werror client.c $(pkg-config --cflags --libs ginnel-cache) -o client");
    // What was compiled needs the libraries alone, by the names that stay from version to version.
    host.must("dpkg --remove libginnel-dev");
    assert!(
        host.said("ldd /tmp/objects").contains("libginnel.so.0 => /lib/")
            && host.said("ldd /tmp/client").contains("libginnel_cache_client.so.0 => /lib/")
    );
    host.must("/tmp/objects");
    host.must("python3 -B /tmp/objects.py");
    host.must("systemd-run --quiet ginnel-cache -u root -s /tmp/cache.sock && for _ in $(seq 100); do test -S /tmp/cache.sock && break; sleep 0.05; done");
    assert_eq!(host.said("/tmp/client /tmp/cache.sock").trim(), "direct 3 asked 2");
    assert_eq!(host.said("python3 /tmp/client.py /tmp/cache.sock").trim(), "direct 2 asked 4");
    host.must("systemctl list-units --plain --no-legend 'run-*.service' | cut -d ' ' -f 1 | xargs systemctl stop; rm -rf /dev/shm/ginnel-*");
    host.must("dpkg --purge libginnel-dev libginnel0 python3-ginnel python3-ginnel-cache libginnel-cache-client0 ginnel-cache");
    let lines =
        |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let (before, after) = (lines(&before), lines(&host.said(FILES)));
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), [""; 0], "left behind");
}

#[test]
#[ignore = "test-all: makes packages, and a root of Debian 12 with a compiler"]
fn programs_in_c_are_compiled_and_run_in_debian_12() {
    compiled_in("bookworm");
}

#[test]
#[ignore = "test-all: makes packages, and a root of Debian 13 with a compiler"]
fn programs_in_c_are_compiled_and_run_in_debian_13() {
    compiled_in("trixie");
}

const HEADERS: &str = "linux-headers-cloud-amd64";

/// The driver's package, beside the headers of a release's kernel: DKMS builds it as it is
/// installed, and takes it away with it.
fn driver_in(suite: &str, headers: &str) {
    let _permit = permit::cpu(2);
    let Some([one, _]) = both() else { return };
    let what = format!("the driver's package in {suite}");
    let packages = ["systemd", "systemd-sysv", "dbus", "dkms", "kmod", "gcc", "make", headers];
    let Some(root) = debian::root(&format!("{suite}-headers"), suite, &packages, &what) else {
        return;
    };
    let Some(host) =
        Host::boot(&what, Some(&root), &[(one.parent().expect("a folder"), "/packages")])
    else {
        return;
    };
    let kernel = host.said("basename /lib/modules/*-cloud-amd64").trim().to_owned();
    let said =
        host.sh_within("dpkg --install /packages/1/ginnel-dkms_*.deb", Duration::from_secs(300));
    assert_eq!(said.code, 0, "{said}");
    // DKMS builds for the kernel that runs, which is not this release's; it is told which.
    let built = host.sh_within(
        &format!("dkms autoinstall -k {kernel} && dkms status"),
        Duration::from_secs(300),
    );
    assert!(built.out.contains(&format!("{kernel}, x86_64: installed")), "{built}");
    host.must(&format!("modinfo -k {kernel} ginnel && test -e /usr/lib/udev/rules.d/60-ginnel.rules && getent group ginnel"));
    host.must("dpkg --purge ginnel-dkms");
    host.must(&format!("! modinfo -k {kernel} ginnel 2>/dev/null && ! ls -d /usr/src/ginnel-* /var/lib/dkms/ginnel 2>/dev/null"));
}

#[test]
#[ignore = "test-all: fetches the headers of Debian 12's kernel"]
fn the_driver_is_built_for_debian_12() {
    driver_in("bookworm", HEADERS);
}

#[test]
#[ignore = "test-all: fetches the headers of Debian 13's kernel"]
fn the_driver_is_built_for_debian_13() {
    driver_in("trixie", HEADERS);
}

#[test]
#[ignore = "test-all: fetches the headers of a kernel of Debian 12's backports"]
fn the_driver_is_built_for_a_kernel_of_backports() {
    let suite = "bookworm-backports";
    driver_in(suite, &format!("{HEADERS}/{suite}"));
}
