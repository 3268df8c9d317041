//! `ginnel container` with real containers: podman with crun and runc, on a host of its own, with
//! images of few files.

use crate::{install, packages, service};
use ginnel_tests::host::Host;
use ginnel_tests::image::Image;
use ginnel_tests::{build, debian, permit, release, skip};
use std::path::Path;
use std::process::Command;

/// Which Debian the host is, and what it has beside [`HOST`].
pub struct Release {
    suite: &'static str,
    packages: &'static [&'static str],
}

/// podman 4.3, with either of the programs that make its networks, and docker 20.10.
pub const BOOKWORM: Release =
    Release { suite: "bookworm", packages: &["docker.io", "containernetworking-plugins"] };
/// podman 5.4, with pasta.
pub const TRIXIE: Release = Release { suite: "trixie", packages: &["passt"] };

/// What every host has.
const HOST: [&str; 16] = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "iproute2",
    "podman",
    "crun",
    "runc",
    "netavark",
    "aardvark-dns",
    "iptables",
    "nftables",
    "uidmap",
    "slirp4netns",
    "redis-server",
    "redis-tools",
    "python3-minimal",
];

/// crun raises a limit before it asks cgroup v2 about devices, which root may not everywhere: where
/// this machine has its controllers in version 1, the containers get these. No image takes layers
/// here, so plain copies do.
const SETUP: &str = r#"
    if awk '$1 == "memory" && $2 != 0 { found = 1 } END { exit !found }' /proc/cgroups; then
        mount -t tmpfs tmpfs /sys/fs/cgroup
        for c in cpu cpuacct cpuset memory devices freezer blkio pids; do
            mkdir "/sys/fs/cgroup/$c" && mount -t cgroup -o "$c" cgroup "/sys/fs/cgroup/$c" || rmdir "/sys/fs/cgroup/$c"
        done
        mkdir /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
    fi
    mkdir -p /etc/containers
    printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n[network]\nnetwork_backend = "netavark"\n' >/etc/containers/containers.conf
    printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' >/etc/containers/storage.conf
    for image in /images/*; do tar -C "$image" -c . | podman import -q - "${image##*/}" || exit 1; done
"#;

/// The host, with these images; `None` where it cannot be had.
pub fn host(what: &str, images: &[(&str, &Image)]) -> Option<Host> {
    host_of(&BOOKWORM, what, images)
}

/// The same of another release.
pub fn host_of(release: &Release, what: &str, images: &[(&str, &Image)]) -> Option<Host> {
    let portable = packages::portable()?;
    let installed = tempfile::tempdir().expect("a directory");
    install::make_from(&portable, "install", installed.path(), "/usr");
    let host = booted(release, what, images, (installed.path(), "/installed"))?;
    host.must("cp -a /installed/. /");
    has_podman(&host, what).then_some(host)
}

/// The host before anything was done there, with a directory of this machine: (outside, within).
pub fn booted(
    release: &Release,
    what: &str,
    images: &[(&str, &Image)],
    directory: (&Path, &str),
) -> Option<Host> {
    let packages = [&HOST[..], release.packages].concat();
    let name = format!("containers-{}", release.suite);
    let root = debian::root(&name, release.suite, &packages, what)?;
    let places: Vec<String> = images.iter().map(|(name, _)| format!("/images/{name}")).collect();
    let mut shared = vec![directory];
    shared.extend(
        images.iter().zip(&places).map(|((_, image), place)| (image.root(), place.as_str())),
    );
    Host::boot(what, Some(&root), &shared)
}

/// Sets podman up there; says so where it runs no container. systemd starts nothing after that.
pub fn has_podman(host: &Host, what: &str) -> bool {
    host.must(SETUP);
    let said = host.sh("podman run --rm redis /bin/sh -c 'echo runs'");
    if said.out != "runs\n" {
        skip(what, &format!("podman runs no container here: {}", said.err.trim()));
        return false;
    }
    true
}

