//! MPI programs that the benches run: their inputs, and those that are compiled for it.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// HPC Challenge's input, as Debian's example but for the size: 400 unknowns on 1 × 2 ranks, which
/// take seconds.
pub const HPCC: &str = "HPLinpack benchmark input file\nGinnel\nHPL.out\n8\n1\n400\n1\n80\n0\n1\n1\n2\n\
    16.0\n1\n2\n1\n4\n1\n2\n1\n1\n1\n1\n1\n1\n2\n64\n0\n0\n1\n8\n\
    ##### lines are for PTRANS only #####\n0\n1200\n0\n40\n";

/// LAMMPS's melt of 500 atoms.
pub const MELT: &str = "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 5 0 5 0 5\n\
    create_box 1 box\ncreate_atoms 1 box\nmass 1 1.0\nvelocity all create 3.0 87287\n\
    pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\n\
    neigh_modify every 20 delay 0 check no\nfix 1 all nve\nthermo 1000\nrun 2000\n";

/// Second-order perturbation theory of four molecules of water.
pub const WATER: &str = "start water\nmemory 400 mb\ngeometry units angstrom noautosym nocenter\n\
    O 0.000 0.000 0.000\nH 0.757 0.586 0.000\nH -0.757 0.586 0.000\n\
    O 0.000 2.900 0.400\nH 0.757 3.486 0.400\nH -0.757 3.486 0.400\n\
    O 2.900 0.000 0.300\nH 3.657 0.586 0.300\nH 2.143 0.586 0.300\n\
    O 2.900 2.900 0.000\nH 3.657 3.486 0.000\nH 2.143 3.486 0.000\nend\n\
    basis\n * library 3-21g\nend\ntask mp2 energy\n";

/// A program of the benches', by its name.
///
/// # Errors
/// Where it is not there.
pub fn source(name: &str) -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name)
        .canonicalize()
        .with_context(|| format!("no {name}"))
}

/// Compiles one of them with Open MPI.
///
/// # Errors
/// With the compiler's words.
pub fn compile(name: &str, options: &[&str], to: &Path) -> Result<()> {
    let compiler = needed("mpicc.openmpi", "libopenmpi-dev")?;
    let done = Command::new(compiler)
        .arg("-O2")
        .args(options)
        .arg("-o")
        .arg(to)
        .arg(source(name)?)
        .output()?;
    ensure!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// The path of a program.
///
/// # Errors
/// Where it is not there, with the package that has it.
pub fn needed(program: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|folder| folder.join(program)).find(|it| it.exists()) {
        Some(found) => Ok(found),
        None => bail!("no {program} here (Debian: {package}; make deps-mpi)"),
    }
}
