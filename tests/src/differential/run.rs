//! One run of a script: plainly, or under the shim in one of its modes.

use std::time::Duration;

use super::Script;
use crate::{Stand, build};

/// The shim's settings in which scripts are run. Each connection is a candidate from its first
/// byte (`GINNEL_AFTER=0`, as on every [`Stand`]).
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// As `--mode` names it.
    pub name: &'static str,
    settings: Option<&'static [(&'static str, &'static str)]>,
    /// How many bytes its rings hold; a script that counts on more is not run in it.
    ring: u64,
}

/// Those in which connections are carried.
pub const MODES: [Mode; 6] = [
    mode("fifo", &[]),
    mode("no-spin", &[("GINNEL_SPIN", "0")]),
    mode("tokens", &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")]),
    Mode {
        ring: 4096,
        ..mode(
            "tiny",
            &[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096"), ("GINNEL_SPIN", "0")],
        )
    },
    mode("deaf", &[("GINNEL_DEAF", "1"), ("GINNEL_SPIN", "0")]),
    mode("chaos", &[("GINNEL_CHAOS", "7:8"), ("GINNEL_SPIN", "0")]),
];

/// Those in which none is: without the shim, which shows what plain TCP leaves open; and with the
/// shim there, but no connection moved.
const OTHERS: [Mode; 2] = [
    Mode { settings: None, ..mode("plain", &[]) },
    mode("idle", &[("GINNEL_AFTER", "4000000000")]),
];

/// All that have the shim.
pub fn shimmed() -> impl Iterator<Item = Mode> {
    MODES.into_iter().chain(OTHERS).filter(|mode| mode.settings.is_some())
}

const fn mode(name: &'static str, settings: &'static [(&'static str, &'static str)]) -> Mode {
    Mode { name, settings: Some(settings), ring: 32768 }
}

impl Mode {
    /// The one that is so called.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        MODES.into_iter().chain(OTHERS).find(|mode| mode.name == name)
    }

    /// Whether its connections are to be carried.
    #[must_use]
    pub fn carries(&self) -> bool {
        MODES.iter().any(|mode| mode.name == self.name)
    }

    /// Whether `script` can be run in it.
    #[must_use]
    pub fn takes(&self, script: &Script) -> bool {
        script.room() < self.ring
    }
}

/// What a run said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The answer to each step, by its place in the script; a step that was not reached has none.
    pub answers: Vec<String>,
    /// Which step did not end, or how the interpreter ended, where it did not as it should.
    pub broken: Option<String>,
}

/// Seconds after which a script hangs.
pub const SECONDS: u32 = 4;
/// Microseconds in which loopback delivers.
const DELIVERED: &str = "1200";
/// Runs that share a segment.
const RUNS: u32 = 100;

/// Where scripts are run, one at a time: plainly, or in one mode.
pub struct Place {
    mode: Option<Mode>,
    stand: Stand,
    runs: u32,
    carried: Carried,
}

/// How much of what was to be carried was: directions of connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Directions of the connections that were warmed.
    pub warmed: u64,
    /// How many moved to a ring, cut to `warmed` in each segment.
    pub moved: u64,
}

impl std::ops::AddAssign for Carried {
    fn add_assign(&mut self, more: Self) {
        self.warmed += more.warmed;
        self.moved += more.moved;
    }
}

fn stand(mode: Option<Mode>) -> Stand {
    let stand = match mode.and_then(|mode| Some((mode.name, mode.settings?))) {
        None => Stand::plain("differential"),
        Some((name, settings)) => Stand::shimmed(&format!("differential-{name}"), settings),
    };
    stand.limit(Duration::from_secs(u64::from(SECONDS) + 4))
}

impl Place {
    /// A place for runs in `mode`, or plainly.
    #[must_use]
    pub fn new(mode: Option<Mode>) -> Self {
        Self { mode, stand: stand(mode), runs: 0, carried: Carried::default() }
    }

    /// Runs `script` once.
    ///
    /// # Panics
    /// When the stand's folder cannot be written.
    pub fn run(&mut self, script: &Script) -> Said {
        if self.runs == RUNS {
            self.count();
            self.stand = stand(self.mode);
            self.runs = 0;
        }
        self.runs += 1;
        if self.mode.is_some_and(|mode| mode.carries()) {
            self.carried.warmed += 2 * script.warmed();
        }
        let file = self.stand.dir().join("script");
        std::fs::write(&file, script.program()).expect("a stand's folder can be written");
        let mut command = self.stand.command(build::interpreter());
        command.arg(&file).arg(SECONDS.to_string());
        let other = script.is_between().then(|| {
            let place = ["127.0.0.1", &crate::port::free(), DELIVERED];
            command.args(place);
            let mut other = self.stand.command(build::interpreter());
            self.stand.start(other.args(["-", &SECONDS.to_string()]).args(place))
        });
        let said = match self.stand.try_run(&mut command) {
            Ok(done) => {
                let ended = (!done.success())
                    .then(|| format!("{} {}", done.status, done.stderr.trim_end()));
                Said::read(script, &done.stdout, ended)
            }
            Err(seen) => Said { answers: Vec::new(), broken: Some(seen) },
        };
        other.map(|other| other.try_finish());
        said
    }

    /// What the interpreter looks like while it hangs: each thread's stack, and `ginnel status`.
    #[must_use]
    pub fn look(&self, script: &Script) -> Option<String> {
        let stand = stand(self.mode);
        let file = stand.dir().join("script");
        std::fs::write(&file, script.program()).ok()?;
        let mut command = stand.command(build::interpreter());
        command.arg(&file).arg("60");
        stand.try_run(&mut command).err()
    }

    fn count(&mut self) {
        let moved = self.stand.report().sum("upgrades");
        // A connection that moves back and forth is counted once.
        self.carried.moved = (self.carried.moved + moved).min(self.carried.warmed);
    }

    /// How much was carried in all of its runs.
    #[must_use]
    pub fn carried(mut self) -> Carried {
        self.count();
        self.carried
    }
}

impl Said {
    /// What the interpreter's lines say, each `LINE ANSWER`. `ended`: how it ended, where that was
    /// not well.
    #[must_use]
    pub fn read(script: &Script, lines: &str, ended: Option<String>) -> Self {
        let mut said = Self { answers: vec![String::new(); script.steps.len()], broken: None };
        for line in lines.lines() {
            let (number, text) = line.split_once(' ').unwrap_or((line, ""));
            let place = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            if let Some(answer) = place.and_then(|place| said.answers.get_mut(place)) {
                text.clone_into(answer);
            }
            if text == "HANG" {
                said.broken = Some(format!("hangs at step {number}"));
            }
        }
        said.broken = said.broken.or(ended);
        said
    }
}
