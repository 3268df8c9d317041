//! `ginnel status`.

use crate::args::Status;
use crate::report::{All, Directory, One, Segment, VERSION};
use crate::size::human;
use crate::survey::Survey;
use crate::table;
use anyhow::{Context, Result};
use ginnel_node::home::{check_directory, default_directory};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Prints what there is.
pub fn status(args: &Status) -> Result<()> {
    if args.all_users {
        let users: Vec<Directory> =
            directories().into_iter().map(|directory| Survey::new(directory).look(true)).collect();
        return if args.json {
            json(&All { version: VERSION, users: &users })
        } else {
            print(&all(&users))
        };
    }
    let directory = default_directory();
    let mut seen = Survey::new(directory.clone()).look(true);
    if seen.error.is_none() && seen.processes.is_empty() && directory.exists() {
        // A library that was not started by `ginnel run` says it to nobody.
        seen.error = check_directory(&directory)
            .err()
            .map(|why| format!("{why}; until then programs of this user stay on TCP"));
    }
    if args.json { json(&One { version: VERSION, directory: &seen }) } else { print(&one(&seen)) }
}

/// Prints JSON.
pub fn json(value: &impl serde::Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Prints text; what `println!` would panic about is an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// Every user's directory where they are by default, and this process's own.
pub fn directories() -> Vec<PathBuf> {
    let own = default_directory();
    let places = [Path::new("/dev/shm").to_owned(), std::env::temp_dir()];
    let entries =
        places.iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    let user = |name: &str| {
        name.strip_prefix("ginnel-")
            .is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut all: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(user) && entry.path().is_dir())
        .map(|entry| entry.path())
        .collect();
    if own.is_dir() {
        all.push(own);
    }
    all.sort();
    all.dedup();
    all
}

fn all(users: &[Directory]) -> String {
    if users.is_empty() {
        return "Nothing has run under ginnel yet.\n".into();
    }
    users.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(seen: &Directory) -> String {
    let width = table::width();
    let mut text = String::new();
    if let Some(error) = &seen.error {
        text += &format!("{}\n", table::clean(error));
    }
    if seen.segments.is_empty() && seen.processes.is_empty() && seen.connections.is_empty() {
        if seen.error.is_none() {
            text += &format!(
                "Nothing has run under ginnel yet: {} holds no segment. Start: ginnel run -- PROGRAM\n",
                seen.directory
            );
        }
        return text;
    }
    if seen.segments.is_empty() {
        text += &format!("No segment in {}\n", seen.directory);
    } else {
        text += &format!("Segments in {}\n", seen.directory);
        text += &table::segments(&seen.segments, width);
        text += &seen.segments.iter().filter_map(unseen).collect::<String>();
    }
    text.push('\n');
    if seen.processes.is_empty() {
        text += "No process runs under ginnel at the moment.\n";
    } else {
        text += &table::processes(&seen.processes, width);
    }
    text.push('\n');
    if seen.connections.is_empty() {
        text += "No connection is open.\n";
    } else {
        text += &table::connections(&seen.connections, width);
        text.push('\n');
        text += &summary(seen);
    }
    text
}

/// One line on who uses a segment and is not shown.
fn unseen(segment: &Segment) -> Option<String> {
    let count = segment.members.iter().filter(|member| member.alive && !member.own).count();
    let who = "of other lists (another user's, or a container's that has a GINNEL_DIR of its own)";
    let members = if count == 1 { "member" } else { "members" };
    let line = format!(
        "{}: {count} {members} {who}; their processes and connections are not shown here",
        segment.name
    );
    (count > 0).then(|| table::clean(&line) + "\n")
}

/// One line on all connections.
fn summary(seen: &Directory) -> String {
    let accelerated = seen.connections.iter().filter(|connection| connection.accelerated()).count();
    let sum = |bytes: fn(&crate::report::Connection) -> u64| {
        seen.connections.iter().map(bytes).fold(0u64, u64::saturating_add)
    };
    let (ring, tcp) =
        (sum(crate::report::Connection::ring_bytes), sum(crate::report::Connection::tcp_bytes));
    format!(
        "{accelerated} of {} ends accelerated; {} by ring, {} by TCP so far\n",
        seen.connections.len(),
        human(ring),
        human(tcp)
    )
}
