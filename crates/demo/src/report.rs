//! The results: a table for people, JSON for programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

/// All results.
#[derive(Debug, Serialize)]
pub struct Results {
    /// One for each setting of each program.
    pub rows: Vec<Row>,
    /// Part of the bytes of the sockmap's connections, of all programs, that went past TCP, 0 to 1,
    /// where a sockmap was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockmap: Option<f64>,
}

/// One setting. What could not be measured is `null` in the JSON.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    /// Program and setting.
    pub program: String,
    /// `namespaces`, `loopback` or `guests`.
    #[serde(rename = "where")]
    pub place: &'static str,
    /// Median of the plain rounds.
    pub plain: Option<f64>,
    /// Median of the rounds under `ginnel run`.
    pub ginnel: Option<f64>,
    /// What they are counted in.
    pub unit: &'static str,
    /// Median of the rounds' ratios. Above 1: Ginnel is better.
    pub ratio: Option<f64>,
    /// The first and the third quartile of these ratios, of two rounds or more.
    pub quartiles: Option<(f64, f64)>,
    /// Median of the rounds through the sockmap, where that is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockmap: Option<f64>,
    /// Median of the rounds' ratios to that. Above 1: Ginnel is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_sockmap: Option<f64>,
    /// The plain rounds, in the order in which they were measured.
    pub plain_rounds: Vec<f64>,
    /// Those under `ginnel run`, each beside the plain one of the same place.
    pub ginnel_rounds: Vec<f64>,
    /// Those through the sockmap, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockmap_rounds: Vec<f64>,
    /// Part of the client's bytes that went through shared memory, 0 to 1.
    pub share: Option<f64>,
    /// Why something is missing.
    #[serde(skip)]
    pub failure: Option<String>,
}

impl Row {
    /// A row without figures.
    pub fn left_out(what: &str, place: &'static str) -> Self {
        Self { program: what.to_owned(), place, ..Self::default() }
    }
}

/// The table; with what the sockmap did, where that was asked for.
pub fn table(results: &Results, sockmap: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    let header = [
        "program",
        "where",
        "plain",
        "Ginnel",
        "unit",
        "ratio",
        "quartiles",
        "through shared memory",
    ];
    let beside: &[&str] = if sockmap { &["sockmap", "Ginnel : sockmap"] } else { &[] };
    table.set_header(header.iter().chain(beside));
    for row in &results.rows {
        let missing = if row.failure.is_some() { "failed" } else { "–" };
        let cell = |text: Option<String>| {
            Cell::new(text.unwrap_or_else(|| missing.to_owned()))
                .set_alignment(CellAlignment::Right)
        };
        let figures = vec![
            Cell::new(&row.program),
            Cell::new(row.place),
            cell(row.plain.map(figure)),
            cell(row.ginnel.map(figure)),
            Cell::new(row.unit),
            cell(row.ratio.map(|ratio| format!("{ratio:.2}"))),
            cell(row.quartiles.map(|(first, third)| format!("{first:.2} to {third:.2}"))),
            cell(row.share.map(|share| format!("{:.1} %", share * 100.0))),
        ];
        let others = [
            cell(row.sockmap.map(figure)),
            cell(row.beside_sockmap.map(|ratio| format!("{ratio:.2}"))),
        ];
        table.add_row(figures.into_iter().chain(others.into_iter().take(beside.len())));
    }
    table
}

/// What the table alone does not say.
pub fn remarks(results: &Results, ginnel: bool) -> Vec<String> {
    let mut lines: Vec<String> = results
        .rows
        .iter()
        .filter_map(|row| {
            row.failure.as_ref().map(|failure| format!("failed: {}: {failure}", row.program))
        })
        .collect();
    if ginnel
        && results
            .rows
            .iter()
            .any(|row| row.ginnel.is_some() && row.share.is_none_or(|share| share < 0.5))
    {
        lines.push(
            "Some traffic stayed on TCP; `ginnel status` says why while such a program runs."
                .to_owned(),
        );
    }
    if results.sockmap.is_some_and(|share| share < 0.5) {
        lines.push("The sockmap left most to TCP: the ratios to it say nothing.".to_owned());
    }
    lines
}

