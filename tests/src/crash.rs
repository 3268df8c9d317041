//! The crash test: how its program is run, and what must hold afterwards.

use std::time::Duration;

use crate::{Stand, build, json};

/// Kills one side, at times both, of `pairs` connections. Returns the stand and what the program
/// said.
///
/// # Panics
/// When a survivor does not see the end, or anything else than the end of what was sent.
#[must_use]
pub fn run(
    name: &str,
    settings: Option<&[(&str, &str)]>,
    pairs: u32,
    seed: u64,
) -> (Stand, String) {
    let name = format!("crash-{name}");
    let stand = match settings {
        None => Stand::plain(&name),
        Some(settings) => Stand::shimmed(&name, settings),
    }
    .limit(Duration::from_secs(60 + u64::from(pairs) / 5));
    let mut command = stand.command(build::program("crash"));
    command.args([pairs.to_string(), seed.to_string()]);
    let done = stand.run(&mut command);
    assert!(done.success(), "{name}: seed {seed}: {done}");
    assert!(json::sum(&done.stdout, "kills") >= u64::from(pairs), "{name}: seed {seed}: {done}");
    assert!(
        json::sum(&done.stdout, "end") > 0 && json::sum(&done.stdout, "reset") > 0,
        "{name}: seed {seed}: {done}"
    );
    (stand, done.stdout)
}

/// The same under the shim; then a new pair works, and all memory of the segment is free again.
///
/// # Panics
/// When that is not so.
pub fn check(name: &str, settings: &[(&str, &str)], pairs: u32, seed: u64) {
    // What an unharmed use of a segment leaves free.
    let clean = Stand::shimmed(&format!("clean-{name}"), settings);
    let pair = |stand: &Stand| {
        let done = stand.run(&mut stand.command(build::program("half_close")));
        assert!(done.success(), "{name}: seed {seed}: {done}");
    };
    pair(&clean);
    let baseline = clean.free_extents();
    let (stand, said) = run(name, Some(settings), pairs, seed);
    eprintln!("{name}: seed {seed}: {}", said.trim());
    assert!(stand.report().ring_bytes() > 0, "{name}: seed {seed}: no byte went through a ring");
    let before = stand.report().ring_bytes();
    // A short program may end before both ends have agreed, on a busy machine: one of a few does
    // not.
    let carried = (0..10).any(|_| {
        pair(&stand);
        stand.report().ring_bytes() > before
    });
    assert!(carried, "{name}: seed {seed}: new pairs do not use rings");
    stand.assert_nothing_lost(baseline);
}
