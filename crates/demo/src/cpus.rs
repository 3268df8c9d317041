//! Which processor the servers run on, and which the clients.
//!
//! Pinned apart, a pair's two ends measure the way between them and not the scheduler's choices of
//! the moment.

use rustix::thread::{CpuSet, sched_getaffinity};

/// A processor for each side, where there are two.
#[derive(Debug, PartialEq, Eq)]
pub struct Cpus(Option<(usize, usize)>);

/// The first two processors that this process may use.
pub fn pick() -> Cpus {
    let Ok(allowed) = sched_getaffinity(None) else {
        return Cpus(None);
    };
    let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Cpus(usable.next().zip(usable.next()))
}

impl Cpus {
    /// The command that pins a server, to be put before its own.
    pub fn server(&self) -> Vec<String> {
        self.0.map(|(server, _)| pin(server)).unwrap_or_default()
    }

    /// The command that pins a client, to be put before its own.
    pub fn client(&self) -> Vec<String> {
        self.0.map(|(_, client)| pin(client)).unwrap_or_default()
    }

    /// For the reader.
    pub fn describe(&self) -> String {
        match self.0 {
            Some((server, client)) => {
                format!("servers on processor {server}, clients on processor {client}")
            }
            None => "one processor for everything".to_owned(),
        }
    }
}

fn pin(cpu: usize) -> Vec<String> {
    vec!["taskset".to_owned(), "-c".to_owned(), cpu.to_string()]
}
