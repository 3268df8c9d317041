//! Many connections that speak for a while and then lie idle: `tests/programs/crowd`.

use crate::{Done, Running, Stand, build};
use std::process::Command;

/// Both ends of a crowd, idle.
pub struct Crowd {
    server: Running,
    client: Running,
}

impl Crowd {
    /// Has `count` connections speak for `speak_ms` milliseconds, and some rounds at least.
    /// `command` makes the command that runs the program at side 0, the server's, or 1.
    pub fn start(
        stand: &Stand,
        command: impl Fn(usize, &std::path::Path) -> Command,
        (address, port): (&str, &str),
        count: u64,
        speak_ms: u64,
    ) -> Self {
        let program = build::program("crowd");
        let (count, speak_ms) = (count.to_string(), speak_ms.to_string());
        let start = |side, role| {
            stand.start(command(side, &program).args([role, address, port, &count, &speak_ms]))
        };
        let mut server = start(0, "server");
        server.wait_for("listening");
        let mut client = start(1, "client");
        client.wait_for("idle");
        Self { server, client }
    }

    /// Has all speak once more, and ends. Returns what the client and the server said.
    ///
    /// # Panics
    /// When one of the two does not end well.
    pub fn end(self) -> [Done; 2] {
        self.client.signal(libc::SIGUSR1);
        let both = [self.client.finish(), self.server.finish()];
        for done in &both {
            assert!(done.success() && done.stdout.contains("all of"), "{done}");
        }
        both
    }
}
