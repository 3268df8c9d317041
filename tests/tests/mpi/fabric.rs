//! Ranks of Open MPI over libfabric and the provider, and libfabric's own programs.

use super::{OPEN_MPI, assert_nothing_is_left, kill_one_of_three, netpipe, program};
use ginnel_tests::{Done, Stand, build, permit, skip};
use std::process::Command;
use std::time::Duration;

/// By libfabric and the provider: nothing is left, not even the segment.
fn over_fabric(ranks: u32, what: &str, more: &[&str]) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-fabric-{ranks}-{what}");
    let Some(program) = program(OPEN_MPI, &name) else { return };
    let stand = Stand::plain(&name).limit(Duration::from_secs(300));
    let mut command = fabric(&stand, ranks, more);
    let done = stand.run(command.arg(program).arg(what));
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    assert!(said_provider(&done), "the ranks took another way: {done}");
    assert_nothing_is_left(&stand);
}

pub fn fabric(stand: &Stand, ranks: u32, more: &[&str]) -> Command {
    let mut command = stand.command(build::ginnel());
    command.env("GINNEL_DIR", stand.dir()).env("GINNEL_SHIM", build::shim());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args([
        "mpirun",
        "--over",
        "fabric",
        "--launcher",
        OPEN_MPI.launcher,
        "-n",
        &ranks.to_string(),
    ]);
    command
        .args(["--oversubscribe", "--bind-to", "none", "--mca", "opal_common_ofi_verbose", "1"])
        .args(more);
    command
}

/// Open MPI names the provider that it takes.
fn said_provider(done: &Done) -> bool {
    format!("{}{}", done.stdout, done.stderr).contains("mtl:ofi:prov: ginnel")
}

#[test]
fn open_mpi_over_the_provider() {
    over_fabric(3, "check", &[]);
}

#[test]
#[ignore = "test-all: as others here, with one, two and four ranks"]
fn open_mpi_over_the_provider_with_other_numbers_of_ranks() {
    [1, 2, 4].into_iter().for_each(|ranks| over_fabric(ranks, "check", &[]));
}

/// As over UCX.
#[test]
fn who_looks_between_short_steps_is_not_put_to_sleep() {
    over_fabric(3, "steps", &[]);
}

#[test]
#[ignore = "test-all: as others here, by one-sided calls"]
fn open_mpi_over_the_provider_one_sided() {
    over_fabric(3, "oneside", &["--mca", "osc", "pt2pt"]);
    // By reading, writing and changing memory.
    over_fabric(
        3,
        "noswap",
        &["--mca", "btl", "ofi,self", "--mca", "osc", "rdma", "--mca", "osc_rdma_btls", "ofi"],
    );
}

#[test]
fn a_killed_rank_over_the_provider_ends_the_job() {
    let _permit = permit::cpu(2);
    let name = "mpi-fabric-killed";
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = Stand::plain(name);
    let (_, done) = kill_one_of_three(&stand, fabric(&stand, 3, &[]).arg(program).arg("wait"));
    assert!(
        !done.success() && format!("{}{}", done.stdout, done.stderr).contains("signal 9"),
        "{done}"
    );
    assert_nothing_is_left(&stand);
}

/// NetPIPE compares every byte in this mode.
#[test]
#[ignore = "test-all: half a minute"]
fn netpipe_over_the_provider_finds_no_wrong_byte() {
    let done =
        netpipe("netpipe_over_the_provider_finds_no_wrong_byte", |stand| fabric(stand, 2, &[]));
    if let Some(done) = done {
        assert!(said_provider(&done), "{done}");
    }
}

/// libfabric's own programs: the list of providers, and messages of all sizes between two
/// processes.
#[test]
fn fi_pingpong_over_the_provider() {
    if Command::new("fi_info").arg("--version").output().is_err() {
        return skip("fi_pingpong_over_the_provider", "no fi_info here (Debian: libfabric-bin)");
    }
    let stand = Stand::plain("fi-pingpong");
    let of_provider = |program: &str, arguments: &[&str]| {
        let mut command = stand.command(program);
        command
            .env("FI_PROVIDER_PATH", build::release_dir())
            .env("GINNEL_DIR", stand.dir())
            .args(arguments);
        command
    };
    let listed = stand.run(&mut of_provider("fi_info", &["-p", "ginnel"]));
    assert!(listed.success() && listed.stdout.contains("FI_EP_RDM"), "{listed}");
    let port = ginnel_tests::port::free();
    let common = ["-p", "ginnel", "-e", "rdm", "-c", "-I", "20", "-S", "all"];
    let server =
        stand.start(&mut of_provider("fi_pingpong", &[&common[..], &["-B", &port]].concat()));
    std::thread::sleep(Duration::from_millis(500));
    let client = stand
        .run(&mut of_provider("fi_pingpong", &[&common[..], &["-P", &port, "127.0.0.1"]].concat()));
    let server = server.finish();
    assert!(client.success() && server.success(), "{client}\n{server}");
    assert!(client.stdout.lines().count() > 15, "{client}");
    assert_nothing_is_left(&stand);
}

/// Calls of libfabric that MPI does not make, each answer checked.
#[test]
fn libfabric_calls() {
    if !std::path::Path::new("/usr/include/rdma/fabric.h").exists() {
        return skip("libfabric_calls", "no headers of libfabric here (Debian: libfabric-dev)");
    }
    let stand = Stand::plain("libfabric-calls");
    let mut command = stand.command(build::program_with("fabric", "fabric", &["-lfabric"]));
    command.env("FI_PROVIDER_PATH", build::release_dir()).env("GINNEL_DIR", stand.dir());
    let done = stand.run(&mut command);
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    assert!(
        done.stderr.contains("are in another segment"),
        "a name of another segment is explained: {done}"
    );
    assert_nothing_is_left(&stand);
}
