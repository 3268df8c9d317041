//! The small behaviour programs: the ways in which each is run under the shim, and one run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::{Done, Stand, build};

/// A name and the shim's settings.
pub type Way = (&'static str, &'static [(&'static str, &'static str)]);

/// The ways in which each program is run under the shim. See [`ways`].
const WAYS: [Way; 7] = [
    ("fifo", &[]),
    ("tokens", &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")]),
    (TINY, &[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096")]),
    (CHAOS, &[("GINNEL_CHAOS", "7:8")]),
    (EVERY_CALL, &[("GINNEL_CHAOS", "7:1")]),
    (DEAF, &[("GINNEL_DEAF", "1")]),
    (SMALL, &[("GINNEL_SIZE", "16777216")]),
];

const TINY: &str = "tiny";
const CHAOS: &str = "chaos";
const EVERY_CALL: &str = "every-call";
const DEAF: &str = "deaf";
const SMALL: &str = "small-segment";

/// Those in which an end of file, a death, a jump or a count falls together with switches; the
/// others run with random switches where `GINNEL_TEST_CHAOS` is set.
const WITHIN_SWITCHES: [&str; 4] =
    ["killed_peer", "pass_to_unshimmed", "queued_while_it_moves", "transfers_left"];

/// Those that do not count on a connection's buffers to hold what nobody reads yet.
const NEED_NO_ROOM: [&str; 20] = [
    "edge_once",
    "edge_short_reads",
    "edge_short_writes",
    "exclusive",
    "exit_without_close",
    "full_connection",
    "half_close",
    "killed_peer",
    "message_calls",
    "on_standard_streams",
    "oneshot",
    "preforked_server",
    "processes_share",
    "queued_while_it_moves",
    "send_timeout",
    "signal_storm",
    "signals_interrupt",
    "splice_into",
    "splice_late",
    "threads_share",
];

/// The ways in which `name` is to be run.
pub fn ways(name: &str) -> impl Iterator<Item = &'static Way> {
    let applies = move |way: &&Way| match way.0 {
        TINY => NEED_NO_ROOM.contains(&name),
        EVERY_CALL => name == "queued_while_it_moves",
        DEAF => name == "signals_while_full",
        SMALL => name == "large_rings",
        CHAOS => WITHIN_SWITCHES.contains(&name) || std::env::var_os("GINNEL_TEST_CHAOS").is_some(),
        _ => true,
    };
    WAYS.iter().filter(applies)
}

/// All that there are: each file in `tests/programs` but those that only serve others.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
pub fn all() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(build::tests_dir().join("programs"))
        .expect("tests/programs is there")
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".c")?.to_owned()))
        .filter(|name| name != "echo_raw")
        .collect();
    names.sort();
    names
}

/// A stand for one run: plain, or in a way.
#[must_use]
pub fn stand(name: &str, way: Option<&Way>) -> Stand {
    match way {
        None => Stand::plain(name),
        Some((way, settings)) => Stand::shimmed(&format!("{name}-{way}"), settings),
    }
    .limit(Duration::from_secs(40))
}

/// What the program `name` says without the shim. It runs once, whoever asks: what each program
/// says is the same each time.
///
/// # Panics
/// When it fails, or says nothing.
#[must_use]
pub fn says_plainly(name: &str) -> String {
    type Said = Arc<OnceLock<String>>;
    static SAID: Mutex<Option<HashMap<String, Said>>> = Mutex::new(None);
    let mut all = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let said = Arc::clone(all.get_or_insert_default().entry(name.to_owned()).or_default());
    drop(all);
    said.get_or_init(|| says(&stand(name, None), name)).clone()
}

/// What it says there.
///
/// # Panics
/// When it fails, or says nothing.
pub fn says(stand: &Stand, name: &str) -> String {
    let done = run(stand, name).unwrap_or_else(|seen| panic!("{name}: {seen}"));
    assert!(done.success(), "{name}: {done}");
    assert!(!done.stdout.is_empty(), "{name} has said nothing");
    done.stdout
}

/// Runs the program `name` there.
///
/// # Errors
/// When it does not end in time: what was seen of it.
pub fn run(stand: &Stand, name: &str) -> Result<Done, String> {
    let echo = "echo_raw";
    let _ = (
        build::program(echo),
        build::static_program(echo),
        build::like_go(echo),
        build::musl_program(echo),
    );
    let program = build::program(name);
    let mut command = stand.command(&program);
    // Where it finds the other programs, if it starts any.
    command.args(program.parent());
    stand.try_run(&mut command)
}
