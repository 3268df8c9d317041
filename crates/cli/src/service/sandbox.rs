//! What a unit's sandbox leaves of what the library needs: a writable `/dev/shm`, its own file to
//! be mapped, and a few system calls. Sources: systemd.exec(5).

use super::systemd::Unit;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Where segment and list of sockets lie (`ginnel_node::home`).
const SHARED: &str = "/dev/shm";

/// Calls of the library's own that a program under a filter may never have made: without them it
/// wakes by TCP alone, or, where the filter kills, the program ends.
const CALLS: [&str; 3] = ["membarrier", "memfd_create", "mknodat"];

/// Below this many descriptors, or bytes of address space, the library leaves everything on TCP.
const LEAST_DESCRIPTORS: u64 = 256;
const LEAST_ADDRESS_SPACE: u64 = 16 << 30;

/// What the drop-in has to open, a line of its section `[Service]` each, and what to say about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Openings {
    pub lines: Vec<String>,
    pub remarks: Vec<String>,
}

impl Openings {
    fn open(&mut self, line: String, why: &str) {
        self.remarks.push(format!("{line}: {why}"));
        self.lines.push(line);
    }
}

/// Looks at the sandbox. `socket`: the segment is one of `ginneld`'s.
///
/// # Errors
/// What cannot be opened by a line of a drop-in that asks for no more than the library needs, and
/// the way out.
pub fn look(unit: &Unit, library: &Path, socket: bool) -> Result<Openings> {
    let mut openings = Openings::default();
    sees_the_library(unit, library)?;
    has_room(unit)?;
    shares_memory(unit, &mut openings)?;
    if forbids(unit, "NoExecPaths", "ExecPaths", library) {
        let folder = library.parent().unwrap_or(library).display();
        openings.open(format!("ExecPaths={folder}"), "the unit lets no other library be loaded");
    }
    // No line of ours opens a filter: alone, where the unit's own is taken out later, it would be
    // one.
    let missing = missing_calls(&unit.words("SystemCallFilter"));
    if !missing.is_empty() {
        let calls = missing.join(" ");
        bail!(
            "{0}'s filter forbids calls of the library's: add SystemCallFilter={calls} to the unit (`systemctl edit {0}`)",
            unit.name
        );
    }
    if socket && lacks_unix_sockets(&unit.words("RestrictAddressFamilies")) {
        bail!(
            "{0} may have no unix socket, by which ginneld is asked: add RestrictAddressFamilies=AF_UNIX to the unit \
             (`systemctl edit {0}`)",
            unit.name
        );
    }
    Ok(openings)
}

fn sees_the_library(unit: &Unit, library: &Path) -> Result<()> {
    let (name, shown) = (&unit.name, library.display());
    for root in ["RootDirectory", "RootImage"] {
        if !matches!(unit.get(root), "" | "/") {
            bail!(
                "{name} has a root directory of its own ({root}={}), without {shown}: bind the library and \
                 {SHARED} into it as docs/containers.md says",
                unit.get(root)
            );
        }
    }
    let homes = [("/home", "ProtectHome"), ("/root", "ProtectHome"), ("/run/user", "ProtectHome")];
    let private = [("/tmp", "PrivateTmp"), ("/var/tmp", "PrivateTmp")];
    for (place, option) in homes.into_iter().chain(private) {
        if library.starts_with(place) && !matches!(unit.get(option), "no" | "") {
            bail!(
                "{name} does not see {shown} ({option}=): install Ginnel below /usr (docs/install.md)"
            );
        }
    }
    for option in ["InaccessiblePaths", "TemporaryFileSystem"] {
        if hides(unit, option, library) {
            bail!(
                "{name} does not see {shown} ({option}=): add BindReadOnlyPaths={shown} to the unit"
            );
        }
    }
    Ok(())
}

fn has_room(unit: &Unit) -> Result<()> {
    for (option, least) in [("LimitNOFILE", LEAST_DESCRIPTORS), ("LimitAS", LEAST_ADDRESS_SPACE)] {
        if unit.get(option).parse::<u64>().is_ok_and(|limit| limit < least) {
            bail!(
                "{} has {option}={}: its connections would stay on TCP; give it {least} or more",
                unit.name,
                unit.get(option)
            );
        }
    }
    Ok(())
}

fn shares_memory(unit: &Unit, openings: &mut Openings) -> Result<()> {
    let shared = Path::new(SHARED);
    for option in ["InaccessiblePaths", "TemporaryFileSystem"] {
        if hides(unit, option, shared) {
            bail!(
                "{} has no {SHARED} that others see ({option}=): add BindPaths={SHARED} to the unit",
                unit.name
            );
        }
    }
    if forbids(unit, "ReadOnlyPaths", "ReadWritePaths", shared) {
        openings.open(format!("ReadWritePaths={SHARED}"), "segment and list of sockets lie there");
    }
    Ok(())
}

