//! Processes of the host that end with whoever started them.

use std::io::Result;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Starts a process that the kernel kills if this one dies without having done so. The signal comes
/// when the *thread* that started it ends: so one thread starts all of them, and never ends.
///
/// # Errors
/// Where it cannot be started.
pub fn spawn(mut command: Command) -> Result<Child> {
    type Order = (Command, Sender<Result<Child>>);
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    // SAFETY: between fork and exec one system call is made, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let starter = STARTER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, started) in orders {
                let _ = started.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (sender, started) = channel();
    let gone = |_| std::io::Error::other("the starting thread is gone");
    starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, sender))
        .map_err(|_| gone(()))?;
    started.recv().map_err(|_| gone(()))?
}

/// A process that is killed, and waited for, when this is dropped.
#[derive(Debug)]
pub struct Killed(Child);

impl Killed {
    /// [`spawn`]s it.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn spawn(command: Command) -> Result<Self> {
        spawn(command).map(Self)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
