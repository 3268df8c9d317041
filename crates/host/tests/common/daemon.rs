//! `ginneld` in a directory of its own.

use super::{dies_with_us, signal, wait};
use ginnel_ivshmem::client::Client;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One segment `t` of 16 MiB with slots 1 to 3 and two vectors.
pub const SMALL: &str = "[segment.t]\nsize = \"16M\"\nslots = 3\nvectors = 2\n";

/// A running daemon, under its keeper or alone.
pub struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
}

impl Daemon {
    /// Alone: killed, it leaves nothing to a next one.
    pub fn alone(config: &str) -> Self {
        Self::start(config, &[])
    }

    /// With `--keep`.
    pub fn kept(config: &str) -> Self {
        Self::start(config, &["--keep"])
    }

    /// Alone, as a user without any capability, who may have so many descriptors. Only root can do
    /// that.
    pub fn as_user(config: &str, uid: u32, descriptors: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("ginneld");
        ginnel_tests::build::copy_program(Path::new(crate::ginneld()), &program);
        std::os::unix::fs::chown(directory.path(), Some(uid), None).expect("given");
        let mut command = Command::new(program);
        command.uid(uid).gid(uid);
        let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
        // SAFETY: between fork and exec one system call is made.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                Ok(())
            });
        }
        Self::spawn(command, directory, config, &[])
    }

    fn start(config: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self::spawn(Command::new(crate::ginneld()), directory, config, flags)
    }

    fn spawn(
        mut command: Command,
        directory: tempfile::TempDir,
        config: &str,
        flags: &[&str],
    ) -> Self {
        ginnel_tests::permit::of_this_test();
        let file = directory.path().join("ginneld.toml");
        write_config(&file, directory.path(), config);
        let log = File::create(directory.path().join("log")).expect("a log");
        for name in
            ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "JOURNAL_STREAM", "RUNTIME_DIRECTORY"]
        {
            command.env_remove(name);
        }
        command.args(flags).arg("--config").arg(&file).stdin(Stdio::null()).stderr(log);
        let child = dies_with_us(&mut command).spawn().expect("ginneld starts");
        let daemon = Self { child, directory };
        daemon.wait_log("event=started", 1);
        daemon
    }

    /// Another configuration, for the next start.
    pub fn configure(&self, config: &str) {
        write_config(&self.path("ginneld.toml"), self.directory.path(), config);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The socket of a peer of segment `t`; 0 is the host.
    pub fn socket(&self, peer: u16) -> PathBuf {
        let name = if peer == 0 { "host.sock".into() } else { format!("{peer}.sock") };
        self.path("run/t").join(name)
    }

    /// Joins segment `t` at once, as a machine or, with 0, as a process of the host, and has
    /// everything.
    pub fn join(&self, peer: u16) -> Client {
        let mut client = Client::connect(&self.socket(peer)).expect("connected");
        client.settle(2, Instant::now() + super::PATIENCE).expect("a setup");
        client
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("a log")
    }

    /// Waits until the log has `count` lines with `text`; gives the last.
    pub fn wait_log(&self, text: &str, count: usize) -> String {
        wait(&format!("{count} × {text:?} in {:?}", self.log()), || {
            let log = self.log();
            let mut lines = log.lines().filter(|line| line.contains(text));
            (lines.clone().count() >= count).then(|| lines.next_back().expect("counted").to_owned())
        })
    }

    /// The daemon's process, which is the keeper's child where there is one.
    pub fn pid(&self) -> u32 {
        let line = self
            .log()
            .lines()
            .rfind(|line| line.contains("event=started"))
            .expect("started")
            .to_owned();
        line.split(" pid=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .expect("a pid")
    }

    /// The process that was started: the keeper or the daemon.
    pub fn outer_pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the daemon, and waits until the next instance has started.
    pub fn restart(&self, with: libc::c_int) {
        let starts = self.log().matches("event=started").count();
        signal(self.pid(), with);
        self.wait_log("event=started", starts + 1);
    }

    /// A page of the status server: head and body.
    pub fn get(&self, path: &str) -> (String, String) {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
    }

    pub fn ask(&self, question: &[u8]) -> (String, String) {
        let mut stream = self.visit();
        stream.write_all(question).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.to_owned(), body.to_owned())
    }

    /// Address of the status page.
    pub fn url(&self) -> String {
        let log = self.log();
        log.lines()
            .rev()
            .find_map(|line| line.split("url=").nth(1))
            .expect("a status page")
            .trim_matches('"')
            .to_owned()
    }

    pub fn visit(&self) -> TcpStream {
        let address = self.url().trim_matches('/').trim_start_matches("http://").to_owned();
        let stream =
            TcpStream::connect(&address).unwrap_or_else(|error| panic!("{address}: {error}"));
        stream.set_read_timeout(Some(super::PATIENCE)).expect("set");
        stream
    }

    /// The first segment of /status.json.
    pub fn status(&self) -> serde_json::Value {
        let body = self.get("/status.json").1;
        serde_json::from_str::<serde_json::Value>(&body).expect("JSON")["segments"][0].clone()
    }

    /// The slots in which there is a machine.
    pub fn slots(&self) -> Vec<u64> {
        let status = self.status();
        status["machines"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["slot"].as_u64().expect("a slot"))
            .collect()
    }

    /// Descriptors that the daemon has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("proc").count()
    }

    /// Ends it with SIGTERM; gives its exit status.
    pub fn stop(mut self) -> Option<i32> {
        signal(self.child.id(), libc::SIGTERM);
        wait("the end of ginneld", || self.child.try_wait().expect("our child")).code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        signal(self.child.id(), libc::SIGTERM);
        while Instant::now() < until && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of ginneld\n{}", self.log());
        }
    }
}

fn write_config(file: &Path, directory: &Path, config: &str) {
    let run = directory.join("run");
    let status = if config.starts_with("status") { "" } else { "status = \"127.0.0.1:0\"\n" };
    fs::write(file, format!("run_dir = {run:?}\n{status}{config}")).expect("written");
}
