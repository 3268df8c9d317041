//! Threads of one process, and its children by fork.

use super::{files_in, open, say};
use crate::node::*;
use std::time::{Duration, Instant};

/// A thread forks while another makes or frees groups.
#[test]
fn a_child_does_not_keep_the_right_to_make_and_free_groups() {
    let place = tempfile::tempdir().expect("a directory");
    let a = open(&place.path().join("mpi"));
    let guard = a.node().guard().expect("nobody has it");
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is passed. The child ends with the test, however that ends.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    drop(guard);
    let begun = Instant::now();
    let got = a.node().guard().map(drop);
    // SAFETY: a child of this process.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert_eq!((got, begun.elapsed() < Duration::from_secs(5)), (Ok(()), true));
    a.close();
    assert_eq!(files_in(place.path()).len(), 0);
}

/// Threads of one process open and close in two segments, each several at once.
#[test]
fn threads_have_endpoints_in_two_segments() {
    let place = tempfile::tempdir().expect("a directory");
    let paths = ["mpi", "other"].map(|name| place.path().join(name));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let paths = &paths;
            scope.spawn(move || {
                for round in 0..40 {
                    let (here, there) = (&paths[(thread + round) % 2], &paths[thread % 2]);
                    let (mut a, b, c) = (open(here), open(there), open(here));
                    assert!(a.node().lives(c.id()) && a.segment_id() == c.segment_id());
                    assert_eq!(a.segment_id() == b.segment_id(), here == there);
                    say(&mut a, c.id(), b"word,...").expect("room");
                    b.close();
                    a.close();
                    c.close();
                }
            });
        }
    });
    assert_eq!(files_in(place.path()).len(), 0);
}

/// A child closes what it has by fork: at its exit, say.
#[test]
fn a_child_that_closes_its_parents_endpoint_takes_nothing_away() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("mpi");
    let (a, mut b) = (open(&path), open(&path));
    // SAFETY: the child calls what allocates, as only glibc's fork of one of several threads may.
    let child = unsafe { libc::fork() };
    if child == 0 {
        a.close();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((status, b.node().lives(a.id()), a.node().count()), (0, true, 2));
    a.node().sleeping();
    say(&mut b, a.id(), b"word,...").expect("room");
    assert_eq!(sys::poll(a.node().fifo(), libc::POLLIN, 1000), 1, "its waiter is there");
    a.node().awake();
    a.close();
    b.close();
    assert_eq!(files_in(place.path()).len(), 0);
}
