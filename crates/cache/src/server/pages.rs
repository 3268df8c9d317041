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

/// Which chunks are gathered, or were tried to be.
#[derive(Debug, Default)]
struct Done(Vec<bool>);

impl Done {
    /// Was no more than one tried?
    fn is_first(&self) -> bool {
        self.0.iter().filter(|&&it| it).count() <= 1
    }

    /// Gathers some of those that lie in what is in use and are not yet.
    ///
    /// # Errors
    /// That of the first that could not be gathered. It stays as it is; the others can be tried.
    fn go_on(
        &mut self,
        in_use: &Range<usize>,
        gather: impl Fn(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let chunks = in_use.start.div_ceil(CHUNK)..in_use.end / CHUNK;
        if self.0.len() < chunks.end {
            self.0.resize(chunks.end, false);
        }
        let due = chunks.filter(|&chunk| !self.0[chunk]).take(AT_A_TIME);
        for chunk in due.collect::<Vec<_>>() {
            self.0[chunk] = true;
            gather(chunk)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn each_chunk_is_gathered_once_when_all_of_it_is_in_use() {
        let (mut done, asked) = (Done::default(), RefCell::new(Vec::new()));
        let gather = |chunk| {
            asked.borrow_mut().push(chunk);
            if asked.borrow().len() == 2 { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
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
        assert_eq!(done.0.iter().filter(|&&it| it).count(), 3 + AT_A_TIME, "some at a time");
    }
}
