//! sockperf's ping-pong over TCP.

use super::{App, Load, Stage};
use anyhow::{Context, Result};
use ginnel_bench::child::Values;
use ginnel_demo::programs::{excerpt, words};
use ginnel_demo::tools::Tool;

/// sockperf and itself.
pub struct Sockperf;

const TOOL: Tool = Tool { names: &["sockperf"], package: "sockperf" };

/// Exchanges a second that it makes room for. By itself for 600,000, and it fails where there are
/// more.
const MOST: u32 = 5_000_000;

/// What it calls the quantiles that are kept.
const QUANTILES: [(&str, &str); 8] = [
    ("percentile 99.990", "p9999_ns"),
    ("percentile 99.900", "p999_ns"),
    ("percentile 99.000", "p99_ns"),
    ("percentile 90.000", "p90_ns"),
    ("percentile 75.000", "p75_ns"),
    ("percentile 50.000", "p50_ns"),
    ("percentile 25.000", "p25_ns"),
    ("Latency is", "mean_ns"),
];

impl App for Sockperf {
    fn server_tool(&self) -> Tool {
        TOOL
    }

    fn client_tool(&self) -> Option<Tool> {
        Some(TOOL)
    }

    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>> {
        Ok(words([&program, &"server", &"--tcp", &"-i", &load.address, &"-p", &load.port]))
    }

    fn client(&self, program: &str, load: &Load, _: Stage) -> Result<Vec<String>> {
        Ok(words([
            &program,
            &"ping-pong",
            &"--tcp",
            &"-i",
            &load.address,
            &"-p",
            &load.port,
            &"-m",
            &load.cell.x,
            &"-t",
            &load.seconds,
            &"--mps",
            &MOST,
        ]))
    }

    /// Microseconds, of half a round trip.
    fn read(&self, printed: &str, _: &Load) -> Result<Values> {
        let after = |words: &str| {
            let rest = printed.lines().find_map(|line| line.split_once(words))?.1;
            rest.trim_start_matches([' ', '=']).split_whitespace().next()?.parse::<f64>().ok()
        };
        let found = QUANTILES
            .iter()
            .filter_map(|(words, key)| Some(((*key).to_owned(), 1000.0 * after(words)?)));
        let mut values: Values = found.collect();
        let median =
            *values.get("p50_ns").with_context(|| format!("no summary: {}", excerpt(printed)))?;
        values.insert("value".into(), median);
        Ok(values)
    }
}
