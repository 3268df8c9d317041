//! Where the things under test are: the shim, the command line program, and the C programs, built
//! when they are missing or older than their source.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;

/// The folder that holds `libginnel_shim.so` and `ginnel`: the one this test was built into.
///
/// # Panics
/// When it can neither be found nor built.
#[must_use]
pub fn release_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = target_dir().join("release");
        if [
            "libginnel_shim.so",
            "libginnel_sysv.so",
            "ginnel",
            "ginnel-go-loader",
            "libginnel-fi.so",
            "libuct_ginnel.so",
        ]
        .iter()
        .any(|file| !dir.join(file).exists())
        {
            let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args([
                    "build",
                    "--release",
                    "-p",
                    "ginnel-shim",
                    "-p",
                    "ginnel-sysv",
                    "-p",
                    "ginnel-preload",
                    "-p",
                    "ginnel-cli",
                ])
                .args(["-p", "ginnel-fabric-provider", "-p", "ginnel-ucx"])
                .env("CARGO_TARGET_DIR", target_dir())
                .current_dir(tests_dir())
                .status()
                .expect("cargo runs");
            assert!(built.success(), "the shim and the command line program do not build");
        }
        dir
    })
}

/// The library to preload.
#[must_use]
pub fn shim() -> PathBuf {
    release_dir().join("libginnel_shim.so")
}

/// What is executed in the place of a static program in Go.
#[must_use]
pub fn go_loader() -> PathBuf {
    release_dir().join("ginnel-go-loader")
}

/// The path that the dynamic linker of each C library follows to its own library, if there is one
/// for musl (`scripts/build-musl.sh`).
#[must_use]
pub fn shim_of_either() -> PathBuf {
    release_dir().join("$LIB/libginnel_shim.so")
}

/// The `ginnel` command.
#[must_use]
pub fn ginnel() -> PathBuf {
    release_dir().join("ginnel")
}

/// `tests/` in the source tree.
#[must_use]
pub fn tests_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn target_dir() -> PathBuf {
    // target/release/deps/<test> or target/release/<program>
    let this = std::env::current_exe().expect("the test knows its own path");
    let mut dir = this.parent().expect("a program lies in a folder");
    if dir.ends_with("deps") {
        dir = dir.parent().expect("deps lies in a profile's folder");
    }
    dir.parent().expect("a profile's folder lies in the target folder").to_path_buf()
}

/// `tests/programs/NAME.c` (or `NAME/NAME.c`), compiled.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    compile(name, name, &[])
}

/// The interpreter of differential tests, `tests/differential/interpret.c`, compiled.
#[must_use]
pub fn interpreter() -> PathBuf {
    let folder = tests_dir().join("differential");
    let newest = newest(&folder).max(newest(&tests_dir().join("programs/include")));
    compile_file(Path::new("cc"), &[], &folder.join("interpret.c"), newest, "interpret", &[])
}

/// The same, linked with more libraries, as `output`.
#[must_use]
pub fn program_with(name: &str, output: &str, libraries: &[&str]) -> PathBuf {
    compile(name, output, libraries)
}

/// The same by another compiler (`mpicc.openmpi`), as `output`.
#[must_use]
pub fn program_by(compiler: &str, name: &str, output: &str) -> PathBuf {
    compile_by(compiler, name, output, &[])
}

/// The same without shared libraries: out of reach of anything preloaded.
#[must_use]
pub fn static_program(name: &str) -> PathBuf {
    compile(name, &format!("{name}-static"), &["-static"])
}

/// The same as programs of Go are: known by a note, and making its system calls itself.
#[must_use]
pub fn like_go(name: &str) -> PathBuf {
    compile(name, &format!("{name}-go"), &["-DLIKE_GO"])
}

/// The same with another C library, where there is a compiler for it (Debian: musl-tools). The
/// kernel's headers are those of the system.
#[must_use]
pub fn musl_program(name: &str) -> Option<PathBuf> {
    let known = std::env::split_paths(&std::env::var_os("PATH")?)
        .any(|folder| folder.join("musl-gcc").exists());
    let machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    known.then(|| {
        compile_by(
            "musl-gcc",
            name,
            &format!("{name}-musl"),
            &["-idirafter", "/usr/include", "-idirafter", &machine],
        )
    })
}

