//! NetPIPE, HPCC and LAMMPS on Open MPI with a rank in each machine, by every way that they can
//! take.

use anyhow::{Context, Result, ensure};
use ginnel_bench::child::parse;
use ginnel_bench::mpi::{HPCC, MELT};
use ginnel_bench::stats::Spread;
use ginnel_guest::machine::Guest;
use ginnel_guest::open_mpi::{AS_ROOT, IN_EACH, LISTENER};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a run may take, and the guests may listen.
const PATIENCE: Duration = Duration::from_secs(600);
const HOURS: Duration = Duration::from_secs(12 * 3600);

/// Runs a program with what says how long it takes.
pub const TIMED: &str = "#!/bin/sh\nexport LD_PRELOAD=\"${LD_PRELOAD:+$LD_PRELOAD:}/usr/bin/mpi_time.so\"\n\
     exec \"$@\"\n";

/// A way that ranks take.
struct Way {
    name: &'static str,
    /// The environment of the launcher, and the launcher.
    launcher: &'static str,
    /// More for Open MPI.
    settings: &'static str,
    /// How often NetPIPE sends each message: as often as takes about as long by each way.
    repeats: u32,
}

/// The first is what others are compared with.
const WAYS: [Way; 5] = [
    Way {
        name: "tcp",
        launcher: "mpirun.openmpi",
        settings: "--mca pml ob1 --mca btl tcp,self --mca osc ^ucx",
        repeats: 5,
    },
    Way {
        name: "carried",
        launcher: "ginnel mpirun --launcher mpirun.openmpi",
        settings: "--mca osc ^ucx",
        repeats: 20,
    },
    Way {
        name: "fabric",
        launcher: "ginnel mpirun --over fabric --launcher mpirun.openmpi",
        settings: "",
        repeats: 100,
    },
    Way {
        name: "ucx",
        launcher: "ginnel mpirun --over ucx --launcher mpirun.openmpi",
        settings: "",
        repeats: 100,
    },
    Way {
        name: "unsealed",
        launcher: "env GINNEL_JOB_KEY= ginnel mpirun --over ucx --launcher mpirun.openmpi",
        settings: "",
        repeats: 100,
    },
];

const PROGRAMS: [&str; 3] = ["NetPIPE", "LAMMPS", "HPCC"];

/// Sizes of NetPIPE's that are told, bytes.
const SIZES: [&str; 4] = ["1", "1024", "65536", "262144"];

/// A figure: the program, and for NetPIPE the bytes.
type Name = (usize, String);

/// Takes every sample of the programs that are wanted, and prints the medians.
pub fn measure(guests: &[Guest], rounds: u32, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let _listener = guests[1].start(LISTENER, HOURS)?;
    for guest in guests {
        guest.sh("mkdir -p /root/run");
    }
    // A tenth of what ranks on the host compute: emulated processors are slow.
    guests[0].put("/root/run/in.melt", 0o644, MELT.replace("run 2000", "run 200").as_bytes())?;
    guests[0].put("/root/run/hpccinf.txt", 0o644, HPCC.as_bytes())?;
    let mut found: BTreeMap<(Name, usize), Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        for (program, name) in PROGRAMS.iter().enumerate().filter(|(_, name)| is_wanted(name)) {
            for (at, way) in WAYS.iter().enumerate() {
                for (size, value) in run(guests, way, name)? {
                    eprintln!("{name} {size} by {}: {value:.2}", way.name);
                    found.entry(((program, size), at)).or_default().push(value);
                }
            }
        }
    }
    print(&found);
    Ok(())
}

/// One run: what it measured, by the message's size where there are several; microseconds, or
/// seconds of a whole program.
fn run(guests: &[Guest], way: &Way, program: &str) -> Result<Vec<(String, f64)>> {
    let words = match program {
        "NetPIPE" => format!("NPopenmpi -p 0 -u 262144 -o np.out -n {}", way.repeats),
        "LAMMPS" => "timed lmp -in in.melt -log none".to_owned(),
        _ => "timed hpcc".to_owned(),
    };
    let script = format!(
        "{AS_ROOT} GINNEL_FABRIC=/dev/ginnel0
         cd /root/run && rm -f np.out hpccoutf.txt
         {} {IN_EACH} {} {words} && if [ -e np.out ]; then cat np.out; fi",
        way.launcher, way.settings
    );
    let said = guests[0].run(&script, PATIENCE)?;
    let what = format!("{program} by {}", way.name);
    ensure!(said.status == 0, "{what}: {}{}", said.out, said.err);
    let figures = if program == "NetPIPE" { of_netpipe(&said.out) } else { of_whole(&said.out) };
    figures.with_context(|| format!("{what} says nothing of it: {}{}", said.out, said.err))
}

/// NetPIPE writes: bytes, Mb/s, seconds one way.
fn of_netpipe(said: &str) -> Option<Vec<(String, f64)>> {
    let of = |size: &&str| {
        let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let fields = lines.find(|fields| fields.len() == 3 && fields[0] == *size)?;
        Some(((*size).to_owned(), fields[2].parse::<f64>().ok()? * 1e6))
    };
    SIZES.iter().map(of).collect()
}

fn of_whole(said: &str) -> Option<Vec<(String, f64)>> {
    let values = said.lines().map(parse).find(|values| !values.is_empty())?;
    Some(vec![(String::new(), *values.get("seconds")?)])
}

/// A line for each figure: medians, and how many times the first way's speed they are.
fn print(found: &BTreeMap<(Name, usize), Vec<f64>>) {
    print!("\n{:<18}", "");
    WAYS.iter().for_each(|way| print!("{:>22}", way.name));
    println!();
    let mut names: Vec<&Name> = found.keys().map(|(name, _)| name).collect();
    let number = |name: &Name| (name.0, name.1.parse::<u64>().unwrap_or(0));
    names.sort_by_key(|name| number(name));
    names.dedup();
    for name in names {
        let (program, size) = name;
        let unit = if size.is_empty() { "s" } else { "us" };
        let median = |at: usize| {
            let values = found.get(&(name.clone(), at))?;
            Spread::of(values.iter().copied()).map(|spread| spread.median)
        };
        print!("{:<18}", format!("{} {size}", PROGRAMS[*program]));
        for value in (0..WAYS.len()).map(median) {
            let ratio = median(0).zip(value).map_or(0.0, |(tcp, value)| tcp / value);
            let value = value.map_or("-".to_owned(), |value| format!("{value:.2} {unit}"));
            print!("{value:>14}{ratio:>6.1} x");
        }
        println!();
    }
}
