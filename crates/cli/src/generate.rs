//! `ginnel generate`: manual pages and completions, from the definitions in [`crate::args`].

use crate::args::{Cli, Generate, What};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;

/// Prints or writes them.
pub fn generate(args: &Generate) -> Result<()> {
    let mut command = Cli::command();
    match (args.what, &args.into) {
        (What::Completions, _) => {
            // Into memory first: a closed pipe is an error to report, not a panic.
            let mut text = Vec::new();
            clap_complete::generate(args.shell, &mut command, "ginnel", &mut text);
            std::io::stdout().write_all(&text)?;
        }
        (What::Man, None) => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
        (What::Man, Some(directory)) => {
            clap_mangen::generate_to(command, directory).with_context(|| directory.display().to_string())?;
            // The daemons have no such command of their own: what only packagers ask for is in one place.
            for daemon in [ginnel_host::args::Cli::command(), ginnel_host::args::Prover::command()] {
                let page = clap_mangen::Man::new(daemon).section("8");
                page.generate_to(directory).map(drop).with_context(|| directory.display().to_string())?;
            }
        }
    }
    Ok(())
}