/// Writes the JSON; whoever reads it meanwhile sees the old file or the new one.
pub fn write_json(results: &Results, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(results)? + "\n";
    let beside = beside(path);
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| drop(fs::remove_file(&beside)))
        .with_context(|| cannot_write(path))
}

/// Fails now rather than after minutes of measuring, if the JSON could not be written.
pub fn check_writable(path: &Path) -> Result<()> {
    let beside = beside(path);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("")))
        .and_then(|()| fs::write(&beside, ""))
        .and_then(|()| fs::remove_file(&beside))
        .with_context(|| cannot_write(path))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.tmp", std::process::id()))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the results to {} (another place: --json FILE)", path.display())
}

/// A figure with one decimal where it is small, and groups of three digits where it is large.
fn figure(value: f64) -> String {
    if value < 1000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            program: "nginx, 16 connections".to_owned(),
            place: "namespaces",
            plain: Some(50_000.0),
            ginnel: Some(125_000.0),
            unit: "requests/s",
            ratio: Some(2.5),
            quartiles: Some((2.25, 2.75)),
            plain_rounds: vec![50_000.0, 50_000.0],
            ginnel_rounds: vec![100_000.0, 150_000.0],
            sockmap: None,
            beside_sockmap: None,
            sockmap_rounds: Vec::new(),
            share: Some(0.998),
            failure: None,
        }
    }

    #[test]
    fn the_json_has_exactly_these_fields() {
        let failed = Row {
            ginnel: None,
            ratio: None,
            quartiles: None,
            ginnel_rounds: Vec::new(),
            share: None,
            failure: Some("gone".to_owned()),
            ..row()
        };
        let json =
            serde_json::to_value(Results { rows: vec![row(), failed], sockmap: None }).unwrap();
        let expected = serde_json::json!({"rows": [
            {"program": "nginx, 16 connections", "where": "namespaces", "plain": 50_000.0, "ginnel": 125_000.0,
             "unit": "requests/s", "ratio": 2.5, "quartiles": [2.25, 2.75],
             "plain_rounds": [50_000.0, 50_000.0], "ginnel_rounds": [100_000.0, 150_000.0], "share": 0.998},
            {"program": "nginx, 16 connections", "where": "namespaces", "plain": 50_000.0, "ginnel": null,
             "unit": "requests/s", "ratio": null, "quartiles": null,
             "plain_rounds": [50_000.0, 50_000.0], "ginnel_rounds": [], "share": null},
        ]});
        assert_eq!(json, expected);
    }

    #[test]
    fn the_table_says_what_failed() {
        let failed = Row { ginnel: None, failure: Some("gone".to_owned()), ..row() };
        let results = Results { rows: vec![failed], sockmap: None };
        assert!(table(&results, false).to_string().contains("failed"));
        assert_eq!(remarks(&results, true), ["failed: nginx, 16 connections: gone"]);
    }

    #[test]
    fn the_sockmap_has_its_columns_and_fields_where_it_is_asked_for() {
        let measured = Row {
            sockmap: Some(62_500.0),
            beside_sockmap: Some(2.0),
            sockmap_rounds: vec![62_500.0],
            ..row()
        };
        let results = Results { rows: vec![measured, row()], sockmap: Some(0.75) };
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["sockmap"], 0.75);
        assert_eq!(
            [&json["rows"][0]["sockmap"], &json["rows"][0]["beside_sockmap"]],
            [62_500.0, 2.0]
        );
        assert!(
            json["rows"][0]["sockmap_rounds"].is_array()
                && json["rows"][1].get("sockmap_rounds").is_none()
        );
        let with = table(&results, true).to_string();
        assert!(
            with.contains("62,500")
                && with.contains("2.00")
                && !table(&results, false).to_string().contains("sockmap"),
            "{with}"
        );
    }

    #[test]
    fn figures_are_grouped() {
        assert_eq!(figure(9.46), "9.5");
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(figure(123_456.0), "123,456");
    }
}
