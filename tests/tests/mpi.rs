//! MPI programs on Debian's Open MPI and MPICH, started by `ginnel mpirun`: what ranks send is carried,
//! right, and a rank that is killed ends its job and leaves nothing behind.

use ginnel_tests::{Done, Report, Stand, build, permit, skip};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// An MPI library of Debian's: its launcher, and its compiler for C.
#[derive(Clone, Copy)]
struct Library {
    name: &'static str,
    launcher: &'static str,
    compiler: &'static str,
}

const OPEN_MPI: Library = Library { name: "openmpi", launcher: "mpirun.openmpi", compiler: "mpicc.openmpi" };
const MPICH: Library = Library { name: "mpich", launcher: "mpirun.mpich", compiler: "mpicc.mpich" };

/// The test's MPI program, compiled for a library; `None`, after saying so, where that is not here.
fn program(library: Library, test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    if [library.launcher, library.compiler].into_iter().all(is_there) {
        return Some(build::program_by(library.compiler, "mpi", &format!("mpi-{}", library.name)));
    }
    skip(test, &format!("no {} or no {} here", library.launcher, library.compiler));
    None
}

/// `ginnel mpirun` of this library, with as many ranks as wanted on however many processors.
fn mpirun(stand: &Stand, library: Library, ranks: u32) -> Command {
    let mut command = stand.command(build::ginnel());
    // The launcher is given the library by ginnel itself.
    command.env_remove("LD_PRELOAD");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["mpirun", "--launcher", library.launcher, "-n", &ranks.to_string()]);
    if library.name == OPEN_MPI.name {
        command.args(["--oversubscribe", "--bind-to", "none"]);
    }
    command
}

/// Of what ranks told each other, all but what comes before a connection moves went through rings.
fn assert_carried(report: &Report, ranks: u32, done: &Done) {
    let (rings, tcp) = (report.ring_bytes(), report.sum("tcp_in"));
    assert!(report.processes_of("mpi-openmpi") + report.processes_of("mpi-mpich") >= ranks as usize, "{done}");
    assert!(rings > 10_000_000 && rings / 20 > tcp, "{rings} bytes by rings, {tcp} by TCP: {done}");
}

fn checked(library: Library, ranks: u32, what: &str) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-{}-{ranks}-{what}", library.name);
    let Some(program) = program(library, &name) else { return };
    let stand = Stand::shimmed(&name, &[]).limit(Duration::from_secs(300));
    let mut command = mpirun(&stand, library, ranks);
    if what == "oneside" && library.name == OPEN_MPI.name {
        // Ranks of one system would share the window's memory.
        command.args(["--mca", "osc", "pt2pt"]);
    }
    let done = stand.run(command.arg(program).arg(what));
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    if what == "check" {
        assert_carried(&stand.report(), ranks, &done);
    } else {
        assert!(stand.report().ring_bytes() > 100_000, "{done}");
    }
}

#[test]
fn open_mpi_is_carried() {
    checked(OPEN_MPI, 3, "check");
}

#[test]
#[ignore = "test-all: as others here, with more ranks"]
fn open_mpi_with_four_ranks() {
    checked(OPEN_MPI, 4, "check");
}

#[test]
#[ignore = "test-all: as others here, by one-sided calls"]
fn open_mpi_one_sided() {
    checked(OPEN_MPI, 3, "oneside");
}

#[test]
fn mpich_is_carried() {
    checked(MPICH, 2, "check");
}

#[test]
#[ignore = "test-all: a minute: MPICH's ranks spin, and there may be fewer processors than ranks"]
fn mpich_with_three_ranks() {
    checked(MPICH, 3, "check");
}

