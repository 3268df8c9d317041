//! Ginnel as the bench sees it: a command to put before a program, and a report of what the shim
//! carried.

use crate::cleanup;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The `ginnel` command.
pub struct Ginnel {
    command: PathBuf,
    /// Name of this bench's own segment, once made.
    segment: String,
    /// `GINNEL_DIR` of its programs, where it is not the user's.
    directory: Option<PathBuf>,
}

/// What the shims of one sample's processes reported at their exit (`GINNEL_REPORT`), added up.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Report {
    /// Bytes received over TCP by the programs.
    pub tcp_in: u64,
    /// Bytes sent over TCP by the programs.
    pub tcp_out: u64,
    /// Bytes received through rings.
    pub ring_in: u64,
    /// Bytes sent through rings.
    pub ring_out: u64,
    /// Wake-ups sent by FIFO or doorbell.
    pub wakes_sent: u64,
    /// Wake-ups sent as tokens.
    pub tokens_sent: u64,
    /// Directions or connections that were upgraded.
    pub upgrades: u64,
    /// Likewise, downgraded.
    pub downgrades: u64,
    /// Processes that reported.
    #[serde(skip_deserializing)]
    pub processes: u64,
}

impl Ginnel {
    /// Finds the command beside this program, after building it where cargo started this program.
    pub fn find(given: Option<PathBuf>, build: bool, target: &Path) -> Result<Self> {
        let cargo = std::env::var_os("CARGO");
        if let (None, true, Some(cargo)) = (&given, build, cargo) {
            let status = Command::new(cargo)
                .args([
                    "build",
                    "--release",
                    "--quiet",
                    "-p",
                    "ginnel-cli",
                    "-p",
                    "ginnel-shim",
                    "--target-dir",
                ])
                .arg(target)
                .status()?;
            ensure!(status.success(), "building ginnel failed");
        }
        let command = given.unwrap_or_else(|| target.join("release/ginnel"));
        ensure!(command.exists(), "no {}: build it, or name it with --ginnel", command.display());
        Ok(Self { command, segment: String::new(), directory: None })
    }

    /// The command in the folder of this program: where both are installed.
    pub fn beside() -> Result<Self> {
        let command = std::env::current_exe()?.with_file_name("ginnel");
        ensure!(
            command.exists(),
            "no {}: ginnel and ginnel-bench belong into one folder",
            command.display()
        );
        Ok(Self { command, segment: String::new(), directory: None })
    }

    /// The build in this folder, with segments of its own: another build's may be laid out
    /// otherwise. They are removed by [`cleanup::all`].
    pub fn apart(folder: &Path, name: &str) -> Result<Self> {
        let folder = folder.canonicalize().with_context(|| format!("no {}", folder.display()))?;
        let command = folder.join("ginnel");
        for needed in [&command, &folder.join("libginnel_shim.so")] {
            ensure!(
                needed.exists(),
                "no {}: both ginnel and libginnel_shim.so are needed",
                needed.display()
            );
        }
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let directory = parent.join(format!("gnlbench-{}-{name}", std::process::id()));
        cleanup::remove_later(&directory);
        std::fs::create_dir(&directory)?;
        std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Self { command, segment: String::new(), directory: Some(directory) })
    }

    /// The folder that the command lies in.
    pub fn folder(&self) -> Option<&Path> {
        self.command.parent()
    }

    /// What is to be set in the environment of its programs.
    pub fn environment(&self) -> Option<(&'static str, &Path)> {
        Some(("GINNEL_DIR", self.directory.as_deref()?))
    }

    /// Makes a segment for this bench alone, with these options of `ginnel segment create`; removed
    /// by [`cleanup::all`].
    pub fn make_segment(&mut self, options: &[&str]) -> Result<()> {
        let name = format!("bench-{}", std::process::id());
        let command = self.command.to_str().context("the path of ginnel is not UTF-8")?;
        cleanup::later([command, "segment", "remove", &name]);
        let output = Command::new(command)
            .args(["segment", "create", &name])
            .args(options)
            .envs(self.environment())
            .output()?;
        ensure!(
            output.status.success(),
            "ginnel segment create: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        self.segment = name;
        Ok(())
    }

    /// The start of a command line that runs a program under Ginnel, in the default segment or in
    /// that of this bench.
    pub fn run(&self, own_segment: bool) -> Result<Vec<&str>> {
        let mut line =
            vec![self.command.to_str().context("the path of ginnel is not UTF-8")?, "run"];
        if own_segment {
            ensure!(!self.segment.is_empty(), "the segment of this bench was not made");
            line.extend(["--segment", &self.segment]);
        }
        line.push("--");
        Ok(line)
    }

    /// `ginnel status --json`, for a program that hangs.
    pub fn status(&self) -> String {
        match Command::new("timeout")
            .arg("10")
            .arg(&self.command)
            .args(["status", "--json"])
            .envs(self.environment())
            .output()
        {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => format!("ginnel status: {error}"),
        }
    }
}

impl Report {
    /// Adds up the lines of a report file; None where there is none.
    pub fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// The same of its text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut sum = Self::default();
        for one in text.lines().filter_map(|line| serde_json::from_str::<Self>(line).ok()) {
            sum.tcp_in += one.tcp_in;
            sum.tcp_out += one.tcp_out;
            sum.ring_in += one.ring_in;
            sum.ring_out += one.ring_out;
            sum.wakes_sent += one.wakes_sent;
            sum.tokens_sent += one.tokens_sent;
            sum.upgrades += one.upgrades;
            sum.downgrades += one.downgrades;
            sum.processes += 1;
        }
        (sum.processes > 0).then_some(sum)
    }

    /// Share of the programs' bytes that went through rings, 0 to 1.
    pub fn share(&self) -> f64 {
        let ring = (self.ring_in + self.ring_out) as f64;
        let all = ring + (self.tcp_in + self.tcp_out) as f64;
        if all == 0.0 { 0.0 } else { ring / all }
    }

    /// Wake-ups of every kind.
    pub fn wakes(&self) -> u64 {
        self.wakes_sent + self.tokens_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_several_processes_add_up() {
        let text = "{\"pid\":1,\"program\":\"a\",\"tcp_in\":10,\"ring_out\":60,\"wakes_sent\":1}\n\
                    {\"pid\":2,\"program\":\"b\",\"ring_in\":30,\"tokens_sent\":2}\nhalf a li";
        let report = Report::parse(text).unwrap();
        assert_eq!((report.processes, report.wakes()), (2, 3));
        assert!((report.share() - 0.9).abs() < 1e-9);
        assert!(Report::parse("").is_none());
    }
}
