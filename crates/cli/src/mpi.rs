//! `ginnel mpirun` and `ginnel mpi env`: the settings by which an MPI library's ranks reach each other
//! through shared memory.
//!
//! Each MPI library has its own names for the same two questions: which transport a rank takes, and
//! which variables the launcher hands to ranks. [`Library`] knows both. The launcher itself is not
//! carried: its own connections are few and long-lived, and on another host it may have no Ginnel.
//!
//! A job whose ranks were killed has nobody left to give back what they held in the provider's segment. So
//! `ginnel mpirun --over fabric` waits for the launcher, and does that.

use crate::args::{Env, For, Mpirun, Over, Run};
use crate::name::SegmentName;
use crate::{exec, run};
use anyhow::{Context, Result, bail, ensure};
use ginnel_node::home::default_directory;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A variable and its value.
type Setting = (&'static str, OsString);

/// A whole environment.
type Environment = Vec<(OsString, OsString)>;

/// An MPI library, by its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    OpenMpi,
    Mpich,
}

impl Library {
    /// Which library's launcher this is, by what it says of its version.
    fn of(launcher: &Path) -> Result<Self> {
        let name = launcher.display();
        let said = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
        let said = said.with_context(|| format!("asking {name} for its version"))?;
        let text = String::from_utf8_lossy(&said.stdout);
        Self::by_version(&text)
            .with_context(|| format!("{name} is neither Open MPI's nor MPICH's (Hydra): it says {:?}", text.lines().next()))
    }

    fn by_version(text: &str) -> Option<Self> {
        let says = |word: &str| text.contains(word);
        if says("Open MPI") || says("OpenRTE") { Some(Self::OpenMpi) } else { says("HYDRA").then_some(Self::Mpich) }
    }

    /// What chooses the transport.
    fn transport(self, over: Over) -> Result<Vec<Setting>> {
        match (self, over) {
            (Self::OpenMpi, Over::Tcp) => Ok(owned(&[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "tcp,self")])),
            (Self::Mpich, Over::Tcp) => Ok(ucx_over_tcp()),
            // osc/rdma of Open MPI 4.1.4 crashes in MPI_Compare_and_swap, whatever is below it.
            (Self::OpenMpi, Over::Fabric) => Ok(owned(&[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "ginnel"),
                ("OMPI_MCA_osc", "^rdma"),
            ])),
            (Self::Mpich, Over::Fabric) => bail!(
                "Debian's MPICH has UCX and no libfabric: use --over tcp, or an MPICH that was built with ch4:ofi \
                 and the settings of ginnel mpi env --for libfabric --over fabric"
            ),
        }
    }

    /// The launcher's arguments that hand variables to every rank, on every host.
    fn hand_on(self, settings: &[Setting]) -> Vec<OsString> {
        let one = |(name, value): &Setting| match self {
            Self::OpenMpi => {
                let mut both = OsString::from(name);
                both.push("=");
                both.push(value);
                vec!["-x".into(), both]
            }
            Self::Mpich => vec!["-genv".into(), name.into(), value.clone()],
        };
        settings.iter().flat_map(one).collect()
    }
}

