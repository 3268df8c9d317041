//! Processes that somebody stops for a while, as a batch system does with a whole job.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Milliseconds that are waited for the lock.
const PATIENCE: u64 = 1000;

#[test]
fn who_is_stopped_does_not_wait_meanwhile() {
    const NAME: &str = "stopped::who_is_stopped_does_not_wait_meanwhile";
    if let Some(place) = std::env::var_os(PLACE) {
        let hold = Hold::join(&Path::new(&place).join("mpi"), &config()).expect("joined");
        println!("\nwaits");
        assert!(hold.guard(PATIENCE).expect("the lock").is_some());
        return hold.leave();
    }
    let place = tempfile::tempdir().expect("a directory");
    let a = open(&place.path().join("mpi"));
    let guard = a.node().guard().expect("the lock");
    let mut other = again(NAME, place.path());
    let mut other = other.stdout(Stdio::piped()).spawn().expect("started");
    let mut said = BufReader::new(other.stdout.take().expect("a pipe")).lines();
    assert!(said.any(|line| line.expect("UTF-8") == "waits"), "it ended");
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    let signal = |signal| {
        // SAFETY: a child of this process, which is not waited for yet.
        assert_eq!(unsafe { libc::kill(other.id().cast_signed(), signal) }, 0);
    };
    pause(PATIENCE / 5);
    signal(libc::SIGSTOP);
    pause(PATIENCE * 3 / 2);
    signal(libc::SIGCONT);
    pause(PATIENCE / 5);
    drop(guard);
    assert!(other.wait().expect("ended").success());
    a.close();
    assert_eq!(files_in(place.path()).len(), 0);
}
