//! iceoryx2's C library over a segment, built as `make iceoryx2-c` builds it: its authors' examples,
//! unchanged, with each other and with Rust. No registry has their sources, so who has them says
//! where: `GINNEL_ICEORYX2_SOURCES=FOLDER`, iceoryx2 at v0.10.0.

use crate::scripts::{script, target};
use crate::stage::{Guarded, TEST, play, until};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCES: &str = "GINNEL_ICEORYX2_SOURCES";

/// A program of the examples, what it is started with, and what it says once all is well.
type Role = (&'static str, &'static [&'static str], &'static [&'static str]);

const RECEIVED: &str = "received: TransmissionData { .x: 3, .y: 9, .funky: 2436.36 }";

/// Programs that are started one after the other, each once the one before has said its words, or
/// at once where it has to say something only later. What they say is what the authors' own tests
/// of the examples (`test_e2e_*.exp`) look for.
const SCENES: [&[Role]; 12] = [
    &[
        ("publish_subscribe/publisher", &[], &["Send sample"]),
        ("publish_subscribe/subscriber", &[], &[RECEIVED]),
    ],
    &[
        ("publish_subscribe_with_user_header/publisher", &[], &["Send sample"]),
        (
            "publish_subscribe_with_user_header/subscriber",
            &[],
            &["received: 3, user_header: version = 123, timestamp = 80340"],
        ),
    ],
    &[
        ("publish_subscribe_with_backpressure/publisher", &[], &["Sending sample"]),
        ("publish_subscribe_with_backpressure/subscriber", &[], &["received: TransmissionData"]),
    ],
    &[
        ("cross_language_communication_basics/publisher", &[], &["Send sample"]),
        ("cross_language_communication_basics/subscriber", &[], &[RECEIVED]),
    ],
    &[
        ("domains/publisher", &["fuu", "bar"], &["Send sample"]),
        ("domains/subscriber", &["fuu", "bar"], &[RECEIVED]),
        ("domains/discovery", &["fuu"], &["Found Service: bar"]),
    ],
    &[
        ("event/notifier", &[], &["Trigger event with id"]),
        ("event/listener", &[], &["event was triggered with id: 3"]),
    ],
    &[
        ("event_multiplexing/notifier", &["42", "hypnotoad"], &["Trigger event with id"]),
        ("event_multiplexing/notifier", &["13", "brainslug"], &["Trigger event with id"]),
        (
            "event_multiplexing/wait",
            &["hypnotoad", "brainslug"],
            &[
                "from \"hypnotoad\" :: received event: 42",
                "from \"brainslug\" :: received event: 13",
            ],
        ),
    ],
    &[
        ("request_response/server", &[], &["Server ready to receive requests!"]),
        ("request_response/client", &[], &["send request 3", "received response"]),
    ],
    &[
        ("blackboard/creator", &[], &["Blackboard created."]),
        ("blackboard/opener", &[], &["Read value 4 for key 0"]),
    ],
    &[
        ("service_attributes/creator", &[], &["my_funky_service_name"]),
        ("service_attributes/opener", &[], &["camera_resolution"]),
        ("service_attributes/incompatible", &[], &["camera_type -> not available"]),
    ],
    &[
        ("service_types/ipc_publisher", &[], &["send: 0"]),
        ("service_types/ipc_threadsafe_subscriber", &[], &["received: 3"]),
        ("service_types/local_pubsub", &[], &["received: 1"]),
    ],
    &[
        ("publish_subscribe/subscriber", &[], &["Subscriber ready to receive data!"]),
        ("event/listener", &[], &["Listener ready to receive events!"]),
        ("discovery/main", &[], &["Found Service: My/Funk/ServiceName", "MyEventName"]),
    ],
];

/// What the examples publish, with the name of the type that they give it.
#[derive(Debug, Clone, Copy, ZeroCopySend)]
#[type_name("16TransmissionData")]
#[repr(C)]
struct TransmissionData {
    x: i32,
    y: i32,
    funky: f64,
}

fn sources() -> PathBuf {
    PathBuf::from(std::env::var_os(SOURCES).expect("GINNEL_ICEORYX2_SOURCES=FOLDER"))
}

fn build() {
    let mut build = script("build-iceoryx2-c.sh");
    assert!(build.arg(sources()).status().expect("it starts").success(), "{build:?}");
}

/// Compiles an example where it is not yet, and says where the program lies.
fn example(name: &str, library: &Path, into: &Path) -> PathBuf {
    let (folder, source) = name.split_once('/').expect("a folder and a file");
    let program = into.join(format!("{folder}-{source}"));
    if !program.exists() {
        let mut cc = Command::new("cc");
        cc.arg(sources().join(format!("examples/c/{folder}/src/{source}.c")))
            .arg("-o")
            .arg(&program);
        cc.arg("-I")
            .arg(library.join("include/ginnel-iceoryx2"))
            .arg("-L")
            .arg(library.join("lib"));
        cc.arg(format!("-Wl,-rpath,{}", library.join("lib").display())).arg("-lginnel_iceoryx2_c");
        assert!(cc.status().expect("cc").success(), "{name}");
    }
    program
}

/// Starts a program; what it says by the line goes to a file.
fn start(program: &Path, arguments: &[&str], said: &Path) -> Guarded {
    let mut command = Command::new("stdbuf");
    command.arg("-oL").arg(program).args(arguments).stdin(Stdio::null());
    command.stdout(File::create(said).expect("a file"));
    Guarded(command.spawn().expect("it starts"))
}

fn examples_play(library: &Path, into: &Path) {
    for scene in SCENES {
        let mut running = Vec::new();
        for (name, arguments, words) in scene {
            let said = into.join(format!("said-{}", running.len()));
            running.push(start(&example(name, library, into), arguments, &said));
            until(&format!("{name} says {words:?}"), || {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                words.iter().all(|word| said.contains(word))
            });
        }
    }
}

fn rust_hears_c(library: &Path, into: &Path) {
    let node = NodeBuilder::new().create::<Service>().expect("a node");
    let name = "My/Funk/ServiceName".try_into().expect("a name");
    let service = node.service_builder(&name).publish_subscribe::<TransmissionData>();
    let service = service.open_or_create().expect("a service");
    let subscriber = service.subscriber_builder().create().expect("a subscriber");
    let program = example("publish_subscribe/publisher", library, into);
    let publisher = start(&program, &[], &into.join("said"));
    until("the third sample comes", || {
        let sample = subscriber.receive().expect("received");
        sample.is_some_and(|sample| (sample.x, sample.y, sample.funky) == (3, 9, 2436.36))
    });
    publisher.kill();
}

#[test]
#[ignore = "by hand: its authors' sources are in no registry"]
fn by_hand_its_authors_examples_play_and_rust_hears_them() {
    if std::env::var_os(TEST).is_none() {
        build();
    }
    play("c::by_hand_its_authors_examples_play_and_rust_hears_them", |_| {
        let library = target().join("iceoryx2-c/dist");
        let into = tempfile::tempdir().expect("a folder");
        examples_play(&library, into.path());
        rust_hears_c(&library, into.path());
    });
}
