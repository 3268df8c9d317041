//! What has to be taken back: process groups, network namespaces, directories.
//!
//! Everything is entered here the moment it exists. Its guard takes it back when it goes out of
//! scope; what is still entered when the program ends, or panics (the release build aborts then,
//! and runs no destructor), goes in [`everything`], the latest first.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What takes one thing back. It says by itself what it could not do.
type Undo = Box<dyn FnOnce() + Send>;

struct Entries {
    next: u64,
    list: Vec<(u64, Undo)>,
}

static ENTRIES: Mutex<Entries> = Mutex::new(Entries { next: 0, list: Vec::new() });

fn entries() -> MutexGuard<'static, Entries> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes its entry back when dropped.
#[must_use]
#[derive(Debug)]
pub struct Guard(u64);

/// Enters how something is taken back.
pub fn enter(undo: impl FnOnce() + Send + 'static) -> Guard {
    let mut entries = entries();
    entries.next += 1;
    let id = entries.next;
    entries.list.push((id, Box::new(undo)));
    Guard(id)
}

impl Drop for Guard {
    fn drop(&mut self) {
        let entry = {
            let mut entries = entries();
            let found = entries.list.iter().position(|(id, _)| *id == self.0);
            found.map(|index| entries.list.remove(index).1)
        };
        if let Some(undo) = entry {
            undo();
        }
    }
}

/// Takes back all that is left, the latest first.
pub fn everything() {
    loop {
        let entry = entries().list.pop();
        match entry {
            Some((_, undo)) => undo(),
            None => return,
        }
    }
}

/// Arranges that a panic, too, takes everything back.
pub fn at_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        everything();
    }));
}
