//! MPI programs on Debian's Open MPI and MPICH, started by `ginnel mpirun`: what ranks send is
//! carried, right, and a rank that is killed ends its job and leaves nothing behind.

use ginnel_tests::{Done, Report, Stand, build, permit, skip};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

pub fn assert_nothing_is_left(stand: &Stand) {
    let left =
        std::fs::read_dir(stand.dir()).expect("there").flatten().map(|entry| entry.file_name());
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

/// By UCX and its transport, of either library.
pub fn ucx(stand: &Stand, library: Library, ranks: u32) -> Command {
    let mut command = stand.command(build::ginnel());
    command.env("GINNEL_DIR", stand.dir()).env("GINNEL_SHIM", build::shim());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args([
        "mpirun",
        "--over",
        "ucx",
        "--launcher",
        library.launcher,
        "-n",
        &ranks.to_string(),
    ]);
    if library.name == OPEN_MPI.name {
        command.args(["--oversubscribe", "--bind-to", "none"]);
    }
    command
}

/// Right, by the transport alone (there is no other: UCX_TLS), and nothing is left.
fn over_ucx(library: Library, ranks: u32, what: &str) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-ucx-{}-{ranks}-{what}", library.name);
    let Some(program) = program(library, &name) else { return };
    let stand = Stand::plain(&name).limit(Duration::from_secs(300));
    let done = stand.run(ucx(&stand, library, ranks).arg(program).arg(what));
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    assert_nothing_is_left(&stand);
}

#[test]
fn open_mpi_over_ucx() {
    over_ucx(OPEN_MPI, 3, "check");
}

#[test]
fn mpich_over_ucx() {
    over_ucx(MPICH, 3, "check");
}

#[test]
#[ignore = "test-all: as others here, with one, two and four ranks"]
fn over_ucx_with_other_numbers_of_ranks() {
    for library in [OPEN_MPI, MPICH] {
        [1, 2, 4].into_iter().for_each(|ranks| over_ucx(library, ranks, "check"));
    }
}

#[test]
#[ignore = "test-all: as others here, by one-sided calls"]
fn one_sided_over_ucx() {
    for library in [OPEN_MPI, MPICH] {
        [2, 3].into_iter().for_each(|ranks| over_ucx(library, ranks, "oneside"));
    }
}

/// One of three is killed while all wait for each other.
fn killed_over_ucx(library: Library) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-ucx-killed-{}", library.name);
    let Some(program) = program(library, &name) else { return };
    let stand = Stand::plain(&name).limit(Duration::from_secs(120));
    let (_, done) = kill_one_of_three(&stand, ucx(&stand, library, 3).arg(program).arg("wait"));
    let said = format!("{}{}", done.stdout, done.stderr).to_lowercase();
    assert!(!done.success() && (said.contains("signal 9") || said.contains("killed")), "{done}");
    assert_nothing_is_left(&stand);
}

#[test]
fn a_killed_rank_over_ucx_ends_the_job() {
    killed_over_ucx(OPEN_MPI);
}

#[test]
#[ignore = "test-all: as with Open MPI"]
fn a_killed_rank_of_mpich_over_ucx_ends_the_job() {
    killed_over_ucx(MPICH);
}

