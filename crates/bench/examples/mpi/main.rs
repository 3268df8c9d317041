//! MPI between two machines, by their device and by the virtual network, in turn. Prints tables of
//! medians.
//!
//! `cargo run --release -p ginnel-bench --example mpi -- [ROUNDS [PROGRAM...]]` (3; all), after
//! `make product`. Under emulation ways are compared, and nothing else.
//!
//! | module | part |
//! |---|---|
//! | [`ucx`] | UCX's own benchmark |
//! | [`programs`] | NetPIPE and whole programs on Open MPI, a rank in each machine |

mod programs;
mod ucx;

use anyhow::{Context, Result};
use ginnel_bench::mpi::compile;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec, acceleration};
use ginnel_guest::network::Switch;
use ginnel_guest::{built, open_mpi};
use std::path::Path;

const SEGMENT: &str = "[segment.t]\nsize = \"128M\"\nvectors = 3\n";
const LIBRARIES: [&str; 2] = ["libuct_ginnel.so", "libginnel-fi.so"];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds: u32 = words.first().map_or(Ok(3), |text| text.parse()).context("ROUNDS")?;
    let only = words.get(1..).unwrap_or_default();
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|word| word == name);
    let kernel = Kernel::fetch()?;
    let directory = tempfile::tempdir()?;
    let daemon = Daemon::start(directory.path(), SEGMENT, true)?;
    let switch = Switch::new(directory.path())?;
    let programs = programs_of_guests(directory.path())?;
    let spec = |slot: u16| -> Result<Spec> {
        let mut spec = Spec {
            programs: programs.clone(),
            files: vec![("/usr/bin/timed".into(), 0o755, programs::TIMED.into())],
            netdev: Some(switch.netdev("net")),
            address: Some(format!("10.77.0.{slot}/24")),
            options: daemon.vm_args("t", slot)?,
            driver: true,
            ..Spec::new(&format!("guest{slot}"))
        };
        open_mpi::add(&mut spec)?;
        Ok(spec)
    };
    let guests = Guest::boot_all(&kernel, directory.path(), &[spec(1)?, spec(2)?])?;
    for (guest, name) in guests.iter().flat_map(|guest| LIBRARIES.map(|name| (guest, name))) {
        guest.sh(&format!("mv /usr/bin/{name} /usr/lib/ginnel/"));
    }
    println!("kernel {} under {}, {rounds} rounds", kernel.release(), acceleration(&kernel));
    if is_wanted("UCX") {
        ucx::measure(&guests, rounds)?;
    }
    programs::measure(&guests, rounds, is_wanted)
}

/// Programs and libraries of the host that a guest is to have.
fn programs_of_guests(folder: &Path) -> Result<Vec<String>> {
    let timer = folder.join("mpi_time.so");
    compile("mpi_time.c", &["-shared", "-fPIC", "-Wl,-z,lazy"], &timer)?;
    let mut all = ["ucx_perftest", "NPopenmpi", "hpcc", "lmp"].map(str::to_owned).to_vec();
    all.push(timer.display().to_string());
    for library in LIBRARIES {
        all.push(built(library)?.display().to_string());
    }
    Ok(all)
}
