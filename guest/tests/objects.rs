//! Named objects between two machines, through their device: what `crates/sdk` plays between two
//! processes of one kernel; machines that stand still, lose the device, or the daemon; and an array
//! of numpy's.

use crate::common::{Lab, PATIENCE, wait};
use ginnel_guest::{machine, source_dir, target_dir};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// As long as all scenes take under emulation, on a machine that is busy with other things.
const SCENES: Duration = Duration::from_secs(300);
/// Debian's interpreter, for which its numpy is made.
const PYTHON: &str = "/usr/bin/python3";
const LIBRARY: &str = "/usr/lib/libginnel.so.0";

/// The program of two that meet in a segment.
fn between() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--profile", "testing", "-p", "ginnel", "--example", "between"]);
    let built = cargo.env("CARGO_TARGET_DIR", target_dir()).current_dir(source_dir()).status();
    assert!(built.expect("cargo").success(), "it does not compile");
    target_dir().join("testing/examples/between")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn objects_join_two_machines_and_outlive_one() {
    let _alone = machine::alone();
    let between = between();
    let mut lab = Lab::boot(2, true, &[between.to_str().expect("UTF-8")]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let first = one.start("between first", SCENES).expect("started");
    let second = two.start("between second", SCENES).expect("started");
    // Where one fails, the other waits in vain: both are heard.
    let said = [first, second].map(|part| part.finish().expect("ended"));
    for part in &said {
        assert!(part.status == 0 && part.out.contains("8 scenes"), "{said:#?}");
    }

    // One dies alone in its machine, where another process sees it; then the machine dies.
    let survivor = one.start("between outlives 2 >said 2>&1", SCENES).expect("started");
    let says = |lab: &Lab, what: &str| {
        wait(what, || {
            let said = lab.guests[0].sh("cat said 2>/dev/null || true");
            assert!(!said.contains("panicked"), "{said}");
            said.contains(what).then_some(())
        });
    };
    let dies = "between dies >said 2>&1 & echo $! >pid; wait $!";
    let _killed = two.start(dies, PATIENCE).expect("started");
    says(&lab, "met 1");
    lab.guests[1].sh("kill -9 $(cat pid); ginnel ls >/dev/null");
    says(&lab, "gone 1");
    let _killed = lab.guests[1].start(dies, PATIENCE).expect("started");
    says(&lab, "met 2");
    lab.guests[1].kill();
    says(&lab, "gone 2");
    survivor.finish().expect("ended").good().expect("well");
    lab.guests[0].assert_healthy();
}

/// Stops a machine's processors, or lets them go on.
fn tell(lab: &mut Lab, which: usize, command: &str) {
    lab.guests[which].qmp(json!({"execute": command})).expect("done");
}

/// One machine stands still again and again, and `ginneld` is killed, under objects of all kinds.
fn play_through_pauses(lab: &mut Lab) {
    let second = "between second; status=$?; touch over; exit $status";
    let parts = [(0, "between first"), (1, second)]
        .map(|(which, line)| lab.guests[which].start(line, SCENES).expect("started"));
    let mut rounds = 0;
    while lab.guests[1].sh("ls over 2>/dev/null || true").is_empty() {
        tell(lab, 1, "stop");
        lab.daemon.kill_instance().expect("killed, and started again");
        std::thread::sleep(Duration::from_millis(300));
        tell(lab, 1, "cont");
        rounds += 1;
    }
    let said = parts.map(|part| part.finish().expect("ended"));
    for part in &said {
        assert!(part.status == 0 && part.out.contains("8 scenes"), "{said:#?}");
    }
    assert!(rounds >= 3, "{rounds} pauses");
}

/// A machine loses its device while one of its processes waits, and gets it back.
fn lose_the_device(lab: &mut Lab) {
    let answers = lab.guests[0].start("between answers 2", SCENES).expect("started");
    let loses = lab.guests[1].start("between loses >loses 2>&1", SCENES).expect("started");
    let says = |lab: &Lab, what: &str| {
        wait(what, || {
            let said = lab.guests[1].sh("cat loses 2>/dev/null || true");
            assert!(!said.contains("panicked"), "{said}");
            said.contains(what).then_some(())
        });
    };
    says(lab, "waits");
    lab.unplug(1);
    says(lab, "gone");
    lab.plug(1);
    says(lab, "back");
    for part in [answers, loses] {
        part.finish().expect("ended").good().expect("well");
    }
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn objects_outlast_pauses_the_daemon_and_the_device() {
    let _alone = machine::alone();
    let between = between();
    let mut lab = Lab::boot(2, true, &[between.to_str().expect("UTF-8")]);
    play_through_pauses(&mut lab);
    lose_the_device(&mut lab);

    // One holds everything. As long as its machine only stands still, nobody has any of it.
    let survivor = lab.guests[0].start("between outlives 2 >said 2>&1", SCENES).expect("started");
    let said = |lab: &Lab, what: &str| {
        let said = lab.guests[0].sh("cat said 2>/dev/null || true");
        assert!(!said.contains("panicked"), "{said}");
        said.contains(what)
    };
    let dies = "between dies >said 2>&1 & echo $! >pid; wait $!";
    let _holds = lab.guests[1].start(dies, SCENES).expect("started");
    wait("met 1", || said(&lab, "met 1").then_some(()));
    tell(&mut lab, 1, "stop");
    std::thread::sleep(Duration::from_secs(3));
    lab.daemon.kill_instance().expect("killed, and started again");
    std::thread::sleep(Duration::from_secs(2));
    tell(&mut lab, 1, "cont");
    lab.guests[1].sh("ginnel ls; sleep 1");
    assert!(!said(&lab, "gone 1"), "it stood still, and was taken for dead");
    // Without the device it is as good as dead.
    lab.unplug(1);
    wait("gone 1", || said(&lab, "gone 1").then_some(()));
    lab.plug(1);
    lab.guests[1].sh("kill -9 $(cat pid)");
    let _holds = lab.guests[1].start(dies, SCENES).expect("started");
    wait("met 2", || said(&lab, "met 2").then_some(()));
    lab.daemon.kill_instance().expect("killed, and started again");
    lab.guests[1].kill();
    wait("gone 2", || said(&lab, "gone 2").then_some(()));
    survivor.finish().expect("ended").good().expect("well");
    lab.guests[0].assert_healthy();
}

/// A program in Python that fills half of an array, and waits until the other half is right.
const ARRAY: &str = "
import sys, ginnel, numpy
mine, theirs = int(sys.argv[1]), 1 - int(sys.argv[1])
segment = ginnel.Segment.own()
memory = ginnel.Memory.open_or_create(segment, 'field', 8 * 100_000)
barrier = ginnel.Barrier.open_or_create(segment, 'both', 2)
field = numpy.frombuffer(memory.in_place(), dtype=numpy.float64).reshape(2, 50_000)
barrier.wait(timeout=200)
field[mine] = numpy.linspace(mine, mine + 1, 50_000)
barrier.wait(timeout=200)
assert numpy.array_equal(field[theirs], numpy.linspace(theirs, theirs + 1, 50_000))
barrier.wait(timeout=200)
if mine:
    field *= 2
barrier.wait(timeout=200)
assert abs(field.sum() - 200_000) < 1e-3, field.sum()
print('an array of', field.size)
";

/// Prints every file that the interpreter loads for the modules of [`ARRAY`].
const FILES: &str = "import sys, ginnel, numpy
print('\\n'.join({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)}))";

/// The module for Python, in the sources.
fn module() -> PathBuf {
    source_dir().join("crates/capi/python")
}

/// What the interpreter needs for [`ARRAY`], and libraries that it or its modules load. `None`
/// where the host has no numpy.
fn files_of_python(library: &Path) -> Option<Vec<PathBuf>> {
    let mut python = Command::new(PYTHON);
    python.args(["-B", "-c", FILES]).env("PYTHONPATH", module()).env("GINNEL_LIBRARY", library);
    let said = python.output().ok().filter(|said| said.status.success())?;
    let said = String::from_utf8(said.stdout).expect("paths");
    let mut files: Vec<PathBuf> = said.lines().map(PathBuf::from).collect();
    // A link to it is not followed here: it is what stands behind, by another name.
    files.push(PYTHON.into());
    let compiled = |path: &&PathBuf| path.extension().is_none_or(|kind| kind == "so");
    let libraries =
        Command::new("ldd").args(files.iter().filter(compiled)).output().expect("ldd").stdout;
    let libraries = String::from_utf8_lossy(&libraries).into_owned();
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    files.extend(libraries.lines().filter(|line| line.starts_with('\t')).filter_map(path));
    files.sort();
    files.dedup();
    Some(files.into_iter().filter(|file| file.is_file()).collect())
}

/// An array of numpy's, worked on in two machines.
#[test]
#[ignore = "test-all: boots guests of its own"]
fn an_array_is_worked_on_by_two_machines() {
    let place = tempfile::tempdir().expect("a directory");
    let mut build = Command::new(source_dir().join("scripts/build-capi.sh"));
    build.arg(place.path()).env("GINNEL_BUILT", "1").env("CARGO_TARGET_DIR", target_dir());
    assert!(build.status().expect("a script").success(), "libginnel.so does not link");
    let library = place.path().join("lib/libginnel.so.0");
    let Some(needed) = files_of_python(&library) else {
        println!("skipped: Debian's python3 or python3-numpy is not installed");
        return;
    };
    let _alone = machine::alone();
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|why| panic!("{path:?}: {why}"));
    let file = |path: &PathBuf| {
        let place =
            path.strip_prefix(module()).map_or(path.clone(), |own| Path::new("/root").join(own));
        (place.to_str().expect("UTF-8").to_owned(), 0o755, read(path))
    };
    let mut files: Vec<_> = needed.iter().map(file).collect();
    files.push((LIBRARY.into(), 0o755, read(&library)));
    files.push(("/root/halves.py".into(), 0o644, ARRAY.into()));
    let lab = Lab::with_files(2, files);
    let run = |mine: usize| {
        let line = format!("cd /root && GINNEL_LIBRARY={LIBRARY} {PYTHON} -B halves.py {mine}");
        lab.guests[mine].start(&line, SCENES).expect("started")
    };
    let said = [run(0), run(1)].map(|part| part.finish().expect("ended"));
    for part in &said {
        assert!(part.status == 0 && part.out.contains("an array of 100000"), "{said:#?}");
    }
    let shown = lab.guests[0].sh("ginnel ls");
    assert!(shown.contains("field") && shown.contains("both"), "{shown}");
    lab.assert_healthy();
}
