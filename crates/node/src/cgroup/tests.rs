use super::*;
use std::ffi::CString;
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A tree of files as the kernel shows them, below a directory.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
        // DIR stands for where all of it lies.
        fs::write(path, text.replace("DIR", &dir.path().to_string_lossy())).expect("written");
    }
    dir
}

fn c(path: &Path) -> CString {
    CString::new(path.to_str().expect("UTF-8")).expect("no zero byte")
}

fn of(dir: &tempfile::TempDir, segment: u64) -> Room {
    room_by(&c(&dir.path().join("cgroup")), &c(&dir.path().join("mountinfo")), segment)
}

const TWO: &str = "30 23 0:26 / DIR/fs rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn a_limit_of_version_two_leaves_a_quarter() {
    let dir = tree(&[
        ("cgroup", "0::/a/b\n"),
        ("mountinfo", TWO),
        ("fs/a/b/memory.max", "104857600\n"),
        ("fs/a/b/memory.high", "max\n"),
        ("fs/a/b/memory.current", "52428800\n"),
        (
            "fs/a/b/memory.stat",
            "anon 10\ninactive_file 20971520\nactive_file 10485760\nshmem 8388608\n",
        ),
    ]);
    // 50 MiB used, 30 of them of files: 80 free.
    assert_eq!(
        of(&dir, 0),
        Room { limit: 100 * MIB, free: 80 * MIB, rings: 25 * MIB, growth: 25 * MIB / 2 }
    );
    // Of what is shared memory there, a segment has at most what it has.
    assert_eq!(of(&dir, 3 * MIB).rings, 22 * MIB);
    assert_eq!(of(&dir, 500 * MIB).rings, 17 * MIB);
    fs::write(dir.path().join("fs/a/b/memory.high"), "41943040\n").expect("written");
    assert_eq!(
        of(&dir, 0),
        Room { limit: 40 * MIB, free: 20 * MIB, rings: 10 * MIB, growth: 5 * MIB }
    );
}

#[test]
fn the_strictest_limit_up_the_tree_holds() {
    let dir = tree(&[
        ("cgroup", "0::/a/b\n"),
        ("mountinfo", TWO),
        ("fs/a/b/memory.max", "max\n"),
        ("fs/a/memory.max", "41943040\n"),
        ("fs/a/memory.current", "37748736\n"),
        ("fs/a/memory.stat", "shmem 0\n"),
        ("fs/memory.max", "419430400\n"),
        ("memory.max", "1\n"),
    ]);
    // 4 MiB are free of 40: half of that, and what is above the mount is not looked at.
    assert_eq!(of(&dir, 0), Room { limit: 40 * MIB, free: 4 * MIB, rings: 2 * MIB, growth: MIB });
}

#[test]
fn version_one_has_its_own_names() {
    let dir = tree(&[
        ("cgroup", "4:cpu,memory:/docker/x\n1:name=systemd:/y\n0::/z\n"),
        (
            "mountinfo",
            "24 1 0:1 / / rw - overlay overlay rw\n31 24 0:2 /docker/x DIR/other ro - cgroup cgroup rw,cpuset\n\
             32 24 0:3 /docker/x DIR/memory ro - cgroup cgroup rw,memory,cpu\n33 24 0:4 / DIR/unified ro - cgroup2 cgroup2 rw\n",
        ),
        ("memory/memory.limit_in_bytes", "50331648\n"),
        ("memory/memory.usage_in_bytes", "12582912\n"),
        (
            "memory/memory.stat",
            "shmem 1\ninactive_file 50331648\ntotal_inactive_file 2097152\ntotal_shmem 8388608\n",
        ),
        ("unified/z/memory.max", "4096\n"),
    ]);
    assert_eq!(
        of(&dir, u64::MAX),
        Room { limit: 48 * MIB, free: 38 * MIB, rings: 4 * MIB, growth: 0 }
    );
    fs::write(dir.path().join("memory/memory.limit_in_bytes"), "9223372036854771712\n")
        .expect("written");
    assert_eq!(of(&dir, u64::MAX), Room::ENDLESS);
}

#[test]
fn in_a_namespace_the_root_is_the_cgroup_itself() {
    let files = [("fs/memory.max", "41943040\n"), ("fs/memory.current", "0\n"), ("mountinfo", TWO)];
    for own in ["0::/\n", "0::/../elsewhere\n"] {
        let dir = tree(&[&files[..], &[("cgroup", own)]].concat());
        assert_eq!(of(&dir, 0).rings, 10 * MIB, "{own}");
    }
}

