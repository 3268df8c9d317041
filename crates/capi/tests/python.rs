//! The module for Python, by Debian's own interpreter, over the built library; and the examples of
//! its guide.

use crate::programs::{installed, place, ran, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's, where there is one.
fn python() -> PathBuf {
    let debians = Path::new("/usr/bin/python3");
    if debians.is_file() { debians.to_owned() } else { "python3".into() }
}

fn command(place: &Path, program: &Path) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python());
    command
        .args(["-W", "error"])
        .arg(program)
        .env("PYTHONPATH", here.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GINNEL_LIBRARY", place.join("lib/libginnel.so.0"))
        .env("GINNEL_DIR", place.join("own"))
        .env_remove("GINNEL_SEGMENT");
    command
}

fn run(place: &Path, program: &Path) {
    let done = ran(&mut command(place, program));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {}\n{said}", program.display(), done.status);
}

#[test]
fn every_object_serves_python() {
    let place = place();
    installed(place.path());
    run(place.path(), &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/objects.py"));
}

/// Who has the module alone is told where the library is to be had.
#[test]
fn without_the_library_the_way_out_is_said() {
    let place = place();
    let program = place.path().join("alone.py");
    std::fs::write(&program, "import ginnel\n").expect("written");
    let done =
        ran(command(place.path(), &program).env("GINNEL_LIBRARY", "/nowhere/libginnel.so.0"));
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().last().unwrap_or_default();
    let words = ["ImportError: /nowhere/libginnel.so.0", "libginnel0", "scripts/build-capi.sh"];
    assert!(!done.status.success() && words.iter().all(|word| last.contains(word)), "{said}");
}

/// The guide's programs, written to files. `with_numpy`: also those that need it.
fn examples(to: &Path, with_numpy: bool) -> Vec<PathBuf> {
    let guide = std::fs::read_to_string(root().join("docs/python.md")).expect("the guide");
    let blocks = guide.split("```python\n").skip(1).filter_map(|block| block.split("```").next());
    let blocks: Vec<_> = blocks.filter(|block| with_numpy || !block.contains("numpy")).collect();
    assert!(blocks.len() >= 5, "{}", blocks.len());
    let written = blocks.iter().enumerate().map(|(number, block)| {
        let program = to.join(format!("example{number}.py"));
        std::fs::write(&program, block).expect("written");
        program
    });
    written.collect()
}

#[test]
fn the_guides_examples_in_python() {
    let place = place();
    installed(place.path());
    let has_numpy = ran(Command::new(python()).args(["-c", "import numpy"])).status.success();
    for program in examples(place.path(), has_numpy) {
        run(place.path(), &program);
    }
}

/// Request and response between Rust and Python, over two queues: what comes back is the sum of
/// what was sent. Many processes could ask at the same time, each with a queue of its own for the
/// answers.
#[test]
fn rust_asks_and_python_answers() {
    use ginnel::{Queue, Receiver, Segment, Sender};
    use std::time::{Duration, Instant};
    const LONG: Duration = Duration::from_secs(60);
    let place = place();
    installed(place.path());
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/answers.py");
    let mut server = command(place.path(), &program).spawn().expect("it starts");
    let path = place.path().join("own/default");
    let until = Instant::now() + LONG;
    // The segment, and in it the name, are Python's to make.
    let (segment, requests) = loop {
        let segment = path.exists().then(|| Segment::open(&path)).and_then(Result::ok);
        let found =
            segment.and_then(|segment| Some((Sender::open(&segment, "sums").ok()?, segment)));
        if let Some((requests, segment)) = found {
            break (segment, requests);
        }
        assert!(Instant::now() < until, "nobody answers");
        std::thread::sleep(Duration::from_millis(5));
    };
    Queue::new().create(&segment, "sums for one").expect("free");
    let answers = Receiver::open(&segment, "sums for one").expect("there");
    for count in 0..200u64 {
        let numbers: Vec<u64> = (0..count).map(|number| number * count).collect();
        let name = b"sums for one\0";
        let mut request = requests.loan_timeout(16 + count as usize * 8, LONG).expect("room");
        request.write(0, name);
        for (at, number) in numbers.iter().enumerate() {
            request.write(16 + at * 8, &number.to_le_bytes());
        }
        request.send().expect("sent");
        let answer = answers.recv_timeout(LONG).expect("it answers").to_vec();
        assert_eq!(answer, numbers.iter().sum::<u64>().to_le_bytes());
    }
    drop(requests);
    assert!(server.wait().expect("a child").success(), "it ends when nobody asks any more");
}

/// Runs a command that is to succeed, and returns what it prints.
fn done(command: &mut Command) -> String {
    let done = ran(command);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The wheel alone, built and installed without a network, in an environment that knows nothing of
/// this repository: by another interpreter than the one of the tests above, where there is one. The
/// guide's examples run there, and a program of several processes that was written from the guide.
#[test]
fn a_wheel_is_all_that_a_program_needs() {
    let tools = ran(Command::new(python()).args(["-c", "import setuptools, wheel, ensurepip"]));
    if !tools.status.success() {
        println!("skipped: python3-setuptools, python3-wheel or python3-venv is not installed");
        return;
    }
    let place = place();
    installed(place.path());
    let at = |name: &str| place.path().join(name);
    let mut build = Command::new(root().join("scripts/build-wheel.sh"));
    build.arg(at("wheel")).env("LIBRARY", at("lib/libginnel.so.0"));
    let wheel = done(build.env("OFFLINE", "1").env("PYTHON", python())).trim().to_owned();
    assert!(wheel.contains("-py3-none-linux_"), "{wheel}");
    done(Command::new("python3").args(["-m", "venv"]).arg(at("venv")));
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", &wheel];
    done(Command::new(at("venv/bin/python")).args(pip));
    let carried = |directory: &str, program: &Path| {
        let mut command = Command::new(at("venv/bin/python"));
        command.args(["-W", "error"]).arg(program).current_dir("/");
        for name in ["PYTHONPATH", "GINNEL_LIBRARY", "GINNEL_SEGMENT", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command.env("GINNEL_DIR", at(directory));
        done(&mut command)
    };
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    carried("own", &programs.join("objects.py"));
    for program in examples(place.path(), false) {
        carried("guide", &program);
    }
    let said = carried("newcomer", &programs.join("newcomer.py"));
    assert!(said.starts_with("50 images, 30"), "{said}");
    let program = at("typed.py");
    let text = "import ginnel, os\nat = os.path.dirname(ginnel.__file__)\n\
                print(sorted(name for name in os.listdir(at) if name[0] != '_'))\n";
    std::fs::write(&program, text).expect("written");
    assert_eq!(carried("own", &program), "['libginnel.so.0', 'py.typed']\n");
}
