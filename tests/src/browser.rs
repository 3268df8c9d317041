//! A real browser without a window, driven over a pipe by the DevTools protocol: JSON messages,
//! each ended by a zero byte, to its descriptor 3 and from its descriptor 4.
//!
//! Source: <https://chromedevtools.github.io/devtools-protocol/>, and `--remote-debugging-pipe` in
//! Chromium's `content/browser/devtools/devtools_pipe_handler.cc`.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the browser may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Debian's browser without a window; its whole one does too.
const PROGRAMS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
    session: Option<String>,
    next: u64,
    /// What happened on the page, oldest first.
    pub events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; `None`, and a line that says so, where none is installed.
    pub fn start() -> Option<Self> {
        let there = |name: &&str| {
            Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        let Some(program) = PROGRAMS.into_iter().find(there) else {
            crate::skip("what a browser shows", "chromium-headless-shell is not installed");
            return None;
        };
        let profile = tempfile::tempdir().expect("a directory");
        let (to, in_) = UnixStream::pair().expect("a pair");
        let (from, out) = UnixStream::pair().expect("a pair");
        let mut command = Command::new(program);
        // No sandbox of its own: it shows only our page, and in a container it has no right to make
        // one.
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let pipes = [in_.as_raw_fd(), out.as_raw_fd()];
        // SAFETY: between fork and exec only system calls are made. The first copies lie above both
        // numbers, so that neither is lost to the other.
        unsafe {
            command.pre_exec(move || {
                let high = pipes.map(|fd| libc::fcntl(fd, libc::F_DUPFD, 10));
                let done = high
                    .iter()
                    .zip(3..)
                    .all(|(&fd, number)| fd >= 0 && libc::dup2(fd, number) == number);
                if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let child = crate::dies_with_us(&mut command).spawn().expect("the browser starts");
        let mut browser = Self {
            child,
            to,
            from: BufReader::new(from),
            session: None,
            next: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target =
            browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}))["sessionId"].clone();
        browser.session = session.as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command; gives its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut command = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.to.write_all((command.to_string() + "\0").as_bytes()).expect("sent");
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.receive(until).unwrap_or_else(|| panic!("no answer to {method}"));
            if said["id"] == self.next {
                assert!(said["error"].is_null(), "{method}: {}", said["error"]);
                return said["result"].clone();
            }
            self.events.push(said);
        }
    }

    fn receive(&mut self, until: Instant) -> Option<Value> {
        let left = until.checked_duration_since(Instant::now())?.max(Duration::from_millis(1));
        self.from.get_ref().set_read_timeout(Some(left)).expect("set");
        let mut text = Vec::new();
        let read = self.from.read_until(0, &mut text);
        if read.is_err() || text.pop() != Some(0) {
            return None;
        }
        Some(serde_json::from_slice(&text).expect("JSON"))
    }

    /// Opens an address, and waits until all of it is loaded.
    pub fn open(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// What an expression gives in the page, as JSON; a promise's value.
    pub fn ask(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    pub fn wait(&mut self, expression: &str) {
        let until = Instant::now() + PATIENCE;
        while self.ask(expression) != true {
            assert!(
                Instant::now() < until,
                "waited {PATIENCE:?} for {expression}\n{}",
                self.ask("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Shows the page on a screen of this width, in the light or in the dark.
    pub fn show(&mut self, width: u32, scheme: &str) {
        let screen =
            json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", screen);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
    }

    /// Whatever the page's scripts said or threw, and whatever the browser had to complain about.
    pub fn complaints(&self) -> Vec<&Value> {
        let is = |event: &&Value| {
            matches!(
                event["method"].as_str(),
                Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded")
            )
        };
        self.events.iter().filter(is).collect()
    }

    /// Addresses that were asked for.
    pub fn requests(&self) -> impl Iterator<Item = &str> {
        let requests =
            self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| event["params"]["request"]["url"].as_str())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
