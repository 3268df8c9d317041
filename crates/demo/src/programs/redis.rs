//! redis without persistence; redis-benchmark with its 50 connections, with and without pipelining.

use anyhow::{Context, Result, bail};

use super::{Listen, Load, Program, Setting, excerpt, words};
use crate::tools::Tool;

/// redis and redis-benchmark.
pub struct Redis;

/// Requests of a load whose speed is not known yet.
const FIRST: f64 = 20_000.0;
/// Most requests of one load: redis-benchmark takes a 32-bit number.
const MOST: f64 = 2_000_000_000.0;

impl Program for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn unit(&self) -> &'static str {
        "requests/s"
    }

    fn server_tool(&self) -> Tool {
        Tool { names: &["redis-server"], package: "redis-server" }
    }

    fn client_tool(&self) -> Tool {
        Tool { names: &["redis-benchmark"], package: "redis-tools" }
    }

    fn settings(&self) -> &'static [Setting] {
        // SET comes first: it leaves the value that GET then finds.
        &[
            Setting { label: "SET, 50 connections", arguments: &["-t", "set", "-P", "1"] },
            Setting { label: "GET, 50 connections", arguments: &["-t", "get", "-P", "1"] },
            Setting {
                label: "SET, 50 connections, 16 in flight",
                arguments: &["-t", "set", "-P", "16"],
            },
            Setting {
                label: "GET, 50 connections, 16 in flight",
                arguments: &["-t", "get", "-P", "16"],
            },
        ]
    }

    fn server(&self, program: &str, listen: &Listen) -> Result<Vec<String>> {
        Ok(words([
            &program,
            &"--bind",
            &listen.address,
            &"--port",
            &listen.port,
            &"--dir",
            &listen.dir.display(),
            &"--save",
            &"",
            &"--appendonly",
            &"no",
            &"--daemonize",
            &"no",
            &"--protected-mode",
            &"no",
        ]))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number of requests is between FIRST / 20 and MOST"
    )]
    fn client(&self, load: &Load) -> Result<Vec<String>> {
        let requests = load
            .before
            .map_or(FIRST, |rate| (rate * f64::from(load.seconds)).clamp(FIRST / 20.0, MOST));
        let mut command = words([
            &"-h",
            &load.address,
            &"-p",
            &load.port,
            &"-c",
            &"50",
            &"-n",
            &(requests as i64),
            &"--csv",
        ]);
        command.extend(load.setting.words());
        Ok(command)
    }

    /// A line such as `"SET","123456.79","0.2"…`; older releases print no more than the first two.
    fn read(&self, printed: &str) -> Result<f64> {
        let line = printed
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with("\"SET\"") || line.starts_with("\"GET\""));
        let Some(line) = line else {
            bail!("redis-benchmark printed no result: {}", excerpt(printed))
        };
        let rate = line.split(',').nth(1).unwrap_or_default().trim_matches('"');
        rate.parse().with_context(|| format!("no rate in {line}"))
    }

    fn counts_requests(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let new =
            "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"158730.16\",\"0.162\",\"0.040\"\n";
        assert_eq!(Redis.read(new).unwrap(), 158_730.16);
        assert_eq!(Redis.read("\"GET\",\"99.5\"\n").unwrap(), 99.5);
        assert!(
            Redis.read("Could not connect to Redis at 127.0.0.1:1: Connection refused\n").is_err()
        );
    }

    #[test]
    fn the_load_lasts_as_long_as_asked() {
        let dir = std::path::PathBuf::new();
        let mut load = Load {
            address: std::net::Ipv4Addr::LOCALHOST,
            port: 1,
            dir: &dir,
            seconds: 2,
            before: None,
            setting: &Redis.settings()[0],
        };
        let requests = |load: &Load| Redis.client(load).unwrap()[7].clone();
        assert_eq!(requests(&load), "20000");
        load.before = Some(100_000.0);
        assert_eq!(requests(&load), "200000");
    }
}
