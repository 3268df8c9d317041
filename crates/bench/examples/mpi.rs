//! UCX's own benchmark between two machines: over the device by `libuct_ginnel.so`, and over the
//! virtual network by TCP, in turn. Prints a table of medians.
//!
//! `cargo run --release -p ginnel-bench --example mpi -- [ROUNDS]` (3), after `make product`. Under
//! emulation ways are compared, and nothing else.

use anyhow::{Context, Result, ensure};
use ginnel_bench::stats::Spread;
use ginnel_guest::built;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec, acceleration};
use ginnel_guest::network::Switch;
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(200);
/// UCX's test, bytes, messages by either way.
const TESTS: [(&str, u32, [u32; 2]); 4] = [
    ("tag_lat", 8, [20_000, 300]),
    ("ucp_put_lat", 8, [20_000, 300]),
    ("tag_bw", 65_536, [2000, 100]),
    ("tag_bw", 1 << 20, [200, 10]),
];
const WAYS: [(&str, &str); 2] = [
    (
        "device",
        "LD_PRELOAD=/usr/bin/libuct_ginnel.so GINNEL_FABRIC=/dev/ginnel0 GINNEL_JOB_KEY= \
         UCX_TLS=ginnel,self UCX_ALLOC_PRIO=md:ginnel,thp,mmap,heap",
    ),
    ("virtio-net", "UCX_TLS=tcp,self UCX_NET_DEVICES=eth0"),
];

/// Microseconds for one message one way, and megabytes a second, as the client says in its last
/// line: iterations, then 50th percentile, average and overall average of the time, then two
/// bandwidths.
fn figures(said: &str) -> Option<(f64, f64)> {
    let line = said.lines().rev().find_map(|line| line.trim().strip_prefix("Final:"))?;
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some((*numbers.get(3)?, *numbers.get(5)?))
}

fn measure(
    guests: &[Guest],
    way: &str,
    test: &str,
    size: u32,
    messages: u32,
) -> Result<(f64, f64)> {
    let run = format!("{way} ucx_perftest -t {test} -s {size} -n {messages} -w 20");
    let server = guests[0].start(&format!("exec env {run}"), PATIENCE)?;
    // It fails at once where nobody listens yet.
    let client = format!(
        "for again in $(seq 20); do {run_env} 10.77.0.1 && exit 0; sleep 0.5; done; exit 1",
        run_env = format_args!("env {run}")
    );
    let said = guests[1].run(&client, PATIENCE)?;
    ensure!(said.status == 0, "{way} {test}: {}{}", said.out, said.err);
    server.finish()?;
    figures(&said.out).with_context(|| said.out.clone())
}

fn main() -> Result<()> {
    let rounds: u32 = std::env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    let kernel = Kernel::fetch()?;
    let directory = tempfile::tempdir()?;
    let segment = "[segment.t]\nsize = \"128M\"\nvectors = 3\n";
    let daemon = Daemon::start(directory.path(), segment, true)?;
    let switch = Switch::new(directory.path())?;
    let library = built("libuct_ginnel.so")?.display().to_string();
    let spec = |slot: u16| -> Result<Spec> {
        Ok(Spec {
            programs: vec!["ucx_perftest".to_owned(), library.clone()],
            netdev: Some(switch.netdev("net")),
            address: Some(format!("10.77.0.{slot}/24")),
            options: daemon.vm_args("t", slot)?,
            driver: true,
            ..Spec::new(&format!("guest{slot}"))
        })
    };
    let guests = Guest::boot_all(&kernel, directory.path(), &[spec(1)?, spec(2)?])?;
    println!("kernel {} under {}, {rounds} rounds", kernel.release(), acceleration(&kernel));
    let mut found: BTreeMap<(usize, usize), Vec<(f64, f64)>> = BTreeMap::new();
    for _ in 0..rounds {
        for (at, &(test, size, messages)) in TESTS.iter().enumerate() {
            for (way, &(_, settings)) in WAYS.iter().enumerate() {
                let figures = measure(&guests, settings, test, size, messages[way])?;
                found.entry((at, way)).or_default().push(figures);
            }
        }
    }
    println!("{:<12} {:>8} {:>14} {:>14} {:>8}", "test", "bytes", WAYS[0].0, WAYS[1].0, "ratio");
    for (at, (test, size, _)) in TESTS.iter().enumerate() {
        let is_time = test.ends_with("_lat");
        let of = |way| {
            let all = found[&(at, way)].iter();
            let values = all.map(|&(time, speed)| if is_time { time } else { speed });
            Spread::of(values).map_or(0.0, |spread| spread.median)
        };
        let (device, network) = (of(0), of(1));
        let ratio = if is_time { network / device } else { device / network };
        let unit = if is_time { "us" } else { "MB/s" };
        println!(
            "{test:<12} {size:>8} {device:>9.2} {unit:>4} {network:>9.2} {unit:>4} {ratio:>8.1}"
        );
    }
    Ok(())
}
