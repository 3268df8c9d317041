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

#[test]
fn segment() {
    bounded("segment");
}

#[test]
fn channel() {
    bounded("channel");
}

#[test]
fn protocol() {
    bounded("protocol");
}

#[test]
fn config() {
    bounded("config");
}

#[test]
fn switch_ring() {
    bounded("switch-ring");
}

#[test]
fn switch_messages() {
    bounded("switch-messages");
}

#[test]
fn switch_offload() {
    bounded("switch-offload");
}

#[test]
fn switch_hosts() {
    bounded("switch-hosts");
}

#[test]
fn switch_handshakes() {
    bounded("switch-handshakes");
}

#[test]
fn switch_vsock() {
    bounded("switch-vsock");
}

#[test]
fn cache_session() {
    bounded("cache-session");
}

#[test]
fn cache_reader() {
    bounded("cache-reader");
}

#[test]
fn fabric() {
    bounded("fabric");
}
