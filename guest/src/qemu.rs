//! The QEMU that runs the guests: the host's own, or the newer one of Debian's backports, unpacked
//! into `target/guest` and never installed. Whether KVM works with it.

use crate::child::spawn;
use crate::kernel::Kernel;
use crate::{package, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Chooses the QEMU of every guest that asks for none: `backports`, or a program. Without it guests
/// run on the host's own.
pub const VARIABLE: &str = "GINNEL_QEMU";
const PROGRAM: &str = "qemu-system-x86_64";
/// Where a package of QEMU keeps firmware, and where those of firmware keep theirs.
const DATA: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// A QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    program: PathBuf,
    /// The folder that its packages were unpacked into.
    root: Option<PathBuf>,
}

impl Qemu {
    /// The one that [`VARIABLE`] names; without it the host's own.
    ///
    /// # Errors
    /// Where it names the backports', and these cannot be had.
    pub fn chosen() -> Result<Self> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self { program: PROGRAM.into(), root: None }),
            Some(name) if name == "backports" => Self::of_backports(),
            Some(program) => Ok(Self { program: program.into(), root: None }),
        }
    }

    /// The chosen one if its major version is at least so high, else that of Debian's backports.
    ///
    /// # Errors
    /// Where neither is to be had: with what the package manager said.
    pub fn at_least(major: u32) -> Result<Self> {
        let enough = |qemu: &Self| qemu.major().is_ok_and(|found| found >= major);
        match Self::chosen() {
            Ok(qemu) if enough(&qemu) => Ok(qemu),
            _ => {
                let qemu = Self::of_backports()?;
                ensure!(
                    enough(&qemu),
                    "the QEMU of Debian's backports is older than {major}: {qemu:?}"
                );
                Ok(qemu)
            }
        }
    }

    fn of_backports() -> Result<Self> {
        let root = package::of_backports("qemu-system-x86")?;
        Ok(Self { program: root.join("usr/bin").join(PROGRAM), root: Some(root) })
    }

    /// Its major version.
    ///
    /// # Errors
    /// Where it cannot be run, or does not say.
    pub fn major(&self) -> Result<u32> {
        let said = crate::call(self.command().arg("--version"))?;
        let version = said.split("version ").nth(1).and_then(|rest| rest.split('.').next());
        version
            .and_then(|major| major.parse().ok())
            .with_context(|| format!("what version is this: {said}"))
    }

    /// It, with what it takes to find its own libraries and firmware.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(root) = &self.root {
            let libraries = root.join("usr/lib/x86_64-linux-gnu");
            command
                .env("LD_LIBRARY_PATH", &libraries)
                .env("QEMU_MODULE_DIR", libraries.join("qemu"));
            for data in DATA.iter().map(|data| root.join(data)).filter(|data| data.is_dir()) {
                command.arg("-L").arg(data);
            }
            for data in DATA.iter().map(|data| Path::new("/").join(data)) {
                command.arg("-L").arg(data);
            }
        }
        command
    }

    /// What virtio cards of vhost-user need beside what `ginnel vm args` says: QEMU before 8
    /// crashes under emulation at their interrupts (MSI-X).
    #[must_use]
    pub fn vhost_user_vectors(&self) -> &'static [&'static str] {
        if self.major().is_ok_and(|major| major >= 8) { &[] } else { &["--vectors", "0"] }
    }

    /// KVM where it really runs this kernel: there are hosts whose `/dev/kvm` opens, and whose
    /// guests then hang in their firmware. Tried once for each boot of the host.
    pub(crate) fn accelerator(&self, kernel: &Kernel) -> [&'static str; 2] {
        static WORKS: OnceLock<bool> = OnceLock::new();
        if *WORKS.get_or_init(|| self.kvm_works(kernel)) {
            ["-accel", "kvm"]
        } else {
            ["-accel", "tcg"]
        }
    }

    fn kvm_works(&self, kernel: &Kernel) -> bool {
        let opens = File::options().read(true).write(true).open("/dev/kvm").is_ok();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let note = target_dir().join("guest").join(format!("kvm-{}", boot.trim()));
        match fs::read_to_string(&note) {
            _ if !opens => return false,
            Ok(known) => return known == "works",
            Err(_) => {}
        }
        let directory = tempfile::tempdir().map_err(Into::into);
        let tried = directory
            .and_then(|directory| self.kvm_boots(kernel, &directory.path().join("console")));
        if let Ok(works) = tried {
            let _ = fs::write(&note, if works { "works" } else { "does not" });
        }
        tried.unwrap_or(false)
    }

    fn kvm_boots(&self, kernel: &Kernel, console: &Path) -> Result<bool> {
        let mut command = self.command();
        command.args([
            "-accel",
            "kvm",
            "-machine",
            "q35",
            "-cpu",
            "max",
            "-m",
            "256",
            "-nodefaults",
            "-display",
            "none",
        ]);
        command.args([
            "-no-reboot",
            "-append",
            "console=ttyS0 panic=-1",
            "-serial",
            &format!("file:{}", console.display()),
        ]);
        command
            .arg("-kernel")
            .arg(kernel.image())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = spawn(command)?;
        let until = Instant::now() + Duration::from_secs(10);
        // Without an initramfs it panics, at the end of a boot that went well.
        let booted = || fs::read_to_string(console).unwrap_or_default().contains("Kernel panic");
        let mut ended = None;
        while Instant::now() < until && crate::check().is_ok() && !booted() && ended.is_none() {
            std::thread::sleep(Duration::from_millis(50));
            ended = child.try_wait()?;
        }
        let _ = child.kill();
        let _ = child.wait();
        crate::check()?;
        ensure!(ended.is_none_or(|status| status.success()), "QEMU has ended");
        Ok(booted())
    }
}
