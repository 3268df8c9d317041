//! What a run leaves: samples.csv and run.json, written as they come and read for reports.

use crate::args::{Options, Pattern, Transport};
use crate::plan::Cell;
use anyhow::{Context, Result};
use ginnel_bench::child::Values;
use ginnel_bench::machine::Machine;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;

/// One sample: a line of samples.csv. Columns that a pattern has nothing for are empty.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Sample {
    /// Number of the round, from 1.
    pub round: u32,
    /// What the ends did.
    pub pattern: Option<Pattern>,
    /// What carried the bytes.
    pub transport: Option<Transport>,
    /// What varies in the pattern: bytes, connections, pairs, or messages a second.
    pub x: usize,
    /// The figure: median of half a round trip in ns (latency, paused) or of a request (memcached),
    /// bytes a second (stream, both, rings), CPU time of both ends as a share of a processor
    /// (rate), or exchanges, requests or connections a second.
    pub value: Option<f64>,
    /// Mean, in ns; of half a round trip, or of a whole exchange (many) or connection (connect).
    pub mean_ns: Option<f64>,
    /// Least, quantiles and greatest of the same.
    pub min_ns: Option<f64>,
    /// 10 %.
    pub p10_ns: Option<f64>,
    /// 25 %.
    pub p25_ns: Option<f64>,
    /// 50 %.
    pub p50_ns: Option<f64>,
    /// 75 %.
    pub p75_ns: Option<f64>,
    /// 90 %.
    pub p90_ns: Option<f64>,
    /// 99 %.
    pub p99_ns: Option<f64>,
    /// 99.9 %.
    pub p999_ns: Option<f64>,
    /// 99.99 %.
    pub p9999_ns: Option<f64>,
    /// Greatest.
    pub max_ns: Option<f64>,
    /// Exchanges, writes or connections that were measured.
    pub count: Option<f64>,
    /// Bytes that arrived.
    pub bytes: Option<f64>,
    /// How long was measured, in seconds.
    pub seconds: Option<f64>,
    /// CPU time of the server or receiver meanwhile, as a share of a core.
    pub server_cpu: Option<f64>,
    /// The same of the client or sender.
    pub client_cpu: Option<f64>,
    /// The same of the host's processes that work for the guests.
    #[serde(default)]
    pub host_cpu: Option<f64>,
    /// Share of the bytes that went through Ginnel's rings, 0 to 1.
    pub ring_share: Option<f64>,
    /// Wake-ups that Ginnel sent.
    pub wakes: Option<u64>,
    /// CPU time that other processes took meanwhile, in percent of a core.
    pub foreign_percent: Option<f64>,
    /// Why it is to be taken with care.
    pub note: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Sample {
    /// One without figures yet.
    pub fn of(round: u32, cell: Cell) -> Self {
        Self {
            round,
            pattern: Some(cell.pattern),
            transport: Some(cell.transport),
            x: cell.x,
            ..Self::default()
        }
    }

    /// What was measured; None of a line without pattern or transport.
    pub fn cell(&self) -> Option<Cell> {
        Some(Cell { pattern: self.pattern?, transport: self.transport?, x: self.x })
    }

    /// Takes over what the ends of each pair measured: server, client.
    pub fn fill(&mut self, pairs: &[[Values; 2]]) {
        let Some([server, client]) = pairs.first() else {
            return;
        };
        // A stream is measured where it arrives, everything else by who asks.
        let receiver = if matches!(self.pattern, Some(Pattern::Stream | Pattern::Rings))
            && !server.is_empty()
        {
            server
        } else {
            client
        };
        let of = |values: &Values, key: &str| values.get(key).copied();
        let sum = |key: &str| pairs.iter().map(|[_, client]| of(client, key)).sum::<Option<f64>>();
        for (field, key) in [
            (&mut self.mean_ns, "mean_ns"),
            (&mut self.min_ns, "min_ns"),
            (&mut self.p10_ns, "p10_ns"),
            (&mut self.p25_ns, "p25_ns"),
            (&mut self.p50_ns, "p50_ns"),
            (&mut self.p75_ns, "p75_ns"),
            (&mut self.p90_ns, "p90_ns"),
            (&mut self.p99_ns, "p99_ns"),
            (&mut self.p999_ns, "p999_ns"),
            (&mut self.p9999_ns, "p9999_ns"),
            (&mut self.max_ns, "max_ns"),
        ] {
            *field = of(client, key);
        }
        (self.count, self.bytes, self.seconds) =
            (of(receiver, "count"), of(receiver, "bytes"), of(receiver, "seconds"));
        let share = |values: &Values| {
            Some(of(values, "cpu_s")? / of(values, "seconds").filter(|&seconds| seconds > 0.0)?)
        };
        (self.server_cpu, self.client_cpu) = (share(server), share(client));
        self.host_cpu =
            of(client, "host_s").zip(of(client, "seconds")).map(|(spent, seconds)| spent / seconds);
        let rate = |values: &Values, key: &str| {
            Some(of(values, key)? / of(values, "seconds").filter(|&seconds| seconds > 0.0)?)
        };
        self.value = match self.pattern {
            Some(Pattern::Latency | Pattern::Paused) => self.p50_ns,
            Some(Pattern::Rate) => {
                self.server_cpu.zip(self.client_cpu).map(|(server, client)| server + client)
            }
            Some(Pattern::Stream | Pattern::Rings) => rate(receiver, "bytes"),
            Some(Pattern::Both) => {
                rate(server, "bytes").zip(rate(client, "bytes")).map(|(up, down)| up + down)
            }
            Some(Pattern::Connect | Pattern::Many) => rate(client, "count"),
            Some(Pattern::Pairs) => {
                self.count = sum("count");
                pairs.iter().map(|[_, client]| rate(client, "count")).sum()
            }
            Some(_) => of(client, "value"),
            None => None,
        };
    }

    /// Leaves only the digits that mean something, so that a recorded run stays small: four of a
    /// time (histograms have three), six of everything else.
    pub fn round(&mut self) {
        for time in [
            &mut self.mean_ns,
            &mut self.min_ns,
            &mut self.p10_ns,
            &mut self.p25_ns,
            &mut self.p50_ns,
            &mut self.p75_ns,
            &mut self.p90_ns,
            &mut self.p99_ns,
            &mut self.p999_ns,
            &mut self.p9999_ns,
            &mut self.max_ns,
            &mut self.server_cpu,
            &mut self.client_cpu,
            &mut self.host_cpu,
            &mut self.ring_share,
            &mut self.seconds,
        ] {
            *time = time.map(|value| significant(value, 4));
        }
        self.value = self.value.map(|value| significant(value, 6));
        self.foreign_percent = self.foreign_percent.map(|value| significant(value, 2));
    }

    /// Messages or requests a second, where so many were wanted.
    pub fn rate(&self) -> Option<f64> {
        let wanted = matches!(self.pattern, Some(Pattern::Rate | Pattern::Memcached));
        wanted.then(|| Some(self.count? / self.seconds.filter(|&seconds| seconds > 0.0)?))?
    }

    /// Were there fewer than that?
    pub fn is_behind(&self) -> bool {
        self.rate().is_some_and(|rate| rate < 0.95 * self.x as f64)
    }

    /// How long a GiB took to arrive, in seconds.
    pub fn seconds_per_gib(&self) -> Option<f64> {
        let bytes_a_second = self.bytes? / self.seconds.filter(|&seconds| seconds > 0.0)?;
        (bytes_a_second > 0.0).then(|| f64::from(1 << 30) / bytes_a_second)
    }

    /// CPU time of both ends for a GiB that arrived, in seconds.
    pub fn cpu_per_gib(&self) -> Option<f64> {
        Some((self.server_cpu? + self.client_cpu?) * self.seconds_per_gib()?)
    }
}

