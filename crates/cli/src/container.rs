//! `ginnel container`: containers meet in a segment by what their runtime mounts and sets.

mod edits;

use crate::args::container::{ContainerCommand, Group, Remove, name as checked};
use crate::segment::is_in_use;
use crate::status::print;
use crate::{policy, run};
use anyhow::{Context, Result, bail, ensure};
use edits::{Edits, Mount};
use ginnel_region::{Config, Error, Segment};
use ginnel_tcp::broker;
use std::fs::{self, File, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Where runtimes look for CDI files: what stays, and what is gone with the next boot.
const CDI: [&str; 2] = ["/etc/cdi", "/run/cdi"];
const FILE: &str = "ginnel.dev-segment-";
/// Where systemd-tmpfiles is told what to make at boot (tmpfiles.d(5)).
const AT_BOOT: &str = "/etc/tmpfiles.d";
/// Where the library lies in a container.
const LIBRARY: &str = "/usr/lib/ginnel";
/// Directories of groups, on the host; the same path is used within.
const PLACE: &str = "/dev/shm";
const PREFIX: &str = "ginnel-segment-";
/// The shared segment's file, and its size: memory is taken only as it is used.
const SHARED: &str = "segment";
const SIZE: u64 = 1 << 30;
/// What images are expected to have at least: RHEL 7, Amazon Linux 2, Ubuntu 14.04, Debian 8 and
/// what came after.
const GLIBC: u32 = 17;

/// Runs one of them.
pub fn container(command: &ContainerCommand) -> Result<()> {
    match command {
        ContainerCommand::Cdi(args) => cdi(args),
        ContainerCommand::Env(args) => {
            let (edits, _) = prepare(args)?;
            print(&(edits.options() + "\n"))
        }
        ContainerCommand::Remove(args) => remove(args),
    }
}

fn cdi(args: &Group) -> Result<()> {
    let name = &args.name;
    let (edits, meta) = prepare(args)?;
    // A shared segment is gone with the next boot, and nobody makes it anew: so is its device.
    let folder = Path::new(CDI[usize::from(args.any_user)]);
    let [stays, goes] = CDI.map(|folder| Path::new(folder).join(format!("{FILE}{name}.json")));
    let file = folder.join(format!("{FILE}{name}.json"));
    let text = serde_json::to_string_pretty(&edits.cdi(name))? + "\n";
    write(&file, &text).with_context(|| {
        format!(
            "no device was made; `podman run $(ginnel container env {name}) IMAGE` does without"
        )
    })?;
    // The name is in one place only, whichever way it was made before.
    let other = if file == stays { goes } else { stays };
    remove_file(&other)?;
    let at_boot = at_boot(name);
    if args.any_user {
        remove_file(&at_boot)?;
    } else {
        write(
            &at_boot,
            &format!("d {} 0700 {} {} -\n", place(name).display(), meta.uid(), meta.gid()),
        )?;
    }
    print(&format!(
        "Wrote {}. Containers with this device meet:\n    podman run --device {}={name} IMAGE\nWhat is carried: GINNEL_DIR={} \
         ginnel status\n",
        file.display(),
        edits::KIND,
        place(name).display()
    ))
}

fn place(name: &str) -> PathBuf {
    Path::new(PLACE).join(format!("{PREFIX}{name}"))
}

fn at_boot(name: &str) -> PathBuf {
    Path::new(AT_BOOT).join(format!("{PREFIX}{name}.conf"))
}

/// Makes the group's directory; gives what a container of it gets, and whose the directory is.
fn prepare(args: &Group) -> Result<(Edits, Metadata)> {
    let library = run::shim()?;
    let library = library.canonicalize().with_context(|| library.display().to_string())?;
    is_portable(&library)?;
    let place = place(&args.name);
    let mut edits = Edits::default();
    let name = library.file_name().unwrap_or_default();
    // A plain path would stop every program of an image for musl.
    let list = run::with_shim(None, &Path::new(LIBRARY).join(name), run::for_all(&library))?;
    edits.variables.push(("LD_PRELOAD", list.to_string_lossy().into_owned()));
    let shown = place.display().to_string();
    let (mode, user) = if args.any_user { (0o755, None) } else { (0o700, args.user) };
    let meta = directory(&place, mode, user)?;
    if args.any_user {
        shared_segment(&place.join(SHARED))?;
        edits.variables.push(("GINNEL_SEGMENT", format!("{shown}/{SHARED}")));
        edits
            .variables
            .extend(policy::for_service(&args.allow, &[])?.map(|rules| (policy::VARIABLE, rules)));
    } else {
        edits.variables.push(("GINNEL_DIR", shown));
        edits
            .variables
            .extend(policy::for_service(&[], &[])?.map(|rules| (policy::VARIABLE, rules)));
    }
    let folder = library.parent().unwrap_or(Path::new("/"));
    edits.mounts.push(Mount { host: folder.into(), container: LIBRARY.into(), writable: false });
    edits.mounts.push(Mount { host: place.clone(), container: place, writable: true });
    // With containers of other groups, and programs of other users: memory for each pair.
    let broker = Path::new(broker::DEFAULT).parent().filter(|broker| broker.is_dir());
    edits.mounts.extend(broker.map(|broker| Mount {
        host: broker.into(),
        container: broker.into(),
        writable: false,
    }));
    Ok((edits, meta))
}

/// Makes the directory; one that is there already is given to that user where nothing is in it.
///
/// # Errors
/// It is somebody else's: anybody may make files in /dev/shm, and put others in their place at any
/// moment. So what is looked at and what is changed is what was opened.
fn directory(place: &Path, mode: u32, user: Option<u32>) -> Result<Metadata> {
    let shown = place.display();
    let (me, _) = ginnel_region::sys::effective_ids();
    let user = user.unwrap_or(me);
    ensure!(me == 0 || user == me, "only root can make a directory for user {user}");
    match fs::DirBuilder::new().mode(mode).create(place) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {shown}"));
        }
        _ => {}
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = File::options().read(true).custom_flags(flags).open(place);
    let folder = folder.with_context(|| {
        format!("{shown} is no directory of user {user}: remove it, or choose another name")
    })?;
    let meta = folder.metadata().with_context(|| shown.to_string())?;
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_start_matches(PREFIX);
    ensure!(
        [user, me].contains(&meta.uid()),
        "{shown} belongs to user {}: `ginnel container remove {name}` first, or choose another name",
        meta.uid()
    );
    if meta.uid() != user || meta.mode() & 0o7777 != mode {
        let opened = format!("/proc/self/fd/{}", folder.as_raw_fd());
        ensure!(
            fs::read_dir(opened).is_ok_and(|mut entries| entries.next().is_none()),
            "{shown} is there for user {} (mode {:o}): `ginnel container remove {name}` first",
            meta.uid(),
            meta.mode() & 0o7777
        );
        fchown(&folder, Some(user), None).with_context(|| format!("owner of {shown}"))?;
        folder
            .set_permissions(Permissions::from_mode(mode))
            .with_context(|| format!("permissions of {shown}"))?;
    }
    folder.metadata().with_context(|| shown.to_string())
}

