//! redis without persistence; redis-benchmark with its 50 connections, so many requests in flight
//! on each: as many SET as GET.

use super::{App, Load, Stage, value};
use anyhow::{Context, Result};
use ginnel_bench::child::Values;
use ginnel_demo::programs::redis::Redis as Demo;
use ginnel_demo::programs::{Program, words};
use ginnel_demo::tools::Tool;

/// redis and redis-benchmark.
pub struct Redis;

/// Requests of each kind, of a load whose speed is not known yet.
const FIRST: f64 = 5000.0;

impl App for Redis {
    fn server_tool(&self) -> Tool {
        Demo.server_tool()
    }

    fn client_tool(&self) -> Option<Tool> {
        Some(Demo.client_tool())
    }

    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>> {
        Demo.server(program, &load.listen())
    }

    fn client(&self, program: &str, load: &Load, stage: Stage) -> Result<Vec<String>> {
        let each = match stage {
            Stage::Measured(Some(rate)) => (rate * f64::from(load.seconds) / 2.0).clamp(FIRST, 1e9),
            _ => FIRST,
        };
        let server = words([
            &program,
            &"-h",
            &load.address,
            &"-p",
            &load.port,
            &"-c",
            &"50",
            &"-t",
            &"set,get",
            &"--csv",
        ]);
        Ok([server, words([&"-n", &(each as u64), &"-P", &load.cell.x])].concat())
    }

    /// As many of one kind as of the other, and so the harmonic mean of the two rates.
    fn read(&self, printed: &str, _: &Load) -> Result<Values> {
        let rate = |kind: &str| {
            let line = printed.lines().find(|line| line.starts_with(kind)).unwrap_or(printed);
            Demo.read(line)
                .and_then(|rate| (rate > 0.0).then_some(rate).context("no answer at all"))
        };
        Ok(value(2.0 / (1.0 / rate("\"SET\"")? + 1.0 / rate("\"GET\"")?)))
    }

    fn has_first(&self) -> bool {
        true
    }
}
