//! The archive that a guest boots from (cpio "newc", the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`): programs of the host with the
//! libraries that they need.

use crate::{built, call, kernel::Kernel};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const DIRECTORY: u32 = 0o040_755;
const SYMLINK: u32 = 0o120_777;
const CONSOLE: u32 = 0o020_600;

/// Where a guest finds the modules that its first process loads.
pub const MODULES: &str = "/modules";

/// An archive in the making.
pub struct Initramfs {
    archive: Vec<u8>,
    seen: BTreeSet<String>,
}

impl Initramfs {
    /// What every guest has: the first process, busybox, the modules and those asked for, `ginnel`,
    /// its libraries and its loader of static programs in Go (but not the driver).
    ///
    /// # Errors
    /// Where something is missing.
    pub fn base(kernel: &Kernel, modules: &[String]) -> Result<Self> {
        let mut this = Self { archive: Vec::new(), seen: BTreeSet::new() };
        for directory in ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/var/log", "/var/lib"]
        {
            this.directory(directory);
        }
        // The first process's standard streams.
        this.entry("/dev/console", CONSOLE, (5, 1), b"");
        this.program(&built("ginnel-guest-init")?, "/init")?;
        this.program(&built("ginnel")?, "/usr/bin/ginnel")?;
        this.program(&built("libginnel_shim.so")?, "/usr/lib/ginnel/libginnel_shim.so")?;
        this.program(&built("ginnel-go-loader")?, "/usr/lib/ginnel/ginnel-go-loader")?;
        this.program(&built("libginnel_sysv.so")?, "/usr/lib/ginnel/libginnel_sysv.so")?;
        this.program(
            &find("busybox").context("busybox is not installed (scripts/install-deps.sh test)")?,
            "/bin/busybox",
        )?;
        // Busybox's own shell would take its applets for programs that are there.
        this.program(&find("dash").context("dash is not installed")?, "/bin/sh")?;
        let applets = call(Command::new("busybox").arg("--list"))?;
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            this.entry(&format!("/bin/{applet}"), SYMLINK, (0, 0), b"/bin/busybox");
        }
        for (n, module) in kernel.modules(modules)?.iter().enumerate() {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            this.file(&format!("{MODULES}/{n:02}-{name}"), 0o644, &fs::read(module)?);
        }
        let nobody = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
        this.file("/etc/passwd", 0o644, nobody.as_bytes());
        this.file("/etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
        this.file("/etc/hosts", 0o644, b"127.0.0.1 localhost\n");
        this.file("/etc/protocols", 0o644, b"tcp 6 TCP\nudp 17 UDP\n");
        Ok(this)
    }

    /// A program or library of the host, at `place`, and all that the loader finds for it.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn program(&mut self, host: &Path, place: &str) -> Result<()> {
        self.file(place, 0o755, &fs::read(host).with_context(|| host.display().to_string())?);
        // A static program is none of ldd's business, and it says so by failing.
        let Ok(libraries) = call(Command::new("ldd").arg(host)) else { return Ok(()) };
        let path = |line: &str| {
            line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned)
        };
        let paths: Vec<String> = libraries.lines().filter_map(path).collect();
        let beside = paths.iter().find(|path| path.ends_with("/libc.so.6"));
        for library in &paths {
            if self.seen.contains(library) {
                continue;
            }
            let content = fs::read(library).with_context(|| library.clone())?;
            // The dynamic linker lies beside the C library, as in Debian, and is linked to.
            match (Path::new(library).file_name().and_then(OsStr::to_str), beside) {
                (Some(name), Some(libc)) if name.starts_with("ld-linux") => {
                    let real = Path::new(libc).with_file_name(name).display().to_string();
                    self.file(&real, 0o755, &content);
                    if *library != real {
                        self.directory(
                            Path::new(library).parent().and_then(Path::to_str).unwrap_or("/"),
                        );
                        self.entry(library, SYMLINK, (0, 0), real.as_bytes());
                    }
                }
                _ => self.file(library, 0o755, &content),
            }
        }
        Ok(())
    }

    /// A program of the host, found in PATH or given by its whole path, in /usr/bin.
    ///
    /// # Errors
    /// Where it is not installed.
    pub fn installed(&mut self, name: &str) -> Result<()> {
        let path = if name.starts_with('/') { Some(name.into()) } else { find(name) };
        let path = path
            .with_context(|| format!("{name} is not installed (scripts/install-deps.sh test)"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // /etc/alternatives and the like: the name stays, the file is what it means.
        self.program(&path.canonicalize()?, &format!("/usr/bin/{name}"))
    }

    /// A folder of the host at the same place, with all that its libraries need.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn folder(&mut self, host: &Path) -> Result<()> {
        for entry in fs::read_dir(host).with_context(|| host.display().to_string())? {
            let path = entry?.path();
            let place = path.to_str().context("a name that is not UTF-8")?;
            if path.is_dir() {
                self.folder(&path)?;
            } else if path.extension() == Some(OsStr::new("so")) {
                self.program(&path, place)?;
            } else {
                self.file(place, 0o644, &fs::read(&path)?);
            }
        }
        Ok(())
    }

    /// A file with these permissions; its folders are made.
    pub fn file(&mut self, place: &str, mode: u32, content: &[u8]) {
        if let Some(parent) = Path::new(place).parent().and_then(Path::to_str) {
            self.directory(parent);
        }
        self.entry(place, 0o100_000 | mode, (0, 0), content);
    }

    fn directory(&mut self, place: &str) {
        if place == "/" || self.seen.contains(place) {
            return;
        }
        if let Some(parent) = Path::new(place).parent().and_then(Path::to_str) {
            self.directory(parent);
        }
        self.entry(place, DIRECTORY, (0, 0), b"");
    }

    fn entry(&mut self, place: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        if !self.seen.insert(place.to_owned()) {
            return;
        }
        self.raw(place.trim_start_matches('/'), mode, device, content);
    }

    fn raw(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let inode = self.seen.len();
        // Fields: inode, mode, uid, gid, links, time, size, device of the file, device that it is,
        // length of the name, check sum.
        let head = format!(
            "070701{inode:08X}{mode:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}",
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            device.0,
            device.1,
            name.len() + 1,
            0
        );
        self.archive.extend(head.as_bytes());
        self.archive.extend(name.as_bytes());
        self.archive.push(0);
        self.pad();
        self.archive.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.archive.resize(self.archive.len().next_multiple_of(4), 0);
    }

    /// Writes the archive to a file.
    ///
    /// # Errors
    /// Of writing.
    pub fn write(mut self, to: &Path) -> Result<()> {
        self.raw("TRAILER!!!", 0, (0, 0), b"");
        fs::write(to, &self.archive)?;
        Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o600))?)
    }
}

/// A program of the host.
#[must_use]
pub fn find(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Into::into));
    places.map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_what_cpio_makes() {
        let mut archive = Initramfs { archive: Vec::new(), seen: BTreeSet::new() };
        archive.file("/a/b", 0o600, b"12345");
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("x");
        archive.write(&file).expect("written");
        let bytes = fs::read(&file).expect("there");
        // Head 110, name, padding to 4: a directory "a", a file "a/b" of five bytes, the end.
        assert_eq!(bytes.len(), (110 + 2) + (110 + 4 + 2 + 5 + 3) + (110 + 11 + 3));
        assert!(bytes.starts_with(b"07070100000001000041ED"));
        assert_eq!(&bytes[112 + 116..112 + 121], b"12345");
    }
}
