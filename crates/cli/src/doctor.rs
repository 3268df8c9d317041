//! `ginnel doctor`: everything that can keep connections on TCP, looked at one after the other. One
//! line each: well, or what is wrong and what to do.
//!
//! Here is what concerns every machine; [`program`] looks at a program that is named, [`host`] at
//! `ginneld`, [`guest`] at the device of a virtual machine, [`proof`] at who proves that
//! connections are this user's.

mod broker;
mod files;
mod guest;
mod host;
mod program;
mod proof;

use crate::args::Doctor;
use crate::survey::Survey;
use crate::{run, served, status, table};
use anyhow::Result;
use files::{directory, ledger, room, segment};
use ginnel_node::cgroup;
use ginnel_node::table::LEAST_LIMIT;
use ginnel_region::{device, sys};
use ginnel_tcp::settings::Settings;
use serde::Serialize;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Version of the JSON: grows when a member changes its meaning or goes.
const VERSION: u32 = 1;
/// Descriptors below which a process is left on TCP (`ginnel_tcp::attach`).
const FEWEST_DESCRIPTORS: u64 = 256;
/// So much of a limit on memory is to be left for rings, bytes: for a few connections.
const LITTLE_OF_LIMIT: u64 = 1 << 20;

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Well.
    Ok,
    /// Not there, and not needed for all uses.
    None,
    /// Something is to be done.
    Wrong,
}

/// What was looked at, and what was found.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    /// What to do.
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Ok, found: found.into(), advice: None }
    }

    fn none(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::None, found: found.into(), advice: None }
    }

    fn wrong(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, state: State::Wrong, found: found.into(), advice: Some(advice.into()) }
    }

    /// An error that says what to do, behind a semicolon.
    fn error(check: &'static str, what: &str, error: &str) -> Self {
        let (found, advice) = error.split_once("; ").unwrap_or((error, "see `ginnel status`"));
        Self::wrong(check, format!("{what}: {found}"), advice)
    }

    fn line(&self) -> String {
        let mark = match self.state {
            State::Ok => "ok",
            State::None => "-",
            State::Wrong => "WRONG",
        };
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        table::clean(&format!("{mark:<6}{:<12}{}{advice}", self.check, self.found)) + "\n"
    }
}

/// The whole, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    /// Nothing is wrong.
    ok: bool,
    checks: &'a [Finding],
}

/// Looks at everything. True if nothing is wrong.
pub fn doctor(args: &Doctor) -> Result<bool> {
    let mut settings = Settings::from_environment();
    if std::env::var_os("GINNEL_SEGMENT").is_none()
        && let Some(device) = device::find()
    {
        settings.node.segment = device;
    }
    if let Some(socket) = served::from_environment() {
        settings.node.segment = socket;
    }
    let mut all = vec![
        kernel(),
        library(),
        descriptors(),
        directory(&settings.node.directory),
        room(&settings),
    ];
    all.push(memory_limit());
    all.splice(2..2, args.program.as_deref().map(program::check));
    all.push(ledger(&settings.node.directory));
    all.push(segment(&settings));
    all.push(proof::check(&settings));
    all.push(broker::check(settings.broker.as_deref()));
    all.push(io_uring(&settings.node.directory));
    all.extend(guest::checks(args.vm));
    all.extend(host::checks(args.config.as_deref()));
    let ok = all.iter().all(|finding| finding.state != State::Wrong);
    if args.json {
        status::json(&Report { version: VERSION, ok, checks: &all })?;
    } else {
        status::print(&all.iter().map(Finding::line).collect::<String>())?;
    }
    Ok(ok)
}

/// The first line of a file, or nothing.
fn line_of(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// May this user do this (`R_OK`, `W_OK`, …) with a file?
#[expect(unsafe_code, reason = "the C library's own question")]
fn allowed(path: &Path, what: libc::c_int) -> bool {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: a terminated string.
    unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), what, libc::AT_EACCESS) == 0 }
}

