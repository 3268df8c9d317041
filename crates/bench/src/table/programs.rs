//! The workload programs: unmodified C, compiled when the bench starts.

use crate::plan::GO;
use anyhow::{Context, Result, ensure};
use std::cell::OnceCell;
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
const BOOST: &str = include_str!("../../programs/boost.cpp");
const SOCKMAP: &str = include_str!("../../programs/sockmap.c");

/// The folder that holds the compiled programs.
pub struct Programs(PathBuf, OnceCell<()>);

impl Programs {
    /// Compiles all of them into `target/bench-programs` with `cc -O2` (or `$CC`).
    pub fn compile(target: &Path) -> Result<Self> {
        let folder = target.join("bench-programs");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("common.h"), COMMON)?;
        let programs = Self(folder, OnceCell::new());
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

    /// Compiles `programs/boost.cpp`, which needs boost's headers.
    pub fn compile_boost(&self) -> Result<PathBuf> {
        let (source, program) = (self.path("boost.cpp"), self.path("boost"));
        std::fs::write(&source, BOOST)?;
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = Command::new(&compiler);
        command
            .args(["-O2", "-std=c++17", "-o"])
            .arg(&program)
            .arg(&source)
            .args(["-pthread", "-lrt"]);
        let compiled =
            command.output().with_context(|| format!("running the C++ compiler {compiler:?}"))?;
        let said = String::from_utf8_lossy(&compiled.stderr);
        ensure!(
            compiled.status.success(),
            "compiling boost.cpp failed: {}",
            said.lines().next().unwrap_or_default()
        );
        Ok(program)
    }

    /// `libginnel.so`, as it is now: linked when it is first needed.
    pub fn libginnel(&self) -> Result<PathBuf> {
        let folder = self.path("libginnel");
        let library = folder.join("lib/libginnel.so.0");
        if self.1.get().is_none() {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-capi.sh");
            let status =
                Command::new(script).arg(&folder).status().context("linking libginnel.so")?;
            ensure!(status.success(), "libginnel.so does not link");
            let _ = self.1.set(());
        }
        Ok(library)
    }

    /// The program in Go, compiled when it is first needed: statically, as most are.
    pub fn go(&self) -> Result<PathBuf> {
        let (source, program) = (self.path("gonet.go"), self.path(GO));
        if std::fs::read_to_string(&source).is_ok_and(|text| text == GO_SOURCE) && program.exists()
        {
            return Ok(program);
        }
        std::fs::write(&source, GO_SOURCE)?;
        let mut go = Command::new("go");
        go.args(["build", "-o"])
            .arg(&program)
            .arg(&source)
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "");
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
