//! A switch in a thread of the test, and guests at its ports.

pub mod fabric;
pub mod fuse;
pub mod lent;
pub mod long;

use ginnel_switch::config::Config;
use ginnel_switch::control;
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::reload::{Outcome, Source};
use ginnel_switch::server::Server;
use ginnel_switch::status::{Address, HostStatus, PortStatus, Status};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A switch. It ends when it is dropped.
pub struct Lab {
    pub directory: tempfile::TempDir,
    end: Option<UnixStream>,
    /// Where a signal would ask for another configuration.
    asks: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    /// Of the thread.
    name: String,
}

impl Lab {
    /// With these ports, as the configuration has them; `{}` is the directory.
    pub fn new(ports: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("switch{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut lab = Self { directory, end: None, asks: None, thread: None, name };
        lab.start(ports);
        lab
    }

    /// Starts a switch in the same directory.
    pub fn start(&mut self, ports: &str) {
        let source = Source { file: self.write(ports), busy: false };
        let config = source.load().expect("a configuration");
        let (end, ends) = UnixStream::pair().expect("a pair");
        let mut server = self.server(&config);
        let (asks, heard) = UnixStream::pair().expect("a pair");
        server.reload_from(source, heard).expect("it can be read again");
        let run = move || server.run(ends).expect("it runs");
        let named = std::thread::Builder::new().name(self.name.clone());
        self.thread = Some(named.spawn(run).expect("a thread"));
        (self.end, self.asks) = (Some(end), Some(asks));
    }

    /// A process that another test starts at this moment may have a copy of the last switch's
    /// sockets; until it runs its program, they are served.
    fn server(&self, config: &Config) -> Server {
        let until = Instant::now() + PATIENCE;
        loop {
            match Server::new(config) {
                Ok(server) => return server,
                Err(error) => {
                    let served = format!("{error:#}").contains("somebody listens there");
                    assert!(served && Instant::now() < until, "no switch: {error:#}");
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes the configuration: its file.
    fn write(&self, ports: &str) -> PathBuf {
        let text = format!("run_dir = {:?}\nmetrics = \"off\"\n{ports}", self.directory.path());
        let file = self.directory.path().join("switch.toml");
        std::fs::write(&file, text).expect("written");
        file
    }

    /// Has it read another configuration.
    pub fn reload(&self, ports: &str) -> Outcome {
        self.write(ports);
        serde_json::from_str(&self.ask("reload")).expect("an outcome")
    }

    /// The same by a signal, which has no answer.
    pub fn hang_up(&self, ports: &str) {
        self.write(ports);
        let mut asks = self.asks.as_ref().expect("a switch");
        asks.write_all(b"x").expect("asked");
    }

    /// Ends the switch. A program that another test starts at this moment may have a copy of the
    /// socket, and while its exec waits for a close, nobody would see that it was closed here.
    pub fn stop(&mut self) {
        if let Some(end) = self.end.take() {
            end.shutdown(Shutdown::Both).expect("shut");
        }
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            let until = Instant::now() + PATIENCE;
            while !thread.is_finished() && Instant::now() < until && !std::thread::panicking() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if std::thread::panicking() {
                return;
            }
            assert!(thread.is_finished(), "the switch hangs");
            assert!(thread.join().is_ok(), "the switch panicked");
        }
    }

    /// The processor time that the switch has used.
    pub fn cpu(&self) -> Duration {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let mut tasks = std::fs::read_dir("/proc/self/task").expect("tasks").flatten();
        let task = tasks.find(|task| read(task.path().join("comm")).trim() == self.name);
        let stat = read(task.expect("the switch's thread").path().join("schedstat"));
        let nanos = stat.split(' ').next().and_then(|text| text.parse().ok());
        Duration::from_nanos(nanos.expect("schedstat"))
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.sock"))
    }

    /// A guest at this port, with queues set up.
    ///
    /// It waits until nobody is there: a front end that was just dropped is gone only once no
    /// process that another test starts at this moment has a copy of its socket.
    pub fn guest(&self, name: &str, options: Options) -> FrontEnd {
        self.until(name, |port| port.state == "waiting");
        FrontEnd::connect(&self.socket(name), options).expect("a front end")
    }

    pub fn ask(&self, question: &str) -> String {
        let control = self.directory.path().join("control.sock");
        let mut answer = String::new();
        let mut stream = control::ask(&control, question).expect("a control socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    pub fn port(&self, name: &str) -> PortStatus {
        let status: Status = serde_json::from_str(&self.ask("status")).expect("a status");
        status.ports.into_iter().find(|port| port.name == name).expect("a port")
    }

    pub fn host(&self, name: &str) -> HostStatus {
        let status: Status = serde_json::from_str(&self.ask("status")).expect("a status");
        status.hosts.into_iter().find(|host| host.name == name).expect("a host")
    }

    /// Waits until another host is as it should be.
    pub fn until_host(&self, name: &str, good: impl Fn(&HostStatus) -> bool) -> HostStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            let host = self.host(name);
            if good(&host) {
                return host;
            }
            assert!(Instant::now() < until, "it does not come to be so: {host:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn addresses(&self) -> Vec<Address> {
        serde_json::from_str(&self.ask("fdb")).expect("a table")
    }

    /// Waits until a port is as it should be.
    pub fn until(&self, name: &str, good: impl Fn(&PortStatus) -> bool) -> PortStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            let port = self.port(name);
            if good(&port) {
                return port;
            }
            assert!(Instant::now() < until, "it does not come to be so: {port:#?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the test of this name in a process of its own: true there. A program that another test
/// starts meanwhile has all files of this process until its exec, which closes them; where a close
/// waits, it would wait as well.
#[must_use]
pub fn alone(name: &str) -> bool {
    const ALONE: &str = "GINNEL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("this program has a path");
    let done = std::process::Command::new(own).args(["--exact", name]).env(ALONE, "1").output();
    let done = done.expect("it runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}{}", said(&done.stdout), said(&done.stderr));
    false
}

/// The address of guest `n`.
pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, n]
}

pub const ALL: [u8; 6] = [0xff; 6];

/// A frame with a body of this length.
pub fn frame(to: [u8; 6], from: [u8; 6], body: usize, seed: u8) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.extend((0..body).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)));
    frame
}

/// Waits for the next frame of the first queue.
pub fn next(guest: &mut FrontEnd) -> Option<Vec<u8>> {
    guest.wait(0, PATIENCE)
}

/// Two guests exchange a frame each way: the switch works, and knows both.
pub fn talk(one: (&mut FrontEnd, u8), two: (&mut FrontEnd, u8)) {
    let hello = frame(ALL, mac(one.1), 50, 1);
    assert!(one.0.send(1, &hello));
    assert_eq!(next(two.0).as_ref(), Some(&hello), "from {} to {}", one.1, two.1);
    let answer = frame(mac(one.1), mac(two.1), 50, 2);
    assert!(two.0.send(1, &answer));
    assert_eq!(next(one.0).as_ref(), Some(&answer), "from {} to {}", two.1, one.1);
}