/// Writes garbage over the part of a segment that is in use, over and over, until it is told to
/// stop.
fn scribble(segment: &Path, seed: u64, stop: &AtomicBool) {
    const REACH: usize = 8 << 20;
    let file = loop {
        match File::options().read(true).write(true).open(segment) {
            Ok(file) if file.metadata().is_ok_and(|it| it.len() >= REACH as u64) => break file,
            _ if stop.load(Ordering::Relaxed) => return,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new map of a file that is as long.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), REACH, protection, libc::MAP_SHARED, fd, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: inside the map, aligned; atomics may be shared with anybody.
    let word = |at: usize| unsafe { &*base.cast::<AtomicU64>().add(at % (REACH / 8)) };
    let mut state = seed | 1;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as usize
    };
    let garble = |at: usize, random: &mut dyn FnMut() -> usize| {
        let now = word(at).load(Ordering::Relaxed);
        let values = [
            0,
            1,
            u64::MAX,
            (random() as u64) << 11,
            random() as u64 >> 7 & !7,
            now ^ 1 << (random() % 64),
        ];
        word(at).store(values[random() % values.len()], Ordering::Relaxed);
    };
    while !stop.load(Ordering::Relaxed) {
        let from = random() % (REACH / 64) * 8;
        // What active messages begin with, where there are some; anything, now and then.
        for line in (from..from + 1600).step_by(8) {
            let head = word(line).load(Ordering::Relaxed);
            if head >> 24 & 0xff == 11 && (40..=16_416).contains(&(head & 0xff_ffff)) {
                garble(line + 4 + random() % 4, &mut random);
            }
        }
        if random() % 8 == 0 {
            garble(random(), &mut random);
        }
        // So seldom that ranks get beyond their first messages.
        std::thread::sleep(Duration::from_micros(50));
    }
    // SAFETY: mapped above.
    unsafe { libc::munmap(base, REACH) };
}

