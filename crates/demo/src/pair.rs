//! One server and its loads: the servers, one for each carrier, run side by side, and the loads
//! take turns.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::args::Args;
use crate::programs::{Program, Setting};
use crate::progress::Progress;
use crate::report::Row;
use crate::sockmap::Held;
use crate::stats::{median, quantile};
use crate::tools::Ginnel;
use crate::workdir::WorkDir;
use crate::{interrupt, share};

/// Where pairs run: on this kernel ([`crate::local`]), or in virtual machines ([`crate::guests`]).
pub trait Ground: Debug {
    /// The word that stands in the results.
    fn word(&self) -> &'static str;
    /// Starts a server, and returns once it listens.
    fn start(&self, bench: &Bench, found: &Found, carrier: Carrier)
    -> Result<Box<dyn Server + '_>>;
}

/// A server that listens. It is ended when it is dropped.
pub trait Server {
    /// Runs one load to its end and reads its figure. `before`: the figure that the same load
    /// reached before.
    fn load(
        &self,
        bench: &Bench,
        found: &Found,
        setting: &'static Setting,
        track: &Track,
        before: Option<f64>,
    ) -> Result<f64>;
}

/// What every measurement needs.
#[derive(Debug, Clone, Copy)]
pub struct Bench<'a> {
    /// The command line.
    pub args: &'a Args,
    /// The `ginnel` command, where it is measured.
    pub ginnel: Option<&'a Ginnel>,
    /// The sockmap, where it is measured.
    pub sockmap: Option<&'a Held>,
    /// What is measured, in this order.
    pub carriers: &'a [Carrier],
    /// Where.
    pub ground: &'a dyn Ground,
    /// Where files go.
    pub workdir: &'a WorkDir,
    /// Who hears of it.
    pub progress: &'a Progress,
}

/// How a pair runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// As it is.
    Plain,
    /// Both ends under `ginnel run`.
    Ginnel,
    /// Both ends in a cgroup whose connections are in the kernel's sockmap.
    Sockmap,
}

impl Carrier {
    /// Those that are measured.
    pub fn all(ginnel: bool, sockmap: bool) -> &'static [Self] {
        match (ginnel, sockmap) {
            (true, true) => &[Self::Plain, Self::Ginnel, Self::Sockmap],
            (true, false) => &[Self::Plain, Self::Ginnel],
            (false, _) => &[Self::Plain],
        }
    }

    /// For messages, and names of files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Ginnel => "ginnel",
            Self::Sockmap => "sockmap",
        }
    }
}

/// A pair's two programs, found.
pub struct Found<'a> {
    /// What is known of it.
    pub program: &'a dyn Program,
    /// The server's path.
    pub server: String,
    /// The load's path.
    pub client: String,
}

impl Found<'_> {
    /// A server's or load's name, for messages.
    pub fn name(&self, carrier: Carrier, role: &str) -> String {
        format!("{} ({} {role})", self.program.name(), carrier.word())
    }
}

/// One carrier's part of one row.
pub struct Track {
    /// Which.
    pub carrier: Carrier,
    /// The program and its setting.
    pub label: String,
    /// The rounds' figures.
    pub values: Vec<f64>,
    failure: Option<String>,
    /// The file with the loads' reports.
    pub report: PathBuf,
}

impl Track {
    /// Nothing is measured yet.
    pub fn new(bench: &Bench, found: &Found, setting: &Setting, carrier: Carrier) -> Self {
        let label = label(found.program, setting);
        let file = label.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let report = bench.workdir.file(&format!("report-{}-{file}", bench.ground.word()));
        Self { carrier, label, values: Vec::new(), failure: None, report }
    }

    /// How long a load may take. Generous: the machine may be busy, and a number of requests is
    /// only an estimate of a time.
    pub fn limit(seconds: u32) -> Duration {
        Duration::from_secs(u64::from(seconds) * 5 + 15)
    }
}

/// Measures all settings of a program. What goes wrong stands in the rows; an error means that it
/// is time to go home.
pub fn run(bench: &Bench, program: &dyn Program) -> Result<Vec<Row>> {
    let mut servers: Vec<Option<Box<dyn Server + '_>>> =
        bench.carriers.iter().map(|_| None).collect();
    each_setting(bench, program, |found, setting| measure(bench, found, setting, &mut servers))
}

