//! Running one or two child processes to their end, with a time limit.

use crate::cleanup;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// The `key=value` pairs of a program's result line.
pub type Values = BTreeMap<String, f64>;

/// How long a child may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

enum Event {
    Line(String),
    Ended(std::io::Result<ExitStatus>),
}

/// A child whose standard output is being read.
pub struct Process {
    name: String,
    pid: Pid,
    events: Receiver<Event>,
    errors: PathBuf,
    deadline: Instant,
}

impl Process {
    /// Starts a child; its standard error goes to `errors`. It must end before `deadline`.
    pub fn start(
        name: &str,
        mut command: Command,
        errors: &Path,
        deadline: Instant,
    ) -> Result<Self> {
        let file = std::fs::File::create(errors)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let (mut child, pid) =
            cleanup::spawn(&mut command).with_context(|| format!("starting {command:?}"))?;
        let output = child.stdout.take().context("no standard output")?;
        let (sender, events) = channel();
        std::thread::spawn(move || {
            forward_lines(output, |line| drop(sender.send(Event::Line(line))));
            // Wait without reaping first, so that nobody signals a number that has become
            // another's.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            cleanup::forget(pid);
            let _ = sender.send(Event::Ended(child.wait()));
        });
        Ok(Self { name: name.into(), pid, events, errors: errors.into(), deadline })
    }

    /// Waits for the port that a server says it listens on.
    pub fn port(&self) -> Result<u16> {
        Ok(self.told("listening")?.parse()?)
    }

    /// Waits for the child's first line, which is to begin with this word, and gives the rest of
    /// it.
    pub fn told(&self, word: &str) -> Result<String> {
        match self.next()? {
            Event::Line(line) => {
                match line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')) {
                    Some(rest) => Ok(rest.trim().into()),
                    None => bail!("{} said {line:?} instead of {word:?} and more", self.name),
                }
            }
            Event::Ended(_) => {
                bail!("{} ended before it said {word:?}{}", self.name, self.complaint())
            }
        }
    }

    /// Asks the child to end (SIGTERM).
    pub fn ask_to_end(&self) {
        cleanup::ask_to_end(self.pid);
    }

    /// Waits for the child's end and gives its result line.
    pub fn result(&self) -> Result<Values> {
        let values: Values = self.lines()?.iter().flat_map(|line| parse(line)).collect();
        if values.is_empty() {
            bail!("{} gave no result{}", self.name, self.complaint());
        }
        Ok(values)
    }

    /// Waits for the child's end and gives all that it said, of a program that has no result line.
    pub fn lines(&self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            match self.next()? {
                Event::Line(line) => lines.push(line),
                Event::Ended(Err(error)) => return Err(error.into()),
                Event::Ended(Ok(status)) if !status.success() => {
                    bail!("{}: {status}{}", self.name, self.complaint())
                }
                Event::Ended(Ok(_)) => return Ok(lines),
            }
        }
    }

    /// Waits for the child's end and gives all that it said; empty lines are left out.
    pub fn output(&self) -> Result<String> {
        let mut text = String::new();
        loop {
            match self.next()? {
                Event::Line(line) => text = text + &line + "\n",
                Event::Ended(Err(error)) => return Err(error.into()),
                Event::Ended(Ok(status)) if !status.success() => {
                    let last = text.lines().next_back().unwrap_or_default();
                    let complaint = Some(self.complaint())
                        .filter(|text| !text.is_empty())
                        .unwrap_or_else(|| format!(": {last}"));
                    bail!("{}: {status}{complaint}", self.name)
                }
                Event::Ended(Ok(_)) => return Ok(text),
            }
        }
    }

    /// Waits until something is so of the child with this number; it must not end before.
    pub fn until(&self, ready: impl Fn(i32) -> bool) -> Result<()> {
        while !ready(self.pid.as_raw_pid()) {
            match self.events.try_recv() {
                Ok(Event::Ended(_)) | Err(TryRecvError::Disconnected) => {
                    bail!("{} ended too early{}", self.name, self.complaint())
                }
                Ok(Event::Line(_)) | Err(TryRecvError::Empty) => {}
            }
            if Instant::now() >= self.deadline {
                return Err(TimedOut(self.name.clone()).into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Asks the child to end, as a service is stopped, so that it reaps its own children and their
    /// CPU time is known as ours; killed where it does not.
    pub fn stop(self) {
        cleanup::ask_to_end(self.pid);
        while let Ok(Event::Line(_)) = self.events.recv_timeout(GRACE) {}
    }

    fn next(&self) -> Result<Event> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Err(TimedOut(self.name.clone()).into()),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended already", self.name),
        }
    }

    fn complaint(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        text.lines()
            .rev()
            .find(|line| !line.is_empty())
            .map_or_else(String::new, |line| format!(": {line}"))
    }

    /// The stacks of all threads, from gdb where there is one.
    pub fn stacks(&self) -> String {
        let pid = self.pid.as_raw_pid().to_string();
        let gdb = Command::new("timeout")
            .args(["20", "gdb", "-p", &pid, "-batch", "-nx", "-ex", "thread apply all bt"])
            .stdin(Stdio::null())
            .output();
        match gdb {
            Ok(output) => {
                format!("{} (pid {pid}):\n{}", self.name, String::from_utf8_lossy(&output.stdout))
            }
            Err(error) => format!("{} (pid {pid}): no gdb: {error}", self.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        cleanup::kill(self.pid);
        // Until the reaper has seen its end, so that it disturbs no later sample.
        while let Ok(Event::Line(_)) = self.events.recv_timeout(Duration::from_secs(5)) {}
    }
}

/// A child did not end in time. Holds its name.
#[derive(Debug)]
pub struct TimedOut(pub String);

impl std::fmt::Display for TimedOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} did not end in time", self.0)
    }
}

impl std::error::Error for TimedOut {}

/// Forwards lines up to the line "end" or the end of the file: a grandchild may hold the pipe open.
fn forward_lines(output: ChildStdout, mut forward: impl FnMut(String)) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line == "end" {
            return;
        }
        if !line.is_empty() {
            forward(line);
        }
    }
}

/// The values of a result line; none of another.
pub fn parse(line: &str) -> Values {
    let pairs = line.strip_prefix("result ").unwrap_or_default().split_whitespace();
    pairs
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(k, v)| Some((k.into(), v.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_become_values_and_others_do_not() {
        let values = parse("result p50_ns=12.5 samples=3 odd");
        assert_eq!(values, Values::from([("p50_ns".into(), 12.5), ("samples".into(), 3.0)]));
        assert!(parse("listening 80").is_empty());
    }

    #[test]
    fn a_child_that_hangs_is_reported_and_killed() {
        let errors =
            std::env::temp_dir().join(format!("ginnel-bench-child-{}", std::process::id()));
        let mut command = Command::new("sleep");
        command.arg("60");
        let began = Instant::now();
        let child =
            Process::start("sleep", command, &errors, began + Duration::from_millis(50)).unwrap();
        assert!(child.result().unwrap_err().is::<TimedOut>());
        drop(child);
        assert!(began.elapsed() < Duration::from_secs(30));
        let _ = std::fs::remove_file(errors);
    }
}
