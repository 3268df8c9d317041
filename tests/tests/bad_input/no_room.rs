//! Where there is no room for shared memory, or the shim may not have it.

use super::{PROGRAMS, holds, stand_in, stays_on_tcp, text};
use ginnel_tests::{Stand, build, is_root, skip};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// More connections than the segment has room for: those that found none stay on TCP, and all
/// memory is free afterwards.
#[test]
fn full_segment() {
    let place = Stand::plain("place");
    let dir = place.dir().join("ginnel");
    let stand = stand_in(&dir, &[("GINNEL_SEGMENT", "small")]);
    let made = std::process::Command::new(build::ginnel())
        .args(["segment", "create", "small", "--size", "16M"])
        .env("GINNEL_DIR", &dir)
        .output()
        .expect("ginnel runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    holds(&stand, &[], "half_close");
    let baseline = stand.free_extents();
    holds(&stand, &[], "idle_connections");
    let report = stand.report();
    assert!(report.ring_bytes() > 0 && report.sum("tcp_in") > 0, "{report:?}");
    stand.assert_nothing_lost(baseline);
}

/// A file system with room for nothing, for the header only, for a few connections; and one that
/// fills up later.
#[test]
fn full_file_system() {
    if !is_root() {
        skip("full_file_system", "mounting needs root");
        return;
    }
    let place = Stand::plain("place");
    let dir = place.dir().join("mount");
    fs::create_dir(&dir).expect("own directory");
    let below = dir.join("ginnel");
    for size in ["8k", "64k", "1m", "2500k", "3m", "6m"] {
        let script = format!("mount -t tmpfs -o size={size} none {} && exec \"$@\"", dir.display());
        let wrapper = ["unshare", "-m", "sh", "-c", &script, "sh"];
        for name in ["half_close", "edge_short_writes", "idle_connections"] {
            holds(&stand_in(&below, &[]), &wrapper, name);
        }
    }
    let fill = format!(
        "mount -t tmpfs -o size=40m none {0} && \"$@\" >/dev/null && {{ cat /dev/zero >{0}/fill 2>/dev/null; exec \"$@\"; }}",
        dir.display()
    );
    for name in ["half_close", "edge_short_writes", "idle_connections"] {
        holds(&stand_in(&below, &[]), &["unshare", "-m", "sh", "-c", &fill, "sh"], name);
    }
}

/// The default directory, and no /dev/shm that could hold it.
#[test]
fn no_shared_memory_file_system() {
    if !is_root() {
        skip("no_shared_memory_file_system", "mounting needs root");
        return;
    }
    for mount in ["mount -t tmpfs -o ro none /dev/shm", "mount --bind /proc/self/fdinfo /dev/shm"] {
        let script = format!("{mount} && exec \"$@\"");
        let place = Stand::plain("place");
        let report = PathBuf::from(format!("/tmp/ginnel-test-report-{}", std::process::id()));
        // An empty GINNEL_DIR is none.
        let settings = [("GINNEL_DIR", ""), ("GINNEL_REPORT", text(&report))];
        let stand = Stand::shimmed("none", &settings).limit(Duration::from_secs(60));
        for name in PROGRAMS {
            let said = holds(&stand, &["unshare", "-m", "sh", "-c", &script, "sh"], name);
            assert!(said.is_empty(), "{name}: {said}");
        }
        let reported = fs::read_to_string(&report).unwrap_or_default();
        let _ = fs::remove_file(&report);
        assert_eq!(ginnel_tests::json::sum(&reported, "ring_in"), 0, "{mount}: {reported}");
        drop(place);
    }
}

/// Resource limits that leave the shim no descriptors, no address space, no files, no threads.
#[test]
fn resource_limits() {
    let place = Stand::plain("place");
    let dir = place.dir().join("ginnel");
    for limit in [
        "ulimit -n 8",
        "ulimit -n 10",
        "ulimit -n 12",
        "ulimit -n 20",
        "ulimit -v 200000",
        "ulimit -v 60000",
        "ulimit -f 8",
        "ulimit -f 100",
        "ulimit -s 256",
    ] {
        let script = format!("{limit} && exec \"$@\"");
        let wrapper = ["sh", "-c", &script, "sh"];
        for name in ["half_close", "waitall_and_peek", "several_sets"] {
            // Once where the segment must be made, once where it is there.
            for made in [false, true] {
                if !made {
                    let _ = fs::remove_dir_all(&dir);
                }
                let said = holds(&stand_in(&dir, &[]), &wrapper, name);
                assert!(said.is_empty(), "{limit}, {name}: {said}");
            }
        }
    }
    let _ = fs::remove_dir_all(&dir);
    stays_on_tcp(&dir, &[], &["sh", "-c", "ulimit -f 100 && exec \"$@\"", "sh"], &["ulimit -f"]);
    // Address space for the segment, a gigabyte, and too little for a program beside it; or any,
    // and little private memory.
    for limit in ["ulimit -v 1100000", "ulimit -v 4200000", "ulimit -d 200000"] {
        let script = format!("{limit} && exec \"$@\"");
        let wrapper = ["sh", "-c", &script, "sh"];
        stays_on_tcp(&dir, &[], &wrapper, &["ulimit -v or -d"]);
        holds(&stand_in(&dir, &[]), &wrapper, "limits_memory");
    }
}