/// NetPIPE compares every byte in this mode.
#[test]
#[ignore = "test-all: a minute"]
fn netpipe_finds_no_wrong_byte() {
    let _permit = permit::cpu(2);
    if Command::new("sh").args(["-c", "command -v NPopenmpi"]).output().is_ok_and(|done| !done.status.success()) {
        return skip("netpipe_finds_no_wrong_byte", "no NPopenmpi here");
    }
    let stand = Stand::shimmed("mpi-netpipe", &[]).limit(Duration::from_secs(300));
    let mut command = mpirun(&stand, OPEN_MPI, 2);
    let done = stand.run(command.args(["NPopenmpi", "-i", "-u", "200000", "-o"]).arg(stand.dir().join("np.out")));
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(done.success() && said.matches("Integrity check passed").count() > 25, "{done}");
    assert!(stand.report().ring_bytes() > 10_000_000, "{done}");
}

/// One of three is killed while all wait for each other.
fn killed(library: Library) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-killed-{}", library.name);
    let Some(program) = program(library, &name) else { return };
    let stand = Stand::shimmed(&name, &[]).limit(Duration::from_secs(120));
    // Makes the segment.
    assert!(stand.run(&mut stand.command(build::program("half_close"))).success());
    let baseline = stand.free_extents();
    let mut running = stand.start(mpirun(&stand, library, 3).arg(program).arg("wait"));
    let ready = |output: &str| output.matches("ready ").count() == 3;
    running.wait_for("ready ");
    stand.wait_until(Duration::from_secs(60), "all ranks are ready", || ready(&running.output()));
    let output = running.output();
    let pids: Vec<i32> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(pids.len(), 3, "{output}");
    // SAFETY: no memory is passed; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(pids[1], libc::SIGKILL) }, 0);
    let done = running.finish();
    let said = format!("{}{}", done.stdout, done.stderr).to_lowercase();
    assert!(!done.success() && (said.contains("signal 9") || said.contains("killed")), "{done}");
    // SAFETY: signal 0 only asks.
    let lives = |pid: &i32| unsafe { libc::kill(*pid, 0) } == 0;
    stand.wait_until(Duration::from_secs(30), "the others end", || !pids.iter().any(lives));
    stand.assert_nothing_lost(baseline);
}

#[test]
fn a_killed_rank_of_open_mpi_ends_the_job() {
    killed(OPEN_MPI);
}

#[test]
#[ignore = "test-all: as with Open MPI"]
fn a_killed_rank_of_mpich_ends_the_job() {
    killed(MPICH);
}

/// The settings by themselves, evaluated by a shell, do what `ginnel mpirun` does.
#[test]
#[ignore = "test-all: as with ginnel mpirun"]
fn settings_for_a_shell_do_the_same() {
    let _permit = permit::cpu(2);
    for library in [OPEN_MPI, MPICH] {
        let name = format!("mpi-env-{}", library.name);
        let Some(program) = program(library, &name) else { return };
        let stand = Stand::shimmed(&name, &[]).limit(Duration::from_secs(300));
        let script = format!(
            "eval \"$('{}' mpi env --for {})\" && exec {} -n 2 '{}' check",
            build::ginnel().display(),
            library.name,
            library.launcher,
            program.display()
        );
        let mut shell = stand.command("sh");
        shell.env_remove("LD_PRELOAD").env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let done = stand.run(shell.args(["-c", &script]));
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
        assert_carried(&stand.report(), 2, &done);
    }
}

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

fn fabric(stand: &Stand, ranks: u32, more: &[&str]) -> Command {
    let mut command = stand.command(build::ginnel());
    command.env("GINNEL_DIR", stand.dir()).env("GINNEL_SHIM", build::shim());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["mpirun", "--over", "fabric", "--launcher", OPEN_MPI.launcher, "-n", &ranks.to_string()]);
    command.args(["--oversubscribe", "--bind-to", "none", "--mca", "opal_common_ofi_verbose", "1"]).args(more);
    command
}

/// Open MPI names the provider that it takes.
fn said_provider(done: &Done) -> bool {
    format!("{}{}", done.stdout, done.stderr).contains("mtl:ofi:prov: ginnel")
}

