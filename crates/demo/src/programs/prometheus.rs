//! Prometheus, a server in Go, with a database of its own that is empty; wrk has it evaluate an
//! expression again and again.

use std::fs;

use anyhow::{Context, Result};

use super::{Listen, Load, Program, Setting, words, wrk};
use crate::tools::Tool;

/// Prometheus and wrk.
pub struct Prometheus;

impl Program for Prometheus {
    fn name(&self) -> &'static str {
        "Prometheus"
    }

    fn unit(&self) -> &'static str {
        "queries/s"
    }

    fn server_tool(&self) -> Tool {
        Tool { names: &["prometheus"], package: "prometheus" }
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
        let file = listen.dir.join("prometheus.yml");
        fs::write(&file, "scrape_configs: []\n").context("cannot write prometheus.yml")?;
        Ok(words([
            &program,
            &format!("--config.file={}", file.display()),
            &format!("--storage.tsdb.path={}", listen.dir.join("data").display()),
            &format!("--web.listen-address={}:{}", listen.address, listen.port),
        ]))
    }

    // It listens before its database is open, and says 503 until then.
    fn ready(&self) -> Option<&'static str> {
        Some("Server is ready to receive web requests")
    }

    fn client(&self, load: &Load) -> Result<Vec<String>> {
        Ok(wrk::client(load, "api/v1/query?query=vector(1)"))
    }

    fn read(&self, printed: &str) -> Result<f64> {
        wrk::read(printed)
    }
}