/// A number with so many significant digits.
fn significant(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// Everything about a run but its samples: run.json.
#[derive(Debug, Deserialize, Serialize)]
pub struct Run {
    /// Its name in comparisons.
    pub name: String,
    /// Version of ginnel-bench.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub options: Options,
    /// Rounds that were wanted.
    pub rounds: u32,
    /// Seconds of a sample.
    pub seconds: f64,
    /// What one reading of the clock takes, in ns: part of every latency.
    pub clock_ns: f64,
    /// Whether all rounds were done; else it was interrupted.
    pub complete: bool,
    /// How long it took, in seconds.
    pub took: f64,
}

/// A run as it was read: what stands in its directory.
pub struct Recorded {
    /// About it.
    pub run: Run,
    /// Its samples.
    pub samples: Vec<Sample>,
}

impl Run {
    /// Writes run.json.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join("run.json");
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// samples.csv as it grows.
pub struct Log(csv::Writer<File>);

impl Log {
    /// Makes the file.
    pub fn create(directory: &Path) -> Result<Self> {
        let path = directory.join("samples.csv");
        Ok(Self(
            csv::Writer::from_path(&path).with_context(|| format!("writing {}", path.display()))?,
        ))
    }

    /// Adds a line, which is in the file when this returns.
    pub fn add(&mut self, sample: &Sample) -> Result<()> {
        self.0.serialize(sample)?;
        Ok(self.0.flush()?)
    }
}

impl Recorded {
    /// Reads a directory.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("run.json");
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!("{} is no directory of a run: {}", directory.display(), path.display())
        })?;
        let run = serde_json::from_str(&text)
            .with_context(|| format!("{} is of another version", path.display()))?;
        let path = directory.join("samples.csv");
        let mut reader =
            csv::Reader::from_path(&path).with_context(|| format!("reading {}", path.display()))?;
        let samples: Result<_, _> = reader.deserialize().collect();
        Ok(Self {
            run,
            samples: samples
                .with_context(|| format!("{} is of another version or damaged", path.display()))?,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run of this name, of nothing.
    pub fn run(name: &str) -> Run {
        serde_json::from_value(serde_json::json!({
            "name": name, "version": "0", "rounds": 2, "seconds": 1.0, "clock_ns": 1.0, "complete": true, "took": 1.0,
            "machine": {"cpu": "", "cores": 2, "virtual_machine": false, "kernel": "", "memory_kb": 1, "load": 0.0, "date": "", "commit": ""},
            "options": {"full": false, "pattern": [], "transport": [], "sizes": [], "pin": null, "rounds": null, "seconds": null, "name": null, "connect": null}
        }))
        .unwrap()
    }

    #[test]
    fn only_digits_that_mean_something_are_kept() {
        assert_eq!(
            [significant(1234.5678, 4), significant(0.000_123_456, 4), significant(0.0, 4)],
            [1235.0, 0.000_123_5, 0.0]
        );
        let mut sample = Sample {
            value: Some(6_223_710_208.790_264),
            mean_ns: Some(50_881.594_799),
            ..Sample::default()
        };
        sample.round();
        assert_eq!((sample.value, sample.mean_ns), (Some(6.22371e9), Some(50_880.0)));
    }

    #[test]
    fn samples_are_read_as_they_were_written() {
        let folder =
            std::env::temp_dir().join(format!("ginnel-bench-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let cell = Cell { pattern: Pattern::Stream, x: 4096, transport: Transport::GinnelVeth };
        let mut sample = Sample::of(3, cell);
        let end = |bytes: f64| {
            Values::from([("bytes".into(), bytes), ("seconds".into(), 2.0), ("cpu_s".into(), 1.0)])
        };
        sample.fill(&[[end(4e9), end(5e9)]]);
        assert_eq!(sample.value, Some(2e9), "it counts where the stream arrives");
        assert!((sample.cpu_per_gib().unwrap() - 0.5369).abs() < 1e-3);
        let failed = Sample { error: Some("a, \"b\"\nc".into()), ..Sample::of(4, cell) };
        let mut log = Log::create(&folder).unwrap();
        log.add(&sample).unwrap();
        log.add(&failed).unwrap();
        let read: Vec<Sample> = csv::Reader::from_path(folder.join("samples.csv"))
            .unwrap()
            .deserialize()
            .map(Result::unwrap)
            .collect();
        assert_eq!((read[0].cell(), read[0].value, read[0].p50_ns), (Some(cell), Some(2e9), None));
        assert_eq!(read[1].error, failed.error);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
