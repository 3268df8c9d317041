//! memcached with one thread; memcaslap, of libmemcached, reads and writes values of 100 bytes,
//! nine to one.

use std::fs;

use anyhow::{Context, Result};

use super::{Listen, Load, Program, Setting, rate_after, words};
use crate::tools::Tool;

/// memcached and memcaslap.
pub struct Memcached;

/// memcaslap's own description of a load: lengths of keys and values, then the share of sets (0)
/// and gets (1).
const MIX: &str = "key\n16 16 1\nvalue\n100 100 1\ncmd\n0 0.1\n1 0.9\n";

impl Program for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn unit(&self) -> &'static str {
        "requests/s"
    }

    fn server_tool(&self) -> Tool {
        Tool { names: &["memcached"], package: "memcached" }
    }

    fn client_tool(&self) -> Tool {
        Tool { names: &["memcaslap", "memaslap"], package: "libmemcached-tools" }
    }

    fn settings(&self) -> &'static [Setting] {
        &[
            Setting { label: "1 connection", arguments: &["-c", "1"] },
            Setting { label: "16 connections", arguments: &["-c", "16"] },
        ]
    }

    fn further_settings(&self) -> &'static [Setting] {
        &[
            Setting { label: "64 connections", arguments: &["-c", "64"] },
            Setting { label: "256 connections", arguments: &["-c", "256"] },
        ]
    }

    fn server(&self, program: &str, listen: &Listen) -> Result<Vec<String>> {
        let mut command = words([
            &program,
            &"-l",
            &listen.address,
            &"-p",
            &listen.port,
            &"-U",
            &"0",
            &"-t",
            &"1",
            &"-m",
            &"64",
        ]);
        if listen.root {
            command.extend(words([&"-u", &"root"]));
        }
        Ok(command)
    }

    fn client(&self, load: &Load) -> Result<Vec<String>> {
        let mix = load.dir.join("memcaslap.conf");
        fs::write(&mix, MIX).context("cannot write memcaslap.conf")?;
        let server = format!("{}:{}", load.address, load.port);
        let seconds = format!("{}s", load.seconds);
        let mut command =
            words([&"-s", &server, &"-T", &"1", &"-t", &seconds, &"-F", &mix.display()]);
        command.extend(load.setting.words());
        Ok(command)
    }

    fn read(&self, printed: &str) -> Result<f64> {
        rate_after(printed, "TPS:", "memcaslap")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let printed = "cmd_get: 248456\nget_misses: 0\n\nRun time: 2.0s Ops: 276068 TPS: 138021 Net_rate: 20.7M/s\n";
        assert_eq!(Memcached.read(printed).unwrap(), 138_021.0);
        assert!(Memcached.read("Run time: 1.0s Ops: 0 TPS: 0 Net_rate: 0.0M/s").is_err());
        assert!(Memcached.read("").is_err());
    }
}