/// What belongs to every glibc, and no program made for a newer one asks for: the library, which is
/// made for older ones too, does (docs/containers.md).
pub fn add_c_library(image: &Image) {
    for name in ["libpthread.so.0", "libdl.so.2"] {
        image.copy(
            &Path::new("/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)).join(name),
        );
    }
}

/// redis, its client and a shell, with the libraries that they are linked with.
pub fn redis(what: &str) -> Option<Image> {
    let image = Image::bare(what)?;
    for program in [
        "/usr/bin/redis-server",
        "/usr/bin/redis-benchmark",
        "/usr/bin/redis-cli",
        "/usr/bin/cat",
        "/bin/sh",
    ] {
        if !Path::new(program).exists() {
            skip(what, &format!("{program} is not installed"));
            return None;
        }
        image.add(Path::new(program));
    }
    add_c_library(&image);
    Some(image)
}

/// Ends these containers, the last ones. What they had mounted may be busy for a moment more:
/// podman says so of those with a user namespace.
pub fn remove(host: &Host, engine: &str, names: &str) {
    host.must(&format!(
        "{engine} kill {names}; for i in $(seq 100); do {engine} rm -f {names}; test -z \"$({engine} ps -aq)\" && exit; sleep 0.2; done; exit 1"
    ));
}

/// A server's container with `options[0]`, and a client's with `options[1]`: the client's report.
pub fn pair(host: &Host, runtime: &str, options: [&str; 2]) -> String {
    let run = format!("podman --runtime {runtime} run");
    let [server, client] = options;
    host.must(&format!(
        "{run} -d --name s {server} redis /usr/bin/redis-server --bind 0.0.0.0 --protected-mode no --save '' --dir /dev/shm"
    ));
    let address = host.said("podman inspect -f '{{.NetworkSettings.IPAddress}}' s");
    let address = address.trim();
    host.must(&format!("for i in $(seq 100); do redis-cli -h {address} ping && exit; sleep 0.2; done; podman logs s; exit 1"));
    let said = host.said(&format!(
        "{run} --rm {client} --env GINNEL_REPORT=/dev/shm/report redis /bin/sh -c \
         'redis-benchmark -h {address} -n 5000 -c 4 -t set,get -q >/dev/null; cat /dev/shm/report'"
    ));
    remove(host, "podman", "s");
    said.lines().filter(|line| line.contains("redis-benchmark")).collect()
}

#[test]
#[ignore = "test-all: boots a host with podman"]
fn podman_with_one_option_carries() {
    let _permit = permit::cpu(2);
    let Some(image) = redis("podman") else { return };
    let Some(host) = host("podman", &[("redis", &image)]) else { return };
    let said = host.said("ginnel container cdi g1");
    assert!(said.contains("podman run --device ginnel.dev/segment=g1 IMAGE"), "{said}");
    host.must("ginnel container cdi user --user 1000 && ginnel container cdi mapped --user 100000");
    host.must("ginnel container cdi all --any-user --allow 10.88.0.0/16");
    let device = |name: &str| format!("--device ginnel.dev/segment={name}");
    for runtime in ["crun", "runc"] {
        let plain = device("g1");
        service::assert_carried(&pair(&host, runtime, [&plain, &plain]), 90);
        // Nobody's root, and nothing to write on but the segment.
        let narrow = format!(
            "{} --user 1000 --cap-drop all --read-only --security-opt no-new-privileges",
            device("user")
        );
        service::assert_carried(&pair(&host, runtime, [&narrow, &narrow]), 90);
        let status = host.said(&format!(
            "podman --runtime {runtime} run --rm {narrow} redis /usr/bin/cat /proc/self/status"
        ));
        // With the runtime's filter of system calls, too.
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
            assert!(status.lines().any(|said| said == line), "{line}: {status}");
        }
        // root within is somebody else on the host.
        let mapped =
            format!("{} --uidmap 0:100000:65536 --gidmap 0:100000:65536", device("mapped"));
        service::assert_carried(&pair(&host, runtime, [&mapped, &mapped]), 90);
        // Two users and two user namespaces.
        let (one, other) = (
            format!("{} --user 1000", device("all")),
            format!("{} --uidmap 0:200000:65536 --gidmap 0:200000:65536", device("all")),
        );
        service::assert_carried(&pair(&host, runtime, [&one, &other]), 50);
        // Without CDI.
        let options = host.said("ginnel container env g1");
        service::assert_carried(&pair(&host, runtime, [options.trim(), options.trim()]), 90);
        // One end has nothing: TCP, and all is well.
        let report = pair(&host, runtime, ["", &plain]);
        assert!(report.contains("\"ring_in\":0,") && !report.contains("\"tcp_in\":0,"), "{report}");
    }
}

