//! Commands into a guest, over a virtio port. Its other end is the guest's first process
//! (`src/bin/init.rs`). Several commands may be under way at once.

use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a command that has ended left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 124 where it ran past its limit, 128 and more where a signal ended it.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Output {
    /// Its standard output, if it succeeded.
    ///
    /// # Errors
    /// With all that it said.
    pub fn good(self) -> Result<String> {
        ensure!(self.status == 0, "status {}\n{}{}", self.status, self.out, self.err);
        Ok(self.out)
    }
}

type Waiting = Arc<Mutex<HashMap<u64, Sender<Output>>>>;

/// The connection to a guest's agent.
#[derive(Debug)]
pub struct Agent {
    port: Mutex<UnixStream>,
    waiting: Waiting,
    ready: Mutex<Receiver<()>>,
    next: AtomicU64,
}

/// A command that is under way.
#[derive(Debug)]
pub struct Pending {
    answer: Receiver<Output>,
    until: Instant,
    script: String,
}

impl Pending {
    /// Waits for its end.
    ///
    /// # Errors
    /// Where the guest gives no answer in time.
    pub fn finish(self) -> Result<Output> {
        // The guest ends it at its limit; a guest that does not is stuck itself.
        match receive(&self.answer, self.until)? {
            Ok(output) => Ok(output),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest gives no answer to: {}", self.script)
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the guest was reset, or is gone, at: {}", self.script)
            }
        }
    }
}

/// Waits for a value until then, or until the program is to go home.
fn receive<T>(from: &Receiver<T>, until: Instant) -> Result<Result<T, RecvTimeoutError>> {
    loop {
        crate::check()?;
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(Duration::from_millis(50))) {
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            other => return Ok(other),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    /// Connects to the socket at which QEMU serves the port.
    ///
    /// # Errors
    /// Where nobody serves it by `until`.
    pub fn connect(socket: &Path, until: Instant) -> Result<Self> {
        let port = loop {
            crate::check()?;
            match UnixStream::connect(socket) {
                Ok(port) => break port,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(error).with_context(|| socket.display().to_string()),
            }
        };
        let waiting = Waiting::default();
        let (said_ready, ready) = channel();
        let (input, answers) = (BufReader::new(port.try_clone()?), Arc::clone(&waiting));
        std::thread::spawn(move || {
            listen(input, &answers, &said_ready);
            lock(&answers).clear();
        });
        Ok(Self {
            port: Mutex::new(port),
            waiting,
            ready: Mutex::new(ready),
            next: AtomicU64::new(1),
        })
    }

    /// Waits until the guest has booted, or booted again.
    ///
    /// # Errors
    /// Where it has not by `until`.
    pub fn wait_ready(&self, until: Instant) -> Result<()> {
        receive(&lock(&self.ready), until)?.map_err(|_| anyhow::anyhow!("the guest does not boot"))
    }

    fn ask(&self, head: impl FnOnce(u64) -> String, body: &[u8]) -> Result<Receiver<Output>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        lock(&self.waiting).insert(id, sender);
        let mut request = head(id).into_bytes();
        request.extend(body);
        lock(&self.port).write_all(&request).context("the guest's agent is gone")?;
        Ok(receiver)
    }

    /// Starts a shell script in the guest, which may take so long.
    ///
    /// # Errors
    /// Where the guest is gone.
    pub fn start(&self, script: &str, limit: Duration) -> Result<Pending> {
        let head = |id| format!("run {id} {} {}\n", limit.as_millis(), script.len());
        let answer = self.ask(head, script.as_bytes())?;
        Ok(Pending {
            answer,
            until: Instant::now() + limit + Duration::from_secs(20),
            script: script.to_owned(),
        })
    }

    /// Writes a file in the guest.
    ///
    /// # Errors
    /// Where that fails.
    pub fn put(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let answer =
            self.ask(|id| format!("put {id} {mode} {} {path}\n", content.len()), content)?;
        let until = Instant::now() + Duration::from_secs(60);
        Pending { answer, until, script: format!("writing {path}") }.finish()?.good().map(drop)
    }
}

/// Hands out answers until the port ends.
fn listen(mut input: BufReader<UnixStream>, waiting: &Waiting, ready: &Sender<()>) {
    loop {
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["ready"] => {
                // Another life: nobody will answer what was asked of the last one.
                lock(waiting).clear();
                let _ = ready.send(());
            }
            ["done", id, status, out, err] => {
                let mut text = |length: &str| {
                    let mut bytes = Vec::new();
                    let _ = (&mut input).take(length.parse().unwrap_or(0)).read_to_end(&mut bytes);
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                let output =
                    Output { status: status.parse().unwrap_or(-1), out: text(out), err: text(err) };
                let asked = id.parse().ok().and_then(|id: u64| lock(waiting).remove(&id));
                if let Some(asked) = asked {
                    let _ = asked.send(output);
                }
            }
            _ => {}
        }
    }
}
