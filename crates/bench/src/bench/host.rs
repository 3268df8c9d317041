//! What the host spends below two guests. From inside a guest that is not to be seen, so `ginnel
//! bench host` tells it there: it knows the processes (QEMU, vhost threads, `ginneld`), and answers
//! over a serial port of the machine that measures (QEMU's `virtserialport`, with a socket for its
//! other end).
//!
//! A line for a line: a number that the asking side chose, and the same with the CPU time of all
//! the processes so far, in ns.

use anyhow::{Context, Result, bail, ensure};
use ginnel_bench::machine::ticks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// This process's port, see [`ask_at`].
static PORT: OnceLock<PathBuf> = OnceLock::new();
/// How long an answer may take.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// Length of a tick of [`ticks`], in ns.
const TICK: u64 = 10_000_000;

/// On the host: answers on `socket` until QEMU closes it.
pub fn answer(socket: &Path, processes: &[u32]) -> Result<()> {
    spent(processes)?;
    let stream = UnixStream::connect(socket).with_context(|| {
        format!("connecting to {0}: start QEMU with -chardev socket,id=NAME,path={0},server=on,wait=off", socket.display())
    })?;
    println!(
        "telling the CPU time of {} processes; measure in the guest with --host-cpu",
        processes.len()
    );
    let mut asked = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while asked.read_line(&mut line)? > 0 {
        (&stream).write_all(format!("{} {}\n", line.trim(), spent(processes)?).as_bytes())?;
        line.clear();
    }
    Ok(())
}

/// CPU time of processes and all their threads, in ns, to a tick each.
fn spent(processes: &[u32]) -> Result<u64> {
    processes.iter().map(|pid| ticks(*pid).map(|ticks| ticks * TICK)).sum()
}

/// In the guest: from here on [`seconds`] asks at this port.
pub fn ask_at(port: &Path) {
    let _ = PORT.set(port.into());
}

/// Seconds of the host's CPU time so far; nothing where none is told, or not just now (a port has
/// one user at a time).
pub fn seconds() -> Option<f64> {
    ask(PORT.get()?).ok()
}

/// Is it, or will it be soon?
fn is_ready(file: &File, wanted: PollFlags) -> Result<bool> {
    let mut wait = [PollFd::new(file, wanted)];
    poll(&mut wait, Some(&PATIENCE))?;
    Ok(wait[0].revents().contains(wanted))
}

/// The same at any port, with the reason where it cannot be had.
pub fn ask(port: &Path) -> Result<f64> {
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(port)
        .with_context(|| format!("opening {}", port.display()))?;
    let number = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    // A port whose other side is not connected takes no writes, for as long as that lasts
    // (drivers/char/virtio_console.c).
    ensure!(
        is_ready(&file, PollFlags::OUT)?,
        "nobody at the other side of {}: start `ginnel bench host` on the host",
        port.display()
    );
    file.write_all(format!("{number}\n").as_bytes())
        .with_context(|| format!("asking at {}", port.display()))?;
    let mut lines = BufReader::new(file);
    loop {
        let waits = lines.buffer().is_empty();
        ensure!(
            !waits || is_ready(lines.get_ref(), PollFlags::IN)?,
            "no answer at {}: is `ginnel bench host` still there?",
            port.display()
        );
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            bail!(
                "nobody at the other side of {}: start `ginnel bench host` on the host",
                port.display()
            );
        }
        // An answer that was not waited for may come first.
        if let Some((of, spent)) = line.trim().split_once(' ')
            && of == number.to_string()
        {
            return Ok(spent.parse::<u64>().context("no number of ns")? as f64 / 1e9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn cpu_time_that_is_spent_is_told() {
        let folder = std::env::temp_dir().join(format!("ginnel-bench-host-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("port");
        let qemu = UnixListener::bind(&socket).unwrap();
        let here = std::process::id();
        let told = socket.clone();
        let host = std::thread::spawn(move || answer(&told, &[here, here]));
        let (stream, _) = qemu.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut ask = |number: &str| {
            (&stream).write_all(format!("{number}\n").as_bytes()).unwrap();
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line.trim().strip_prefix(&format!("{number} ")).unwrap().parse::<u64>().unwrap()
        };
        let before = ask("1");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while ask("22") < before + 2 * 50_000_000 {
            assert!(std::time::Instant::now() < until, "50 ms of CPU time, twice");
        }
        drop((stream, lines));
        host.join().unwrap().unwrap();
        assert!(
            answer(&socket, &[u32::MAX]).unwrap_err().to_string().contains("no process 4294967295")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
