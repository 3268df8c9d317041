//! NetPIPE's ping-pong over TCP.

use super::{App, Load, Stage, value};
use anyhow::{Context, Result};
use ginnel_bench::child::Values;
use ginnel_demo::programs::{excerpt, words};
use ginnel_demo::tools::Tool;

/// NPtcp and itself.
pub struct Netpipe;

const TOOL: Tool = Tool { names: &["NPtcp"], package: "netpipe-tcp" };

/// One size, without NetPIPE's perturbations of it.
fn options(load: &Load) -> [String; 8] {
    let size = load.cell.x.to_string();
    [
        "-P".into(),
        load.port.to_string(),
        "-l".into(),
        size.clone(),
        "-u".into(),
        size,
        "-p".into(),
        "0".into(),
    ]
}

impl App for Netpipe {
    fn server_tool(&self) -> Tool {
        TOOL
    }

    fn client_tool(&self) -> Option<Tool> {
        Some(TOOL)
    }

    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>> {
        Ok([words([&program]), options(load).to_vec()].concat())
    }

    fn client(&self, program: &str, load: &Load, _: Stage) -> Result<Vec<String>> {
        let to = words([&program, &"-h", &load.address, &"-o", &"/dev/stdout"]);
        Ok([to, options(load).to_vec()].concat())
    }

    /// A line of its table: bytes, Mbit/s, and seconds one way.
    fn read(&self, printed: &str, load: &Load) -> Result<Values> {
        let line = printed.lines().map(|line| line.split_whitespace().map(str::parse::<f64>));
        let found = line
            .filter_map(|fields| fields.collect::<Result<Vec<f64>, _>>().ok())
            .find(|fields| fields.len() >= 3);
        let fields = found.with_context(|| format!("no table: {}", excerpt(printed)))?;
        anyhow::ensure!(
            fields[0] == load.cell.x as f64 && fields[2] > 0.0,
            "an odd table: {}",
            excerpt(printed)
        );
        Ok(value(1e9 * fields[2]))
    }
}