/// Before Linux 5.14 a socket does not say in which network namespace it is.
fn kernel() -> Finding {
    let release = line_of("/proc/sys/kernel/osrelease");
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 14) {
        Finding::ok("kernel", format!("Linux {release}"))
    } else {
        Finding::wrong(
            "kernel",
            format!("Linux {release}: connections over loopback stay on TCP"),
            "they need Linux 5.14 or later",
        )
    }
}

/// Is the shim there, and does the dynamic linker take it?
fn library() -> Finding {
    let shim = match run::shim() {
        Ok(shim) => shim,
        Err(error) => {
            return Finding::wrong(
                "library",
                error.to_string(),
                "keep it beside `ginnel`, as `make build` leaves it",
            );
        }
    };
    let Ok(own) = std::env::current_exe() else {
        return Finding::wrong("library", "cannot tell where ginnel is", "mount /proc");
    };
    // This program itself is one that it can be loaded into. The linker complains on standard
    // error, and goes on.
    let mut command = Command::new(own);
    command.arg("--version").env("LD_PRELOAD", &shim).env("GINNEL_OFF", "1").stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() && output.stderr.is_empty() => {
            Finding::ok("library", shim.display().to_string())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let why = if said.is_empty() { output.status.to_string() } else { said };
            Finding::wrong(
                "library",
                format!("{} cannot be loaded: {why}", shim.display()),
                "install `ginnel` and its library from one build",
            )
        }
        Err(error) => Finding::wrong(
            "library",
            format!("{} cannot be tried: {error}", shim.display()),
            "see `ginnel run --verbose`",
        ),
    }
}

fn descriptors() -> Finding {
    let limit = sys::descriptor_limit();
    let found = format!("{limit} allowed to a process");
    if limit >= FEWEST_DESCRIPTORS {
        Finding::ok("descriptors", found)
    } else {
        Finding::wrong(
            "descriptors",
            format!("{found}: with fewer than {FEWEST_DESCRIPTORS} it stays on TCP"),
            "raise the limit (ulimit -n)",
        )
    }
}

/// The part of the cgroup's memory limit that rings may take.
fn memory_limit() -> Finding {
    let check = "memory";
    let room = cgroup::room(u64::MAX);
    if room.limit == u64::MAX {
        return Finding::ok(check, "no limit on memory is to be seen here (cgroup)");
    }
    let [limit, rings] = [room.limit, room.rings].map(crate::size::human);
    let found = format!("{limit} allowed to this cgroup, {rings} left for rings");
    if room.limit < LEAST_LIMIT {
        Finding::wrong(
            check,
            found,
            format!("with less than {} nothing is carried", crate::size::human(LEAST_LIMIT)),
        )
    } else if room.rings < LITTLE_OF_LIMIT {
        Finding::wrong(check, found, "raise the limit: connections beyond that stay on TCP")
    } else {
        Finding::ok(check, found)
    }
}

fn io_uring(directory: &Path) -> Finding {
    let seen = Survey::new(directory.to_owned()).look(false);
    let users = seen.processes.iter().filter(|process| process.io_uring);
    let users: Vec<String> =
        users.map(|process| format!("{} {}", process.name, process.pid)).collect();
    if users.is_empty() {
        Finding::ok("io_uring", "no program under ginnel uses it")
    } else {
        Finding::wrong(
            "io_uring",
            format!("used by {}: they stay on TCP", users.join(", ")),
            "turn it off in them, where they have a setting",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_region::Error;

    #[test]
    fn an_error_is_divided_into_what_is_and_what_to_do() {
        let finding = Finding::error("segment", "/x", &Error::Foreign.to_string());
        assert_eq!(
            finding.line(),
            "WRONG segment     /x: not a Ginnel segment; remove the file or name another with --segment\n"
        );
        let finding = Finding::ok("ledger", "two\nlines");
        assert_eq!(finding.line().lines().count(), 1, "{}", finding.line());
    }
}
