//! tokio's own tests, as its crate brings them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Part, Reader, Suite, fetch};

const VERSION: &str = "1.54.1";

/// What tests of these names need: sockets, pipes, the driver and the runtime around it, processes,
/// signals.
const KINDS: [&str; 12] = [
    "tcp_",
    "udp",
    "uds_",
    "unix_",
    "net_",
    "io_",
    "buffered",
    "rt_",
    "process_",
    "signal_",
    "task_blocking",
    "task_local_set",
];

/// What the page says of them.
const CHOSEN: &str = "Chosen: the tests of sockets, pipes, input and output, processes, signals and the runtime. Nearly all of their bytes are of one (tcp_stream) that fills the kernel's buffers before \
                      anybody reads, and so stays on TCP; those of tcp_echo and rt_busy_tick go through rings.";

/// Each test program a part.
///
/// # Errors
/// When it cannot be fetched, or nothing of it can be built.
pub fn prepare(base: &Path) -> Result<Suite> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let dir = base.join("source");
    fetch::once(&dir, || copy(&crate_dir(&cargo, base)?, &dir))?;
    let mut wanted: Vec<String> = Vec::new();
    for entry in fs::read_dir(dir.join("tests"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) =
            name.strip_suffix(".rs").filter(|name| KINDS.iter().any(|kind| name.starts_with(kind)))
        {
            // For another system; nothing is in them here.
            if !["emscripten", "wasm", "windows"].iter().any(|other| name.contains(other)) {
                wanted.push(name.to_owned());
            }
        }
    }
    wanted.sort();
    let built = build(&cargo, base, &dir, &wanted)?;
    let missing: Vec<&String> =
        wanted.iter().filter(|name| !built.iter().any(|(other, _)| other == *name)).collect();
    let mut remarks = vec![CHOSEN.to_owned()];
    if !missing.is_empty() {
        remarks.push(format!(
            "Not run, as they do not compile outside tokio's own repository: {}.",
            missing.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        ));
    }
    let parts = built.into_iter().map(|(name, program)| Part {
        name,
        command: vec![program],
        dir: None,
        limit: Duration::from_secs(300),
        reader: Reader::Libtest,
        least: 0,
    });
    Ok(Suite { version: VERSION.to_owned(), remarks, parts: parts.collect(), ..Suite::default() })
}

/// Where cargo has unpacked the crate.
fn crate_dir(cargo: &str, base: &Path) -> Result<PathBuf> {
    let asks = base.join("asks");
    fs::create_dir_all(asks.join("src"))?;
    fs::write(asks.join("src/lib.rs"), "")?;
    fs::write(
        asks.join("Cargo.toml"),
        format!(
            "[package]\nname = \"asks\"\nedition = \"2024\"\n[dependencies]\ntokio = \"={VERSION}\"\n[workspace]\n"
        ),
    )?;
    let known = fetch::said(&mut fetch::command(
        cargo,
        &["metadata", "--format-version", "1", "--quiet"],
        &asks,
    ))?;
    let known: Value = serde_json::from_str(&known).context("cargo metadata")?;
    let packages = known["packages"].as_array().context("cargo metadata lists packages")?;
    let tokio = packages
        .iter()
        .find(|package| package["name"] == "tokio")
        .context("tokio is among them")?;
    let manifest = tokio["manifest_path"].as_str().context("it has a manifest")?;
    Ok(Path::new(manifest).parent().context("a file has a folder")?.to_path_buf())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fetch::said(fetch::command("cp", &["-R", "--"], to).arg(from.join(".")).arg("."))?;
    let manifest = to.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    // It lies below our own workspace and belongs to none.
    fs::write(&manifest, text + "\n[workspace]\n").context("its manifest")
}

/// Builds what can be built; names and programs.
fn build(cargo: &str, base: &Path, dir: &Path, names: &[String]) -> Result<Vec<(String, String)>> {
    let mut command = fetch::command(
        cargo,
        &[
            "build",
            "--quiet",
            "--keep-going",
            "--features",
            "full,test-util",
            "--message-format",
            "json",
        ],
        dir,
    );
    command.args(names.iter().flat_map(|name| ["--test", name]));
    command.env("CARGO_TARGET_DIR", base.join("target")).env_remove("RUSTFLAGS");
    // It fails where one of them does not compile.
    let done = command.output().context("cargo")?;
    let mut built: Vec<(String, String)> = String::from_utf8_lossy(&done.stdout)
        .lines()
        .filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            Some((
                message["target"]["name"].as_str()?.to_owned(),
                message["executable"].as_str()?.to_owned(),
            ))
        })
        .filter(|(name, _)| names.contains(name))
        .collect();
    built.sort();
    anyhow::ensure!(
        !built.is_empty(),
        "tokio's tests do not build: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(built)
}
