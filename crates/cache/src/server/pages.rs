//! The thread that has the kernel gather what is in use of the memory into huge pages.
//!
//! A get reads a bucket and an item, each in a page of its own. Where ten thousand items take more
//! pages than a processor remembers the places of, it looks both up in the kernel's tables first
//! (in a virtual machine in the hypervisor's, too), which takes as long as the rest of the get.
//! Huge pages are made of what is filled already, so a cache takes no memory before it has items.

use super::Shared;
use crate::memory::{CHUNK, Memory};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked at what was filled since.
const OFTEN: Duration = Duration::from_millis(500);
/// Chunks that are gathered at a time: a quarter of a gigabyte a second, at most.
const AT_A_TIME: usize = 64;
/// How long nothing is tried where the kernel has no huge page.
const LATER: Duration = Duration::from_secs(60);
/// How often one is tried of which somebody has a page.
const TRIES: u8 = 16;

/// Starts it, where the kernel gathers pages at all.
///
/// # Errors
/// Those of making a thread.
pub fn start(shared: &Arc<Shared>, memory: Memory) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let work = move || {
        let mut done = Done::default();
        loop {
            std::thread::sleep(OFTEN);
            let in_use = shared.store().in_use();
            match done.go_on(&in_use, |chunk| memory.gather(chunk)) {
                Ok(()) => {}
                // Before Linux 6.1, or where somebody has forbidden it.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && done.is_first() => {
                    return;
                }
                Err(_) => std::thread::sleep(LATER),
            }
        }
    };
    std::thread::Builder::new().name("pages".into()).spawn(work).map(drop)
}

/// How often each chunk was tried, and [`DONE`] where it is gathered, or is left as it is.
#[derive(Debug, Default)]
struct Done(Vec<u8>);

const DONE: u8 = u8::MAX;

impl Done {
    /// Was no more than one tried?
    fn is_first(&self) -> bool {
        self.0.iter().filter(|&&tries| tries != 0).count() <= 1
    }

    /// Gathers some of those that lie in what is in use and are not yet.
    ///
    /// # Errors
    /// That of the first for which there is no huge page, which is tried again, or that cannot be
    /// gathered, and stays as it is. The others can be tried.
    fn go_on(
        &mut self,
        in_use: &Range<usize>,
        gather: impl Fn(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let chunks = in_use.start.div_ceil(CHUNK)..in_use.end / CHUNK;
        if self.0.len() < chunks.end {
            self.0.resize(chunks.end, 0);
        }
        let due = chunks.filter(|&chunk| self.0[chunk] < DONE).take(AT_A_TIME);
        for chunk in due.collect::<Vec<_>>() {
            let gathered = gather(chunk);
            let tries = &mut self.0[chunk];
            match gathered.as_ref().map_err(|error| error.raw_os_error().unwrap_or(0)) {
                // Somebody has a page of it, for now: who reads it from there, or moves it.
                Err(libc::EAGAIN) if *tries + 1 < TRIES => *tries += 1,
                Err(libc::EAGAIN) | Ok(()) => *tries = DONE,
                // The kernel has no such page just now, or the cgroup is near its limit.
                Err(libc::ENOMEM | libc::EBUSY) => {
                    *tries = (*tries).max(1);
                    return gathered;
                }
                Err(_) => {
                    *tries = DONE;
                    return gathered;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn error(errno: i32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn each_chunk_is_gathered_once_when_all_of_it_is_in_use() {
        let (mut done, asked) = (Done::default(), RefCell::new(Vec::new()));
        let gather = |chunk| {
            asked.borrow_mut().push(chunk);
            if asked.borrow().len() == 2 { error(libc::EINVAL) } else { Ok(()) }
        };
        // The log alone, which begins and ends within a chunk.
        assert!(done.go_on(&(CHUNK / 2..CHUNK * 2 + 7), gather).is_ok());
        assert_eq!(*asked.borrow(), [1]);
        // The index, too; and the log has grown.
        assert!(done.go_on(&(0..CHUNK * 3), gather).is_err());
        assert!(done.go_on(&(0..CHUNK * 3), gather).is_ok());
        assert_eq!(*asked.borrow(), [1, 0, 2]);
        assert!(done.go_on(&(0..CHUNK * 3), gather).is_ok());
        assert_eq!(asked.borrow().len(), 3);
        assert!(done.go_on(&(0..CHUNK * 300), |_| Ok(())).is_ok());
        assert_eq!(
            done.0.iter().filter(|&&it| it == DONE).count(),
            3 + AT_A_TIME,
            "some at a time"
        );
    }

    /// What cannot be gathered for a moment is gathered later, and keeps no other from it where it
    /// is that chunk alone.
    #[test]
    fn what_failed_for_a_moment_is_tried_again() {
        let (mut done, asked) = (Done::default(), RefCell::new(Vec::new()));
        let round = |done: &mut Done, of: fn(usize) -> i32| {
            asked.borrow_mut().clear();
            let said = done.go_on(&(0..CHUNK * 3), |chunk| {
                asked.borrow_mut().push(chunk);
                if of(chunk) == 0 { Ok(()) } else { error(of(chunk)) }
            });
            (said.is_ok(), asked.borrow().clone())
        };
        let none: [fn(usize) -> i32; 2] = [|_| libc::EBUSY, |_| libc::ENOMEM];
        for errno in none {
            assert_eq!(round(&mut done, errno), (false, vec![0]), "there is no page for any");
            assert!(done.is_first());
        }
        let pinned = |chunk| if chunk == 0 { libc::EAGAIN } else { 0 };
        assert_eq!(round(&mut done, pinned), (true, vec![0, 1, 2]));
        assert_eq!(round(&mut done, pinned), (true, vec![0]));
        assert_eq!(round(&mut done, |_| 0), (true, vec![0]));
        assert_eq!(round(&mut done, |_| 0), (true, vec![]));
        let mut done = Done::default();
        let rounds = (0..100).take_while(|_| !round(&mut done, pinned).1.is_empty()).count();
        assert_eq!(rounds, usize::from(TRIES), "not for ever");
    }
}
