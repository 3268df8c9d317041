//! Debian's kernel for virtual machines, unpacked from its packages into `target/guest`, and the
//! driver built for it. Nothing is installed.

use crate::package::{self, Lock, apt};
use crate::{call, source_dir, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the release of Debian's kernel for clouds ends with, and what that of the full one ends
/// with, which has the drivers of real devices.
const CLOUD: &str = "-cloud-amd64";
const FULL: &str = "-amd64";
/// What a guest needs to find its network card and its agent's port, in the order in which it is
/// loaded. What is built in has no file.
const MODULES: [&str; 12] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_console",
    "vsock",
    "vmw_vsock_virtio_transport_common",
    "vmw_vsock_virtio_transport",
];

/// The file in its folder that says that everything is unpacked, and where.
const COMPLETE: &str = "complete";

/// A kernel that is unpacked.
#[derive(Debug, Clone)]
pub struct Kernel {
    release: String,
    root: PathBuf,
}

impl Kernel {
    /// The kernel that was fetched before, else the newest of the release this host runs.
    ///
    /// # Errors
    /// Where there is none, or no network.
    pub fn fetch() -> Result<Self> {
        Self::fetch_of(CLOUD)
    }

    /// The same of the kernel that has drivers of real devices too, such as igb.
    ///
    /// # Errors
    /// As above.
    pub fn fetch_full() -> Result<Self> {
        Self::fetch_of(FULL)
    }

    fn fetch_of(kind: &str) -> Result<Self> {
        let cache = target_dir().join("guest");
        fs::create_dir_all(&cache)?;
        let _held = Lock::take(&cache)?;
        if let Some(kernel) = Self::cached(&cache, kind)? {
            return Ok(kernel);
        }
        package::with_lists(&cache, |options| Self::download(&cache, kind, options))
    }