/// Whoever has the segment and not the job's key may garble what ranks tell each other, and so end
/// the job or have it wait, but not crash a rank.
#[test]
#[ignore = "test-all: a minute"]
fn garbage_in_the_segment_crashes_no_rank_over_ucx() {
    let _permit = permit::cpu(2);
    let seed = std::env::var("GINNEL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    for round in 0..6 {
        let library = [OPEN_MPI, MPICH][round as usize % 2];
        let name = format!("mpi-ucx-garbage-{}", library.name);
        let Some(program) = program(library, &name) else { return };
        let stand = Stand::plain(&name).limit(Duration::from_secs(120));
        let launch = ucx(&stand, library, 3);
        let mut command = stand.command("timeout");
        command
            .args(["-k", "10", "15"])
            .arg(launch.get_program())
            .args(launch.get_args())
            .arg(program)
            .arg("check");
        command.envs(launch.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let (segment, stop) = (stand.dir().join("mpi"), AtomicBool::new(false));
        let done = std::thread::scope(|scope| {
            scope.spawn(|| scribble(&segment, seed + round, &stop));
            let done = stand.run(&mut command);
            stop.store(true, Ordering::Relaxed);
            done
        });
        let said = format!("{}{}", done.stdout, done.stderr);
        let crashed = ["signal 11", "signal 7", "signal 6", "signal 4", "Segmentation", "panicked"];
        assert!(!crashed.iter().any(|word| said.contains(word)), "round {round}: {done}");
    }
}

/// A message that is altered while it lies in the segment is not received, and the job ends with
/// words that say why: it would wait for ever. Unaltered it is received.
#[test]
fn a_garbled_message_ends_the_job_over_ucx() {
    const MARK: &[u8] = b"GINNEL-MPI-GARBLED: these bytes are looked for";
    let _permit = permit::cpu(2);
    for (library, altered) in [(OPEN_MPI, false), (OPEN_MPI, true), (MPICH, true)] {
        let name = format!("mpi-ucx-garbled-{}-{altered}", library.name);
        let Some(program) = program_of(library, "mpi_garbled", &name) else { return };
        let stand = Stand::plain(&name).limit(Duration::from_secs(120));
        let said_so = stand.dir().join("said");
        let mut running = stand.start(ucx(&stand, library, 2).arg(program).arg(&said_so));
        running.wait_for("sent");
        if altered {
            let segment = File::options()
                .read(true)
                .write(true)
                .open(stand.dir().join("mpi"))
                .expect("the segment");
            // Messages begin on lines, and UCX puts 8 bytes before this one's.
            let mut bytes = vec![0; 8 << 20];
            let len = segment.read_at(&mut bytes, 0).expect("its bytes");
            let places: Vec<usize> = (0..len - MARK.len())
                .step_by(8)
                .filter(|at| bytes[*at..].starts_with(MARK))
                .collect();
            assert!(!places.is_empty(), "the message is there");
            places.iter().for_each(|at| segment.write_all_at(b"X", *at as u64).expect("room"));
        }
        File::create(&said_so).expect("a file");
        let done = running.finish();
        let said = format!("{}{}", done.stdout, done.stderr);
        let right = !altered && done.success() && said.contains("received right");
        let ended = altered
            && !done.success()
            && said.contains("garbled (endpoint")
            && !said.contains("received");
        assert!(right || ended, "{done}");
        assert_nothing_is_left(&stand);
    }
}

/// The settings by themselves, evaluated by a shell, do what `ginnel mpirun` does.
#[test]
#[ignore = "test-all: as with ginnel mpirun"]
fn settings_for_a_shell_lead_over_ucx() {
    let _permit = permit::cpu(2);
    for library in [OPEN_MPI, MPICH] {
        let name = format!("mpi-ucx-env-{}", library.name);
        let Some(program) = program(library, &name) else { return };
        let stand = Stand::plain(&name).limit(Duration::from_secs(300));
        let (ginnel, launcher) = (build::ginnel(), library.launcher);
        let ginnel = ginnel.display();
        let set = format!("eval \"$('{ginnel}' mpi env --for {} --over ucx)\"", library.name);
        let script = format!("{set} && exec {launcher} -n 2 '{}' check", program.display());
        let mut shell = stand.command("sh");
        shell.env("GINNEL_DIR", stand.dir()).env("GINNEL_SHIM", build::shim());
        shell.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let done = stand.run(shell.args(["-c", &script]));
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
        assert_nothing_is_left(&stand);
    }
}

/// NetPIPE compares every byte in this mode.
#[test]
#[ignore = "test-all: half a minute"]
fn netpipe_over_ucx_finds_no_wrong_byte() {
    netpipe("netpipe_over_ucx_finds_no_wrong_byte", |stand| ucx(stand, OPEN_MPI, 2));
}

/// UCX's own programs: the list of transports, and messages between two processes.
#[test]
fn ucx_programs_know_the_transport() {
    if Command::new("ucx_info").arg("-v").output().is_err() {
        return skip("ucx_programs_know_the_transport", "no ucx_info here (Debian: ucx-utils)");
    }
    let stand = Stand::plain("ucx-programs").limit(Duration::from_secs(120));
    let with_transport = |program: &str, arguments: &[&str]| {
        let mut command = stand.command(program);
        command
            .env("LD_PRELOAD", build::release_dir().join("libuct_ginnel.so"))
            .env("GINNEL_DIR", stand.dir());
        command.env("UCX_TLS", "ginnel,self").args(arguments);
        command
    };
    let listed = stand.run(&mut with_transport("ucx_info", &["-d"]));
    assert!(listed.success() && listed.stdout.contains("Transport: ginnel"), "{listed}");
    assert_nothing_is_left(&stand);
    for test in ["tag_lat", "ucp_am_bw", "ucp_put_lat", "ucp_get", "ucp_fadd"] {
        let port = ginnel_tests::port::free();
        let size = if test == "ucp_fadd" { "8" } else { "3000" };
        let common = ["-t", test, "-n", "500", "-w", "10", "-s", size, "-p", &port];
        let server = stand.start(&mut with_transport("ucx_perftest", &common));
        stand.wait_until(Duration::from_secs(60), "ucx_perftest listens", || is_listened_at(&port));
        let client =
            stand.run(&mut with_transport("ucx_perftest", &[&common[..], &["127.0.0.1"]].concat()));
        let server = server.finish();
        assert!(client.success() && server.success(), "{test}: {client}\n{server}");
        assert_nothing_is_left(&stand);
    }
}

/// Does somebody listen at this port? Who asks by connecting would be the client.
fn is_listened_at(port: &str) -> bool {
    let port: u16 = port.parse().expect("a number");
    let listens = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
            && words.nth(1) == Some("0A")
    };
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"]
        .map(|file| std::fs::read_to_string(file).unwrap_or_default());
    sockets.iter().any(|table| table.lines().any(listens))
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
