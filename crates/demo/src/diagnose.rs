//! What is printed when a program does not end in time: Ginnel's own view, and where everybody
//! stands.

use anyhow::Result;

use crate::child::{self, Child};
use crate::tools::{self, Ginnel};

/// Longest report of one helper, in lines.
const LINES: usize = 120;

/// Prints `ginnel status --json` and the stacks of all processes of these children on standard
/// error.
pub fn print(ginnel: Option<&Ginnel>, children: &[&Child]) {
    if let Some(ginnel) = ginnel {
        show("ginnel status --json", ginnel.status());
    }
    for child in children {
        for pid in child::members(child.pid()) {
            let pid = pid.to_string();
            let stacks = tools::output(
                20,
                &["gdb", "-p", &pid, "-batch", "-nx", "-ex", "thread apply all backtrace 30"],
            );
            show(&format!("stacks of {} (process {pid})", child.name), stacks);
        }
    }
}

fn show(title: &str, text: Result<String>) {
    eprintln!("--- {title}");
    match text {
        Ok(text) => text.lines().take(LINES).for_each(|line| eprintln!("    {line}")),
        Err(error) => eprintln!("    not available: {error:#}"),
    }
}
