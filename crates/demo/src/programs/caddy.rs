//! Caddy, a server in Go, with files of its own alone; wrk asks for a page of 1 KiB again and
//! again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Listen, Load, Program, Setting, words, wrk};
use crate::tools::Tool;

/// Caddy and wrk.
pub struct Caddy;

impl Program for Caddy {
    fn name(&self) -> &'static str {
        "Caddy"
    }

    fn unit(&self) -> &'static str {
        "requests/s"
    }

    fn server_tool(&self) -> Tool {
        Tool { names: &["caddy"], package: "caddy" }
    }

    fn client_tool(&self) -> Tool {
        wrk::TOOL
    }

    fn settings(&self) -> &'static [Setting] {
        &[
            Setting { label: "1 connection", arguments: &["-c", "1"] },
            Setting { label: "64 connections", arguments: &["-c", "64"] },
        ]
    }

    fn server(&self, program: &str, listen: &Listen) -> Result<Vec<String>> {
        let pages = listen.dir.join("pages");
        wrk::write_page(&pages)?;
        let file = listen.dir.join("Caddyfile");
        fs::write(&file, configuration(&pages, listen)).context("cannot write the Caddyfile")?;
        let words = words([&program, &"run", &"--adapter", &"caddyfile", &"--config"]);
        Ok([words, vec![file.display().to_string()]].concat())
    }

    // It writes into its user's folders, some of it before it has read a word.
    fn server_environment(&self, dir: &Path) -> Vec<(&'static str, String)> {
        ["HOME", "STEPPATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME"]
            .map(|name| (name, dir.display().to_string()))
            .into()
    }

    fn client(&self, load: &Load) -> Result<Vec<String>> {
        Ok(wrk::client(load, wrk::PAGE))
    }

    fn read(&self, printed: &str) -> Result<f64> {
        wrk::read(printed)
    }
}

/// Bound to the address alone, as the other servers are.
fn configuration(pages: &Path, listen: &Listen) -> String {
    format!(
        "{{\n\tadmin off\n\tauto_https off\n}}\n\
         :{} {{\n\tbind {}\n\troot * \"{}\"\n\tfile_server\n}}\n",
        listen.port,
        listen.address,
        pages.display()
    )
}
