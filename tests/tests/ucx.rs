//! The UCX transport beside others: random MPI programs whose outcome must not depend on the way,
//! what programs ask of UCX that MPI does not, and other people's tests.

use crate::mpi::fabric::fabric;
use crate::mpi::ucx::ucx;
use crate::mpi::{Library, MPICH, OPEN_MPI, assert_nothing_is_left, program_of};
use ginnel_tests::{Done, Stand, build, permit, skip};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How many phases a random program has.
const PHASES: &str = "40";

/// The words by which a program is told its seed, and the fault that is planted in it.
fn words(seed: u64, fault: &str) -> Vec<String> {
    let mut words = vec![seed.to_string(), PHASES.to_owned()];
    words.extend((!fault.is_empty()).then(|| fault.to_owned()));
    words
}

/// Two to four ranks.
fn ranks(seed: u64) -> u32 {
    2 + (seed % 3) as u32
}

/// What came of a random program, a line for each phase; the last line says that all went well.
fn outcome(done: &Done) -> String {
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    done.stdout.clone()
}

/// Open MPI's launcher, by its own shared memory: nothing of Ginnel's.
fn plain_command(stand: &Stand, seed: u64) -> Command {
    let mut command = stand.command(OPEN_MPI.launcher);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args([
        "--oversubscribe",
        "--bind-to",
        "none",
        "--mca",
        "pml",
        "ob1",
        "--mca",
        "btl",
        "vader,self",
    ]);
    command.args(["--mca", "osc", "pt2pt", "-n", &ranks(seed).to_string()]);
    command
}

/// What comes of a random program that way.
fn plainly(stand: &Stand, program: &Path, seed: u64) -> String {
    outcome(&stand.run(plain_command(stand, seed).arg(program).args(words(seed, ""))))
}

/// Random programs of these seeds, by each way.
fn random_programs(test: &str, seeds: impl Iterator<Item = u64>, over_fabric: bool) {
    let _permit = permit::cpu(2);
    let programs = [OPEN_MPI, MPICH].map(|library| program_of(library, "mpi_random", test));
    let [Some(open_mpi), Some(mpich)] = programs else { return };
    let stand = Stand::plain(test).limit(Duration::from_secs(300));
    for seed in seeds {
        let expected = plainly(&stand, &open_mpi, seed);
        let carried = |library: Library, program: &Path, mut command: Command| {
            let done = stand.run(command.arg(program).args(words(seed, "")));
            assert_eq!(outcome(&done), expected, "seed {seed}, {}: {done}", library.name);
            assert_nothing_is_left(&stand);
        };
        for (library, program) in [(OPEN_MPI, &open_mpi), (MPICH, &mpich)] {
            carried(library, program, ucx(&stand, library, ranks(seed)));
        }
        if over_fabric {
            carried(OPEN_MPI, &open_mpi, fabric(&stand, ranks(seed), &["--mca", "osc", "pt2pt"]));
        }
    }
}

#[test]
fn a_random_program_comes_to_the_same() {
    random_programs("mpi-random", std::iter::once(3), false);
}

