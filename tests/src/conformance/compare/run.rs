//! One run of one part of a suite, plainly or with Ginnel.

use super::{CARRIED, END, NOBODY};
use crate::conformance::reader::{Verdict, Verdicts};
use crate::conformance::{Part, RESULTS};
use crate::{Stand, build, is_root};
use anyhow::{Context, Result};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The settings of the runs with Ginnel. Every connection is a candidate from its first byte in
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The library's own.
    Usual,
    /// Wake-ups by tokens alone, rings that are full after 4 KiB, and no spinning before a sleep:
    /// each sleep, each full ring and each wake-up over TCP happens as often as it can.
    Hard,
}

impl Way {
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Usual => &[],
            Self::Hard => &[
                ("GINNEL_TOKENS", "1"),
                ("GINNEL_RING", "4096"),
                ("GINNEL_RING_MAX", "4096"),
                ("GINNEL_SPIN", "0"),
            ],
        }
    }
}

/// One run of one part.
pub(super) struct Run {
    pub(super) verdicts: Verdicts,
    pub(super) seconds: f64,
    pub(super) success: bool,
    /// What it said of the version of what it tests: the rest of a line of its own.
    pub(super) version: String,
    pub(super) bytes: Bytes,
    pub(super) text: String,
}

/// With this begins the line in which a part says what it tests.
const VERSION: &str = "# version: ";

/// Bytes through rings and in all.
#[derive(Clone, Copy, Default)]
pub(super) struct Bytes {
    pub(super) ring_in: u64,
    pub(super) ring: u64,
    pub(super) all: u64,
}

impl Bytes {
    pub(super) fn add(&mut self, more: Self) {
        self.ring_in += more.ring_in;
        self.ring += more.ring;
        self.all += more.all;
    }

    /// `None` where there are none.
    #[expect(clippy::cast_precision_loss, reason = "counts of bytes stay far below 2^53")]
    pub(super) fn share(self) -> Option<f64> {
        (self.all > 0).then_some(self.ring as f64 / self.all as f64)
    }
}

pub(super) fn run(part: &Part, way: Option<Way>) -> Result<Run> {
    let plain = Stand::plain("conformance").limit(part.limit);
    let results = plain.dir().join("results");
    // On disk: some need hundreds of megabytes.
    let temporary =
        tempfile::Builder::new().prefix("ginnel-conformance-").tempdir().context("a folder")?;
    let temporary = temporary.path();
    let shim = copied_shim(plain.dir())?;
    let shim = shim.to_string_lossy();
    let ours = way.map(|way| {
        let settings = [&[("LD_PRELOAD", &*shim), ("GINNEL_GO", "1")], way.settings()].concat();
        Stand::shimmed("conformance", &settings).limit(part.limit)
    });
    let stand = ours.as_ref().unwrap_or(&plain);
    std::fs::create_dir(&results).with_context(|| results.display().to_string())?;
    std::fs::set_permissions(plain.dir(), std::fs::Permissions::from_mode(0o755))?;
    if is_root() {
        for dir in [&results, temporary, stand.dir()] {
            chown(dir, Some(NOBODY), Some(NOBODY)).with_context(|| dir.display().to_string())?;
        }
    }
    let results_name = results.to_string_lossy();
    // A static program in Go is reached where one that is reached itself executes it: this second
    // env. The first, which the library is named to, is not.
    let mut command = stand.command_behind(wrapper(), "env");
    command.args(part.command.iter().map(|arg| arg.replace(RESULTS, &results_name)));
    command.current_dir(part.dir.as_deref().unwrap_or(temporary));
    command
        .env("HOME", temporary)
        .env("TMPDIR", temporary)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("CI");
    let since = Instant::now();
    let (success, told, text) = match stand.try_run(&mut command) {
        Ok(done) => (done.success(), done.stdout.clone(), done.to_string()),
        // What it had told before it was stuck counts.
        Err(seen) => (false, seen.clone(), seen),
    };
    let seconds = since.elapsed().as_secs_f64();
    // Files that were cut short when a program was killed are no results.
    let (mut verdicts, text) = match part.reader.read(&told, &results) {
        Ok(verdicts) => (verdicts, text),
        Err(error) => (Verdicts::new(), format!("{error:#}\n{text}")),
    };
    if !verdicts.is_empty() {
        verdicts.insert(END.to_owned(), if success { Verdict::Passed } else { Verdict::Failed });
    }
    let report = stand.report();
    let ring = report.sum("ring_in") + report.sum("ring_out");
    let bytes = Bytes {
        ring_in: report.ring_bytes(),
        ring,
        all: ring + report.sum("tcp_in") + report.sum("tcp_out"),
    };
    if !verdicts.is_empty() && part.least > 0 {
        let enough = way.is_none()
            || bytes.share().is_some_and(|share| share * 100.0 >= f64::from(part.least));
        verdicts.insert(CARRIED.to_owned(), if enough { Verdict::Passed } else { Verdict::Failed });
    }
    let version =
        told.lines().find_map(|line| line.strip_prefix(VERSION)).unwrap_or_default().to_owned();
    Ok(Run { verdicts, seconds, success, version, bytes, text })
}

/// The library where another user may read it, wherever the build lies; beside it, what loads
/// static programs in Go.
fn copied_shim(dir: &Path) -> Result<PathBuf> {
    let shim = dir.join("libginnel_shim.so");
    for (file, at) in
        [(build::shim(), shim.clone()), (build::go_loader(), dir.join("ginnel-go-loader"))]
    {
        std::fs::copy(&file, &at).with_context(|| file.display().to_string())?;
    }
    Ok(shim)
}

/// What a part is run behind: it ends with us, and as another user, where we are root.
fn wrapper() -> &'static [&'static str] {
    if !is_root() {
        return &["setpriv", "--pdeathsig", "TERM"];
    }
    // A network of its own, so that no service's port is in the way; and a host name, which one
    // suite sets.
    &[
        "unshare",
        "--net",
        "--uts",
        "sh",
        "-c",
        "ip link set lo up && exec \"$@\"",
        "sh",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--pdeathsig",
        "TERM",
    ]
}
