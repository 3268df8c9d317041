//! Virtual machines in which the tests and the demo run real programs: Debian's stock kernel,
//! fetched and never installed; an initramfs of the host's own programs and libraries; QEMU, under
//! KVM where that works and under software emulation elsewhere.
//!
//! | module | part |
//! |---|---|
//! | [`package`] | packages, unpacked and not installed |
//! | [`kernel`] | the kernel; `ginnel.ko`, built for it |
//! | [`qemu`] | the QEMU that runs them: the host's, or a newer one that is not installed |
//! | [`initramfs`] | the archive that a guest boots from |
//! | [`machine`] | a running guest: boot, run commands, reset, kill |
//! | [`agent`] | the channel by which commands go into a guest; its other end is `src/bin/init.rs`, the guest's first process |
//! | [`network`] | an Ethernet switch between guests |
//! | [`bridge`] | a bridge of the host's kernel between guests, in place of the switch |
//! | [`namespace`] | network namespaces, and tap devices in them |
//! | [`host`] | the host in that network: a namespace of its own, in which programs are started |
//! | [`switch`] | `ginnel-switch`, and guests at its ports |
//! | [`open_mpi`] | the host's Open MPI in guests: its files, and jobs with a rank in each |
//! | [`daemon`] | `ginneld`, in a directory of its own |
//! | [`child`] | processes of the host that end with whoever started them |
//!
//! ```no_run
//! use ginnel_guest::{kernel::Kernel, machine::{Guest, Spec}};
//! use std::time::Duration;
//! let kernel = Kernel::fetch()?;
//! let directory = tempfile::tempdir()?;
//! let mut guest = Guest::boot(&kernel, directory.path(), &Spec::new("one"))?;
//! let said = guest.run("uname -r", Duration::from_secs(10))?;
//! assert_eq!(said.out.trim(), kernel.release());
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod agent;
pub mod bridge;
pub mod child;
pub mod daemon;
pub mod host;
pub mod initramfs;
pub mod kernel;
pub mod machine;
pub mod namespace;
pub mod network;
pub mod open_mpi;
pub mod package;
pub mod qemu;
pub mod switch;

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a guest may take to boot, and what is asked of it to come about: long enough for
/// software emulation on a machine that is busy with other things. Whoever waits for a guest waits
/// so long.
pub const PATIENCE: Duration = Duration::from_secs(240);

static OVER: OnceLock<fn() -> bool> = OnceLock::new();

/// From now on nothing here waits any longer once `over` says so: for a program that goes home at
/// Ctrl-C.
pub fn wait_only_until(over: fn() -> bool) {
    let _ = OVER.set(over);
}

/// Fails once the program is to go home.
pub(crate) fn check() -> Result<()> {
    ensure!(!OVER.get().is_some_and(|over| over()), "interrupted");
    Ok(())
}

/// Cargo's target folder: the one that the running program was built into.
///
/// # Panics
/// Where the program does not lie in one.
#[must_use]
pub fn target_dir() -> PathBuf {
    // target/PROFILE/deps/TEST, target/PROFILE/examples/PROGRAM or target/PROFILE/PROGRAM
    let this = std::env::current_exe().expect("a program knows its own path");
    let mut directory = this.parent().expect("a program lies in a folder");
    if directory.ends_with("deps") || directory.ends_with("examples") {
        directory = directory.parent().expect("deps lies in a profile's folder");
    }
    directory.parent().expect("a profile's folder lies in the target folder").to_path_buf()
}

/// The root of the source tree.
#[must_use]
pub fn source_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// A file of the release build (`ginnel`, `ginnel-bench`, `ginneld`, `ginnel-switch`,
/// `libginnel_shim.so`, `ginnel-guest-init`). Built where it is missing.
///
/// # Errors
/// Where it cannot be built.
pub fn built(name: &str) -> Result<PathBuf> {
    let file = target_dir().join("release").join(name);
    if !file.exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let packages = [
            "ginnel-shim",
            "ginnel-sysv",
            "ginnel-preload",
            "ginnel-cli",
            "ginnel-host",
            "ginnel-guest",
            "ginnel-bench",
            "ginnel-tests",
            "ginnel-switch",
        ];
        cargo
            .args(["build", "--release"])
            .args(packages.iter().flat_map(|package| ["-p", package]));
        let status = cargo
            .env("CARGO_TARGET_DIR", target_dir())
            .current_dir(source_dir())
            .status()
            .context("cargo")?;
        ensure!(status.success() && file.exists(), "{} cannot be built", file.display());
    }
    Ok(file)
}

/// Runs a command to its end.
///
/// # Errors
/// With what it said, unless it succeeds.
pub(crate) fn call(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{command:?} failed ({}): {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}
