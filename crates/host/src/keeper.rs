//! `ginneld --keep`: starts the daemon, keeps its descriptors, and starts it again when it dies,
//! for hosts without systemd.
//!
//! It is the part of systemd that the daemon needs and nothing more: it keeps what the daemon gives
//! it by sd_notify(3), and hands it to the next instance by sd_listen_fds(3). It reads no message
//! of any peer. SIGHUP restarts the daemon (a new binary or configuration), SIGTERM and SIGINT end
//! both. Where the daemon ends by itself, with status 0 or, while nothing is kept yet, 2 (wrong
//! configuration), so does the keeper.

use crate::keep::KEEPER;
use anyhow::{Context, Result};
use ginnel_daemon::log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// How long to wait before a daemon is started again: at least, and at most where it does not even
/// start.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(5)];

struct Keeper {
    /// Has this instance said that it is ready?
    ready: bool,
    kept: BTreeMap<String, OwnedFd>,
    socket: UnixDatagram,
    signals: [(i32, UnixStream); 3],
}

/// Runs until the daemon ends for good; gives its exit status. `run_dir` gets the keeper's socket.
///
/// # Errors
/// What failed at the start.
pub fn keep(run_dir: &Path, arguments: &[std::ffi::OsString]) -> Result<i32> {
    let run_dir = crate::rundir::RunDir::open(run_dir)?;
    let _lock = run_dir.lock("keeper.lock")?;
    let path = run_dir.path().join("keeper.sock");
    let _ = std::fs::remove_file(&path);
    // From the first moment on nobody else may write to it: what it receives the next daemon takes
    // for its own.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let socket = UnixDatagram::bind(&path)
        .with_context(|| format!("{}: bind the keeper's socket", path.display()));
    rustix::process::umask(before);
    let socket = socket?;
    socket.set_nonblocking(true)?;
    let signal = |number: i32| -> Result<(i32, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(number, theirs)?;
        Ok((number, ours))
    };
    let interrupted = signal(SIGINT)?;
    let mut keeper = Keeper {
        ready: false,
        kept: BTreeMap::new(),
        socket,
        signals: [signal(SIGTERM)?, signal(SIGHUP)?, signal(SIGCHLD)?],
    };
    let status = keeper.run(&path, arguments, &interrupted.1);
    let _ = std::fs::remove_file(&path);
    status
}

impl Keeper {
    fn run(
        &mut self,
        path: &Path,
        arguments: &[std::ffi::OsString],
        interrupted: &UnixStream,
    ) -> Result<i32> {
        let mut pause = PAUSE[0];
        loop {
            self.ready = false;
            let mut child = self.start(path, arguments)?;
            let (status, end) = self.attend(&mut child, interrupted)?;
            log!(
                Info,
                "daemon_ended",
                pid = child.id(),
                status = status,
                kept = self.kept.len(),
                again = !end
            );
            if end {
                return Ok(status.code().unwrap_or(0));
            }
            pause = if self.ready { PAUSE[0] } else { (pause * 2).min(PAUSE[1]) };
            std::thread::sleep(pause);
        }
    }

    /// Starts the daemon with all that is kept, at the numbers from 3 on.
    fn start(&self, path: &Path, arguments: &[std::ffi::OsString]) -> Result<Child> {
        let names: Vec<&str> = self.kept.keys().map(String::as_str).collect();
        let count = i32::try_from(names.len())?;
        // Above where they are to be, so that none is overwritten before it is copied.
        let raised = self
            .kept
            .values()
            .map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 3 + count))
            .collect::<Result<Vec<_>, _>>()?;
        let numbers: Vec<RawFd> = raised.iter().map(AsRawFd::as_raw_fd).collect();
        let mut command = Command::new("/proc/self/exe");
        command
            .args(arguments)
            .env("NOTIFY_SOCKET", path)
            .env(KEEPER, std::process::id().to_string())
            .env("LISTEN_FDS", count.to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .env_remove("LISTEN_PID")
            .arg0("ginneld");
        // SAFETY: between fork and exec only dup2 is called, on numbers computed before; it touches
        // no memory and takes no lock.
        unsafe {
            command.pre_exec(move || {
                for (target, &number) in (3..).zip(&numbers) {
                    if libc::dup2(number, target) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        command.spawn().context("start ginneld")
    }

    /// Keeps what the daemon gives, until it ends: its status, and whether that was the end for
    /// good.
    fn attend(
        &mut self,
        child: &mut Child,
        interrupted: &UnixStream,
    ) -> Result<(ExitStatus, bool)> {
        let (mut stopping, mut restarting) = (false, false);
        loop {
            let [(_, term), (_, hup), (_, chld)] = &self.signals;
            let fds =
                [self.socket.as_fd(), term.as_fd(), hup.as_fd(), chld.as_fd(), interrupted.as_fd()];
            let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // The time limit is for a child that ended before its signal could be seen.
            match poll(&mut polled, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let came =
                |mut signal: &UnixStream| signal.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0);
            let (term, hup) = (came(term) || came(interrupted), came(hup));
            came(chld);
            if (term || hup)
                && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
            {
                let _ = kill_process(pid, Signal::TERM);
            }
            stopping |= term;
            restarting |= hup;
            // What the daemon gave before it ended is still in the socket.
            let ended = child.try_wait()?;
            self.receive();
            if let Some(status) = ended {
                // With machines to lose, a configuration that is wrong is waited for to be mended.
                let hopeless = status.code() == Some(2) && self.kept.is_empty();
                let for_good = stopping || hopeless || (!restarting && status.code() == Some(0));
                return Ok((status, for_good));
            }
        }
    }

    fn receive(&mut self) {
        loop {
            let mut bytes = [0u8; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let len = match recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut control,
                flags,
            ) {
                Ok(received) => received.bytes,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let descriptor = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            let text = String::from_utf8_lossy(&bytes[..len]);
            let value =
                |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            self.ready |= value("READY") == Some("1");
            let name = value("FDNAME").unwrap_or("stored").to_owned();
            match (value("FDSTORE"), value("FDSTOREREMOVE"), descriptor) {
                (Some("1"), _, Some(descriptor)) => drop(self.kept.insert(name, descriptor)),
                (_, Some("1"), _) => drop(self.kept.remove(&name)),
                _ => {}
            }
        }
    }
}
