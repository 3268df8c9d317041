//! Named objects between two machines, through their device: what `crates/sdk` plays between two
//! processes of one kernel, and an array of numpy's.

use crate::common::{Lab, PATIENCE, wait};
use ginnel_guest::{machine, source_dir, target_dir};
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
            let said = lab.guests[0].sh("cat said");
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