/// The same for glibc 2.17 and later, where `make portable` left a compiler for it.
#[must_use]
pub fn older_program(name: &str) -> Option<PathBuf> {
    let compiler = target_dir().join("portable-tools/bin/python");
    let target = format!("{}-linux-gnu.2.17", std::env::consts::ARCH);
    let words = ["-m", "ziglang", "cc", "-target", &target];
    compiler.exists().then(|| compile_with(&compiler, &words, name, &format!("{name}-older"), &[]))
}

/// Makes the file `at`, of these bytes, for all to run. Another process writes it: a file that this
/// one has open for writing while another of its threads forks stays open in that child until its
/// exec, and until then the kernel runs it for nobody (ETXTBSY, execve(2)).
///
/// # Panics
/// When it cannot be written.
pub fn executable(at: &Path, contents: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(at)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell starts");
    writer.stdin.take().expect("it is piped").write_all(contents).expect("all is taken");
    assert!(writer.wait().expect("it ends").success(), "{} cannot be written", at.display());
}

/// A copy of the program `from` as `at`.
///
/// # Panics
/// When it cannot be read or written.
pub fn copy_program(from: &Path, at: &Path) {
    executable(at, &std::fs::read(from).expect("a program can be read"));
}

fn newest(dir: &Path) -> SystemTime {
    std::fs::read_dir(dir)
        .expect("tests/programs is there")
        .flatten()
        .filter_map(|entry| {
            entry.metadata().ok().filter(std::fs::Metadata::is_file)?.modified().ok()
        })
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn compile(name: &str, output: &str, more: &[&str]) -> PathBuf {
    compile_by("cc", name, output, more)
}

fn compile_by(compiler: &str, name: &str, output: &str, more: &[&str]) -> PathBuf {
    compile_with(Path::new(compiler), &[], name, output, more)
}

fn compile_with(
    compiler: &Path,
    words: &[&str],
    name: &str,
    output: &str,
    more: &[&str],
) -> PathBuf {
    let programs = tests_dir().join("programs");
    let flat = programs.join(format!("{name}.c"));
    let (source, newest) = if flat.exists() {
        let headers = newest(&programs.join("include"));
        let own = flat.metadata().and_then(|m| m.modified()).expect("a source file has a time");
        (flat, headers.max(own))
    } else {
        (programs.join(name).join(format!("{name}.c")), newest(&programs.join(name)))
    };
    compile_file(compiler, words, &source, newest, output, more)
}

/// `source`, compiled as `output` where that is missing or older than `newest`.
fn compile_file(
    compiler: &Path,
    words: &[&str],
    source: &Path,
    newest: SystemTime,
    output: &str,
    more: &[&str],
) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = target_dir().join("test-programs");
    std::fs::create_dir_all(&dir).expect("the target folder can be written");
    let done = dir.join(output);
    if done.metadata().and_then(|m| m.modified()).is_ok_and(|built| built > newest) {
        return done;
    }
    // Under another name first: a program that another test is running is never written to.
    let fresh = dir.join(format!("{output}.{}", std::process::id()));
    let compiled = Command::new(compiler)
        .args(words)
        .args(["-D_GNU_SOURCE", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-I"])
        .arg(tests_dir().join("programs/include"))
        .arg("-o")
        .arg(&fresh)
        .arg(source)
        .args(more)
        .arg("-lpthread")
        .output()
        .unwrap_or_else(|error| {
            panic!("{} runs (Debian: gcc, libc6-dev): {error}", compiler.display())
        });
    assert!(
        compiled.status.success(),
        "{}: {}",
        source.display(),
        String::from_utf8_lossy(&compiled.stderr)
    );
    std::fs::rename(&fresh, &done).expect("a file can be renamed");
    done
}
