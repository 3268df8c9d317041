//! iceoryx2's Python module over a segment, built from its authors' sources as
//! `make iceoryx2-python` builds it: their own tests, unchanged, and a program that says
//! `import iceoryx2` beside one in Rust.

use crate::scripts::{script, target};
use crate::stage::{Guarded, TEST, play, until};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How many tests the authors have.
const TESTS: u32 = 583;
const PYTEST: &str = "pytest==9.0.3";

/// A program for iceoryx2's own module, which knows nothing of segments.
const PROGRAM: &str = "
import ctypes
import iceoryx2 as iox2

node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)

def topic(name):
    service = node.service_builder(iox2.ServiceName.new(name))
    return service.publish_subscribe(ctypes.c_uint64).open_or_create()

asked, answered = topic('asked'), topic('answered')
subscriber = asked.subscriber_builder().create()
publisher = answered.publisher_builder().create()
while True:
    node.wait(iox2.Duration.from_millis(1))
    sample = subscriber.receive()
    if sample is not None:
        publisher.send_copy(ctypes.c_uint64(sample.payload().contents.value + 1))
";

fn done(command: &mut Command) -> String {
    let done = command.stdin(Stdio::null()).output().expect("it starts");
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(done.status.success(), "{command:?}: {}\n{}", said[0], said[1]);
    said[0].clone()
}

/// Where the module is built.
fn work() -> PathBuf {
    target().join("iceoryx2-python")
}

/// The Python that has it.
fn python() -> Command {
    Command::new(work().join("tests/bin/python"))
}

fn build() {
    let wheel = done(&mut script("build-iceoryx2-python.sh"));
    if !work().join("tests").exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(work().join("tests")));
    }
    let pip = ["-m", "pip", "install", "--quiet", "--force-reinstall", PYTEST, wheel.trim()];
    done(python().args(pip));
}

fn its_authors_tests() {
    // Nobody else's, whatever the mask of the user.
    let mode = std::fs::Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
    let mut tests = python();
    tests.args(["-m", "ginnel_iceoryx2", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    tests.args(["-o", "python_files=*_tests.py", "."]);
    tests.current_dir(work().join("source/iceoryx2-ffi/python/tests"));
    tests.env("GINNEL_DIR", directory.path()).env_remove("GINNEL_SEGMENT");
    let said = done(&mut tests);
    let last = said.lines().next_back().unwrap_or_default();
    assert!(last.contains(&format!("{TESTS} passed")) && !last.contains("failed"), "{said}");
    // In a segment, and not in iceoryx2's own memory.
    assert!(directory.path().join("default").exists(), "nobody made a segment");
}

fn answers() {
    let node = NodeBuilder::new().create::<Service>().expect("a node");
    let topic = |name: &str| {
        let name = name.try_into().expect("a name");
        let service = node.service_builder(&name).publish_subscribe::<u64>();
        service.open_or_create().expect("a service")
    };
    let (asked, answered) = (topic("asked"), topic("answered"));
    let publisher = asked.publisher_builder().create().expect("a publisher");
    let subscriber = answered.subscriber_builder().create().expect("a subscriber");
    let mut program = python();
    program.args(["-m", "ginnel_iceoryx2", "-c", PROGRAM]);
    let program = Guarded(program.spawn().expect("it starts"));
    until("it is there", || asked.dynamic_config().number_of_subscribers() == 1);
    for value in 0..100 {
        publisher.send_copy(value).expect("sent");
        let mut answer = None;
        until("it answers", || {
            answer = subscriber.receive().expect("received").map(|sample| *sample);
            answer.is_some()
        });
        assert_eq!(answer, Some(value + 1));
    }
    program.kill();
    until("it is gone", || {
        node.try_cleanup_dead_nodes();
        asked.dynamic_config().number_of_subscribers() == 0
    });
}

#[test]
#[ignore = "test-all: fetches and builds iceoryx2's Python module"]
fn its_authors_tests_pass_and_it_answers_rust() {
    if std::env::var_os(TEST).is_none() {
        build();
        its_authors_tests();
    }
    play("python::its_authors_tests_pass_and_it_answers_rust", |_| answers());
}