#[test]
#[ignore = "test-all: a minute or two, new seeds each time"]
fn random_programs_come_to_the_same() {
    let seed = std::env::var("GINNEL_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = seed.unwrap_or_else(|| u64::from(std::process::id()) * 100);
    println!("seeds from {first}");
    random_programs("mpi-random-many", first..first + if seed.is_some() { 1 } else { 10 }, true);
}

/// Threads of each rank at once (MPI_THREAD_MULTIPLE). Who made progress with UCX's lock let others
/// run, which spun for it: that took minutes, if it ended.
#[test]
#[ignore = "test-all: some seconds"]
fn threads_at_once_come_to_the_same() {
    let _permit = permit::cpu(2);
    let name = "mpi-random-threads";
    let Some(open_mpi) = program_of(OPEN_MPI, "mpi_random", name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(300));
    let expected = plainly(&stand, &open_mpi, 12);
    for library in [OPEN_MPI, MPICH] {
        let Some(program) = program_of(library, "mpi_random", name) else { return };
        let mut command = ucx(&stand, library, ranks(12));
        command.env("MPI_RANDOM_THREADS", "1").arg(program).args(words(12, ""));
        let done = stand.run(&mut command);
        assert_eq!(outcome(&done), expected, "{}: {done}", library.name);
        assert_nothing_is_left(&stand);
    }
}

/// Open MPI's mtl/ofi lost completions, and took others twice, where a completion of its own had to
/// send and found no room: this seed ended three times of four, in `free` or by waiting for ever.
#[test]
#[ignore = "test-all: some seconds"]
fn completions_that_send_come_to_the_same_over_the_provider() {
    let _permit = permit::cpu(2);
    let name = "mpi-random-completions";
    let Some(program) = program_of(OPEN_MPI, "mpi_random", name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(300));
    let expected = plainly(&stand, &program, 174);
    for _ in 0..3 {
        let mut command = fabric(&stand, ranks(174), &["--mca", "osc", "pt2pt"]);
        let done = stand.run(command.arg(&program).args(words(174, "")));
        assert_eq!(outcome(&done), expected, "{done}");
        assert_nothing_is_left(&stand);
    }
}

/// As above, over libfabric: without windows, which Open MPI does not make there for such a
/// program.
#[test]
#[ignore = "test-all: some seconds"]
fn threads_at_once_come_to_the_same_over_the_provider() {
    let _permit = permit::cpu(2);
    let name = "mpi-random-threads-fabric";
    let Some(program) = program_of(OPEN_MPI, "mpi_random", name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(300));
    for seed in [12, 174, 400] {
        let run = |mut command: Command| {
            command.env("MPI_RANDOM_NO_WINDOWS", "1");
            outcome(&stand.run(command.arg(&program).args(words(seed, ""))))
        };
        let expected = run(plain_command(&stand, seed));
        let mut command = fabric(&stand, ranks(seed), &[]);
        command.env("MPI_RANDOM_THREADS", "1");
        assert_eq!(run(command), expected, "seed {seed}");
        assert_nothing_is_left(&stand);
    }
}

/// Ranks of two segments in one job: TCP between them.
#[test]
#[ignore = "test-all: as others here, over two transports"]
fn ranks_of_two_segments_meet_over_tcp() {
    let _permit = permit::cpu(2);
    let name = "mpi-random-segments";
    let Some(program) = program_of(OPEN_MPI, "mpi_random", name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(300));
    for seed in [3, 5] {
        let expected = plainly(&stand, &program, seed);
        let mut command = ucx(&stand, OPEN_MPI, ranks(seed));
        let own = "GINNEL_FABRIC=$GINNEL_DIR/mpi$((OMPI_COMM_WORLD_RANK % 2)) exec";
        let script = format!("{own} '{}' {}", program.display(), words(seed, "").join(" "));
        command.env("UCX_TLS", "ginnel,tcp,self").args(["sh", "-c", &script]);
        let done = stand.run(&mut command);
        // UCX says of endpoints that were closed while another was gone already, a line each.
        let said = done
            .stdout
            .lines()
            .filter(|line| !line.starts_with('['))
            .map(|line| format!("{line}\n"));
        assert!(done.success() && said.collect::<String>() == expected, "seed {seed}: {done}");
        assert_nothing_is_left(&stand);
    }
}

/// More ranks than the segment has room for: the job ends with words that say what to do, and with
/// nothing left, although MPICH's launcher ends before the ranks that it kills.
#[test]
#[ignore = "test-all: some seconds"]
fn a_segment_that_is_too_small_is_said_to_be() {
    let _permit = permit::cpu(2);
    for library in [OPEN_MPI, MPICH] {
        let name = format!("mpi-too-small-{}", library.name);
        let Some(program) = program_of(library, "mpi", &name) else { return };
        let stand = Stand::plain(&name).limit(Duration::from_secs(120));
        let done = stand
            .run(ucx(&stand, library, 8).env("GINNEL_SIZE", "16777216").arg(program).arg("check"));
        assert!(!done.success() && done.stderr.contains("GINNEL_SIZE"), "{done}");
        assert_nothing_is_left(&stand);
    }
}

/// The test of the test: each planted fault is seen in what comes of a program.
#[test]
#[ignore = "test-all: the test of a test"]
fn planted_faults_are_found() {
    let _permit = permit::cpu(2);
    let name = "mpi-random-faults";
    let Some(program) = program_of(OPEN_MPI, "mpi_random", name) else { return };
    let stand = Stand::plain(name).limit(Duration::from_secs(120));
    let expected = plainly(&stand, &program, 3);
    for fault in ["order", "byte", "twice", "short"] {
        let done = stand.run(ucx(&stand, OPEN_MPI, ranks(3)).arg(&program).args(words(3, fault)));
        let differ = outcome(&done)
            .lines()
            .zip(expected.lines())
            .filter(|(one, other)| one != other)
            .count();
        assert!(differ > 0, "{fault}: {done}");
    }
}

/// A program on UCX, by the transport alone.
fn calls(stand: &Stand, what: &str) -> Command {
    let mut command =
        stand.command(build::program_with("ucx_calls", "ucx_calls", &["-lucp", "-lucs"]));
    command
        .env("LD_PRELOAD", build::release_dir().join("libuct_ginnel.so"))
        .env("GINNEL_DIR", stand.dir());
    command
        .env("UCX_TLS", "ginnel")
        .env("GINNEL_JOB_KEY", "000102030405060708090a0b0c0d0eff")
        .arg(what);
    command
}

fn has_ucx(test: &str) -> bool {
    let is_there = Path::new("/usr/include/ucp/api/ucp.h").exists();
    if !is_there {
        skip(test, "no headers of UCX here (Debian: libucx-dev)");
    }
    is_there
}

/// So many processes at once, all right.
fn called(what: &str, processes: usize) {
    let name = format!("ucx-calls-{what}");
    if !has_ucx(&name) {
        return;
    }
    let _permit = permit::cpu(2);
    let stand = Stand::plain(&name).limit(Duration::from_secs(120));
    let all: Vec<_> = (0..processes).map(|_| stand.start(&mut calls(&stand, what))).collect();
    for done in all.into_iter().map(ginnel_tests::Running::finish) {
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
    }
    assert_nothing_is_left(&stand);
}

/// Messages that a send's completion sends do not pass those that wait for room.
#[test]
fn messages_keep_their_order() {
    called("order", 1);
}

#[test]
fn who_polls_a_descriptor_is_woken() {
    called("wait", 1);
}

/// More processes than processors, so that they sleep over the interfaces that they have.
#[test]
#[ignore = "test-all: some seconds"]
fn workers_are_lent_to_other_threads() {
    called("threads", 4);
}
