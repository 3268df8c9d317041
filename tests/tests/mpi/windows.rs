//! Random one-sided programs over UCX: several windows at once, all ways to lock and to wait, ranks
//! that meet in the same places. Each rank computes what must come of it.

use super::ucx::ucx;
use super::{Library, MPICH, OPEN_MPI, assert_nothing_is_left, kill_one_of_three, program_of};
use ginnel_tests::{Done, Stand, permit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PHASES: &str = "12";

/// With several threads Open MPI 4.1.4's osc/ucx now and then takes a key of one worker for another
/// one's, over UCX's own shared memory, too: 2 of 47 runs of seed 3. UCX says so, and the job ends.
const KEY_OF_ANOTHER: &str = "cannot use a remote key on a different endpoint";

fn program(library: Library, test: &str) -> Option<PathBuf> {
    program_of(library, "mpi_windows", test)
}

fn stand(test: &str) -> Stand {
    Stand::plain(test).limit(Duration::from_secs(300))
}

/// A program of this seed, with two to four ranks.
fn run(stand: &Stand, library: Library, program: &Path, seed: u64, set: &[(&str, &str)]) -> Done {
    let mut command = ucx(stand, library, 2 + (seed % 3) as u32);
    command.envs(set.iter().copied()).arg(program).args([&seed.to_string(), PHASES]);
    stand.run(&mut command)
}

fn all_well(test: &str, library: Library, seeds: &[u64], set: &[(&str, &str)]) {
    let _permit = permit::cpu(2);
    let Some(program) = program(library, test) else { return };
    let stand = stand(test);
    for seed in seeds {
        let mut runs = (0..5).map(|_| run(&stand, library, &program, *seed, set));
        let done = runs.find(|done| !done.stdout.contains(KEY_OF_ANOTHER));
        let done = done.expect("one run of five without a fault of Open MPI's");
        let is_well = done.success() && done.stdout.contains("all well");
        assert!(is_well, "seed {seed}, {}: {done}", library.name);
        assert_nothing_is_left(&stand);
    }
}

#[test]
fn a_random_one_sided_program_comes_to_what_it_must() {
    all_well("mpi-windows", OPEN_MPI, &[1], &[]);
}

/// Open MPI gives the lock of an accumulate back before `MPI_Fetch_and_op` has been answered. Where
/// the lock lay in the segment and the memory did not, the answer came too late: 599 for 600.
#[test]
fn who_meets_in_memory_of_the_program_counts_right() {
    let _permit = permit::cpu(2);
    let name = "mpi-windows-meet";
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = stand(name);
    for _ in 0..2 {
        let done = stand.run(ucx(&stand, OPEN_MPI, 3).arg(&program).arg("meet"));
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
        assert_nothing_is_left(&stand);
    }
}

/// A try for a lock in the segment is done at once: between two of them the rank answers others.
#[test]
fn who_waits_for_a_lock_answers_messages() {
    let _permit = permit::cpu(2);
    let name = "mpi-windows-sends";
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(120));
    for ranks in [2, 3] {
        let done = stand.run(ucx(&stand, OPEN_MPI, ranks).arg(&program).arg("sends"));
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
        assert_nothing_is_left(&stand);
    }
}

/// osc/ucx refuses a window of `MPI_Win_allocate_shared`, and takes all others.
#[test]
fn who_shares_memory_has_windows_beside_those_in_the_segment() {
    let _permit = permit::cpu(2);
    let name = "mpi-windows-shared";
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = stand(name);
    let done = stand.run(ucx(&stand, OPEN_MPI, 3).arg(&program).arg("shared"));
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    assert_nothing_is_left(&stand);
}

#[test]
#[ignore = "test-all: a minute, new seeds each time"]
fn random_one_sided_programs_come_to_what_they_must() {
    let seed = std::env::var("GINNEL_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = seed.unwrap_or_else(|| u64::from(std::process::id()) * 100);
    println!("seeds from {first}");
    let seeds: Vec<u64> = (first..first + if seed.is_some() { 1 } else { 9 }).collect();
    for library in [OPEN_MPI, MPICH] {
        all_well(&format!("mpi-windows-many-{}", library.name), library, &seeds, &[]);
    }
}

#[test]
#[ignore = "test-all: some seconds"]
fn random_one_sided_programs_of_several_threads() {
    all_well("mpi-windows-threads", OPEN_MPI, &[3, 4], &[("MPI_WINDOWS_THREADS", "1")]);
}

/// A child has the same pages, and none of the windows.
#[test]
#[ignore = "test-all: some seconds"]
fn random_one_sided_programs_with_children() {
    all_well("mpi-windows-forks", OPEN_MPI, &[3, 4], &[("MPI_WINDOWS_FORKS", "1")]);
}

/// The test of the test: the program is right over other people's transports, and each planted
/// fault is found.
#[test]
#[ignore = "test-all: the test of a test"]
fn planted_faults_in_one_sided_programs_are_found() {
    let _permit = permit::cpu(2);
    let name = "mpi-windows-faults";
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = stand(name);
    let plainly = |fault: &str| {
        let mut command = stand.command(OPEN_MPI.launcher);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1"]);
        command.args(["--mca", "btl", "vader,self", "--mca", "osc", "pt2pt", "-n", "3"]);
        stand.run(command.arg(&program).args(["2", PHASES, fault]))
    };
    let done = plainly("");
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    for fault in ["twice", "lost", "ticket", "torn"] {
        let done = plainly(fault);
        assert!(!done.success() && done.stderr.contains(" for "), "{fault}: {done}");
    }
}

/// A rank that is killed, or gives the job up, while it has the windows that all others wait for.
fn ends(name: &str, end: impl Fn(&Stand, Command, &Path) -> Done) {
    let _permit = permit::cpu(2);
    let Some(program) = program(OPEN_MPI, name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(120));
    let done = end(&stand, ucx(&stand, OPEN_MPI, 3), &program);
    assert!(!done.success() && !done.stdout.contains("two have it"), "{done}");
    assert_nothing_is_left(&stand);
}

#[test]
fn a_rank_that_is_killed_with_a_lock_ends_the_job() {
    ends("mpi-windows-killed", |stand, mut command, program| {
        kill_one_of_three(stand, command.arg(program).arg("held")).1
    });
}

#[test]
#[ignore = "test-all: some seconds"]
fn a_rank_that_gives_up_with_a_lock_ends_the_job() {
    ends("mpi-windows-aborted", |stand, mut command, program| {
        stand.run(command.arg(program).arg("abort"))
    });
}
