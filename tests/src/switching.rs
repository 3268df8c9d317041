//! The random switching test: which ways to run its program pair, and what must have happened when
//! it has passed.

use std::time::Duration;

use crate::{Done, Report, Stand, build, json, netns};

/// Where the two ends live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Two processes, 127.0.0.1.
    Loopback,
    /// Two processes, ::1.
    Loopback6,
    /// Two threads of one process.
    Threads,
    /// Two processes in two network namespaces.
    Namespaces,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// Where the ends live.
    pub place: Place,
    /// The shim's settings; `None` runs without the shim.
    pub settings: Option<Vec<(&'a str, &'a str)>>,
    /// Also splice(2), which takes a socket off the rings for good.
    pub splice: bool,
    /// How long.
    pub seconds: u64,
    /// How many pairs at once.
    pub workers: u32,
    /// Decides everything that is not up to the scheduler.
    pub seed: u64,
}

impl Run<'_> {
    fn with_options(
        &self,
        mut command: std::process::Command,
        side: &std::path::Path,
        role: &str,
        address: &str,
    ) -> std::process::Command {
        command.args(["--role", role, "--address", address]).arg("--side").arg(side);
        command.args([
            "--seconds",
            &self.seconds.to_string(),
            "--workers",
            &self.workers.to_string(),
        ]);
        command.args(["--seed", &self.seed.to_string()]);
        if self.settings.is_none() {
            // On TCP itself no readiness report may be wrong: that shows what the test demands to
            // be exact.
            command.env("SWITCHING_STRICT", "1");
        }
        if self.splice {
            command.arg("--splice");
        }
        command
    }

    /// Runs the pair to its end. `None` where this machine cannot (said by then).
    ///
    /// # Panics
    /// When the pair fails or hangs: with all it said, the seed among it.
    #[must_use]
    pub fn go(&self) -> Option<(String, Report)> {
        let stand = match &self.settings {
            None => Stand::plain(self.name),
            Some(settings) => Stand::shimmed(self.name, settings),
        }
        .limit(Duration::from_secs(self.seconds + 180));
        let program = build::program("switching");
        let with_options = |command: std::process::Command, role: &str, address: &str| {
            self.with_options(command, &stand.dir().join("side"), role, address)
        };
        let done: Vec<Done> = match self.place {
            Place::Loopback => {
                vec![stand.run(&mut with_options(stand.command(program), "both", "127.0.0.1"))]
            }
            Place::Loopback6 => {
                vec![stand.run(&mut with_options(stand.command(program), "both", "::1"))]
            }
            Place::Threads => {
                vec![stand.run(&mut with_options(stand.command(program), "threads", "127.0.0.1"))]
            }
            Place::Namespaces => {
                let pair = netns::Pair::new(self.name)?;
                let address = netns::ADDRESSES[0];
                let server = stand.start(&mut with_options(
                    stand.command_behind(&pair.enter(0), &program),
                    "server",
                    address,
                ));
                let client = stand.start(&mut with_options(
                    stand.command_behind(&pair.enter(1), &program),
                    "client",
                    address,
                ));
                vec![server.finish(), client.finish()]
            }
        };
        let mut summary = String::new();
        for one in &done {
            assert!(
                one.success(),
                "{}: seed {}: {}",
                self.name,
                self.seed,
                done.iter().map(Done::to_string).collect::<String>()
            );
            summary += &one.stdout;
        }
        assert!(
            json::sum(&summary, "phases") > 0,
            "{}: no phase was finished: {summary}",
            self.name
        );
        Some((summary, stand.report()))
    }
}

/// What the pair did, in one line.
#[must_use]
pub fn line(name: &str, summary: &str, report: &Report) -> String {
    let mut text = format!("{name}:");
    for key in [
        "sessions",
        "phases",
        "checkpoints",
        "bytes",
        "fork_both",
        "exec_self",
        "passed",
        "lone",
        "spurious",
    ] {
        text += &format!(" {key} {}", json::sum(summary, key));
    }
    for key in ["ring_in", "tcp_in", "upgrades", "downgrades", "wakes_sent", "tokens_sent"] {
        text += &format!(" {key} {}", report.sum(key));
    }
    text
}