fn assert_nothing_is_left(stand: &Stand) {
    let left = std::fs::read_dir(stand.dir()).expect("there").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("mpi")).collect();
    assert!(left.is_empty(), "{left:?}");
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

#[test]
#[ignore = "test-all: as others here, by one-sided calls"]
fn open_mpi_over_the_provider_one_sided() {
    over_fabric(3, "oneside", &["--mca", "osc", "pt2pt"]);
    // By reading, writing and changing memory.
    over_fabric(3, "noswap", &["--mca", "btl", "ofi,self", "--mca", "osc", "rdma", "--mca", "osc_rdma_btls", "ofi"]);
}

#[test]
fn a_killed_rank_over_the_provider_ends_the_job() {
    let _permit = permit::cpu(2);
    let name = "mpi-fabric-killed";
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = Stand::plain(name);
    let mut running = stand.start(fabric(&stand, 3, &[]).arg(program).arg("wait"));
    running.wait_for("ready ");
    stand.wait_until(Duration::from_secs(60), "all ranks are ready", || running.output().matches("ready ").count() == 3);
    let victim = running.output().split_whitespace().find_map(|word| word.parse::<i32>().ok()).expect("a number");
    // SAFETY: no memory is passed; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(victim, libc::SIGKILL) }, 0);
    let done = running.finish();
    assert!(!done.success() && format!("{}{}", done.stdout, done.stderr).contains("signal 9"), "{done}");
    assert_nothing_is_left(&stand);
}

/// NetPIPE compares every byte in this mode.
#[test]
#[ignore = "test-all: half a minute"]
fn netpipe_over_the_provider_finds_no_wrong_byte() {
    let _permit = permit::cpu(2);
    if Command::new("sh").args(["-c", "command -v NPopenmpi"]).output().is_ok_and(|done| !done.status.success()) {
        return skip("netpipe_over_the_provider_finds_no_wrong_byte", "no NPopenmpi here");
    }
    let stand = Stand::plain("mpi-fabric-netpipe").limit(Duration::from_secs(300));
    let mut command = fabric(&stand, 2, &[]);
    let done = stand.run(command.args(["NPopenmpi", "-i", "-u", "200000", "-o"]).arg(stand.dir().join("np.out")));
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(done.success() && said.matches("Integrity check passed").count() > 25, "{done}");
    assert!(said_provider(&done), "{done}");
    assert_nothing_is_left(&stand);
}

/// libfabric's own programs: the list of providers, and messages of all sizes between two processes.
#[test]
fn fi_pingpong_over_the_provider() {
    if Command::new("fi_info").arg("--version").output().is_err() {
        return skip("fi_pingpong_over_the_provider", "no fi_info here (Debian: libfabric-bin)");
    }
    let stand = Stand::plain("fi-pingpong");
    let of_provider = |program: &str, arguments: &[&str]| {
        let mut command = stand.command(program);
        command.env("FI_PROVIDER_PATH", build::release_dir()).env("GINNEL_DIR", stand.dir()).args(arguments);
        command
    };
    let listed = stand.run(&mut of_provider("fi_info", &["-p", "ginnel"]));
    assert!(listed.success() && listed.stdout.contains("FI_EP_RDM"), "{listed}");
    let port = ginnel_tests::port::free();
    let common = ["-p", "ginnel", "-e", "rdm", "-c", "-I", "20", "-S", "all"];
    let server = stand.start(&mut of_provider("fi_pingpong", &[&common[..], &["-B", &port]].concat()));
    std::thread::sleep(Duration::from_millis(500));
    let client = stand.run(&mut of_provider("fi_pingpong", &[&common[..], &["-P", &port, "127.0.0.1"]].concat()));
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
    assert!(done.stderr.contains("are in another segment"), "a name of another segment is explained: {done}");
    assert_nothing_is_left(&stand);
}
