//! `ginnel generate`: manual pages, completions and docs/reference.md, from the definitions in
//! [`crate::args`].

use crate::args::{Cli, Generate, What};
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
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
        (What::Reference, _) => std::io::stdout().write_all(reference(command).as_bytes())?,
        (What::Man, None) => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
        (What::Man, Some(directory)) => {
            clap_mangen::generate_to(command, directory)
                .with_context(|| directory.display().to_string())?;
            // The daemons have no such command of their own: what only packagers ask for is in one
            // place.
            let daemons = [
                (ginnel_host::args::Cli::command(), "8"),
                (ginnel_host::args::Prover::command(), "8"),
                (ginnel_host::args::Broker::command(), "8"),
                (ginnel_switch::args::Cli::command(), "8"),
                // As memcached's.
                (ginnel_cache::server::args::Args::command(), "1"),
            ];
            for (daemon, section) in daemons {
                let page = clap_mangen::Man::new(daemon).section(section);
                page.generate_to(directory)
                    .map(drop)
                    .with_context(|| directory.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// The Markdown page of all commands: a table of them, then the help of each in 100 columns.
fn reference(command: Command) -> String {
    let mut command = command.term_width(100);
    command.build();
    let mut page = String::from(
        "# Reference\n\n\
         Every command with its options and environment variables, as `--help` prints it. This page is\n\
         written by `ginnel generate reference`. `ginnel generate man` prints the manual page\n\
         (`--into DIRECTORY` writes one for each command there), and `ginnel generate completions\n\
         --shell SHELL` the completions.\n\n\
         | command | |\n|---|---|\n",
    );
    let mut sections = String::new();
    describe(&mut command, &mut page, &mut sections);
    page + &sections
}

/// Adds a command and those below it: a row to the table of contents, and a section.
fn describe(command: &mut Command, contents: &mut String, sections: &mut String) {
    let name = command.get_bin_name().unwrap_or("ginnel").to_owned();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    *contents += &format!("| [`{name}`](#{}) | {about} |\n", name.replace(' ', "-"));
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    *sections += &format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    for below in command
        .get_subcommands_mut()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        describe(below, contents, sections);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_of_these_definitions() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
        let kept = std::fs::read_to_string(path).expect("docs/reference.md");
        let now = reference(Cli::command());
        assert!(
            kept == now,
            "docs/reference.md is old: ginnel generate reference >docs/reference.md\n{now}"
        );
    }
}
