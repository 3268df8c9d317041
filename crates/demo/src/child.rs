//! Servers and clients as child processes: started, waited for within a limit, stopped with all
//! that they started.
//!
//! Each leads a process group of its own, so that its own children are found, and dies when this
//! program dies (`setpriv --pdeathsig`), even by `kill -9`. A child is not reaped before its group
//! is empty: until then the process id cannot be given to a stranger, so no signal from here can
//! reach one.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, waitid, waitpid,
};

use crate::interrupt;
use crate::undo;
use crate::workdir::{WorkDir, tail};

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A running child.
#[derive(Debug)]
pub struct Child {
    /// What it is, for messages.
    pub name: String,
    pid: Pid,
    out: PathBuf,
    err: PathBuf,
    _guard: undo::Guard,
}

/// How a child ended.
#[derive(Debug)]
pub enum End {
    /// It is still running: the time was over.
    Late,
    /// It ended well; this is what it printed.
    Done(String),
    /// It ended otherwise; the reason, with its last words.
    Failed(String),
}

impl Child {
    /// Starts `command` with the variables `env` added to this program's own.
    pub fn spawn(
        name: &str,
        command: &[String],
        env: &[(&str, String)],
        workdir: &WorkDir,
    ) -> Result<Self> {
        interrupt::check()?;
        let file = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let (out, err) =
            (workdir.file(&format!("{file}.out")), workdir.file(&format!("{file}.err")));
        let child = Command::new("setpriv")
            // SIGTERM and not SIGKILL: nginx passes it on to its workers.
            .args(["--pdeathsig", "TERM", "--"])
            .args(command)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .process_group(0)
            .spawn()
            .context("cannot run setpriv (package util-linux)")?;
        let pid = Pid::from_child(&child);
        Ok(Self {
            name: name.to_owned(),
            pid,
            out,
            err,
            _guard: undo::enter(move || stop_group(pid)),
        })
    }

    /// The process id, which is its group's as well.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the child and all that it started. Its group is its own until the child is
    /// dropped.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(self.pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Fails, with its last words, if the child has ended.
    pub fn check_alive(&self) -> Result<()> {
        if ended(self.pid)?.is_some() {
            bail!("{} has ended: {}", self.name, self.last_words());
        }
        Ok(())
    }

    /// Waits for the end, for `limit` at most.
    pub fn wait(&self, limit: Duration) -> Result<End> {
        Ok(match interrupt::poll(limit, || ended(self.pid))? {
            None => End::Late,
            Some(true) => End::Done(self.printed()?),
            Some(false) => End::Failed(self.last_words()),
        })
    }

    /// What it has printed so far.
    pub fn printed(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.out)?).into_owned())
    }

    /// Whether this stands in what it has printed so far, on either stream; nothing always does.
    pub fn has_said(&self, text: Option<&str>) -> bool {
        text.is_none_or(|text| {
            [&self.err, &self.out].iter().any(|path| {
                String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).contains(text)
            })
        })
    }

    /// The last lines that it printed.
    pub fn last_words(&self) -> String {
        let words = [&self.err, &self.out].map(|path| tail(path, 4)).join("\n");
        if words.trim().is_empty() {
            "it printed nothing".to_owned()
        } else {
            words.trim().to_owned()
        }
    }
}

/// Whether a child has ended, and if so whether well. It stays unreaped.
fn ended(pid: Pid) -> Result<Option<bool>> {
    let status = waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
    )?;
    Ok(status.map(|status| status.exit_status() == Some(0)))
}

/// Ends a child and everything in its group, and reaps it.
pub fn stop_group(leader: Pid) {
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
        if members(leader).is_empty() {
            break;
        }
        let _ = kill_process_group(leader, signal);
        // One that is stopped hears of it only when it goes on.
        let _ = kill_process_group(leader, Signal::CONT);
        let end = Instant::now() + patience;
        while !members(leader).is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if !members(leader).is_empty() {
        eprintln!("process {} does not go away; it is left to itself", leader.as_raw_nonzero());
    }
    let _ = waitpid(Some(leader), WaitOptions::NOHANG);
}

/// The living processes of a group.
pub fn members(group: Pid) -> Vec<u32> {
    let wanted = group.as_raw_nonzero().get();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            matches!(group_and_state(&stat), Some((pgrp, state)) if pgrp == wanted && !matches!(state, "Z" | "X"))
        })
        .collect()
}

/// Process group and state in a line of `/proc/PID/stat`; the name before them may hold anything.
fn group_and_state(stat: &str) -> Option<(i32, &str)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    Some((fields.nth(1)?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_is_no_trouble() {
        assert_eq!(group_and_state("12 (a) S 1) R 3 77 77 0 -1"), Some((77, "R")));
        assert_eq!(group_and_state("nonsense"), None);
    }
}
