//! Ranks of Open MPI and MPICH over UCX and the transport, and UCX's own programs.

use super::{
    Library, MPICH, OPEN_MPI, OPEN_SHMEM, assert_nothing_is_left, kill_one_of_three, netpipe,
    program, program_of,
};
use ginnel_tests::{Stand, build, permit, skip};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// By UCX and its transport, of either library.
pub fn ucx(stand: &Stand, library: Library, ranks: u32) -> Command {
    let mut command = ucx_with(stand, library, &["-n", &ranks.to_string()]);
    if library.name != MPICH.name {
        command.args(["--oversubscribe", "--bind-to", "none"]);
    }
    command
}

/// The same with these words for the launcher alone.
fn ucx_with(stand: &Stand, library: Library, words: &[&str]) -> Command {
    let mut command = stand.command(build::ginnel());
    command.env("GINNEL_DIR", stand.dir()).env("GINNEL_SHIM", build::shim());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["mpirun", "--over", "ucx", "--launcher", library.launcher]).args(words);
    command
}

/// Right, by the transport alone (there is no other: UCX_TLS), and nothing is left.
fn over_ucx(library: Library, ranks: u32, what: &str) {
    over_ucx_with(library, ranks, what, &[]);
}

/// The same with these settings.
fn over_ucx_with(library: Library, ranks: u32, what: &str, set: &[(&str, &str)]) {
    let _permit = permit::cpu(2);
    let name = format!("mpi-ucx-{}-{ranks}-{what}", library.name);
    let Some(program) = program(library, &name) else { return };
    let stand = Stand::plain(&name).limit(Duration::from_secs(300));
    let mut command = ucx(&stand, library, ranks);
    let done = stand.run(command.envs(set.iter().copied()).arg(program).arg(what));
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

/// Of whom there are more than processors sleep where they wait, and never between two steps: at two
/// milliseconds for each look in vain this would take ten minutes.
#[test]
fn who_looks_between_short_steps_is_not_put_to_sleep_over_ucx() {
    over_ucx(OPEN_MPI, 3, "steps");
    over_ucx(MPICH, 3, "steps");
}

/// Beside UCX's own transport that reads long messages out of the sender's memory.
#[test]
#[ignore = "test-all: as others here"]
fn over_ucx_with_long_messages_in_one_copy() {
    for library in [OPEN_MPI, MPICH] {
        over_ucx_with(library, 3, "check", &[("UCX_TLS", "ginnel,cma,self")]);
    }
}

#[test]
#[ignore = "test-all: as others here, by one-sided calls"]
fn one_sided_over_ucx() {
    for library in [OPEN_MPI, MPICH] {
        [2, 3].into_iter().for_each(|ranks| over_ucx(library, ranks, "oneside"));
    }
}

/// Accumulates, their atomicity and locks need no calls of the rank whose window it is.
#[test]
fn accumulates_of_open_mpi_need_no_help_over_ucx() {
    over_ucx(OPEN_MPI, 3, "unhelped");
}

/// Puts, gets, atomics, locks and collectives of OpenSHMEM: by the transport alone, and nothing is
/// left.
#[test]
#[ignore = "test-all: as with MPI"]
fn open_shmem_over_ucx() {
    let _permit = permit::cpu(2);
    for elements in [2, 3, 4] {
        let name = format!("shmem-ucx-{elements}");
        let Some(program) = program_of(OPEN_SHMEM, "shmem", &name) else { return };
        let stand = Stand::plain(&name).limit(Duration::from_secs(300));
        let done = stand.run(ucx(&stand, OPEN_SHMEM, elements).arg(program));
        assert!(done.success() && done.stdout.contains("all well"), "{done}");
        assert_nothing_is_left(&stand);
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
        // What the locks of a window lie in: 38 words, and zeroes behind them.
        let page = random() % (REACH / 4096) * 512;
        if (page + 38..page + 512).all(|at| word(at).load(Ordering::Relaxed) == 0) {
            garble(page + random() % 38, &mut random);
        }
        // So seldom that ranks get beyond their first messages.
        std::thread::sleep(Duration::from_micros(50));
    }
    // SAFETY: mapped above.
    unsafe { libc::munmap(base, REACH) };
}

/// Whoever has the segment and not the job's key may garble what ranks tell each other, and the
/// locks of their windows, and so end the job or have it wait, but not crash a rank.
#[test]
#[ignore = "test-all: a minute"]
fn garbage_in_the_segment_crashes_no_rank_over_ucx() {
    let _permit = permit::cpu(2);
    let seed = std::env::var("GINNEL_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}");
    for round in 0..8 {
        let library = [OPEN_MPI, MPICH][round as usize % 2];
        let what = ["check", "oneside"][round as usize / 2 % 2];
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
            .arg(what);
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

/// Open MPI's launcher takes the programs of a job out of a file, and looks at no variable before
/// that.
#[test]
fn programs_that_a_file_names_go_over_ucx() {
    let _permit = permit::cpu(2);
    let Some(program) = program(OPEN_MPI, "mpi-ucx-app") else { return };
    let stand = Stand::plain("mpi-ucx-app").limit(Duration::from_secs(300));
    let rank = stand.dir().join("rank");
    let script = format!(
        "[ \"$UCX_TLS\" = ginnel,self ] && [ \"$GINNEL_JOB_KEY\" ] && exec '{}' check\nexit 9\n",
        program.display()
    );
    std::fs::write(&rank, script).expect("a script");
    let file = stand.dir().join("programs");
    let line = format!("-np 1 sh {}\n", rank.display());
    std::fs::write(&file, line.repeat(2)).expect("a file");
    let mut command = ucx_with(&stand, OPEN_MPI, &[]);
    let done =
        stand.run(command.args(["--oversubscribe", "--bind-to", "none", "--app"]).arg(&file));
    assert!(done.success() && done.stdout.contains("all well"), "{done}");
    assert_nothing_is_left(&stand);
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
