//! MPI programs on Debian's Open MPI and MPICH, started by `ginnel mpirun`: what ranks send is
//! carried, right, and a rank that is killed ends its job and leaves nothing behind.

pub mod containers;
pub mod fabric;
pub mod ucx;
mod windows;

use ginnel_tests::{Done, Report, Stand, build, permit, skip};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// An MPI library of Debian's: its launcher, and its compiler for C.
#[derive(Clone, Copy)]
pub struct Library {
    pub name: &'static str,
    pub launcher: &'static str,
    compiler: &'static str,
}

pub const OPEN_MPI: Library =
    Library { name: "openmpi", launcher: "mpirun.openmpi", compiler: "mpicc.openmpi" };
pub const MPICH: Library =
    Library { name: "mpich", launcher: "mpirun.mpich", compiler: "mpicc.mpich" };
/// OpenSHMEM, as Open MPI has it.
pub const OPEN_SHMEM: Library =
    Library { name: "openshmem", launcher: "oshrun", compiler: "oshcc" };

/// The test's MPI program, compiled for a library; `None`, after saying so, where that is not here.
fn program(library: Library, test: &str) -> Option<PathBuf> {
    program_of(library, "mpi", test)
}

/// The same of another program.
pub fn program_of(library: Library, program: &str, test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_there =
        |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).exists());
    if [library.launcher, library.compiler].into_iter().all(is_there) {
        return Some(build::program_by(
            library.compiler,
            program,
            &format!("{program}-{}", library.name),
        ));
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
    assert!(
        report.processes_of("mpi-openmpi") + report.processes_of("mpi-mpich") >= ranks as usize,
        "{done}"
    );
    assert!(rings > 10_000_000 && rings / 20 > tcp, "{rings} bytes by rings, {tcp} by TCP: {done}");
}

/// Runs it to its end. MPICH 4.0.2 hangs in `MPI_Finalize` now and then, also without Ginnel: a
/// rank that comes there later than others closes its connections, for which it needs an answer,
/// and who has none to close is in the launcher's barrier by then, where it answers nobody. So one
/// that hangs there, after all went well, is run again.
fn ended(stand: &Stand, command: &mut Command) -> Done {
    for _ in 0..5 {
        match stand.try_run(command) {
            Ok(done) => return done,
            Err(seen) => {
                assert!(seen.contains("all well") && seen.contains("PMPI_Finalize"), "{seen}");
            }
        }
    }
    panic!("it hangs in MPI_Finalize each time");
}

fn checked(library: Library, ranks: u32, what: &str) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-{}-{ranks}-{what}", library.name);
    let Some(program) = program(library, &name) else { return };
    let limit = if library.name == MPICH.name { 100 } else { 300 };
    let stand = Stand::shimmed(&name, &[]).limit(Duration::from_secs(limit));
    let mut command = mpirun(&stand, library, ranks);
    if what == "oneside" && library.name == OPEN_MPI.name {
        // Ranks of one system would share the window's memory.
        command.args(["--mca", "osc", "pt2pt"]);
    }
    let done = ended(&stand, command.arg(program).arg(what));
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
    if Command::new("sh")
        .args(["-c", "command -v NPopenmpi"])
        .output()
        .is_ok_and(|done| !done.status.success())
    {
        return skip("netpipe_finds_no_wrong_byte", "no NPopenmpi here");
    }
    let stand = Stand::shimmed("mpi-netpipe", &[]).limit(Duration::from_secs(300));
    let mut command = mpirun(&stand, OPEN_MPI, 2);
    let done = stand.run(
        command.args(["NPopenmpi", "-i", "-u", "200000", "-o"]).arg(stand.dir().join("np.out")),
    );
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(done.success() && said.matches("Integrity check passed").count() > 25, "{done}");
    assert!(stand.report().ring_bytes() > 10_000_000, "{done}");
}

/// Starts a job of three ranks and kills one, while all wait for each other: their numbers, and
/// what the job came to.
fn kill_one_of_three(stand: &Stand, launch: &mut Command) -> (Vec<i32>, Done) {
    let mut running = stand.start(launch);
    running.wait_for("ready ");
    stand.wait_until(Duration::from_secs(60), "all ranks are ready", || {
        running.output().matches("ready ").count() == 3
    });
    let output = running.output();
    let pids: Vec<i32> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(pids.len(), 3, "{output}");
    // SAFETY: no memory is passed; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(pids[1], libc::SIGKILL) }, 0);
    (pids, running.finish())
}

fn killed(library: Library) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-killed-{}", library.name);
    let Some(program) = program(library, &name) else { return };
    let stand = Stand::shimmed(&name, &[]).limit(Duration::from_secs(120));
    // Makes the segment.
    assert!(stand.run(&mut stand.command(build::program("half_close"))).success());
    let baseline = stand.free_extents();
    let (pids, done) =
        kill_one_of_three(&stand, mpirun(&stand, library, 3).arg(program).arg("wait"));
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
        shell
            .env_remove("LD_PRELOAD")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let done = stand.run(shell.args(["-c", &script]));
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
        assert_carried(&stand.report(), 2, &done);
    }
}

pub fn assert_nothing_is_left(stand: &Stand) {
    let left =
        std::fs::read_dir(stand.dir()).expect("there").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("mpi")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Right, and nothing is left. `None`, after saying so, where there is no NetPIPE.
fn netpipe(test: &str, launch: impl Fn(&Stand) -> Command) -> Option<Done> {
    let _permit = permit::cpu(2);
    if Command::new("sh")
        .args(["-c", "command -v NPopenmpi"])
        .output()
        .is_ok_and(|done| !done.status.success())
    {
        skip(test, "no NPopenmpi here");
        return None;
    }
    let stand = Stand::plain(test).limit(Duration::from_secs(300));
    let mut command = launch(&stand);
    let done = stand.run(
        command.args(["NPopenmpi", "-i", "-u", "200000", "-o"]).arg(stand.dir().join("np.out")),
    );
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(done.success() && said.matches("Integrity check passed").count() > 25, "{done}");
    assert_nothing_is_left(&stand);
    Some(done)
}
