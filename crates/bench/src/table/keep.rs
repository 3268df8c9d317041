//! What a run leaves in a folder: the figures, one a line, as people and `--history` read them; and
//! beside them, compressed, the samples from which they were made.

use crate::results::Results;
use crate::rounds::Series;
use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use ginnel_bench::machine::Machine;
use ginnel_bench::stats::Spread;
use serde::Deserialize;
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The figures of a run that was kept.
#[derive(Deserialize)]
pub struct Kept {
    /// What they were measured on, and when.
    pub machine: Machine,
    /// The rows.
    pub figures: Vec<Figure>,
}

/// A row of it: what [`crate::results::Row`] left.
#[derive(Deserialize)]
pub struct Figure {
    /// Part of the table.
    pub group: String,
    /// Name of the figure.
    pub id: String,
    /// Target, in words; empty where there is none.
    pub target: String,
    /// Ratio (or difference, or count) over the rounds.
    pub value: Option<Spread>,
}

/// Writes the figures to `path` and the samples beside them; returns where the samples are.
///
/// # Errors
/// A file could not be written.
pub fn write(results: &Results, path: &Path) -> Result<PathBuf> {
    let text = figures(results)?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    let beside = path.with_extension("samples.json.gz");
    samples(&results.measures, &beside).with_context(|| format!("writing {}", beside.display()))?;
    Ok(beside)
}

/// JSON with a line for each figure, so that a difference between two runs can be read.
fn figures(results: &Results) -> Result<String> {
    let mut text = format!(
        "{{\n\"machine\": {},\n\"arguments\": {},\n\"figures\": [\n",
        serde_json::to_string(&results.machine)?,
        serde_json::to_string(&results.arguments)?
    );
    for (i, row) in results.figures.iter().enumerate() {
        let comma = if i + 1 < results.figures.len() { "," } else { "" };
        writeln!(text, "{}{comma}", rounded(serde_json::to_value(row)?))?;
    }
    Ok(text + "]\n}\n")
}

/// Four digits of each number: the rest says nothing.
fn rounded(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().and_then(|number| format!("{number:.3e}").parse().ok());
            number.map_or(Value::Null, |number: f64| number.into())
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(values) => {
            values.into_iter().map(|(name, value)| (name, rounded(value))).collect()
        }
        other => other,
    }
}

fn samples(measures: &[Series], path: &Path) -> Result<()> {
    let mut file = GzEncoder::new(File::create(path)?, Compression::best());
    serde_json::to_writer(&mut file, measures)?;
    file.finish()?;
    Ok(())
}
