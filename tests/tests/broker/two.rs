//! A server of root's and a client of nobody's, each in a network namespace of its own, and the
//! broker between them.

use super::programs::{CLIENT, SERVER};
use ginnel_tests::daemon::Broker;
use ginnel_tests::netns::{ADDRESSES, Pair};
use ginnel_tests::{Report, Running, Stand, build, is_root, skip};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NOBODY: u32 = 65534;
pub const PYTHON: &str = "/usr/bin/python3.11";
pub const LIMIT: Duration = Duration::from_secs(90);

/// Both programs' places, and where they meet.
pub struct Two {
    pub broker: Broker,
    pub namespaces: Pair,
    pub server: Stand,
    pub client: Stand,
    /// Of the library, where every user may read it.
    _shim: String,
}

impl Two {
    /// Root's server in one namespace, nobody's client in the other. `None`, after saying why.
    pub fn new(what: &str, config: &str) -> Option<Self> {
        Self::within(LIMIT, what, config)
    }

    /// The same, for programs that may run so long.
    pub fn within(limit: Duration, what: &str, config: &str) -> Option<Self> {
        if !is_root()
            || !Path::new(PYTHON).exists()
            || !Path::new("/sys/kernel/btf/vmlinux").exists()
        {
            skip(what, "needs root, python3.11 and a kernel with BPF and its type information");
            return None;
        }
        let namespaces = Pair::new(what)?;
        let broker = Broker::start(config);
        let shim = broker.place.dir().join("libginnel_shim.so");
        build::copy_program(&build::shim(), &shim);
        let shim = shim.to_str().expect("UTF-8").to_owned();
        let asks = broker.socket();
        let asks = asks.to_str().expect("UTF-8");
        let settings = [("GINNEL_BROKER", asks), ("LD_PRELOAD", &*shim)];
        let server = Stand::shimmed("server", &settings).limit(limit);
        let client = Stand::shimmed("client", &settings).limit(limit);
        chown(client.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
        Some(Self { broker, namespaces, server, client, _shim: shim })
    }

    /// What to put before the client.
    pub fn as_nobody(&self) -> Vec<&str> {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        self.namespaces.enter(0).into_iter().chain(nobody).collect()
    }

    pub fn port_file(&self) -> std::path::PathBuf {
        self.server.dir().join("port")
    }

    pub fn serve(&self) -> (Running, String) {
        self.serve_with(SERVER, "")
    }

    pub fn serve_with(&self, program: &str, way: &str) -> (Running, String) {
        let mut server = self.server.command_behind(&self.namespaces.enter(1), PYTHON);
        let running =
            self.server.start(server.args(["-c", program]).arg(self.port_file()).arg(way));
        self.server.wait_until(LIMIT, "a server that listens", || self.port_file().exists());
        (running, fs::read_to_string(self.port_file()).expect("it listens"))
    }

    pub fn end(&self, server: Running) {
        fs::write(self.server.dir().join("port.end"), "").expect("written");
        let done = server.finish();
        assert!(done.success(), "{done}");
    }

    /// The client, which stays until these files are gone, and then the server.
    pub fn end_both(&self, server: Running, client: Running, stays: &[PathBuf]) {
        for file in stays {
            fs::remove_file(file).expect("there");
        }
        let done = client.finish();
        assert!(done.success(), "{done}");
        self.end(server);
    }

    /// The client, at `host`; stays until these two files are gone.
    pub fn ask(
        &self,
        host: &str,
        port: &str,
        connections: usize,
        messages: usize,
    ) -> (Running, [PathBuf; 2]) {
        let stays = self.client.dir().join("stays");
        let second = self.client.dir().join("stays2");
        for file in [&stays, &second] {
            fs::write(file, "").expect("written");
        }
        let mut client = self.client.command_behind(&self.as_nobody(), PYTHON);
        client
            .args(["-c", CLIENT, host, port, &connections.to_string(), &messages.to_string()])
            .arg(&stays);
        (self.client.start(&mut client), [stays, second])
    }

    /// One whole exchange, in which `ginnel status` says this of the client's end. What the two
    /// reported.
    pub fn exchange(&self, said: &str) -> [Report; 2] {
        let (server, port) = self.serve();
        let (client, stays) = self.ask(ADDRESSES[1], &port, 2, 60);
        self.hear_out(client, said, stays);
        self.end(server);
        [self.server.report(), self.client.report()]
    }

    /// Hears the client's program to its end, once `ginnel status` says this.
    pub fn hear_out(&self, mut client: Running, said: &str, [stays, second]: [PathBuf; 2]) {
        client.wait_for("first");
        self.client.wait_until(LIMIT, said, || self.client.status().contains(said));
        fs::remove_file(stays).expect("there");
        client.wait_for("second");
        fs::remove_file(second).expect("there");
        let done = client.finish();
        assert!(done.success(), "{done}");
    }

    /// Waits until so many of the client's connections are carried in a pair's memory.
    pub fn wait_for_pairs(&self, count: usize) {
        self.client.wait_until(LIMIT, "pairs", || {
            let status = self.client.status();
            let carried = status.matches("\"out_carrier\": \"ring\"").count();
            carried >= count && status.matches("\"segment\": \"(pair)\"").count() >= count
        });
    }

    pub fn in_client(&self, command: &str) {
        let done = Command::new("ip")
            .args(["netns", "exec", self.namespaces.name(0), "sh", "-ec", command])
            .status();
        assert!(done.is_ok_and(|done| done.success()), "{command}");
    }
}