/// A segment that every user may open.
fn shared_segment(file: &Path) -> Result<()> {
    match Segment::create(file, &Config { size: SIZE, mode: 0o666, tokens_only: false }) {
        Ok(_) | Err(Error::System { errno: libc::EEXIST, .. }) => {}
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    }
    fs::set_permissions(file, Permissions::from_mode(0o666))
        .with_context(|| format!("permissions of {}", file.display()))
}

/// # Errors
/// In an image with an older glibc than the library needs, no program would start.
fn is_portable(library: &Path) -> Result<()> {
    let shown = library.display();
    let bytes = fs::read(library).with_context(|| shown.to_string())?;
    match newest_glibc(&bytes) {
        Some(minor) if minor > GLIBC => bail!(
            "{shown} needs glibc 2.{minor}: in an image with an older one no program would start. Name the library that \
             `make portable` builds, or that the package has, with GINNEL_SHIM"
        ),
        _ => Ok(()),
    }
}

/// The newest `GLIBC_2.MINOR` among a library's names of versions.
fn newest_glibc(bytes: &[u8]) -> Option<u32> {
    const VERSION: &[u8] = b"GLIBC_2.";
    let places = bytes.windows(VERSION.len()).enumerate().filter(|(_, part)| *part == VERSION);
    let minor = |place: usize| {
        let rest = bytes.get(place + VERSION.len()..)?;
        let digits: String = rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .take(4)
            .map(|&byte| char::from(byte))
            .collect();
        digits.parse().ok()
    };
    places.filter_map(|(place, _)| minor(place)).max()
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // A runtime reads it whole or not at all; it looks at names that end in .json only.
    let draft = file.with_extension("new");
    let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, file));
    written
        .with_context(|| format!("cannot write {}", file.display()))
        .inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// `false`: it was not there.
