//! The workload programs: unmodified C, compiled when the bench starts.

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

    /// Compiles `programs/sockmap.c`, which not every kernel's headers suffice for: by itself, when it is needed.
    pub fn compile_sockmap(&self) -> Result<PathBuf> {
        self.compile_one("sockmap", SOCKMAP)?;
        Ok(self.path("sockmap"))
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
