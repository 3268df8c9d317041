//! What must not outlive the bench: child processes, network namespaces, segments.
//!
//! Everything is entered here before (or as) it is made, and undone at the end, on a panic and on
//! Ctrl-C.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

enum Undo {
    Run(Vec<String>),
    Remove(PathBuf),
}

struct Debts {
    stopping: bool,
    children: Vec<Pid>,
    undo: Vec<Undo>,
}

static DEBTS: Mutex<Debts> =
    Mutex::new(Debts { stopping: false, children: Vec::new(), undo: Vec::new() });

fn debts() -> MutexGuard<'static, Debts> {
    DEBTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Cleans up on panics; on Ctrl-C, SIGTERM and SIGHUP does what the caller says: clean up and leave
/// ([`leave`]), or stop soon.
pub fn install(interrupted: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    ctrlc::set_handler(interrupted)?;
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        all();
    }));
    Ok(())
}

/// Cleans up and leaves as a shell expects of an interrupted program.
pub fn leave() {
    eprintln!("\ninterrupted: cleaning up");
    all();
    std::process::exit(130);
}

/// Remembers a command that undoes what the caller is about to do.
pub fn later<const N: usize>(command: [&str; N]) {
    debts().undo.push(Undo::Run(command.map(String::from).to_vec()));
}

/// Remembers a folder that goes with all that is in it by then. By this process: what is in PATH is
/// the user's.
pub fn remove_later(folder: &Path) {
    debts().undo.push(Undo::Remove(folder.to_owned()));
}

/// Spawns a child that leads its own process group and is killed with it at the latest when the
/// bench ends.
pub fn spawn(command: &mut Command) -> anyhow::Result<(Child, Pid)> {
    use std::os::unix::process::CommandExt;
    let mut debts = debts();
    anyhow::ensure!(!debts.stopping, "interrupted");
    let child = command.process_group(0).spawn()?;
    let pid = Pid::from_child(&child);
    debts.children.push(pid);
    Ok((child, pid))
}

/// The child is about to be reaped: its number may soon be another's.
pub fn forget(pid: Pid) {
    debts().children.retain(|&child| child != pid);
}

/// Kills a child's process group, if the child has not ended.
pub fn kill(pid: Pid) {
    if debts().children.contains(&pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Sends a child SIGTERM, and not its group: who has children ends them.
pub fn ask_to_end(pid: Pid) {
    if debts().children.contains(&pid) {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Pays every debt, the newest first.
pub fn all() {
    let mut debts = debts();
    debts.stopping = true;
    for pid in std::mem::take(&mut debts.children) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    while let Some(undo) = debts.undo.pop() {
        let _ = match undo {
            Undo::Run(command) => Command::new(&command[0])
                .args(&command[1..])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .map(drop),
            Undo::Remove(folder) => std::fs::remove_dir_all(folder),
        };
    }
}
