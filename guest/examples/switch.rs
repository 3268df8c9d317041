//! Two stock guests at `ginnel-switch`, and on a bridge of the host's kernel by taps, in the same
//! boot: ping, iperf3 and datagrams by each network in turn. Then sockets between them (vsock) in writes of
//! several sizes, by the switch, and in a boot of their own by vhost-device-vsock where the host
//! has that. Prints medians.
//!
//! `cargo run --release -p ginnel-guest --example switch -- [ROUNDS]` (5), as root, after
//! `make product`. Under emulation ways are compared, and nothing else.

use anyhow::{Context, Result, ensure};
use ginnel_guest::bridge::Bridge;
use ginnel_guest::child::Killed;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec, acceleration};
use ginnel_guest::qemu::Qemu;
use ginnel_guest::switch::VhostSwitch;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const PORTS: &str = "[port.one]\n[port.two]\n[vsock.one]\ncid = 3\n[vsock.two]\ncid = 4\n";
/// Networks, by the first guest's address in each.
const NETWORKS: [(&str, &str); 2] = [("switch", "10.77.0.1"), ("bridge", "10.78.0.1")];
/// Bytes of a write, and of all of them.
const WRITES: [(usize, usize); 3] = [(1024, 2 << 20), (4096, 4 << 20), (65_536, 16 << 20)];

/// The middle of some figures.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Milliseconds there and back, the median of a hundred.
fn ping(guests: &[Guest], address: &str) -> Result<f64> {
    let said = guests[1].run(&format!("ping -c 100 -i 0.02 {address}"), LIMIT)?.good()?;
    let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse().ok();
    let times: Vec<f64> = said.lines().filter_map(time).collect();
    ensure!(times.len() >= 99, "{said}");
    median(times).context("no answer")
}

/// Gigabits a second from the second guest to the first.
fn iperf(guests: &[Guest], address: &str) -> Result<f64> {
    let said = guests[1].run(&format!("iperf3 -c {address} -t 5 -O 1 -J"), LIMIT)?.good()?;
    let said: Value = serde_json::from_str(&said)?;
    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.with_context(|| said.to_string())? / 1e9)
}

/// The same by datagrams of 1400 bytes: what arrives.
fn datagrams(guests: &[Guest], address: &str) -> Result<f64> {
    let command = format!("iperf3 -c {address} -u -b 0 -l 1400 -t 5 -O 1 -J");
    let said: Value = serde_json::from_str(&guests[1].run(&command, LIMIT)?.good()?)?;
    let sum = &said["end"]["sum"];
    let (bits, lost) = (sum["bits_per_second"].as_f64(), sum["lost_percent"].as_f64());
    let (bits, lost) = bits.zip(lost).with_context(|| said.to_string())?;
    Ok(bits / 1e9 * (1.0 - lost / 100.0))
}

/// Thousands of datagrams of one byte a second that are answered, one after the other.
fn answers(guests: &[Guest], address: &str) -> Result<f64> {
    let said = guests[1].run(&format!("udp ask {address} 5300 1 5"), LIMIT)?.good()?;
    Ok(said.trim().parse::<f64>().with_context(|| said.clone())? / 1e3)
}

/// Megabytes a second that go to an echo and come back, each compared; none where it hangs.
fn sockets(guests: &[Guest], port: u32, (write, bytes): (usize, usize)) -> Result<Option<f64>> {
    let seconds = LIMIT.as_secs() / 4;
    let serve = format!("exec timeout {seconds} vsock serve {port} {write}");
    let serving = guests[0].start(&serve, LIMIT)?;
    // It fails at once where nobody listens yet.
    let call = format!(
        "for again in $(seq 20); do begun=$(cut -d' ' -f1 /proc/uptime)
         said=$(timeout {seconds} vsock call 3 {port} {bytes} {write}); status=$?
         [ \"${{said#connect}}\" = \"$said\" ] && break; sleep 0.3; done
         echo $begun $(cut -d' ' -f1 /proc/uptime) $status $said"
    );
    let said = guests[1].run(&call, LIMIT)?.good()?;
    serving.finish()?;
    let words: Vec<&str> = said.split_whitespace().collect();
    let [begun, ended, status, ..] = words[..] else { anyhow::bail!("{said}") };
    if status != "0" {
        return Ok(None);
    }
    let took = ended.parse::<f64>()? - begun.parse::<f64>()?;
    Ok(Some(bytes as f64 / 1e6 / took))
}

/// A program of both ends, compiled.
fn program(directory: &Path, name: &str) -> Result<(String, u32, Vec<u8>)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let to = directory.join(name);
    let compiled =
        Command::new("cc").args(["-D_GNU_SOURCE", "-O2", "-o"]).arg(&to).arg(source).status()?;
    ensure!(compiled.success(), "cc");
    Ok((format!("/usr/bin/{name}"), 0o755, std::fs::read(to)?))
}

/// Median of some rounds of each, in turn; a figure that is missing once is missing, and not
/// tried again.
fn rounds<T: Copy>(
    rounds: usize,
    ways: &[T],
    mut measure: impl FnMut(T) -> Result<Option<f64>>,
) -> Result<Vec<Option<f64>>> {
    let mut all = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for (figures, way) in all.iter_mut().zip(ways) {
            if !figures.contains(&None) {
                figures.push(measure(*way)?);
            }
        }
    }
    Ok(all.into_iter().map(|figures| median(figures.into_iter().collect::<Option<_>>()?)).collect())
}

