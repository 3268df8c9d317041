//! `ginnel service` under a real systemd, the first process of a host of its own, with what `make
//! install` installed there.

use crate::install;
use ginnel_tests::host::Host;
use ginnel_tests::{build, permit};
use std::path::Path;

/// A host with Ginnel below /usr; `None` where it cannot be had.
fn host(what: &str) -> Option<Host> {
    if !install::is_built(what) {
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    install::make("install", directory.path(), "/usr");
    let host = Host::boot(what, None, &[(directory.path(), "/installed")])?;
    host.must("cp -a /installed/. / && systemctl daemon-reload");
    Some(host)
}

/// Writes a unit of the host's.
fn unit(host: &Host, name: &str, section: &str) {
    let text = format!("[Service]\n{section}\n");
    std::fs::write(host.path(&format!("/etc/systemd/system/{name}.service")), text)
        .expect("written");
    host.must("systemctl daemon-reload");
}

fn drop_in(name: &str) -> String {
    format!("/etc/systemd/system/{name}.service.d/zz-ginnel.conf")
}

/// The share of a client's bytes that rings carried, in percent, from its report.
pub fn share(report: &str) -> u64 {
    let sum = |key: &str| -> u64 {
        let key = format!("\"{key}\":");
        let values = report.split(key.as_str()).skip(1);
        values.filter_map(|rest| rest.split([',', '}']).next()?.trim().parse::<u64>().ok()).sum()
    };
    let (ring, tcp) = (sum("ring_in") + sum("ring_out"), sum("tcp_in") + sum("tcp_out"));
    if ring == 0 { 0 } else { ring * 100 / (ring + tcp) }
}

/// By the report of who took part in it.
pub fn assert_carried(report: &str, percent: u64) {
    assert!(share(report) >= percent, "{}% were carried: {report}", share(report));
}

/// Debian's redis, whose unit closes nearly everything (and makes `/dev/shm` read-only in some
/// releases), and a client of the same user.
#[test]
fn a_service_is_switched_on_and_off() {
    let _permit = permit::cpu(1);
    let Some(host) = host("a service") else { return };
    if !host.path("/usr/bin/redis-server").exists() {
        return ginnel_tests::skip("a service", "redis-server is not installed");
    }
    // Another library that is preloaded already, by what `systemctl edit` writes.
    let math = "/lib/x86_64-linux-gnu/libm.so.6";
    let edited = host.path("/etc/systemd/system/redis-server.service.d");
    std::fs::create_dir_all(&edited).expect("made");
    std::fs::write(
        edited.join("override.conf"),
        format!("[Service]\nEnvironment=LD_PRELOAD={math} GINNEL_VERBOSE=1\n"),
    )
    .expect("written");
    host.must("systemctl daemon-reload && systemctl start redis-server");
    let maps = "cat /proc/$(systemctl show --value -p MainPID redis-server)/maps";
    assert!(!host.said(maps).contains("libginnel_shim"));

    let said = host.said("ginnel service enable redis-server");
    assert!(said.contains("it runs; --now restarts it"), "{said}");
    assert!(
        host.said("ginnel service status")
            .contains("on, active, 0 of 1 process with the library; it was not started anew")
    );
    let said = host.said("ginnel service enable --now redis-server");
    assert!(said.contains("1 of its 1 process have the library"), "{said}");
    let mapped = host.said(maps);
    assert!(
        mapped.contains("libginnel_shim") && mapped.contains("libm.so"),
        "the other library is kept"
    );

    let client = "GINNEL_REPORT=/tmp/report setpriv --reuid=redis --regid=redis --clear-groups \
        ginnel run -- redis-benchmark -n 20000 -c 4 -t set,get -q";
    host.must(client);
    let report = host.said("cat /tmp/report");
    assert_carried(&report, 90);
    let status = host.said("ginnel status --all-users");
    assert!(status.contains("redis-server"), "{status}");

    let said = host.said("ginnel service disable --now redis-server");
    assert!(said.contains("switched off"), "{said}");
    assert!(!host.path(&drop_in("redis-server")).exists() && edited.join("override.conf").exists());
    let mapped = host.said(maps);
    assert!(!mapped.contains("libginnel_shim") && mapped.contains("libm.so"), "as it was");
    assert!(host.said("ginnel service status").contains("No service is switched on"));
    assert!(host.said("ginnel service disable redis-server").contains("was not switched on"));
}

/// A unit that closes all that can be closed, with a user of its own each time, is opened by as
/// much as is needed, and then carries. Its filter ends the program for any call that is not in it.
#[test]
fn a_narrow_sandbox_is_opened() {
    let _permit = permit::cpu(1);
    let Some(host) = host("a narrow sandbox") else { return };
    build::copy_program(&build::program("half_close"), &host.path("/usr/local/bin/half_close"));
    let narrow = "Type=oneshot\nDynamicUser=yes\nExecStart=/usr/local/bin/half_close\nRuntimeDirectory=narrow\n\
        RuntimeDirectoryPreserve=yes\nEnvironment=GINNEL_REPORT=/run/narrow/report GINNEL_AFTER=0\nReadOnlyPaths=/\nReadWritePaths=/run/narrow\n\
        NoExecPaths=/\nExecPaths=/usr/local/bin /usr/lib/x86_64-linux-gnu /usr/lib64\nProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\n\
        PrivateDevices=yes\nPrivateUsers=yes\nProtectProc=invisible\nProcSubset=pid\nMemoryDenyWriteExecute=yes\nNoNewPrivileges=yes\n\
        CapabilityBoundingSet=\nRestrictNamespaces=yes\nRestrictAddressFamilies=AF_INET AF_INET6\nLockPersonality=yes\n\
        SystemCallFilter=@system-service";
    unit(&host, "narrow", narrow);
    host.must("systemctl start narrow");
    assert!(!host.path("/run/narrow/report").exists(), "without the library");
    let said = host.said("ginnel service enable narrow");
    for line in ["ReadWritePaths=/dev/shm", "ExecPaths=/usr/lib/ginnel", "DynamicUser="] {
        assert!(said.contains(line), "{line}: {said}");
    }
    host.must("systemctl start narrow");
    let report = host.said("cat /run/narrow/report");
    assert_carried(&report, 1);
    host.must("ginnel service disable narrow && systemctl start narrow");
    assert!(!host.path("/etc/systemd/system/narrow.service.d").exists());
}

/// Two users, in the segment that ginneld serves to both, by the commands of docs/install.md.
#[test]
#[ignore = "test-all: one more boot"]
fn a_service_meets_another_user_in_a_segment_of_ginneld() {
    let _permit = permit::cpu(1);
    let Some(host) = host("a service and another user") else { return };
    if !host.path("/usr/bin/redis-server").exists() {
        return ginnel_tests::skip("a service and another user", "redis-server is not installed");
    }
    let configuration = "[segment.default.host]\nusers = [\"redis\", \"nobody\"]\n";
    std::fs::write(host.path("/etc/ginnel/ginneld.toml"), configuration).expect("written");
    host.must("systemd-sysusers && systemctl daemon-reload && systemctl enable --now ginneld && systemctl start redis-server");
    host.must("ginnel service enable --now --segment default --allow 127.0.0.1 redis-server");
    host.must(
        "install -d -m 777 /tmp/reports; GINNEL_REPORT=/tmp/reports/one setpriv --reuid=nobody --regid=nogroup --clear-groups \
         ginnel run --segment default --allow 127.0.0.1 -- redis-benchmark -n 5000 -c 4 -t set,get -q",
    );
    assert_carried(&host.said("cat /tmp/reports/one"), 50);
    // With proofs, where this kernel has what they take.
    host.must("systemctl start ginnel-prover; sleep 0.5");
    if host.sh("systemctl is-active ginnel-prover").code == 0 {
        host.must("ginnel service enable --now --segment default redis-server");
        host.must(
            "GINNEL_REPORT=/tmp/reports/three setpriv --reuid=nobody --regid=nogroup --clear-groups \
             ginnel run --segment default -- redis-benchmark -n 5000 -c 4 -t set,get -q",
        );
        assert_carried(&host.said("cat /tmp/reports/three"), 50);
    } else {
        ginnel_tests::skip(
            "a service that proves",
            &host.sh("journalctl -u ginnel-prover -n 3 -o cat").out,
        );
    }
    // Without the segment, another user's client stays on TCP, and all is well.
    host.must(
        "GINNEL_REPORT=/tmp/reports/two setpriv --reuid=nobody --regid=nogroup --clear-groups ginnel run -- \
         redis-benchmark -n 5000 -c 4 -t set,get -q",
    );
    assert_eq!(share(&host.said("cat /tmp/reports/two")), 0);
}

/// What cannot be served is refused, with the reason, and then nothing is changed for any unit.
#[test]
#[ignore = "test-all: the reasons are tested as texts, too"]
fn what_cannot_be_served_is_refused_and_nothing_is_changed() {
    let Some(host) = host("refused services") else { return };
    unit(&host, "good", "ExecStart=/bin/sleep 1000");
    unit(&host, "rooted", "ExecStart=/bin/sleep 1000\nRootDirectory=/srv");
    unit(&host, "static", "ExecStart=/usr/local/bin/static");
    build::copy_program(&build::static_program("half_close"), &host.path("/usr/local/bin/static"));
    unit(&host, "filed", "ExecStart=/bin/sleep 1000\nEnvironmentFile=/etc/default/filed");
    std::fs::write(host.path("/etc/default/filed"), "LD_PRELOAD=/lib/x.so\n").expect("written");
    unit(&host, "unset", "ExecStart=/bin/sleep 1000\nUnsetEnvironment=LD_PRELOAD");
    unit(&host, "shm", "ExecStart=/bin/sleep 1000\nTemporaryFileSystem=/dev/shm");
    unit(&host, "foreign", "ExecStart=/bin/sleep 1000");
    std::fs::create_dir(host.path("/etc/systemd/system/foreign.service.d")).expect("made");
    std::fs::write(host.path(&drop_in("foreign")), "[Service]\nNice=1\n").expect("written");
    unit(
        &host,
        "filtered",
        "ExecStart=/bin/sleep 1000\nSystemCallFilter=@system-service\nSystemCallFilter=~mknodat",
    );
    unit(&host, "stopper", "Type=oneshot\nRemainAfterExit=yes\nExecStop=/bin/sleep 0");
    unit(&host, "wrapper", "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true");
    for (name, why) in [
        ("stopper", "starts no program of its own"),
        ("wrapper", "starts no program of its own"),
        ("filtered", "SystemCallFilter=mknodat to the unit"),
        ("absent", "there is no unit absent.service"),
        ("good.socket", "only services"),
        ("getty@", "is a template"),
        ("rooted", "docs/containers.md"),
        ("static", "is statically linked"),
        ("filed", "/etc/default/filed"),
        ("unset", "take that line out"),
        ("shm", "BindPaths=/dev/shm"),
        ("foreign", "it is left alone"),
    ] {
        let said = host.sh(&format!("ginnel service enable good {name}"));
        assert!(said.code == 1 && said.err.contains(why), "{name}: {said}");
        assert!(!host.path(&drop_in("good")).exists(), "{name}: nothing half done");
    }
    // A list of preloads that comes after ours, and does not have it.
    let folder = host.path("/etc/systemd/system/good.service.d");
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(
        folder.join("zzz.conf"),
        "[Service]\nEnvironment=LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6\n",
    )
    .expect("written");
    let said = host.sh("systemctl daemon-reload; ginnel service enable good");
    assert!(
        said.code == 1 && said.err.contains("comes after") && !host.path(&drop_in("good")).exists(),
        "{said}"
    );
}

/// A service that does not start with the library gets back what it had.
#[test]
#[ignore = "test-all: one more boot"]
fn a_service_that_does_not_start_with_it_runs_again_without() {
    let Some(host) = host("a service that does not start") else { return };
    let script = "#!/bin/sh\ncase \"$LD_PRELOAD\" in *ginnel*) exit 1;; esac\nsystemd-notify --ready\nexec sleep 1000\n";
    build::executable(&host.path("/usr/local/bin/picky"), script.as_bytes());
    unit(&host, "picky", "Type=notify\nNotifyAccess=all\nExecStart=/usr/local/bin/picky");
    host.must("systemctl start picky");
    let said = host.sh("ginnel service enable --now picky");
    assert!(said.code == 1 && said.err.contains("it runs again as before"), "{said}");
    assert_eq!(host.said("systemctl is-active picky").trim(), "active");
    assert!(!host.path(&drop_in("picky")).exists());
    // Nor one that starts, and ends within the second.
    let script =
        "#!/bin/sh\ncase \"$LD_PRELOAD\" in *ginnel*) sleep 0.3; exit 1;; esac\nexec sleep 1000\n";
    build::executable(&host.path("/usr/local/bin/later"), script.as_bytes());
    unit(&host, "later", "ExecStart=/usr/local/bin/later");
    host.must("systemctl start later");
    let said = host.sh("ginnel service enable --now later");
    assert!(said.code == 1 && !host.path(&drop_in("later")).exists(), "{said}");
    assert_eq!(host.said("systemctl is-active later").trim(), "active");
}

/// An instance of a template, a unit that has drop-ins already, and one whose name became an alias.
/// Where one of several does not start with the library, the others do.
#[test]
#[ignore = "test-all: one more boot"]
fn units_of_every_kind_are_switched_on_and_off() {
    let Some(host) = host("units of every kind") else { return };
    let sleeps = "ExecStart=/bin/sleep 1000";
    unit(&host, "many@", sleeps);
    unit(&host, "dropped", sleeps);
    unit(&host, "old", sleeps);
    let script = "#!/bin/sh\ncase \"$LD_PRELOAD\" in *ginnel*) exit 1;; esac\nexec sleep 1000\n";
    build::executable(&host.path("/usr/local/bin/picky"), script.as_bytes());
    unit(&host, "picky", "ExecStart=/usr/local/bin/picky");
    let own = host.path("/etc/systemd/system/dropped.service.d");
    std::fs::create_dir(&own).expect("made");
    for (name, line) in [("10-a.conf", "Environment=A=1 LD_PRELOAD="), ("zz-a.conf", "Nice=1")] {
        std::fs::write(own.join(name), format!("[Service]\n{line}\n")).expect("written");
    }
    host.must("systemctl daemon-reload && systemctl start many@x many@y dropped old picky");

    let said = host.sh("ginnel service enable --now many@x picky dropped old");
    assert!(said.code == 1 && said.err.contains("picky.service did not start"), "{said}");
    let maps = |name: &str| {
        host.said(&format!("cat /proc/$(systemctl show --value -p MainPID '{name}')/maps"))
    };
    let has = |name: &str| maps(name).contains("libginnel_shim");
    assert!(has("many@x") && has("dropped") && has("old"), "{said}");
    assert!(!has("many@y") && !has("picky"), "{said}");
    let nice = host.said("ps -o ni= -p $(systemctl show --value -p MainPID dropped)");
    assert_eq!(nice.trim(), "1", "others' drop-ins count as before");

    // As where a package gives its service another name.
    host.must(
        "cd /etc/systemd/system && mv old.service new.service && ln -s new.service old.service",
    );
    host.must("systemctl daemon-reload");
    let status = host.said("ginnel service status");
    assert!(status.contains("new.service: on"), "{status}");
    host.must("ginnel service disable --all --now");
    assert!(!has("many@x") && !has("dropped"));
    let left = host.said("find /etc/systemd/system -name '*ginnel*'");
    assert_eq!(left, "", "each is off");
    assert!(own.join("10-a.conf").exists() && own.join("zz-a.conf").exists());
}

/// A library that not every user can read is not handed to services.
#[test]
#[ignore = "test-all: one more boot"]
fn a_library_in_a_closed_directory_is_refused() {
    let Some(host) = host("a library in a closed directory") else { return };
    host.must("install -d -m 700 /srv/closed && cp /usr/lib/ginnel/libginnel_shim.so /srv/closed/");
    unit(&host, "good", "ExecStart=/bin/sleep 1000");
    let said = host.sh("GINNEL_SHIM=/srv/closed/libginnel_shim.so ginnel service enable good");
    assert!(said.code == 1 && said.err.contains("/srv/closed is closed to others"), "{said}");
    assert!(!Path::new(&host.path(&drop_in("good"))).exists());
}

/// As in a container, or in a chroot.
#[test]
fn where_no_systemd_runs_that_is_said() {
    let hide = ["--mount", "sh", "-c", "mount -t tmpfs tmpfs /run && exec \"$@\"", "sh"];
    let apart = |program: &Path, args: &[&str]| {
        std::process::Command::new("unshare").args(hide).arg(program).args(args).output()
    };
    if !apart(Path::new("true"), &[]).is_ok_and(|done| done.status.success()) {
        return ginnel_tests::skip(
            "where no systemd runs",
            "unshare makes no mount namespace here",
        );
    }
    let ginnel = build::ginnel();
    let output = apart(&ginnel, &["service", "enable", "redis-server"]).expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("systemd does not run here"), "{said}");
    assert!(said.contains("`ginnel run -- PROGRAM`"), "{said}");
}
