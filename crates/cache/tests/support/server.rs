//! A server on a unix socket, for tests of this crate and of others.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of one test, killed with it.
pub struct Server {
    pub(crate) child: Child,
    #[allow(dead_code, reason = "not every crate starts a server anew")]
    pub(crate) command: Command,
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
    pub fn start(program: impl AsRef<OsStr>, args: &[&str]) -> Self {
        Self::launch(Command::new(program), args)
    }

    /// Starts what `command` runs, with those arguments behind its own.
    pub fn launch(mut command: Command, args: &[&str]) -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
        let socket = home.path().join("socket");
        command.args(["-u", "root", "-s"]).arg(&socket).args(args);
        command.env("GINNEL_DIR", home.path()).stdin(Stdio::null());
        let child = Self::spawn(&mut command, &socket);
        Self { child, command, socket, home }
    }

    /// The same on a TCP port of this machine alone, which `args` name.
    #[allow(dead_code, reason = "not every crate has a server on TCP")]
    pub fn listen(mut command: Command, args: &[&str], port: &str) -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
        command.args(["-u", "root"]).args(args);
        command.env("GINNEL_DIR", home.path()).stdin(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let until = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            assert!(Instant::now() < until, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let socket = home.path().join("none");
        Self { child, command, socket, home }
    }

    /// Waits until it listens.
    pub(crate) fn spawn(command: &mut Command, socket: &Path) -> Child {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error} (make deps-test installs it)"));
        let until = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(socket).is_err() {
            assert!(Instant::now() < until, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }
}
