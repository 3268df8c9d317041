//! The report: tables on the terminal, one self-contained HTML page, and its charts as files.

mod html;
mod markdown;
mod pictures;
mod tables;

use crate::record::Recorded;
use anyhow::{Context, Result};
use ginnel_bench::figures::{bytes, percent, short, si, time};
use std::path::{Path, PathBuf};

/// Prints the tables.
pub fn print(runs: &[Recorded]) {
    tables::print(runs);
}

/// Writes report.html and charts/*.svg into the directory.
pub fn write(runs: &[Recorded], directory: &Path) -> Result<()> {
    let pictures = pictures::of(runs);
    let charts = directory.join("charts");
    std::fs::create_dir_all(&charts).with_context(|| format!("making {}", charts.display()))?;
    for picture in &pictures {
        let path = charts.join(picture.file).with_extension("svg");
        std::fs::write(&path, picture.chart.to_file())
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let path = directory.join("report.html");
    std::fs::write(&path, html::page(runs, &pictures))
        .with_context(|| format!("writing {}", path.display()))?;
    println!(
        "Report: {}\nSamples: {}, charts: {}",
        path.display(),
        directory.join("samples.csv").display(),
        charts.display()
    );
    Ok(())
}

/// Puts a run's figures into Markdown files. `place`: the run's directory, as it is to be called
/// there.
pub fn fill(run: &Recorded, files: &[PathBuf], place: &Path) -> Result<()> {
    let pictures = pictures::of(std::slice::from_ref(run));
    files.iter().try_for_each(|file| markdown::write(file, run, &pictures, place))
}
