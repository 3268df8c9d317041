//! `ginnel-fuzz TARGET SECONDS [SEED]`: runs a target for as long as is wanted.

use std::time::Duration;

fn main() {
    let mut args = std::env::args().skip(1);
    let (name, seconds, seed) = (args.next().unwrap_or_default(), args.next(), args.next());
    let (Some((name, target)), Some(seconds)) = (
        ginnel_fuzz::TARGETS.iter().find(|(known, _)| *known == name),
        seconds.and_then(|text| text.parse().ok()),
    ) else {
        let names: Vec<&str> = ginnel_fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("ginnel-fuzz TARGET SECONDS [SEED]\ntargets: {}", names.join(", "));
        std::process::exit(2);
    };
    let clock = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |time| time.as_secs())
    };
    let seed = seed.and_then(|text| text.parse().ok()).unwrap_or_else(clock);
    println!("{name}: seed {seed}");
    println!("{} runs", ginnel_fuzz::run(name, *target, Duration::from_secs(seconds), seed));
}
