//! The random switching test by hand, as long as wanted:
//! `cargo run --release -p ginnel-tests --bin switching -- --seconds 3600`.
//!
//! It goes round all configurations, ten seconds or a tenth of the time each, with a new seed each
//! time, until the time is over or one fails. `--seed N` repeats one seed in every round; `--only
//! NAME` keeps to one configuration; `--workers N` runs so many pairs at once: a pair waits for
//! TCP's own timers most of the time, so that eight keep two processors busy.

use ginnel_tests::switching::{Place, Run, line};
use std::time::{Duration, Instant};

fn main() {
    ginnel_tests::exit_on_panic();
    let (mut seconds, mut seed, mut only, mut fixed) =
        (60, ginnel_tests::seed(), String::new(), std::env::var_os("GINNEL_SEED").is_some());
    let mut workers = 2u32;
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next();
        let number = || value.as_deref().and_then(|v| v.parse().ok());
        match (flag.as_str(), &value) {
            ("--seconds", Some(_)) if number().is_some() => seconds = number().unwrap_or(60),
            ("--seed", Some(_)) if number().is_some() => {
                (seed, fixed) = (number().unwrap_or(seed), true)
            }
            ("--workers", Some(_)) if number().is_some_and(|n| (1..=64).contains(&n)) => {
                workers = number().map_or(2, |n| n as u32)
            }
            ("--only", Some(name)) => only.clone_from(name),
            _ => {
                eprintln!("usage: switching [--seconds N] [--seed N] [--only NAME] [--workers N]");
                std::process::exit(2);
            }
        }
    }
    let each = (seconds / 10).clamp(2, 10);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0usize;
    while Instant::now() < end {
        let before = rounds;
        for (name, place, settings) in configurations() {
            if (!only.is_empty() && only != name) || Instant::now() >= end {
                continue;
            }
            // Few switches, so that much happens between them, and many.
            let chaos = format!("{seed}:{}", [2, 16][rounds % 2]);
            let settings = settings.map(|s| {
                s.iter().map(|&(k, v)| (k, if v == "SEED" { chaos.as_str() } else { v })).collect()
            });
            let run = Run {
                name,
                place,
                settings,
                splice: rounds % 4 == 3,
                seconds: each,
                workers,
                seed,
            };
            println!("{name}: seed {seed}");
            if let Some((summary, report)) = run.go() {
                println!("{}", line(name, &summary, &report));
            }
            rounds += 1;
            if !fixed {
                seed = seed.wrapping_add(1);
            }
        }
        if rounds == before && !only.is_empty() && !configurations().iter().any(|c| c.0 == only) {
            eprintln!("no configuration is named {only}");
            std::process::exit(2);
        }
    }
    println!("{rounds} rounds, nothing found");
}

type Settings = Option<&'static [(&'static str, &'static str)]>;

fn configurations() -> [(&'static str, Place, Settings); 12] {
    [
        ("plain", Place::Loopback, None),
        ("fifo", Place::Loopback, Some(&[])),
        ("fifo-chaos", Place::Loopback, Some(&[("GINNEL_CHAOS", "SEED")])),
        ("tokens", Place::Loopback, Some(&[("GINNEL_TOKENS", "1")])),
        (
            "tokens-chaos",
            Place::Loopback,
            Some(&[("GINNEL_TOKENS", "1"), ("GINNEL_CHAOS", "SEED")]),
        ),
        (
            "tiny-rings",
            Place::Loopback6,
            Some(&[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096")]),
        ),
        (
            "tiny-rings-tokens-chaos",
            Place::Loopback,
            Some(&[
                ("GINNEL_RING", "4096"),
                ("GINNEL_RING_MAX", "4096"),
                ("GINNEL_TOKENS", "1"),
                ("GINNEL_CHAOS", "SEED"),
            ]),
        ),
        ("threads-chaos", Place::Threads, Some(&[("GINNEL_CHAOS", "SEED")])),
        ("threads-tokens", Place::Threads, Some(&[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")])),
        ("deaf", Place::Loopback, Some(&[("GINNEL_DEAF", "3")])),
        ("deaf-chaos", Place::Loopback, Some(&[("GINNEL_DEAF", "3"), ("GINNEL_CHAOS", "SEED")])),
        ("namespaces-chaos", Place::Namespaces, Some(&[("GINNEL_CHAOS", "SEED")])),
    ]
}
