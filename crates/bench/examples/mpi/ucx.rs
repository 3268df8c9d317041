//! UCX's own benchmark: over the device by `libuct_ginnel.so`, and over the virtual network by TCP.

use anyhow::{Context, Result, ensure};
use ginnel_bench::stats::Spread;
use ginnel_guest::machine::Guest;
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
        "LD_PRELOAD=/usr/lib/ginnel/libuct_ginnel.so GINNEL_FABRIC=/dev/ginnel0 GINNEL_JOB_KEY= \
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

fn run(guests: &[Guest], way: &str, test: &str, size: u32, messages: u32) -> Result<(f64, f64)> {
    let test = format!("{way} ucx_perftest -t {test} -s {size} -n {messages} -w 20");
    let server = guests[0].start(&format!("exec env {test}"), PATIENCE)?;
    // It fails at once where nobody listens yet.
    let client = format!(
        "for again in $(seq 20); do {run_env} 10.77.0.1 && exit 0; sleep 0.5; done; exit 1",
        run_env = format_args!("env {test}")
    );
    let said = guests[1].run(&client, PATIENCE)?;
    ensure!(said.status == 0, "{way} {test}: {}{}", said.out, said.err);
    server.finish()?;
    figures(&said.out).with_context(|| said.out.clone())
}

/// UCX's TCP leaves out an interface that does not run yet. The kernel says that a link is up, but
/// takes up to a second to say that its interface runs.
const RUNNING: &str =
    "until grep -qE 'up|unknown' /sys/class/net/eth0/operstate; do sleep 0.1; done";

/// Takes every sample, and prints the medians.
pub fn measure(guests: &[Guest], rounds: u32) -> Result<()> {
    for guest in guests {
        guest.sh(RUNNING);
    }
    let mut found: BTreeMap<(usize, usize), Vec<(f64, f64)>> = BTreeMap::new();
    for _ in 0..rounds {
        for (at, &(test, size, messages)) in TESTS.iter().enumerate() {
            for (way, &(_, settings)) in WAYS.iter().enumerate() {
                let figures = run(guests, settings, test, size, messages[way])?;
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
