//! iceoryx2's patterns between two machines, by the segment that they share, beside the same
//! exchanges over TCP and the virtual network, in turn. Prints a table of medians.
//!
//! `cargo run --release -p ginnel-bench --example iceoryx2 -- [ROUNDS]` (3), after `make product`.
//! It builds `crates/iceoryx2/examples/compare`. Under emulation ways are compared, and nothing
//! else.

use anyhow::{Context, Result, ensure};
use ginnel_bench::stats::Spread;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec, acceleration};
use ginnel_guest::network::Switch;
use ginnel_guest::{source_dir, target_dir};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(200);
/// iceoryx2's pattern, bytes that go over TCP in its place, exchanges by either.
const PATTERNS: [(&str, u32, [u32; 2]); 5] = [
    ("samples", 64, [20_000, 300]),
    ("requests", 8, [20_000, 300]),
    ("boards", 8, [20_000, 300]),
    ("events", 1, [1000, 300]),
    ("events-polled", 1, [20_000, 300]),
];
/// Over TCP both ends poll, or both sleep in their reads: the faster counts. iceoryx2's poll, but
/// for those of `events`, which sleep.
const WAYS: [&str; 3] = ["segment", "tcp", "tcp-asleep"];

/// The program that plays one end. The crate is a workspace of its own.
fn build() -> Result<String> {
    let to = target_dir().join("iceoryx2");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--example", "compare", "--manifest-path"]);
    cargo.arg(source_dir().join("crates/iceoryx2/Cargo.toml")).arg("--target-dir").arg(&to);
    ensure!(cargo.status()?.success(), "crates/iceoryx2 does not compile");
    Ok(to.join("release/examples/compare").display().to_string())
}

/// Microseconds one way.
fn measure(guests: &[Guest], way: &str, pattern: &str, exchanges: u32) -> Result<f64> {
    let end = |end| format!("exec compare {end} {way} {pattern} {exchanges}");
    let other = guests[0].start(&end("answer"), PATIENCE)?;
    let said = guests[1].run(&format!("{} 10.77.0.1", end("ask")), PATIENCE)?;
    ensure!(said.status == 0, "{way} {pattern}: {}{}", said.out, said.err);
    other.finish()?.good()?;
    let time: f64 = said.out.trim().parse().with_context(|| said.out.clone())?;
    Ok(time / 1000.0)
}

fn main() -> Result<()> {
    let rounds: u32 = std::env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    let program = build()?;
    let kernel = Kernel::fetch()?;
    let directory = tempfile::tempdir()?;
    let segment = "[segment.t]\nsize = \"128M\"\nvectors = 3\n";
    let daemon = Daemon::start(directory.path(), segment, true)?;
    let switch = Switch::new(directory.path())?;
    let spec = |slot: u16| -> Result<Spec> {
        Ok(Spec {
            programs: vec![program.clone()],
            netdev: Some(switch.netdev("net")),
            address: Some(format!("10.77.0.{slot}/24")),
            options: daemon.vm_args("t", slot)?,
            driver: true,
            ..Spec::new(&format!("guest{slot}"))
        })
    };
    let guests = Guest::boot_all(&kernel, directory.path(), &[spec(1)?, spec(2)?])?;
    println!("kernel {} under {}, {rounds} rounds", kernel.release(), acceleration(&kernel));
    let mut found: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds as usize {
        for (at, &(pattern, _, exchanges)) in PATTERNS.iter().enumerate() {
            for turn in 0..WAYS.len() {
                let way = (round + turn) % WAYS.len();
                let time = measure(&guests, WAYS[way], pattern, exchanges[way.min(1)])?;
                found.entry((at, way)).or_default().push(time);
            }
        }
    }
    println!(
        "{:<13} {:>5} {:>13} {:>13} {:>13} {:>8}",
        "one way", "bytes", "segment", "TCP, polled", "TCP, asleep", "ratio"
    );
    for (at, (pattern, bytes, _)) in PATTERNS.iter().enumerate() {
        let of = |way| Spread::of(found[&(at, way)].iter().copied()).map_or(0.0, |it| it.median);
        let (segment, polled, asleep): (f64, f64, f64) = (of(0), of(1), of(2));
        let ratio = polled.min(asleep) / segment;
        println!(
            "{pattern:<13} {bytes:>5} {segment:>10.2} us {polled:>10.2} us {asleep:>10.2} us \
             {ratio:>8.1}"
        );
    }
    guests.iter().for_each(Guest::assert_healthy);
    Ok(())
}