fn networks(guests: &[Guest], count: usize) -> Result<()> {
    for (what, measure) in [
        ("ping, ms there and back", ping as fn(&[Guest], &str) -> Result<f64>),
        ("iperf3, Gb/s", iperf),
        ("datagrams, Gb/s", datagrams),
        ("answers, thousands/s", answers),
    ] {
        let ways = NETWORKS.map(|(_, address)| address);
        let figures = rounds(count, &ways, |address| measure(guests, address).map(Some))?;
        let [Some(switch), Some(bridge)] = figures[..] else { anyhow::bail!("no figure") };
        println!("{what:<26} {switch:>10.3} {bridge:>10.3} {:>8.2}", switch / bridge);
    }
    Ok(())
}

fn writes(guests: &[Guest], count: usize, way: &str) -> Result<()> {
    let mut port = 100;
    let figures = rounds(count, &WRITES, |write| {
        port += 1;
        sockets(guests, port, write)
    })?;
    for ((write, _), figure) in WRITES.iter().zip(figures) {
        let figure = figure.map_or("hangs".into(), |figure| format!("{figure:.2}"));
        println!("vsock, writes of {write:>5} bytes, MB/s there and back, {way}: {figure}");
    }
    Ok(())
}

/// Starts vhost-device-vsock with a socket for each guest. None where the host does not have it.
fn other(directory: &Path) -> Result<Option<Killed>> {
    let program = std::env::var_os("VHOST_DEVICE_VSOCK").unwrap_or("vhost-device-vsock".into());
    let mut command = Command::new(program);
    for (name, cid) in [("one", 3), ("two", 4)] {
        let [front, host] = ["front", "host"].map(|kind| directory.join(format!("{name}.{kind}")));
        let (front, host) = (front.display(), host.display());
        command.args(["--vm", &format!("guest-cid={cid},uds-path={host},socket={front}")]);
    }
    match Killed::spawn(command) {
        Ok(child) => Ok(Some(child)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Guests with a card at the switch, one at the bridge, and the switch's device for sockets.
fn boot(
    kernel: &Kernel,
    directory: &Path,
    (switch, bridge): (&VhostSwitch, &Bridge),
    files: &[(String, u32, Vec<u8>)],
) -> Result<Vec<Guest>> {
    let spec = |n: usize, name: &str| -> Result<Spec> {
        let mut spec = switch.spec(name, &format!("10.77.0.{}/24", n + 1))?;
        spec.options.extend(bridge.options(n));
        // Its memory is there already.
        let device = switch.vsock_spec(name)?.options;
        let of_device = device.chunks(2).filter(|pair| pair[1].contains("vsock"));
        spec.options.extend(of_device.flatten().cloned());
        Ok(Spec { programs: vec!["iperf3".into()], files: files.to_vec(), ..spec })
    };
    let guests = Guest::boot_all(kernel, directory, &[spec(0, "one")?, spec(1, "two")?])?;
    for (n, guest) in guests.iter().enumerate() {
        let script = "ip link set eth1 up && ip addr add 10.78.0";
        guest.run(&format!("{script}.{}/24 dev eth1", n + 1), LIMIT)?.good()?;
    }
    guests[0].run("iperf3 -s -D", LIMIT)?.good()?;
    guests[0].run("udp serve 5300 </dev/null >/dev/null 2>&1 &", LIMIT)?.good()?;
    Ok(guests)
}

/// Guests with devices of vhost-device-vsock in the place of the switch's.
fn boot_with_other(
    kernel: &Kernel,
    directory: &Path,
    switch: &VhostSwitch,
    files: &[(String, u32, Vec<u8>)],
) -> Result<Vec<Guest>> {
    let spec = |name: &str| -> Result<Spec> {
        let ours = directory.join(format!("switch/{name}.vsock")).display().to_string();
        let theirs = directory.join(format!("{name}.front")).display().to_string();
        let options = switch.vsock_spec(name)?.options;
        let options = options.iter().map(|option| option.replace(&ours, &theirs)).collect();
        Ok(Spec { options, files: files.to_vec(), ..Spec::new(name) })
    };
    Guest::boot_all(kernel, directory, &[spec("one")?, spec("two")?])
}

fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let (kernel, directory) = (Kernel::fetch()?, tempfile::tempdir()?);
    let directory = directory.path();
    let files = [program(directory, "vsock")?, program(directory, "udp")?];
    let (switch, bridge) = (VhostSwitch::start(directory, PORTS)?, Bridge::new(2)?);
    let guests = boot(&kernel, directory, (&switch, &bridge), &files)?;
    println!(
        "two guests, kernel {} under {} (QEMU {}), medians of {count} rounds in turn",
        kernel.release(),
        acceleration(&kernel),
        Qemu::chosen()?.major()?
    );
    println!("{:<26} {:>10} {:>10} {:>8}", "", "switch", "bridge", "ratio");
    networks(&guests, count)?;
    writes(&guests, count, "switch")?;
    drop(guests);
    let Some(_other) = other(directory)? else {
        eprintln!("vhost-device-vsock: not measured (cargo install vhost-device-vsock)");
        return Ok(());
    };
    let guests = boot_with_other(&kernel, directory, &switch, &files)?;
    writes(&guests, count, "vhost-device-vsock")
}
