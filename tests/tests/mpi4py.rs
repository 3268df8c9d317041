//! mpi4py's own tests, of the release that Debian has, each file a job of two ranks: what passes
//! over TCP is to pass over Ginnel. What fails or hangs over UCX's own shared memory, too, is UCX's
//! fault or the library's, and is named and counted apart.
//!
//! A file has no limit on time: on a busy machine one takes many times as long as on another. It is
//! taken for stuck once no test of it has ended for long.
//!
//! Debian has mpi4py for Open MPI alone: for MPICH it is compiled from its source.

use crate::mpi::fabric::fabric;
use crate::mpi::ucx::ucx;
use crate::mpi::{MPICH, OPEN_MPI};
use ginnel_tests::{Stand, conformance, permit, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The release that Debian 12 has.
const VERSION: &str = "3.1.4";

const PYTHON: &str = "/usr/bin/python3";

/// How long a file of tests may say nothing. Those that hang hang in Open MPI's launcher.
const PATIENCE: Duration = Duration::from_secs(240);

/// It reads a pointer that only receives have.
const CANCEL: &str = "Open MPI 4.1.4's mtl/ofi crashes in MPI_Cancel of a send, at the same place over the tcp provider";

const SPAWN: &str =
    "Open MPI 4.1.4's launcher hangs in MPI_Comm_spawn now and then, over every transport";

/// Files that pass plainly and are left out, by way, with the reason.
const LEFT_OUT: [(&str, &str, &str); 9] = [
    ("ucx", "test_spawn", SPAWN),
    ("fabric", "test_spawn", SPAWN),
    (
        "ucx",
        "test_win",
        "Open MPI 4.1.4's osc/ucx crashes when a dynamic window is freed, over UCX's own shared memory, too",
    ),
    (
        "fabric",
        "test_cco_vec",
        "Open MPI 4.1.4's mtl/ofi crashes in MPI_Alltoallw, at the same place over the tcp provider",
    ),
    (
        "fabric",
        "test_dynproc",
        "its tests pass, and Open MPI 4.1.4 hangs in MPI_Finalize, as over the tcp provider",
    ),
    ("fabric", "test_p2p_buf", CANCEL),
    ("fabric", "test_p2p_obj", CANCEL),
    (
        "fabric",
        "test_util_pkl5",
        "in Open MPI 4.1.4 a synchronous send to MPI_Mrecv never ends, over the tcp provider, too",
    ),
    ("fabric", "test_win", "the windows are osc/ucx's, which crashes when a dynamic one is freed"),
];

/// Is it left out, and why?
fn left_out(way: &str, file: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(of, name, _)| *of == way && *name == file).map(|(_, _, why)| *why)
}

/// How a job is started.
type Launch<'a> = &'a dyn Fn(&Stand) -> Command;

/// Open MPI with these settings, without Ginnel.
fn open_mpi(stand: &Stand, settings: &[[&str; 2]]) -> Command {
    let mut command = stand.command(OPEN_MPI.launcher);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["-n", "2", "--oversubscribe", "--bind-to", "none"]);
    for [name, value] in settings {
        command.args(["--mca", name, value]);
    }
    command
}

/// Open MPI over TCP. Without `^ucx` its windows would find ways of UCX's own.
fn plain(stand: &Stand) -> Command {
    open_mpi(stand, &[["pml", "ob1"], ["btl", "tcp,self"], ["osc", "^ucx"]])
}

/// UCX's own shared memory.
const SHARED: &str = "posix,sysv,self";

/// Open MPI over UCX's own shared memory.
fn stock(stand: &Stand) -> Command {
    let settings = [
        ["pml", "ucx"],
        ["osc", "ucx,sm"],
        ["osc_ucx_priority", "200"],
        ["opal_common_ucx_tls", "any"],
        ["opal_common_ucx_devices", "any"],
    ];
    let mut command = open_mpi(stand, &settings);
    command.env("UCX_TLS", SHARED);
    command
}

/// MPICH over these transports of UCX's own, without Ginnel.
fn plain_mpich(stand: &Stand, transports: &str) -> Command {
    let mut command = stand.command(MPICH.launcher);
    command.env("UCX_TLS", transports).args(["-n", "2"]);
    command
}

/// Runs one file's tests with what `launch` starts. `Err`: they fail, or hang; what was seen.
fn run(stand: &Stand, launch: Launch, source: &Path, file: &str) -> Result<(), String> {
    let mut command = launch(stand);
    command.args([PYTHON, "-B"]).arg(source.join("test").join(file).with_extension("py"));
    let done = stand.start(command.current_dir(stand.dir())).finish_or_fall_silent()?;
    if done.success() { Ok(()) } else { Err(done.to_string()) }
}