fn owned(settings: &[(&'static str, &str)]) -> Vec<Setting> {
    settings.iter().map(|(name, value)| (*name, value.into())).collect()
}

/// UCX by sockets alone: it would take its own shared memory within one container otherwise.
fn ucx_over_tcp() -> Vec<Setting> {
    owned(&[("UCX_TLS", "tcp,self")])
}

const PROVIDER: &str = "libginnel-fi.so";

/// What has libfabric find the provider, and what a rank has of Ginnel's settings.
fn of_provider(segment: Option<&SegmentName>) -> Result<Vec<Setting>> {
    let shim = run::shim()?;
    let folder = shim.parent().unwrap_or(Path::new("/"));
    ensure!(folder.join(PROVIDER).is_file(), "{PROVIDER} is not in {}, beside {}", folder.display(), shim.display());
    let mut settings = vec![("FI_PROVIDER_PATH", folder.as_os_str().to_owned())];
    settings.extend(of_environment(&["GINNEL_DIR", "GINNEL_SIZE"]));
    if let Some(segment) = segment {
        settings.push(("GINNEL_FABRIC", std::path::absolute(segment.path(&default_directory()))?.into()));
    } else {
        settings.extend(of_environment(&["GINNEL_FABRIC"]));
    }
    Ok(settings)
}

fn of_environment(names: &[&'static str]) -> Vec<Setting> {
    names.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect()
}

/// What `ginnel run` would set for a rank.
fn of_run(args: &Run) -> Result<Vec<Setting>> {
    const NAMES: [&str; 11] = [
        "LD_PRELOAD",
        "ASAN_OPTIONS",
        "GINNEL_DIR",
        "GINNEL_SEGMENT",
        "GINNEL_FOUND",
        "GINNEL_SIZE",
        "GINNEL_SPIN",
        "GINNEL_POLICY",
        "GINNEL_VERBOSE",
        "GINNEL_AFTER",
        "GINNEL_REPORT",
    ];
    let set = run::environment(args, ginnel_preload::Preload::Kept)?;
    let find = |name: &'static str| Some((name, set.iter().find(|(key, _)| key == name)?.1.clone()));
    Ok(NAMES.into_iter().filter_map(find).collect())
}

/// Becomes the launcher; returns only where that failed, with the exit status.
pub fn mpirun(args: &Mpirun) -> i32 {
    match prepare(args) {
        Ok((command, environment)) if args.over == Over::Fabric => wait(args, &command, environment),
        Ok((command, environment)) => {
            let errno = exec::exec(&command, None, environment);
            eprintln!("ginnel: cannot run {}: {}", args.launcher.display(), std::io::Error::from_raw_os_error(errno));
            run::CANNOT
        }
        Err(error) => {
            eprintln!("ginnel: {error:#}");
            run::OWN
        }
    }
}

/// Runs the launcher to its end, and gives back what killed ranks held.
fn wait(args: &Mpirun, command: &[OsString], environment: Environment) -> i32 {
    let named = environment.iter().find(|(name, _)| name == "GINNEL_FABRIC").map(|(_, path)| path.into());
    let path = named.map_or_else(ginnel_fabric::node::default_path, Ok);
    let done = exec::wait_for(command, environment);
    if let Err(error) = path.and_then(|path| ginnel_fabric::node::clean(&path).map_err(|error| format!("{error:?}"))) {
        eprintln!("ginnel: cannot look for what ended ranks left: {error}");
    }
    done.unwrap_or_else(|error| {
        eprintln!("ginnel: cannot run {}: {error}", args.launcher.display());
        run::CANNOT
    })
}

/// The launcher's command line and environment.
fn prepare(args: &Mpirun) -> Result<(Vec<OsString>, Environment)> {
    let name = args.launcher.display();
    let Some(launcher) = run::find(&args.launcher) else {
        bail!("{name}: no such program in PATH; Debian has it in the packages openmpi-bin and mpich");
    };
    let library = Library::of(&launcher)?;
    let transport = library.transport(args.over)?;
    let ranks = match args.over {
        Over::Tcp => of_run(&as_run(args.segment.clone(), args.verbose))?,
        Over::Fabric => of_provider(args.segment.as_ref())?,
    };
    // What the user has said of the transport stands.
    let said = |(name, _): &Setting| std::env::var_os(name).is_none();
    let transport: Vec<Setting> = transport.into_iter().filter(said).collect();
    // As it was named: Open MPI's, called by a path, puts its own folder first into the ranks' PATH.
    let mut command = vec![args.launcher.clone()];
    command.extend(library.hand_on(&ranks));
    command.extend(args.arguments.iter().cloned());
    let segment = ranks.into_iter().filter(|(name, _)| *name == "GINNEL_FABRIC");
    let environment = std::env::vars_os().chain(segment.chain(transport).map(|(name, value)| (name.into(), value)));
    Ok((command, environment.collect()))
}

fn as_run(segment: Option<SegmentName>, verbose: bool) -> Run {
    Run { segment, policy: None, allow: Vec::new(), verbose, no_spin: false, command: Vec::new() }
}

/// Prints the settings as a shell's `export` lines.
pub fn env(args: &Env) -> Result<()> {
    let ranks = match args.over {
        Over::Tcp => of_run(&as_run(args.segment.clone(), false))?,
        Over::Fabric => of_provider(args.segment.as_ref())?,
    };
    let settings = match (args.library, args.over) {
        (For::Openmpi, over) => {
            let mut settings = Library::OpenMpi.transport(over)?;
            settings.push(("OMPI_MCA_mca_base_env_list", env_list(&ranks)?));
            settings
        }
        (For::Mpich, over) => [Library::Mpich.transport(over)?, ranks].concat(),
        (For::Ucx, Over::Tcp) => [ucx_over_tcp(), ranks].concat(),
        (For::Ucx, Over::Fabric) => bail!("UCX does not use libfabric: --over tcp"),
        (For::Libfabric, Over::Tcp) => [owned(&[("FI_PROVIDER", "tcp")]), ranks].concat(),
        (For::Libfabric, Over::Fabric) => [owned(&[("FI_PROVIDER", "ginnel")]), ranks].concat(),
    };
    let mut text = Vec::new();
    for (name, value) in settings {
        text.extend_from_slice(format!("export {name}=").as_bytes());
        text.extend_from_slice(&quoted(&value));
        text.push(b'\n');
    }
    std::io::stdout().write_all(&text).context("standard output")
}

/// Open MPI's list of variables for ranks: `NAME=value` between semicolons.
fn env_list(settings: &[Setting]) -> Result<OsString> {
    let mut list = OsString::new();
    for (name, value) in settings {
        if value.as_bytes().contains(&b';') {
            bail!("{name}={} has a semicolon, which Open MPI's list of variables cannot hold: use ginnel mpirun", value.display());
        }
        if !list.is_empty() {
            list.push(";");
        }
        list.push(name);
        list.push("=");
        list.push(value);
    }
    Ok(list)
}

/// The value as one word of a POSIX shell.
fn quoted(value: &OsStr) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in value.as_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_is_known_by_its_version() {
        assert_eq!(Library::by_version("mpirun (Open MPI) 4.1.4\n\nReport bugs"), Some(Library::OpenMpi));
        assert_eq!(Library::by_version("HYDRA build details:\n    Version:  4.0.2"), Some(Library::Mpich));
        assert_eq!(Library::by_version("Intel(R) MPI Library"), None);
    }

    #[test]
    fn each_launcher_hands_variables_on_in_its_own_words() {
        let settings = owned(&[("A", "1"), ("B", "x y")]);
        assert_eq!(Library::OpenMpi.hand_on(&settings), ["-x", "A=1", "-x", "B=x y"]);
        assert_eq!(Library::Mpich.hand_on(&settings), ["-genv", "A", "1", "-genv", "B", "x y"]);
    }

    #[test]
    fn words_of_a_shell_and_of_open_mpi() {
        assert_eq!(quoted(OsStr::new("a'b c")), b"'a'\\''b c'");
        assert_eq!(env_list(&owned(&[("A", "1"), ("B", "2")])).expect("a list"), "A=1;B=2");
        assert!(env_list(&owned(&[("A", "1;2")])).is_err());
    }
}
