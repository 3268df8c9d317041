//! The crash test by hand: `cargo run --release -p ginnel-tests --bin crash -- --count 5000 [--seed
//! N]`.

use ginnel_tests::crash::check;

fn main() {
    ginnel_tests::exit_on_panic();
    let (mut count, mut seed) = (5000_u32, ginnel_tests::seed());
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().unwrap_or_default();
        match (flag.as_str(), value.parse::<u64>()) {
            ("--count", Ok(n)) => count = u32::try_from(n).unwrap_or(u32::MAX),
            ("--seed", Ok(n)) => seed = n,
            _ => {
                eprintln!("usage: crash [--count PAIRS] [--seed N]");
                std::process::exit(2);
            }
        }
    }
    let ways: [(&str, &[(&str, &str)]); 4] = [
        ("fifo", &[]),
        ("tokens", &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0")]),
        ("chaos", &[("GINNEL_CHAOS", "3:10")]),
        ("tiny", &[("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "4096"), ("GINNEL_TOKENS", "1")]),
    ];
    for (name, settings) in ways {
        check(name, settings, count / 4, seed);
    }
    println!("{} pairs, nothing found", count / 4 * 4);
}