fn remove_file(file: &Path) -> Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", file.display())),
    }
}

/// # Errors
/// The first that could not be removed. The others are.
fn remove(args: &Remove) -> Result<()> {
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => all(),
    };
    let mut done = Ok(());
    for name in names {
        done = done.and(remove_group(&name, args.all));
    }
    done
}

fn remove_group(name: &str, all: bool) -> Result<()> {
    let mut any = remove_file(&at_boot(name))?;
    for folder in CDI {
        any |= remove_file(&Path::new(folder).join(format!("{FILE}{name}.json")))?;
    }
    let place = place(name);
    if !place.is_dir() {
        ensure!(any || all, "there is no group {name}");
    } else if is_in_use(&place) {
        return print(&format!(
            "{}: in use, and kept; the same command removes it when its containers have ended\n",
            place.display()
        ));
    } else {
        fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    print(&format!("Removed group {name}.\n"))
}

/// The groups that there are, by any of their files. Names that no group has are somebody else's.
fn all() -> Vec<String> {
    let ends = [
        (CDI[0], FILE, ".json"),
        (CDI[1], FILE, ".json"),
        (AT_BOOT, PREFIX, ".conf"),
        (PLACE, PREFIX, ""),
    ];
    let mut names: Vec<String> = Vec::new();
    for (folder, begin, end) in ends {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let entries = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.extend(
            entries
                .filter_map(|name| Some(name.strip_prefix(begin)?.strip_suffix(end)?.to_owned())),
        );
    }
    names.retain(|name| checked(name).is_ok());
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anybody may have made it in /dev/shm first.
    #[test]
    fn a_directory_of_somebody_elses_is_left_alone() {
        let folder = tempfile::tempdir().expect("a directory");
        let (me, _) = ginnel_region::sys::effective_ids();
        let made = directory(&folder.path().join("made"), 0o700, None).expect("made");
        assert_eq!((made.uid(), made.mode() & 0o7777), (me, 0o700));

        let (aim, link) = (folder.path().join("aim"), folder.path().join("link"));
        fs::DirBuilder::new().mode(0o751).create(&aim).expect("made");
        std::os::unix::fs::symlink(&aim, &link).expect("made");
        assert!(directory(&link, 0o700, None).is_err());
        assert_eq!(fs::metadata(&aim).expect("there").mode() & 0o7777, 0o751);

        if me != 0 {
            return;
        }
        let other = folder.path().join("other");
        fs::create_dir(&other).expect("made");
        std::os::unix::fs::chown(&other, Some(4242), None).expect("root may");
        let error = directory(&other, 0o700, Some(1000)).expect_err("4242's").to_string();
        assert!(error.contains("belongs to user 4242"), "{error}");
        assert_eq!(fs::metadata(&other).expect("there").uid(), 4242);
        assert_eq!(
            directory(&made_for(folder.path()), 0o700, Some(1000)).expect("given").uid(),
            1000
        );
    }

    /// An empty directory of root's.
    fn made_for(folder: &Path) -> PathBuf {
        let place = folder.join("given");
        fs::create_dir(&place).expect("made");
        place
    }

    #[test]
    fn a_librarys_glibc_is_read_from_its_names_of_versions() {
        assert_eq!(newest_glibc(b"x\0GLIBC_2.2.5\0GLIBC_2.28\0GLIBC_2.\0"), Some(28));
        assert_eq!(newest_glibc(b"none"), None);
    }
}
