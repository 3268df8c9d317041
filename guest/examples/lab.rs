//! Two guests with a segment, for trying things: each argument is a shell script that is run in
//! guest 1, or, if it begins with `2:`, in guest 2; one that ends in `&` is not waited for.
//!
//! `cargo run --release -p ginnel-guest --example lab -- 'ginnel run -- nc -l 5000 &' '2:echo x |
//! ginnel run -v -- nc -N 10.77.0.1 5000'`

use anyhow::Result;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec, acceleration};
use ginnel_guest::network::Switch;
use std::time::Duration;

const PROGRAMS: [&str; 6] =
    ["nc", "iperf3", "redis-server", "redis-benchmark", "redis-cli", "strace"];

fn main() -> Result<()> {
    let kernel = Kernel::fetch()?;
    let directory = tempfile::tempdir()?;
    let daemon =
        Daemon::start(directory.path(), "[segment.t]\nsize = \"64M\"\nvectors = 3\n", true)?;
    let switch = Switch::new(directory.path())?;
    let spec = |slot: u16| -> Result<Spec> {
        Ok(Spec {
            programs: PROGRAMS.map(str::to_owned).to_vec(),
            netdev: Some(switch.netdev("net")),
            address: Some(format!("10.77.0.{slot}/24")),
            options: daemon.vm_args("t", slot)?,
            driver: std::env::var_os("NO_DRIVER").is_none(),
            ..Spec::new(&format!("guest{slot}"))
        })
    };
    let guests = Guest::boot_all(&kernel, directory.path(), &[spec(1)?, spec(2)?])?;
    println!("kernel {} under {}", kernel.release(), acceleration(&kernel));
    let mut pending = Vec::new();
    for argument in std::env::args().skip(1) {
        let (guest, script) =
            argument.strip_prefix("2:").map_or((0, argument.as_str()), |script| (1, script));
        if let Some(script) = script.strip_suffix('&') {
            pending.push((guest, guests[guest].start(script, Duration::from_secs(120))?));
        } else {
            print(guest, &guests[guest].run(script, Duration::from_secs(120))?);
        }
    }
    for (guest, pending) in pending {
        print(guest, &pending.finish()?);
    }
    for guest in &guests {
        println!("{}", guest.said());
    }
    Ok(())
}

fn print(guest: usize, output: &ginnel_guest::agent::Output) {
    println!("guest {}: status {}\n{}{}", guest + 1, output.status, output.out, output.err);
}
