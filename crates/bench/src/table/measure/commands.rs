//! The command lines of a measure.

use super::Bench;
use crate::plan::{Carrier, GO, Measure, TASKS, Work};
use crate::{guests, peers};
use anyhow::{Context, Result, anyhow, bail};
use ginnel_bench::network::Network;

impl Bench {
    /// The options that make a workload program do this work.
    pub(super) fn options(&self, measure: &Measure) -> Vec<String> {
        let (work, guests) = (measure.work, measure.carrier.is_guests());
        let seconds = match (self.quick, guests) {
            (true, false) => "0.1",
            (false, false) => "0.3",
            (_, true) => "1",
        };
        let text = match work {
            Work::PingPong("") => format!("--size 64 --seconds {seconds}"),
            Work::PingPong(mode) => format!("--size 64 --seconds {seconds} --mode {mode}"),
            Work::OneCore => format!("--size 64 --seconds {seconds}"),
            // Many turns of the scheduler.
            Work::Beside | Work::BesideOneCore => {
                format!("--size 64 --seconds {}", if self.quick { "0.3" } else { "1" })
            }
            Work::Changes(count) => format!("--connections {count} --seconds {seconds}"),
            Work::Large(size) => format!("--size {size} --seconds {seconds}"),
            Work::Tail => format!("--size 64 --batch 1 --seconds {seconds}"),
            Work::Memcpy | Work::Both => format!("--size 65536 --seconds {seconds}"),
            Work::Crowd(all) => {
                format!("--connections {all} --count 100 --warmup 16 --seconds {seconds}")
            }
            // The tasks have theirs in `task`.
            Work::Pairs(_) | Work::PairsApart(_) | Work::Connect => String::from("--seconds 0"),
            Work::Paused(mode) => {
                let mode = if mode.is_empty() { String::new() } else { format!(" --mode {mode}") };
                format!(
                    "--size 64 --pause-us 1000 --count {}{mode}",
                    if self.quick { 150 } else { 400 }
                )
            }
            Work::Stream(size) => format!("--size {size} --seconds {seconds}"),
            Work::Idle => {
                let seconds =
                    if guests { guests::IDLE_SECONDS } else { if self.quick { 1 } else { 3 } };
                format!(
                    "--connections {} --warmup 16 --seconds {seconds}",
                    measure.carrier.idle_connections()
                )
            }
            Work::Go(all) => format!("--connections {all} --seconds {seconds}"),
            Work::GoBeside(all) => {
                format!("--connections {all} --seconds {}", if self.quick { "1" } else { "2" })
            }
            Work::GoStream(size) => format!("--mode stream --size {size} --seconds {seconds}"),
            Work::Lock | Work::Contended => format!("--seconds {seconds}"),
            Work::GoCall => format!("--mode call --seconds {seconds}"),
            Work::Getter => format!(
                "--size 1024 --pause-us 5000 --count {}",
                if self.quick { 150 } else { 400 }
            ),
        };
        // Where the first bytes of a connection are TCP's, they must not be a large part of few
        // messages.
        let warm_up = if matches!(work, Work::Paused(_)) { " --warmup 20" } else { "" };
        (text + warm_up).split(' ').map(String::from).collect()
    }

    /// The program of one end, and its arguments.
    pub(super) fn line(
        &self,
        carrier: Carrier,
        work: Work,
        options: &[String],
        server: bool,
        (port, pair): (u16, usize),
        cpu: Option<usize>,
    ) -> Result<Vec<String>> {
        let socket = self.scratch.join(format!("socket-{pair}"));
        if server {
            let _ = std::fs::remove_file(&socket);
        }
        let address = match carrier {
            Carrier::Unix => format!("unix:{}", socket.display()),
            Carrier::Iceoryx2 => peers::service(),
            _ if carrier.is_veth() => format!("{}:{port}", Network::SERVER),
            _ => format!("127.0.0.1:{port}"),
        };
        let Some(pattern) = work.task() else {
            let program = match (carrier, &self.peers.iceoryx2) {
                (Carrier::Iceoryx2, Ok(program)) => program.clone(),
                (Carrier::Iceoryx2, Err(why)) => bail!("{why}"),
                _ if work.program() == GO => self.programs.go()?,
                _ => self.programs.path(work.program()),
            };
            let program = program.to_str().context("the path of the programs is not UTF-8")?;
            let role = if server { "server" } else { "client" };
            let fixed = [program, role, "--addr", &address].map(String::from);
            let pinned = cpu.map(|cpu| ["--cpu".into(), cpu.to_string()]);
            return Ok(fixed
                .into_iter()
                .chain(options.iter().cloned())
                .chain(pinned.into_iter().flatten())
                .collect());
        };
        let program = std::env::current_exe()?.with_file_name(TASKS);
        let address = if carrier == Carrier::Unix { address } else { format!("tcp:{address}") };
        let task = serde_json::json!({
            "server": server, "pattern": pattern, "address": address, "size": if work == Work::Both { 65536 } else { 64 },
            "connections": 1, "seconds": if self.quick { 0.1 } else { 0.3 }, "warm_up": 0.1, "cpu": cpu,
        });
        Ok(vec![
            program.to_str().context("the path of this program is not UTF-8")?.into(),
            "work".into(),
            task.to_string(),
        ])
    }

    /// What stands before the program: the namespace, then `ginnel run`.
    pub(super) fn prefix(&self, carrier: Carrier, server: bool) -> Result<Vec<&str>> {
        let mut line = Vec::new();
        if carrier.is_veth() {
            line.extend(self.network.as_ref().map_err(|why| anyhow!("{why}"))?.enter(server));
        }
        if carrier.is_ginnel() {
            let tokens = carrier == Carrier::GinnelTokens;
            let ginnel = self.ginnel.as_ref().map_err(|why| anyhow!("{why}"))?;
            if tokens {
                self.tokens.as_ref().map_err(|why| anyhow!("{why}"))?;
            }
            line.extend(ginnel.run(tokens)?);
        }
        Ok(line)
    }
}
