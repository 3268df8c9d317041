//! A started program, watched: it ends in time, or it is shown and ended.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Done {
    /// Its exit status.
    pub status: ExitStatus,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

impl Done {
    /// Whether it ended with status 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n--- standard output\n{}--- standard error\n{}",
            self.status, self.stdout, self.stderr
        )
    }
}

/// A program that runs. Dropping it kills what is left of it.
pub struct Running {
    child: Child,
    name: String,
    out: PathBuf,
    err: PathBuf,
    limit: Duration,
    since: Instant,
    status: Option<(PathBuf, PathBuf)>,
    ended: bool,
}

impl Running {
    /// Starts `command` in a process group of its own. Output goes to files in `dir`: a pipe would
    /// be held open by whatever the program leaves running.
    pub(crate) fn start(
        command: &mut Command,
        dir: &Path,
        limit: Duration,
        status: Option<(PathBuf, PathBuf)>,
    ) -> Self {
        use std::os::unix::process::CommandExt;
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (dir.join(format!("out.{n}")), dir.join(format!("err.{n}")));
        let file =
            |path: &Path| Stdio::from(File::create(path).expect("a stand's folder can be written"));
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err))
            .process_group(0)
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        Self { child, name, out, err, limit, since: Instant::now(), status, ended: false }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.out).unwrap_or_default()).into_owned()
    }

    /// Waits until standard output contains `text`.
    ///
    /// # Panics
    /// When the program ends or the time is over before that.
    pub fn wait_for(&mut self, text: &str) {
        while !self.output().contains(text) {
            if let Some(status) = self.child.try_wait().expect("own children can be waited for") {
                self.ended = true;
                panic!("{} ended before it said {text:?}: {}", self.name, self.result(status));
            }
            self.watch().unwrap_or_else(|seen| panic!("{seen}"));
        }
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: i32) {
        kill(self.child.id(), signal);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end in time: with backtraces of all its processes and threads.
    #[must_use]
    pub fn finish(self) -> Done {
        self.try_finish().unwrap_or_else(|seen| panic!("{seen}"))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time: what was seen of it.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn try_finish(self) -> Result<Done, String> {
        self.wait(false)
    }

    /// Waits for its end. As long as it goes on writing it is not taken for stuck.
    ///
    /// # Errors
    /// When it writes nothing for as long as its time is: what was seen of it.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn finish_or_fall_silent(self) -> Result<Done, String> {
        self.wait(true)
    }

    fn wait(mut self, only_silence_counts: bool) -> Result<Done, String> {
        let mut written = 0;
        loop {
            if let Some(status) = self.child.try_wait().expect("own children can be waited for") {
                self.ended = true;
                return Ok(self.result(status));
            }
            let before = std::mem::replace(&mut written, self.written());
            if only_silence_counts && written != before {
                self.since = Instant::now();
            }
            self.watch()?;
        }
    }

    /// Bytes that it has written to standard output and standard error so far.
    fn written(&self) -> u64 {
        let len = |path| std::fs::metadata(path).map_or(0, |file| file.len());
        len(&self.out) + len(&self.err)
    }

    fn result(&self, status: ExitStatus) -> Done {
        let read =
            |path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        Done { status, stdout: read(&self.out), stderr: read(&self.err) }
    }

    fn watch(&mut self) -> Result<(), String> {
        if self.since.elapsed() < self.limit {
            std::thread::sleep(Duration::from_millis(5));
            return Ok(());
        }
        let mut seen = format!("{} has not ended after {:?}\n", self.name, self.limit);
        if let Some((ginnel, dir)) = &self.status {
            let mut status = Command::new("timeout");
            status.arg("10").arg(ginnel).args(["status", "--json"]).env("GINNEL_DIR", dir);
            seen += &said("ginnel status --json", &mut status);
        }
        for pid in self.processes() {
            let name = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let title =
                format!("process {pid}: {}", String::from_utf8_lossy(&name).replace('\0', " "));
            let mut gdb = Command::new("timeout");
            gdb.args(["30", "gdb", "-p", &pid.to_string(), "-batch", "-ex", "thread apply all bt"]);
            seen += &said(&title, &mut gdb);
        }
        self.end();
        let read =
            |path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        Err(format!(
            "{seen}--- standard output\n{}--- standard error\n{}",
            read(&self.out),
            read(&self.err)
        ))
    }

    /// The program and all that it started and that still runs: its descendants and its process
    /// group.
    fn processes(&self) -> Vec<u32> {
        let all: Vec<(u32, u32, u32)> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid: u32| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                // "pid (name) state ppid pgrp": the name may hold anything, also brackets.
                let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(1);
                Some((pid, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
            })
            .collect();
        let mut found = vec![self.child.id()];
        loop {
            let before = found.len();
            for &(pid, parent, group) in &all {
                if !found.contains(&pid) && (group == self.child.id() || found.contains(&parent)) {
                    found.push(pid);
                }
            }
            if found.len() == before {
                return found;
            }
        }
    }

    /// Kills what is left: all of it, or, where the program itself has ended, what it left behind
    /// in its group.
    fn end(&mut self) {
        for pid in self.processes() {
            if !(self.ended && pid == self.child.id()) {
                kill(pid, libc::SIGKILL);
            }
        }
        if !self.ended {
            let _ = self.child.wait();
            self.ended = true;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn kill(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill touches no memory; the process is one this test started, and not yet reaped.
        unsafe { libc::kill(pid, signal) };
    }
}

fn said(title: &str, command: &mut Command) -> String {
    let text = match command.stdin(Stdio::null()).output() {
        Ok(o) => {
            String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
        }
        Err(e) => e.to_string(),
    };
    format!("--- {title}\n{}\n", text.trim_end())
}
