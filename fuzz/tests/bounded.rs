//! Every target for a few seconds. `GINNEL_SEED` repeats a run.

use std::time::Duration;

fn bounded(wanted: &str) {
    let clock = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.as_secs())
    };
    let seed =
        std::env::var("GINNEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(clock);
    let (name, target) =
        ginnel_fuzz::TARGETS.iter().find(|(name, _)| *name == wanted).expect("a target");
    eprintln!("{name}: seed {seed}");
    let runs = ginnel_fuzz::run(name, *target, Duration::from_secs(4), seed);
    assert!(runs > 0);
    eprintln!("{name}: {runs} runs");
}

/// A test for each.
macro_rules! targets {
    ($($test:ident: $name:literal),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                bounded($name);
            }
        )*
    };
}

targets! {
    segment: "segment",
    channel: "channel",
    protocol: "protocol",
    config: "config",
    switch_ring: "switch-ring",
    switch_race: "switch-race",
    switch_messages: "switch-messages",
    switch_offload: "switch-offload",
    switch_hosts: "switch-hosts",
    switch_handshakes: "switch-handshakes",
    switch_lent: "switch-lent",
    switch_vsock: "switch-vsock",
    switch_table: "switch-table",
    switch_opened: "switch-opened",
    cache_session: "cache-session",
    cache_reader: "cache-reader",
    fabric: "fabric",
}

#[test]
fn no_target_is_left_out() {
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    let all = ginnel_fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(sorted(NAMES.to_vec()), sorted(all));
}