/// The paths of a list, without the signs for "may be missing" and "in the root directory", and
/// without what follows a colon.
fn paths(unit: &Unit, option: &str) -> Vec<PathBuf> {
    let plain = |word: String| {
        word.trim_start_matches(['-', '+']).split(':').next().unwrap_or_default().to_owned()
    };
    unit.words(option).into_iter().map(plain).map(PathBuf::from).collect()
}

/// How deep the deepest of `paths` lies that `path` is in; 0: in none.
fn depth(paths: &[PathBuf], path: &Path) -> usize {
    paths
        .iter()
        .filter(|outer| path.starts_with(outer))
        .map(|outer| outer.components().count())
        .max()
        .unwrap_or(0)
}

/// Is `path` in what `option` takes away, and not in what `again` gives back further down?
fn forbids(unit: &Unit, option: &str, again: &str, path: &Path) -> bool {
    depth(&paths(unit, option), path) > depth(&paths(unit, again), path)
}

/// Likewise of what cannot be seen at all: given back by binding it.
fn hides(unit: &Unit, option: &str, path: &Path) -> bool {
    let bound: Vec<PathBuf> =
        ["BindPaths", "BindReadOnlyPaths"].iter().flat_map(|option| paths(unit, option)).collect();
    depth(&paths(unit, option), path) > depth(&bound, path)
}

/// The calls that a filter does not let through: a list of those that it lets, or after `~` of
/// others.
fn missing_calls(filter: &[String]) -> Vec<&'static str> {
    let Some(first) = filter.first() else { return Vec::new() };
    let denies = first.starts_with('~');
    let named = |call: &str| {
        filter.iter().any(|word| {
            word.trim_start_matches('~').split(':').next().is_some_and(|name| name == call)
        })
    };
    CALLS.into_iter().filter(|call| named(call) == denies).collect()
}

fn lacks_unix_sockets(families: &[String]) -> bool {
    let Some(first) = families.first() else { return false };
    let named = families.iter().any(|family| family.trim_start_matches('~') == "AF_UNIX");
    named == first.starts_with('~')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(said: &str) -> Unit {
        Unit::parse("x.service".into(), said)
    }

    fn lines(said: &str) -> Vec<String> {
        look(&unit(said), Path::new("/usr/lib/ginnel/x.so"), true).expect("it can be served").lines
    }

    fn refused(said: &str) -> String {
        look(&unit(said), Path::new("/usr/lib/ginnel/x.so"), true)
            .expect_err("it cannot be served")
            .to_string()
    }

    #[test]
    fn a_sandbox_is_opened_no_further_than_is_needed() {
        let none: [&str; 0] = [];
        assert_eq!(lines(""), none);
        // As Debian's redis-server.service.
        let redis = "ReadOnlyPaths=/\nReadWritePaths=-/var/lib/redis -/run/redis\nNoExecPaths=/\n\
            ExecPaths=/usr/bin/redis-server /usr/lib /lib\nRestrictAddressFamilies=AF_INET AF_UNIX\nPrivateTmp=yes\n";
        assert_eq!(lines(redis), ["ReadWritePaths=/dev/shm"]);
        assert_eq!(lines("ReadOnlyPaths=/\nReadWritePaths=/dev"), none);
        assert_eq!(lines("NoExecPaths=/\nExecPaths=/usr/bin"), ["ExecPaths=/usr/lib/ginnel"]);
        assert_eq!(lines("RestrictAddressFamilies=~AF_PACKET\nSystemCallFilter=~reboot"), none);
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_the_way_out() {
        for (said, way) in [
            ("RootDirectory=/srv/x", "docs/containers.md"),
            ("TemporaryFileSystem=/dev:ro", "BindPaths=/dev/shm"),
            ("InaccessiblePaths=/usr/lib", "BindReadOnlyPaths=/usr/lib/ginnel/x.so"),
            ("SystemCallFilter=read write mknodat", "SystemCallFilter=membarrier memfd_create to"),
            ("SystemCallFilter=~reboot mknodat:EPERM", "SystemCallFilter=mknodat to"),
            ("RestrictAddressFamilies=AF_INET", "RestrictAddressFamilies=AF_UNIX"),
            ("LimitNOFILE=64", "256"),
            ("LimitAS=1073741824", "17179869184"),
        ] {
            assert!(refused(said).contains(way), "{said}: {}", refused(said));
        }
        let home = look(&unit("ProtectHome=yes"), Path::new("/root/build/x.so"), false);
        assert!(home.expect_err("not seen").to_string().contains("docs/install.md"));
        assert!(
            look(
                &unit("TemporaryFileSystem=/dev\nBindPaths=/dev/shm"),
                Path::new("/usr/x.so"),
                false
            )
            .is_ok()
        );
    }
}
