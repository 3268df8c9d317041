//! What is run, with its input, and which figures it prints.

use anyhow::{Context, Result, ensure};
use ginnel_bench::child::parse;
use ginnel_bench::mpi::{HPCC, MELT, WATER, compile, needed, source};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The share of a whole program's time that it spends in MPI.
pub const IN_MPI: &str = "in MPI";
/// The figure of NetPIPE.
pub const NETPIPE: &str = "NetPIPE";

/// A program and its input.
pub struct Program {
    /// Its name in tables.
    pub name: &'static str,
    /// Whether its whole time is measured, rather than what it prints.
    pub is_whole: bool,
    /// Files in its folder.
    pub input: &'static [(&'static str, &'static str)],
    /// Its command line.
    words: Vec<String>,
    /// What is preloaded where its whole time is measured.
    preload: PathBuf,
}

/// One value that a program measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// Of what.
    pub name: String,
    /// Of messages of so many bytes; 0 of a whole program.
    pub bytes: u64,
    /// Microseconds, megabytes a second ([`Figure::is_rate`]), or seconds of a whole program.
    pub value: f64,
}

impl Figure {
    /// Is it one of which more is better?
    pub fn is_rate(&self) -> bool {
        ["bandwidth", "both-ways"].contains(&self.name.as_str())
    }

    /// Its unit.
    pub fn unit(&self) -> &'static str {
        match self.bytes {
            0 => "s",
            _ if self.is_rate() => "MB/s",
            _ => "µs",
        }
    }
}

impl Program {
    /// All programs; what has to be compiled goes into the folder.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let (preload, put) = (folder.join("mpi_time.so"), folder.join("mpi_put"));
        // The preloaded library is also in programs without MPI, as shells.
        compile("mpi_time.c", &["-shared", "-fPIC", "-Wl,-z,lazy"], &preload)?;
        compile("mpi_put.c", &[], &put)?;
        let python = Path::new("/usr/bin/python3");
        let mpi4py = Command::new(python).args(["-c", "import mpi4py"]).output()?.status.success();
        ensure!(mpi4py, "no mpi4py here (Debian: python3-mpi4py; make deps-mpi)");
        let patterns = |name, words: &[&Path]| Self {
            name,
            is_whole: false,
            input: &[],
            words: words.iter().map(|word| word.display().to_string()).collect(),
            preload: preload.clone(),
        };
        let whole = |name, program: &str, package, input, more: &[&str]| {
            let found = needed(program, package)?;
            let first = found.to_str().context("UTF-8")?.to_owned();
            let words = [first].into_iter().chain(more.iter().map(ToString::to_string)).collect();
            anyhow::Ok(Self { name, is_whole: true, input, words, preload: preload.clone() })
        };
        let no_log = ["-in", "in.melt", "-log", "none"];
        Ok(vec![
            patterns("mpi_put", &[&put]),
            patterns("OSU", &[python, Path::new("-B"), &source("osu.py")?]),
            whole("HPCC", "hpcc", "hpcc", &[("hpccinf.txt", HPCC)], &[])?,
            whole("LAMMPS", "lmp", "lammps", &[("in.melt", MELT)], &no_log)?,
            whole("NWChem", "nwchem.openmpi", "nwchem-openmpi", &[("w.nw", WATER)], &["w.nw"])?,
        ])
    }

    /// Its command line for ranks; `is_timed`: with every call of MPI timed.
    pub fn command(&self, is_timed: bool) -> Result<Vec<String>> {
        if !self.is_whole {
            return Ok(self.words.clone());
        }
        let timed = if is_timed { "export MPI_TIME_CALLS=1; " } else { "" };
        // Behind what the launcher has preloaded.
        let preload =
            format!("{timed}export LD_PRELOAD=\"${{LD_PRELOAD:+$LD_PRELOAD:}}$0\"; exec \"$@\"");
        let library = self.preload.to_str().context("UTF-8")?.to_owned();
        Ok([vec!["sh".into(), "-c".into(), preload, library], self.words.clone()].concat())
    }
}

/// What a program printed: the patterns' lines, or the whole time.
pub fn figures(program: &Program, said: &str, is_timed: bool) -> Result<Vec<Figure>> {
    if !program.is_whole {
        return Ok(said.lines().filter_map(pattern).collect());
    }
    let values = said.lines().map(parse).find(|values| !values.is_empty());
    let values = values.with_context(|| format!("it did not end as it should:\n{said}"))?;
    let (seconds, inside) = (values["seconds"], values["in_mpi"]);
    let whole = Figure { name: program.name.into(), bytes: 0, value: seconds };
    let share = Figure { name: IN_MPI.into(), bytes: 0, value: inside / seconds };
    Ok(if is_timed { vec![share] } else { vec![whole] })
}

/// `osu NAME BYTES VALUE`
fn pattern(line: &str) -> Option<Figure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["osu", name, bytes, value] = words[..] else { return None };
    Some(Figure { name: name.into(), bytes: bytes.parse().ok()?, value: value.parse().ok()? })
}
