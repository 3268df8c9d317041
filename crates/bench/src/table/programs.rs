//! The workload programs: unmodified C, compiled when the bench starts.

use crate::plan::GO;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const COMMON: &str = include_str!("../../programs/common.h");
const SOURCES: [(&str, &str); 6] = [
    ("pingpong", include_str!("../../programs/pingpong.c")),
    ("stream", include_str!("../../programs/stream.c")),
    ("crowd", include_str!("../../programs/crowd.c")),
    ("idle", include_str!("../../programs/idle.c")),
    ("getter", include_str!("../../programs/getter.c")),
    ("references", include_str!("../../programs/references.c")),
];
const GO_SOURCE: &str = include_str!("../../programs/gonet.go");
const SOCKMAP: &str = include_str!("../../programs/sockmap.c");

/// The folder that holds the compiled programs.
pub struct Programs(PathBuf);

impl Programs {
    /// Compiles all of them into `target/bench-programs` with `cc -O2` (or `$CC`).
    pub fn compile(target: &Path) -> Result<Self> {
        let folder = target.join("bench-programs");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("common.h"), COMMON)?;
        let programs = Self(folder);
        for (name, text) in SOURCES {
            programs.compile_one(name, text)?;
        }
        Ok(programs)
    }

    /// Compiles `programs/sockmap.c`, which not every kernel's headers suffice for: by itself, when
    /// it is needed.
    pub fn compile_sockmap(&self) -> Result<PathBuf> {
        self.compile_one("sockmap", SOCKMAP)?;
        Ok(self.path("sockmap"))
    }

    /// The program in Go, compiled when it is first needed: statically, as most are.
    pub fn go(&self) -> Result<PathBuf> {
        let (source, program) = (self.path("gonet.go"), self.path(GO));
        if std::fs::read_to_string(&source).is_ok_and(|text| text == GO_SOURCE) && program.exists() {
            return Ok(program);
        }
        std::fs::write(&source, GO_SOURCE)?;
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg(&source).env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
        let status = go.status().context("there is no Go toolchain (go)")?;
        ensure!(status.success(), "compiling gonet.go failed");
        Ok(program)
    }

    fn compile_one(&self, name: &str, text: &str) -> Result<()> {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let source = self.path(name).with_extension("c");
        std::fs::write(&source, text)?;
        let status = Command::new(&compiler)
            .args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-o"])
            .arg(self.path(name))
            .arg(&source)
            .status()
            .with_context(|| format!("running the C compiler {compiler:?}"))?;
        ensure!(status.success(), "compiling {name}.c failed");
        Ok(())
    }

    /// The compiled program of this name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
