//! Which processes run the tests, and in which segment.

use ginnel::{Barrier, Segment};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What a process is to do. `alone`: it runs the tests. `beside`: it runs them when another process
/// of the segment has come to do the same. Without it, a process starts those that have it.
const PART: &str = "GINNEL_CONFORMANCE";
/// Beyond this no other comes.
const LONG: Duration = Duration::from_secs(120);
/// As long as all tests take on a machine that is very busy with other things.
const RUN: Duration = Duration::from_secs(1800);

/// Starts the processes that run the tests, and ends with their status. `false`: this process is
/// one of them, and may begin.
pub fn starts_others() -> bool {
    match std::env::var(PART).as_deref() {
        Ok("beside") => {
            be_patient();
            meet();
        }
        Ok(_) => be_patient(),
        Err(_) if std::env::args().any(|argument| argument == "--list") => {}
        Err(_) => {
            let is_well = alone() && beside();
            std::process::exit(if is_well { 0 } else { 101 });
        }
    }
    false
}

/// The tests' own watchdog ends a process by SIGALRM when one of them has taken ten seconds, which
/// on a busy machine is no sign of a hang. It stays away, and who started this process waits for it
/// as long as [`RUN`].
fn be_patient() {
    // SAFETY: a set of signals of this function's own, zeroed first, as it may be.
    let done = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Waits for the other one in the segment: the two then run each test at about the same time.
fn meet() {
    let segment = Segment::own().expect("a segment");
    let mut both = Barrier::open_or_create(&segment, "conformance", 2).expect("a place");
    both.wait_timeout(LONG).expect("the other comes, too");
}

/// This program with the arguments that it has itself, in a part, over a directory of segments.
fn again(part: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(std::env::args_os().skip(1)).env(PART, part);
    command.env("GINNEL_DIR", directory).env_remove("GINNEL_SEGMENT");
    command
}

fn alone() -> bool {
    let directory = ginnel::testing::directory();
    println!("in one process");
    let mut one = [again("alone", directory.path()).spawn().expect("it starts")];
    wait(&mut one);
    let [mut one] = one;
    one.wait().expect("a child").success()
}

/// Waits until all have ended. Those that have not in their time are ended.
fn wait(all: &mut [Child]) {
    let until = Instant::now() + RUN;
    while all.iter_mut().any(|child| child.try_wait().expect("a child").is_none()) {
        if Instant::now() > until {
            println!("a test hangs");
            all.iter_mut().for_each(|child| drop(child.kill()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What two of them say is told apart only where one fails.
fn beside() -> bool {
    let directory = ginnel::testing::directory();
    println!("in two processes, in one segment");
    let said = ["first", "second"].map(|name| directory.path().join(name));
    let start = |said| {
        let out = File::options().create(true).append(true).open(said).expect("a file");
        let err = out.try_clone().expect("the same file");
        let mut command = again("beside", directory.path());
        command.stdout(out).stderr(err).spawn().expect("it starts")
    };
    let mut both = [start(&said[0]), start(&said[1])];
    wait(&mut both);
    let were_well = both.map(|mut child| child.wait().expect("a child").success());
    for (said, was_well) in said.iter().zip(were_well) {
        let said = String::from_utf8_lossy(&std::fs::read(said).expect("a file")).into_owned();
        let result = said.lines().rfind(|line| line.starts_with("test result")).unwrap_or_default();
        println!("{}", if was_well { result } else { &said });
    }
    were_well == [true; 2]
}
