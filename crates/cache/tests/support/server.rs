//! The built server on a unix socket, for tests of other crates.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of one test, killed with it.
pub struct Server {
    child: Child,
    pub socket: PathBuf,
    /// The Ginnel directory that it has.
    pub home: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn start(program: &Path) -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
        let socket = home.path().join("socket");
        let mut command = Command::new(program);
        command.args(["-u", "root", "-s"]).arg(&socket).env("GINNEL_DIR", home.path());
        let child = command.stdin(Stdio::null()).spawn().expect("it starts");
        let server = Self { child, socket, home };
        let until = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(&server.socket).is_err() {
            assert!(Instant::now() < until, "it does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}