    fn cached(cache: &Path, kind: &str) -> Result<Option<Self>> {
        for entry in fs::read_dir(cache)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(release) = name.strip_prefix("kernel-") else { continue };
            if !release.ends_with(kind) || (kind == FULL && release.ends_with(CLOUD)) {
                continue;
            }
            let Ok(place) = fs::read_to_string(entry.path().join(COMPLETE)) else { continue };
            let kernel = Self { release: release.to_owned(), root: entry.path() };
            if Path::new(&place) != kernel.root {
                kernel.name_place(&place)?;
            }
            return Ok(Some(kernel));
        }
        Ok(None)
    }

    fn download(cache: &Path, kind: &str, options: &[String]) -> Result<Self> {
        // The package that depends on the newest kernel.
        let meta = format!("linux-image{kind}");
        let depends = call(apt("apt-cache", options).args(["depends", &meta]))?;
        let image =
            depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
        let release = image
            .with_context(|| format!("no package {meta} here: it takes Debian's package sources"))?
            .to_owned();
        let version = call(apt("apt-cache", options).args([
            "show",
            "--no-all-versions",
            &format!("linux-image-{release}"),
        ]))?;
        let version = version
            .lines()
            .find_map(|line| line.strip_prefix("Version: "))
            .context("a package without a version")?
            .to_owned();
        let headers = format!("linux-headers-{release}");
        let needed = call(apt("apt-cache", options).args(["depends", &headers]))?;
        let needed = needed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let mut packages =
            vec![format!("linux-image-{release}={version}"), format!("{headers}={version}")];
        packages.extend(needed.filter_map(|name| match name {
            // The headers want this very version of these …
            _ if name.ends_with("-common") => Some(format!("{name}={version}")),
            // … and of the tools this one or a later: those of the next kernel are in Debian's
            // archive some hours before its signed image is.
            _ if name.starts_with("linux-kbuild-") => Some(name.to_owned()),
            _ => None,
        }));

        let root = cache.join(format!("kernel-{release}"));
        package::unpack(&packages, &root, options)?;
        let kernel = Self { release, root };
        kernel.name_place("")?;
        Ok(kernel)
    }

    /// The headers' makefile names the place where the package would be installed, or, where a
    /// target folder is moved, that where it was (`before`).
    fn name_place(&self, before: &str) -> Result<()> {
        let makefile = self.headers().join("Makefile");
        let text = fs::read_to_string(&makefile).with_context(|| makefile.display().to_string())?;
        let root = self.root.display().to_string();
        fs::write(
            &makefile,
            text.replace(&format!("{before}/usr/src/"), &format!("{root}/usr/src/")),
        )?;
        Ok(fs::write(self.root.join(COMPLETE), root)?)
    }

    /// As `uname -r` gives it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// What QEMU boots.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// What modules are built against.
    #[must_use]
    pub fn headers(&self) -> PathBuf {
        self.root.join("usr/src").join(format!("linux-headers-{}", self.release))
    }

    /// Its folder of modules, and of lists of them.
    #[must_use]
    pub fn modules_folder(&self) -> PathBuf {
        self.root.join("lib/modules").join(&self.release)
    }

    /// The modules that every guest loads, then `further` ones by name, each behind those that it
    /// needs.
    ///
    /// # Errors
    /// Where the kernel's folder cannot be read, or it has none of a further name.
    pub fn modules(&self, further: &[String]) -> Result<Vec<PathBuf>> {
        let folder = self.modules_folder().join("kernel");
        let mut found = Vec::new();
        files_below(&folder, &mut found).with_context(|| folder.display().to_string())?;
        let file = |name: &str| {
            // Files may have dashes where names have underscores.
            let is_it = |path: &&PathBuf| {
                path.file_stem()
                    .is_some_and(|stem| stem.to_string_lossy().replace('-', "_") == name)
            };
            found.iter().find(is_it)
        };
        let mut modules = Vec::new();
        for name in MODULES.iter().filter_map(|name| file(name)) {
            modules.push(name.clone());
        }
        for name in further {
            let path = file(name)
                .with_context(|| format!("kernel {} has no module {name}", self.release))?;
            add_behind_needed(path, &file, &mut modules)?;
        }
        Ok(modules)
    }

    /// `ginnel.ko`, built from `driver/` for this kernel.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn driver(&self) -> Result<PathBuf> {
        let cache = target_dir().join("guest");
        let _held = Lock::take(&cache)?;
        let build = cache.join(format!("driver-{}", self.release));
        let module = build.join("ginnel.ko");
        let sources: Vec<PathBuf> = fs::read_dir(source_dir().join("driver"))?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        let time = |path: &Path| path.metadata().and_then(|meta| meta.modified());
        let built = time(&module).ok();
        if built.is_some_and(|built| {
            sources.iter().all(|source| time(source).is_ok_and(|changed| changed < built))
        }) {
            return Ok(module);
        }
        let _ = fs::remove_dir_all(&build);
        fs::create_dir_all(&build)?;
        for source in &sources {
            fs::copy(source, build.join(source.file_name().unwrap_or_default()))?;
        }
        // The warnings of a newer compiler than the kernel's own are errors too: the driver is to
        // have none.
        call(
            Command::new("make")
                .arg("-C")
                .arg(self.headers())
                .arg(format!("M={}", build.display()))
                .args(["W=1", "KCFLAGS=-Werror", "modules"]),
        )?;
        Ok(module)
    }
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Adds a module behind those that it says it needs. What is not found is built in.
fn add_behind_needed<'a>(
    module: &Path,
    file: &impl Fn(&str) -> Option<&'a PathBuf>,
    modules: &mut Vec<PathBuf>,
) -> Result<()> {
    if modules.iter().any(|one| one == module) {
        return Ok(());
    }
    let content = fs::read(module).with_context(|| module.display().to_string())?;
    for needed in needs(&content) {
        if let Some(path) = file(&needed.replace('-', "_")) {
            add_behind_needed(path, file, modules)?;
        }
    }
    modules.push(module.to_path_buf());
    Ok(())
}

/// The names in `depends=` of a module's `.modinfo`, which is terminated strings (Linux,
/// scripts/mod/modpost.c).
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let rest = &module[at + KEY.len()..];
    let names = &rest[..rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len())];
    String::from_utf8_lossy(names)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        assert_eq!(
            needs(b"\0license=GPL\0depends=i2c-algo-bit,dca\0name=igb\0"),
            ["i2c-algo-bit", "dca"]
        );
        assert!(
            needs(b"\0depends=\0name=igbvf\0").is_empty()
                && needs(b"").is_empty()
                && needs(b"depends=x").is_empty()
        );
    }
}