/// The source of mpi4py; `None`, after saying so, where it is not to be had.
fn source(test: &str) -> Option<PathBuf> {
    match conformance::source_of("mpi4py", VERSION) {
        Ok(source) => Some(source),
        Err(why) => {
            skip(test, &format!("its source cannot be fetched: {why:#}"));
            None
        }
    }
}

/// Does Debian's mpi4py, which is for Open MPI, stand here?
fn is_here(test: &str) -> bool {
    let asked = Command::new(PYTHON).args(["-c", "import mpi4py"]).output();
    let is_here = asked.is_ok_and(|done| done.status.success());
    if !is_here {
        skip(test, "no mpi4py here (Debian: python3-mpi4py)");
    }
    is_here
}

/// Each file by a way: what passes by all the `others` is to pass as `launch` starts it.
fn all(way: &str, source: &Path, launch: Launch, others: &[(&str, Launch)]) {
    let test = format!("mpi4py-{way}");
    let _permit = permit::cpu(2);
    let stand = Stand::plain(&test).limit(PATIENCE);
    let names = files(source);
    let (mut passed, mut same, mut worse) = (0, Vec::new(), Vec::new());
    for file in &names {
        if let Some(why) = left_out(way, file) {
            println!("{file}: left out: {why}");
            continue;
        }
        let begun = Instant::now();
        let done = run(&stand, launch, source, file);
        println!("{file}: {} s", begun.elapsed().as_secs());
        let Err(seen) = done else {
            passed += 1;
            continue;
        };
        let fails = |(_, other): &&(&str, Launch)| run(&stand, *other, source, file).is_err();
        if let Some((other, _)) = others.iter().find(fails) {
            println!("{file}: fails {other}, too");
            same.push(file);
        } else {
            println!("{file}: {seen}");
            worse.push(file);
        }
    }
    println!("{passed} of {} files passed, same {}: {same:?}", names.len(), same.len());
    assert!(worse.is_empty() && passed > 40, "{passed} passed; only over {way} fail {worse:?}");
}

/// The names of its files of tests.
fn files(source: &Path) -> Vec<String> {
    let files = std::fs::read_dir(source.join("test")).expect("its tests").flatten();
    let is_test = |path: &PathBuf| {
        path.extension().is_some_and(|it| it == "py") && path.to_string_lossy().contains("/test_")
    };
    let mut names: Vec<String> = files
        .map(|entry| entry.path())
        .filter(is_test)
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

#[test]
#[ignore = "test-all: some minutes"]
fn over_the_provider() {
    let test = "mpi4py-fabric";
    let Some(source) = is_here(test).then(|| source(test)).flatten() else { return };
    all("fabric", &source, &|stand| fabric(stand, 2, &[]), &[("over TCP", &plain)]);
}

#[test]
#[ignore = "test-all: some minutes"]
fn over_ucx() {
    let test = "mpi4py-ucx";
    let Some(source) = is_here(test).then(|| source(test)).flatten() else { return };
    let others: [(&str, Launch); 2] =
        [("over TCP", &plain), ("over UCX's own shared memory", &stock)];
    all("ucx", &source, &|stand| ucx(stand, OPEN_MPI, 2), &others);
}

#[test]
#[ignore = "test-all: some minutes, the first time some more: mpi4py is compiled for MPICH"]
fn over_ucx_with_mpich() {
    let test = "mpi4py-mpich-ucx";
    if !Path::new("/usr/bin/mpicc.mpich").exists() {
        return skip(test, "no mpicc.mpich here (Debian: mpich, libmpich-dev)");
    }
    let Some(source) = source(test) else { return };
    // The module is one file of C that takes minutes to optimize.
    let variables = [("MPICC", "/usr/bin/mpicc.mpich"), ("CFLAGS", "-O0")];
    let module = match conformance::python_module(&source, "mpich", &variables) {
        Ok(module) => module,
        Err(why) => return skip(test, &format!("mpi4py cannot be compiled: {why:#}")),
    };
    let with_module = |mut command: Command| {
        command.env("PYTHONPATH", &module);
        command
    };
    let others: [(&str, Launch); 2] = [
        ("over TCP", &|stand| with_module(plain_mpich(stand, "tcp,self"))),
        ("over UCX's own shared memory", &|stand| with_module(plain_mpich(stand, SHARED))),
    ];
    all("mpich-ucx", &source, &|stand| with_module(ucx(stand, MPICH, 2)), &others);
}