#[test]
fn what_cannot_be_read_limits_nothing() {
    let long = format!("{} x\n{TWO}", "x".repeat(9000));
    for (cgroup, mounts) in
        [("", TWO), ("0::/a\n", ""), ("garbage\n::::\n0::\n", TWO), ("0::/a\n", "a b c d\n- - -\n")]
    {
        let dir =
            tree(&[("cgroup", cgroup), ("mountinfo", mounts), ("fs/a/memory.max", "4194304\n")]);
        assert_eq!(of(&dir, 0), Room::ENDLESS, "{cgroup:?} {mounts:?}");
    }
    let files =
        [("cgroup", "0::/a\n"), ("fs/a/memory.max", "4194304\n"), ("fs/a/memory.current", "0\n")];
    let dir = tree(&[&files[..], &[("mountinfo", &long)]].concat());
    assert_eq!(of(&dir, 0).rings, MIB, "a line that is too long hides no other");
    let deep = format!("0::{}\n", "/x".repeat(600));
    let dir = tree(&[("cgroup", deep.as_str()), ("mountinfo", TWO)]);
    assert_eq!(of(&dir, 0), Room::ENDLESS);
}

fn quota_of(dir: &tempfile::TempDir) -> Option<Quota> {
    let (cgroup, mounts) = (dir.path().join("cgroup"), dir.path().join("mountinfo"));
    processors::quota_by(&c(&cgroup), &c(&mounts))
}

#[test]
fn the_strictest_quota_up_the_tree_is_in_whole_processors() {
    let two = |own: &'static str, limits: [&'static str; 2]| {
        tree(&[
            ("cgroup", own),
            ("mountinfo", TWO),
            ("fs/a/b/cpu.max", limits[0]),
            ("fs/a/b/cgroup.procs", ""),
            ("fs/a/cpu.max", limits[1]),
            ("fs/a/cgroup.procs", ""),
            ("fs/c/cgroup.procs", ""),
        ])
    };
    for (limits, processors) in [
        (["max 100000\n", "max 100000\n"], None),
        (["250000 100000\n", "max 100000\n"], Some(2)),
        (["max 100000\n", "50000 100000\n"], Some(0)),
        (["400000 100000\n", "60000 20000\n"], Some(3)),
        (["300000 100000\n", "900000 200000\n"], Some(3)),
        (["garbage\n", "100000 0\n"], None),
    ] {
        let found = quota_of(&two("0::/a/b\n", limits));
        assert_eq!(found.map(|quota| quota.processors), processors, "{limits:?}");
    }
    assert_eq!(quota_of(&two("0::/c\n", ["1 1\n"; 2])), None, "another cgroup's");
}

#[test]
fn who_shares_a_quota_knows_it_by_its_group() {
    let dir = tree(&[
        ("mountinfo", TWO),
        ("fs/a/cpu.max", "100000 100000\n"),
        ("fs/a/cgroup.procs", ""),
        ("fs/a/b/cpu.max", "max 100000\n"),
        ("fs/b/cpu.max", "100000 100000\n"),
        ("fs/b/cgroup.procs", ""),
    ]);
    let group = |own: &str| {
        fs::write(dir.path().join("cgroup"), own).expect("written");
        quota_of(&dir).expect("a quota").group
    };
    assert_eq!(group("0::/a\n"), group("0::/a/b\n"));
    assert_ne!(group("0::/a\n"), group("0::/b\n"));
}

#[test]
fn a_quota_of_version_one_is_the_processors_controllers() {
    let dir = tree(&[
        ("cgroup", "5:memory:/y\n4:cpu,cpuacct:/docker/x\n0::/z\n"),
        (
            "mountinfo",
            "32 24 0:3 /docker/x DIR/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
             33 24 0:4 / DIR/unified ro - cgroup2 cgroup2 rw\n",
        ),
        ("cpu/cpu.cfs_quota_us", "150000\n"),
        ("cpu/cpu.cfs_period_us", "100000\n"),
        ("cpu/cgroup.procs", ""),
        ("unified/z/cpu.max", "900000 100000\n"),
    ]);
    assert_eq!(quota_of(&dir).map(|quota| quota.processors), Some(1));
    fs::write(dir.path().join("cpu/cpu.cfs_quota_us"), "-1\n").expect("written");
    assert_eq!(quota_of(&dir), None);
}