/// Finds a program and its load, and has each setting measured; where they cannot be found, the
/// rows say so.
pub fn each_setting(
    bench: &Bench,
    program: &dyn Program,
    mut measure: impl FnMut(&Found, &'static Setting) -> Result<Row>,
) -> Result<Vec<Row>> {
    let settings = || program.settings_of(bench.args.further, bench.args.server_only);
    let tools =
        program.server_tool().find().and_then(|server| Ok((server, program.client_tool().find()?)));
    match tools {
        Ok((server, client)) => {
            let found = Found { program, server, client };
            settings().map(|setting| measure(&found, setting)).collect()
        }
        Err(error) => {
            bench.progress.note(&format!("{}: {error:#}", program.name()));
            bench.progress.skip(settings().count() * bench.args.rounds() * bench.carriers.len());
            let failed = |setting| row(bench, program, setting, &[], Some(format!("{error:#}")));
            Ok(settings().map(failed).collect())
        }
    }
}

/// Measures one setting: every carrier in every round, in changing order.
fn measure<'a>(
    bench: &Bench<'a>,
    found: &Found,
    setting: &'static Setting,
    servers: &mut [Option<Box<dyn Server + 'a>>],
) -> Result<Row> {
    let mut tracks: Vec<Track> = Vec::new();
    for (carrier, server) in bench.carriers.iter().zip(servers.iter_mut()) {
        let mut track = Track::new(bench, found, setting, *carrier);
        bench.progress.now(&format!("{}, {}: starting", track.label, carrier.word()));
        if server.is_none() {
            *server = track.note(bench, bench.ground.start(bench, found, *carrier))?;
        }
        if let Some(running) = server.as_ref().filter(|_| found.program.counts_requests()) {
            let first = running.load(bench, found, setting, &track, None);
            if let Some(rate) = track.note(bench, first)? {
                track.values.push(rate);
            }
        }
        tracks.push(track);
    }
    // The first figure served to size the load; it is none of the measurements.
    let mut before: Vec<Option<f64>> = tracks.iter_mut().map(|track| track.values.pop()).collect();
    for round in 0..bench.args.rounds() {
        let mut order: Vec<usize> = (0..tracks.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let track = &mut tracks[index];
            let Some(server) = servers[index].as_ref().filter(|_| track.failure.is_none()) else {
                bench.progress.skip(1);
                continue;
            };
            let what = format!("{}, {}, round {}", track.label, track.carrier.word(), round + 1);
            bench.progress.now(&what);
            let result = server.load(bench, found, setting, track, before[index]);
            match track.note(bench, result)? {
                Some(value) => {
                    bench.progress.step(&format!("{what}: {value:.1} {}", found.program.unit()));
                    before[index] = Some(value);
                    track.values.push(value);
                }
                None => bench.progress.skip(1),
            }
        }
    }
    // A server whose load failed may be in any state: the next setting gets a new one.
    for (track, server) in tracks.iter().zip(servers) {
        if track.failure.is_some() {
            *server = None;
        }
    }
    Ok(row(bench, found.program, setting, &tracks, None))
}

impl Track {
    /// Keeps a failure for the row, and says it at once; only an interruption goes on up.
    fn note<T>(&mut self, bench: &Bench, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                interrupt::check()?;
                let failure = format!("{}: {error:#}", self.carrier.word());
                bench.progress.note(&format!("{}, {failure}", self.label));
                self.failure = Some(failure);
                Ok(None)
            }
        }
    }
}

fn label(program: &dyn Program, setting: &Setting) -> String {
    format!("{}, {}", program.name(), setting.label)
}

/// A setting's row, of what its tracks hold.
pub fn row(
    bench: &Bench,
    program: &dyn Program,
    setting: &Setting,
    tracks: &[Track],
    failure: Option<String>,
) -> Row {
    let of =
        |carrier| tracks.iter().find(|track| track.carrier == carrier && track.failure.is_none());
    let rounds_of = |carrier| of(carrier).map_or_else(Vec::new, |track| track.values.clone());
    let [plain, ginnel, sockmap] =
        [Carrier::Plain, Carrier::Ginnel, Carrier::Sockmap].map(rounds_of);
    // Round by round: what changes about the machine from one round to the next is in both of a
    // round's figures.
    let beside = |other: &[f64]| -> Vec<f64> {
        other.iter().zip(&ginnel).map(|(other, ginnel)| ginnel / other).collect()
    };
    let ratios = beside(&plain);
    let failures: Vec<String> = failure
        .into_iter()
        .chain(tracks.iter().filter_map(|track| track.failure.clone()))
        .collect();
    Row {
        program: label(program, setting),
        place: bench.ground.word(),
        plain: median(&plain),
        ginnel: median(&ginnel),
        unit: program.unit(),
        ratio: median(&ratios),
        quartiles: quantile(&ratios, 0.25)
            .zip(quantile(&ratios, 0.75))
            .filter(|_| ratios.len() > 1),
        sockmap: median(&sockmap),
        beside_sockmap: median(&beside(&sockmap)),
        plain_rounds: plain,
        ginnel_rounds: ginnel,
        sockmap_rounds: sockmap,
        share: of(Carrier::Ginnel).and_then(|track| share::read(&track.report)),
        failure: (!failures.is_empty()).then(|| failures.join("; ")),
    }
}
