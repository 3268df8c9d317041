//! Ranks in two containers, started by Open MPI's launcher over ssh: what the containers have in
//! common is a mounted directory, and no system V or POSIX memory of one system (`--ipc host`).

use super::{OPEN_MPI, program};
use crate::containers::{self, remove};
use ginnel_tests::host::Host;
use ginnel_tests::image::Image;
use ginnel_tests::{debian, permit};
use std::time::Duration;

/// What the image has beside Debian's smallest.
const IMAGE: [&str; 6] =
    ["openmpi-bin", "libfabric1", "libucx0", "openssh-server", "openssh-client", "iproute2"];

/// Each may log in to the other as root, by a key that both images have.
const KEYS: &str = "mkdir -p /run/sshd /root/.ssh; ssh-keygen -A; \
     ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; \
     cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys; \
     printf 'StrictHostKeyChecking no\\nLogLevel ERROR\\n' >/root/.ssh/config; \
     chmod -R go= /root/.ssh";

/// Two containers, `a` and `b`: the directory of docs/mpi.md, Ginnel's own files, and nothing else
/// in common.
fn start(host: &Host, program: &str) {
    host.must("mkdir -m 700 /dev/shm/job");
    host.must(&format!(
        "podman run --name keys mpi /bin/sh -c '{}' && podman commit -q keys mpi-keys && podman rm keys",
        KEYS.replace('\'', "'\\''")
    ));
    for name in ["a", "b"] {
        host.must(&format!(
            "podman run -d --name {name} --hostname {name} -v /dev/shm/job:/job -v /usr/lib/ginnel:/usr/lib/ginnel:ro \
             -v /usr/bin/ginnel:/usr/bin/ginnel:ro -v {program}:/program:ro mpi-keys \
             /bin/sh -c 'mkdir -p /run/sshd; exec /usr/sbin/sshd -D'"
        ));
    }
}

fn address(host: &Host, name: &str) -> String {
    let format = "{{.NetworkSettings.IPAddress}}";
    host.said(&format!("podman inspect -f '{format}' {name}")).trim().to_owned()
}

/// A job of one rank in each: what the launcher and the ranks said.
fn job(host: &Host, hosts: &str, over: &str, more: &str) -> String {
    let said = host.sh_within(
        &format!(
            "podman exec -e GINNEL_DIR=/job -e OMPI_ALLOW_RUN_AS_ROOT=1 -e OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 a \
             ginnel mpirun {over} --launcher mpirun.openmpi -host {hosts} -np 2 --bind-to none \
             --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 {more} /program check"
        ),
        Duration::from_secs(200),
    );
    let all = format!("{}{}", said.out, said.err);
    assert!(said.code == 0 && all.contains("all well"), "{over}: {said}");
    all
}

#[test]
#[ignore = "test-all: boots a host with podman"]
fn ranks_in_two_containers() {
    let _permit = permit::cpu(2);
    let what = "MPI in containers";
    let Some(program) = program(OPEN_MPI, what) else { return };
    let Some(root) = debian::root("mpi", "bookworm", &IMAGE, what) else { return };
    let (Some(redis), Some(mpi)) = (containers::redis(what), Image::like(what, &root)) else {
        return;
    };
    let Some(host) = containers::host(what, &[("redis", &redis), ("mpi", &mpi)]) else { return };
    let copy = host.path("/root/program");
    std::fs::copy(&program, &copy).expect("the program can be copied");
    start(&host, "/root/program");
    let hosts = format!("{}:1,{}:1", address(&host, "a"), address(&host, "b"));
    // By the library's own TCP, whose connections are carried.
    job(&host, &hosts, "", "-x GINNEL_DIR -x GINNEL_REPORT=/job/report");
    let report = host.said("cat /dev/shm/job/report");
    assert!(report.contains("\"ring_in\":") && !report.contains("\"ring_in\":0,"), "{report}");
    host.must("rm -f /dev/shm/job/report");
    let said = job(&host, &hosts, "--over fabric", "--mca opal_common_ofi_verbose 1");
    assert!(said.contains("mtl:ofi:prov: ginnel"), "{said}");
    // UCX has no other way than the transport there.
    job(&host, &hosts, "--over ucx", "");
    // The file that the ranks met in went with the last of them.
    host.must("test ! -e /dev/shm/job/mpi");
    remove(&host, "podman", "a b");
}