/// The host's view, and the end of a group.
#[test]
#[ignore = "test-all: boots a host with podman"]
fn a_group_is_seen_from_the_host_and_removed_when_it_is_done() {
    let _permit = permit::cpu(1);
    let Some(image) = redis("a group of containers") else { return };
    let Some(host) = host("a group of containers", &[("redis", &image)]) else { return };
    host.must("ginnel container cdi g1");
    host.must(
        "podman run -d --name s --device ginnel.dev/segment=g1 redis /usr/bin/redis-server --bind 0.0.0.0 --protected-mode no --save ''",
    );
    let status = "GINNEL_DIR=/dev/shm/ginnel-segment-g1 ginnel status";
    host.must(&format!(
        "for i in $(seq 100); do {status} | grep -q redis-server && exit; sleep 0.2; done; exit 1"
    ));
    // A program of the host's is one of the group, too, if its user is.
    host.must(
        "A=$(podman inspect -f '{{.NetworkSettings.IPAddress}}' s); GINNEL_DIR=/dev/shm/ginnel-segment-g1 GINNEL_REPORT=/tmp/report \
         ginnel run -- redis-benchmark -h $A -n 5000 -c 4 -t set,get -q",
    );
    service::assert_carried(&host.said("cat /tmp/report"), 90);
    let said = host.said("ginnel container remove g1");
    assert!(said.contains("in use, and kept"), "{said}");
    assert!(
        !host.path("/etc/cdi/ginnel.dev-segment-g1.json").exists(),
        "no other container gets it"
    );
    host.must("podman rm -f -t 0 s");
    // Members of another pid namespace are known to have ended within seconds.
    host.must("for i in $(seq 100); do ginnel container remove g1 | grep -q Removed && exit; sleep 0.2; done; exit 1");
    host.must("! ls /dev/shm/ginnel-segment-* /etc/tmpfiles.d/ginnel-segment-* 2>/dev/null");
    // A group for another user is not taken over.
    host.must("ginnel container cdi g1 && touch /dev/shm/ginnel-segment-g1/x");
    let said = host.sh("ginnel container cdi g1 --user 1000");
    assert!(said.code == 1 && said.err.contains("ginnel container remove g1"), "{said}");
    // What tmpfiles makes at the next boot is what cdi made.
    host.must("ginnel container remove g1 && ginnel container cdi g1 --user 1000 && rmdir /dev/shm/ginnel-segment-g1");
    host.must("systemd-tmpfiles --create ginnel-segment-g1.conf");
    assert_eq!(host.said("stat -c '%a %u' /dev/shm/ginnel-segment-g1").trim(), "700 1000");
    host.must("ginnel container remove --all && ! ls /dev/shm/ginnel-segment-* 2>/dev/null");
}

/// A library that most images' glibc is too old for is not mounted into any.
#[test]
fn a_library_for_this_machine_alone_is_refused() {
    let own = build::shim();
    let said = Command::new(build::ginnel())
        .env("GINNEL_SHIM", &own)
        .args(["container", "env", "refused"])
        .output();
    let said = said.expect("ginnel starts");
    let portable =
        std::fs::read(&own).is_ok_and(|bytes| !bytes.windows(10).any(|part| part == b"GLIBC_2.34"));
    if portable {
        return skip("a library for this machine alone", "this one needs no newer glibc");
    }
    let error = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && error.contains("make portable"), "{error}");
    assert!(!Path::new("/dev/shm/ginnel-segment-refused").exists());
}

/// Images with another C library, an older one, or nothing beside it: what they have runs, and is
/// carried where the library can be had.
#[test]
#[ignore = "test-all: boots a host with podman"]
fn images_of_every_kind_run() {
    let _permit = permit::cpu(1);
    let what = "images of every kind";
    let Some(redis) = redis(what) else { return };
    let (Some(bare), Some(musl)) = (Image::bare(what), Image::bare(what)) else { return };
    let program = build::program("half_close");
    bare.add(&program);
    add_c_library(&bare);
    // Which belongs to a compiler, and not to the C library.
    let mut find = Command::new("find");
    let found = find.arg(bare.root()).args(["-name", "libgcc_s*"]).output().expect("find runs");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let mut images = vec![("redis", &redis), ("bare", &bare)];
    let musl_program = build::musl_program("half_close");
    if let Some(program) = &musl_program {
        musl.copy(program);
        musl.copy(Path::new(&format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH)));
        images.push(("musl", &musl));
    }
    let older = release::root(&release::DEBIAN_11, what)
        .and_then(|root| Image::like(what, &root))
        .zip(build::older_program("half_close"));
    if let Some((image, program)) = &older {
        image.copy(program);
        images.push(("older", image));
    }
    let Some(host) = host(what, &images) else { return };
    host.must("ginnel container cdi g1");
    let has_musl = host.path("/usr/lib/ginnel/$LIB/libginnel_shim.so").exists();
    let programs = [
        ("bare", Some(program)),
        ("musl", musl_program),
        ("older", older.as_ref().map(|(_, program)| program.clone())),
    ];
    for (image, program) in programs {
        let Some(program) = program else {
            skip(what, &format!("no image {image}"));
            continue;
        };
        for runtime in ["crun", "runc"] {
            let said = host.said(&format!(
                "rm -f /dev/shm/ginnel-segment-g1/report; podman --runtime {runtime} run --rm --device ginnel.dev/segment=g1 --env GINNEL_AFTER=0 \
                 --env GINNEL_REPORT=/dev/shm/ginnel-segment-g1/report {image} {}",
                program.display()
            ));
            assert!(said.contains("the other direction carried"), "{image}: {said}");
            let report = host.sh("cat /dev/shm/ginnel-segment-g1/report").out;
            match image {
                "musl" if !has_musl => {
                    assert_eq!(report, "", "musl's dynamic linker passes over it")
                }
                _ => service::assert_carried(&report, 50),
            }
        }
    }
}
