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

/// Pages that endpoints and their pairs have.
fn heads(node: &Node) -> usize {
    node.segment().heads_within_reach().filter(|head| head.owner().kind == Use::Endpoint).count()
}

/// Somebody is stopped who has the lock: others do not wait for it to forget the dead, and forget
/// them later. Each has a ring to the dead one, and one from it.
#[test]
fn rings_of_the_dead_are_given_back_once_the_lock_is_free() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("mpi");
    let (mut a, mut b, stopped) = (open(&path), open(&path), open(&path));
    let memory = Memory::default();
    say(&mut a, b.id(), b"there,..").expect("room for a ring");
    say(&mut b, a.id(), b"and back").expect("room for a ring");
    a.progress(&memory);
    let active = || Active::open(&path, &config(), None).expect("an end");
    let (mut c, mut d) = (active(), active());
    let (living, dead) = (c.id(), d.id());
    for (from, to) in [(&mut c, dead), (&mut d, living)] {
        let way = from.way(to);
        // SAFETY: no parts.
        unsafe { from.send(way, 1, &[]) }.expect("room for a ring");
    }
    assert!(c.take().is_some());
    let way = c.way(dead);
    b.die();
    d.die();
    assert!(!c.node().lives(dead));
    let all = heads(stopped.node());
    let guard = stopped.node().guard().expect("the lock");
    let begun = Instant::now();
    for _ in 0..3 {
        a.look_for_the_dead();
        c.look_for_the_dead();
    }
    assert!(c.is_gone(way) && begun.elapsed().as_millis() < super::PATIENCE.into());
    assert_eq!(heads(stopped.node()), all, "nobody frees without the lock");
    drop(guard);
    a.look_for_the_dead();
    c.look_for_the_dead();
    assert_eq!(heads(stopped.node()), all - 4, "the rings, and not the two ends");
    a.close();
    c.close();
    stopped.close();
    assert_eq!(files_in(place.path()).len(), 0);
}
