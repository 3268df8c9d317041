//! The page: one file without scripts, fonts or addresses of others.

use super::pictures::Picture;
use super::tables;
use crate::record::Recorded;
use ginnel_bench::chart::{escape, style};
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--ink:#1c1c1c;--faint:#5c5c5c;--line:#dcdcdc}\
*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:60rem;font:16px/1.5 system-ui,sans-serif;background:var(--ground);color:var(--ink)}\
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.2rem;margin:2rem 0 .3rem}p{margin:.3rem 0}.faint{color:var(--faint)}\
.chart{width:100%;max-width:46rem;height:auto;display:block}.wide{overflow-x:auto}\
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--ground)}tr:first-child th{vertical-align:bottom;white-space:normal}.failed{color:var(--faint);font-style:italic}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.9rem}dt{color:var(--faint)}dd{margin:0;overflow-wrap:anywhere}\
@media (max-width:40rem){td:first-child{white-space:normal;min-width:8rem;max-width:40vw}}\
@media print{body{max-width:none;font-size:11px}figure,tr{break-inside:avoid}h2{break-after:avoid}.chart{max-width:32rem}\
.wide{overflow:visible}table{font-size:7.5px}th,td{white-space:normal;padding:.15rem .25rem}}figure{margin:0}";

const DARK: &str = ":root{--ground:#16181c;--ink:#e8e8e8;--faint:#a5a5a5;--line:#3a3d44}";

/// The whole page.
pub fn page(runs: &[Recorded], pictures: &[Picture]) -> String {
    let title = match runs {
        [one] => format!("Transports compared on {}", one.run.name),
        _ => format!(
            "Runs compared: {}",
            runs.iter().map(|run| run.run.name.as_str()).collect::<Vec<_>>().join(", ")
        ),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{0}</title><style>{STYLE}{1}@media screen and (prefers-color-scheme:dark){{{DARK}{2}}}</style></head><body>\n<h1>{0}</h1>\n",
        escape(&title),
        style(false),
        style(true)
    );
    for run in runs {
        let interrupted = if run.run.complete {
            ""
        } else {
            " It was interrupted: fewer rounds than wanted, and not of everything as many."
        };
        let _ = writeln!(
            page,
            "<p class=\"faint\">{}{}.{interrupted}</p>",
            named(runs, run),
            escape(&run.run.machine.line())
        );
    }
    for picture in pictures {
        let _ = writeln!(
            page,
            "<figure id=\"{}\"><h2>{}</h2><p class=\"faint\">{}</p>{}</figure>",
            picture.file,
            escape(&picture.chart.title),
            picture.words,
            picture.chart.to_svg()
        );
    }
    for grid in tables::of(runs) {
        page += &table(&grid);
    }
    for run in runs {
        page += &remarks(runs, run);
        page += &how(runs, run);
    }
    page + "</body></html>\n"
}

fn named(runs: &[Recorded], run: &Recorded) -> String {
    if runs.len() > 1 { format!("{}: ", escape(&run.run.name)) } else { String::new() }
}

fn table(grid: &tables::Grid) -> String {
    let mut text = format!("<h2>{}</h2><div class=\"wide\"><table><tr>", escape(&grid.title));
    for head in &grid.head {
        let _ = write!(text, "<th>{}</th>", escape(head));
    }
    text += "</tr>";
    for row in &grid.rows {
        text += "<tr>";
        for cell in row {
            let class = if cell == "failed" { " class=\"failed\"" } else { "" };
            let _ = write!(text, "<td{class}>{}</td>", escape(cell));
        }
        text += "</tr>";
    }
    text + "</table></div>\n"
}

fn remarks(runs: &[Recorded], run: &Recorded) -> String {
    let remarks = tables::remarks(run);
    if remarks.is_empty() {
        return String::new();
    }
    let mut text =
        format!("<h2>{}What failed, or is to be taken with care</h2><dl>", named(runs, run));
    for (cell, why) in remarks {
        let _ = write!(text, "<dt>{}</dt><dd>{}</dd>", escape(&cell), escape(&why));
    }
    text + "</dl>\n"
}

/// Whose processor time is told, where this machine has both ends, and where it has one.
const CPU_HERE: &str = "of the processes of the two ends, with the kernel's work that is done in \
    their name. What the kernel does in the name of others, or of nobody, is not in it, nor is the \
    machine below, if this is a virtual one";
const CPU_OF_TWO: &str = "of the processes of the two ends, each told by its own kernel. What lies \
    below two guests (QEMU, vhost, ginneld) takes processor time too, the guests' own in it: it is \
    named where `ginnel bench host` told it (--host-cpu)";

fn how(runs: &[Recorded], recorded: &Recorded) -> String {
    let (run, machine) = (&recorded.run, &recorded.run.machine);
    let pin = match run.options.pin.0 {
        Some([server, client]) => {
            format!("the ends stay on processors {server} and {client} (several pairs do not)")
        }
        None => "the kernel chooses the processors".into(),
    };
    let cpu = if run.options.connect.is_some() { CPU_OF_TWO } else { CPU_HERE };
    let disturbed = recorded
        .samples
        .iter()
        .filter(|sample| sample.foreign_percent.is_some_and(|percent| percent > 20.0))
        .count();
    let rows = [
        (
            "machine",
            format!(
                "{}, {} processors{}",
                machine.cpu,
                machine.cores,
                if machine.virtual_machine { ", a virtual machine" } else { "" }
            ),
        ),
        ("memory", format!("{} MiB", machine.memory_kb / 1024)),
        ("kernel", machine.kernel.clone()),
        ("begun", format!("{}, load average {}", machine.date, machine.load)),
        ("ginnel bench", format!("{} {}", run.version, machine.commit)),
        (
            "samples",
            format!(
                "{} of {} s in {} rounds, in {:.0} s",
                recorded.samples.len(),
                run.seconds,
                run.rounds,
                run.took
            ),
        ),
        ("processors", pin),
        ("CPU time", cpu.into()),
        (
            "clock",
            format!(
                "one reading takes {:.0} ns, and is part of every exchange that is timed",
                run.clock_ns
            ),
        ),
        (
            "others",
            format!(
                "during {disturbed} samples other processes (or the host below) took more than 20 % of a processor"
            ),
        ),
    ];
    let mut text = format!("<h2>{}How it was measured</h2><dl>", named(runs, recorded));
    for (name, value) in rows {
        let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    text + "</dl><p class=\"faint\">Each sample is a pair of new processes of one ordinary program, which warms up first. Every round takes one sample of everything, and \
            those of one pattern and size one after another, in another order each time. Figures are medians of the rounds, bands and brackets their least and greatest. Ginnel's are of the \
            same program, unmodified, under <code>ginnel run</code>; where less than 90 % of its bytes went through shared memory, it is said above.</p>\n"
}
