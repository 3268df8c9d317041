//! `ginnel mpirun` and `ginnel mpi env`: the settings by which an MPI library's ranks reach each
//! other through shared memory.
//!
//! Each MPI library has its own names for the same two questions: which transport a rank takes, and
//! which variables the launcher hands to ranks. [`Library`] knows both. The launcher itself is not
//! carried: its own connections are few and long-lived, and on another host it may have no Ginnel.
//!
//! A job whose ranks were killed has nobody left to give back what they held in the provider's
//! segment, or the UCX transport's, which is the same. So `ginnel mpirun` waits for the launcher
//! then, and does that.

mod library;

use crate::args::Run;
use crate::args::mpi::{Env, For, Mpirun, Over};
use crate::name::SegmentName;
use crate::{exec, run};
use anyhow::{Context, Result, bail, ensure};
use ginnel_node::home::default_directory;
use ginnel_region::sys;
use library::{Library, owned, ucx_over_tcp};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A variable and its value.
type Setting = (&'static str, OsString);

/// A whole environment.
type Environment = Vec<(OsString, OsString)>;

const PROVIDER: &str = "libginnel-fi.so";
const TRANSPORT: &str = "libuct_ginnel.so";

/// Open MPI's list of variables for ranks.
const ENV_LIST: &str = "OMPI_MCA_mca_base_env_list";

/// The variable that has the job's key, which ranks seal their messages with.
const KEY: &str = "GINNEL_JOB_KEY";

/// The variable that names the ranks' segment.
const FABRIC: &str = "GINNEL_FABRIC";

/// How long ranks may take to end after their launcher. What a rank left running in the background
/// may go on for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// A library that lies beside the shim.
fn beside_shim(name: &str) -> Result<PathBuf> {
    let shim = run::shim()?;
    let path = shim.parent().unwrap_or(Path::new("/")).join(name);
    ensure!(path.is_file(), "{} is not there, beside {}", path.display(), shim.display());
    Ok(path)
}

/// What has libfabric find the provider, and what a rank has of Ginnel's settings.
fn of_provider(segment: Option<&SegmentName>) -> Result<Vec<Setting>> {
    let provider = beside_shim(PROVIDER)?;
    let folder = provider.parent().unwrap_or(Path::new("/"));
    let mut settings = vec![("FI_PROVIDER_PATH", folder.as_os_str().to_owned())];
    settings.extend(of_segment(segment)?);
    Ok(settings)
}

/// What has UCX take the transport, and what a rank has of Ginnel's settings.
fn of_transport(segment: Option<&SegmentName>) -> Result<Vec<Setting>> {
    let mut preload = beside_shim(TRANSPORT)?.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut settings = vec![("LD_PRELOAD", preload)];
    // What the user has said of it stands, but has to reach the ranks. Windows are to lie in the
    // segment.
    for (name, value) in [("UCX_TLS", "ginnel,self"), ("UCX_ALLOC_PRIO", "md:ginnel,thp,mmap,heap")]
    {
        settings.push((name, std::env::var_os(name).unwrap_or_else(|| value.into())));
    }
    let transports =
        settings.iter().find(|(name, _)| *name == "UCX_TLS").map(|(_, value)| value.clone());
    for name in transports.as_deref().map_or(&[][..], beside_others) {
        settings.push((name, std::env::var_os(name).unwrap_or_else(|| "inf".into())));
    }
    settings.push((KEY, std::env::var_os(KEY).unwrap_or_else(new_key)));
    settings.extend(of_segment(segment)?);
    Ok(settings)
}

/// From which length on UCX sends in other ways than by its first transport. Where it has another
/// transport beside this one, it takes that for what is long, also between ranks of one segment: so
/// never. But `cma` reads the sender's memory where ranks are on one kernel, in one copy.
fn beside_others(transports: &OsStr) -> &'static [&'static str] {
    let own = |word: &[u8]| [&b"ginnel"[..], b"self", b"cma"].contains(&word);
    let alone = transports.as_bytes().split(|byte| *byte == b',').all(own);
    if alone { &[] } else { &["UCX_RNDV_THRESH", "UCX_ZCOPY_THRESH"] }
}

fn new_key() -> OsString {
    format!("{:016x}{:016x}", sys::random_u64(), sys::random_u64()).into()
}

/// Which segment a rank is to use. Its paths begin at the root: a rank's working directory may be
/// another one.
fn of_segment(segment: Option<&SegmentName>) -> Result<Vec<Setting>> {
    let mut settings = of_environment(&["GINNEL_DIR", FABRIC]);
    if let Some(segment) = segment {
        settings.retain(|(name, _)| *name != FABRIC);
        settings.push((FABRIC, segment.path(&default_directory()).into()));
    }
    settings.retain(|(_, path)| !path.is_empty());
    for (name, path) in &mut settings {
        *path = std::path::absolute(&*path)
            .with_context(|| format!("{name}={}", path.display()))?
            .into();
    }
    settings.extend(of_environment(&["GINNEL_SIZE"]));
    Ok(settings)
}

/// What ranks are given, by the way that they take.
fn of_ranks(over: Over, segment: Option<&SegmentName>, verbose: bool) -> Result<Vec<Setting>> {
    match over {
        Over::Tcp => of_run(&as_run(segment.cloned(), verbose)),
        Over::Fabric => of_provider(segment),
        Over::Ucx => of_transport(segment),
    }
}

fn of_environment(names: &[&'static str]) -> Vec<Setting> {
    names.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect()
}

/// What `ginnel run` would set for a rank.
fn of_run(args: &Run) -> Result<Vec<Setting>> {
    const NAMES: [&str; 16] = [
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
        "GINNEL_RING",
        "GINNEL_RING_MAX",
        "GINNEL_BROKER",
        "GINNEL_GO",
        "GINNEL_TOKENS",
        "GINNEL_REPORT",
    ];
    let set = run::environment(args, ginnel_preload::Preload::Kept)?;
    let find =
        |name: &'static str| Some((name, set.iter().find(|(key, _)| key == name)?.1.clone()));
    Ok(NAMES.into_iter().filter_map(find).collect())
}

/// Becomes the launcher; returns only where that failed, with the exit status.
pub fn mpirun(args: &Mpirun) -> i32 {
    match prepare(args) {
        Ok((command, environment)) if args.over != Over::Tcp => wait(args, &command, environment),
        Ok((command, environment)) => {
            let errno = exec::exec(&command, None, environment);
            eprintln!(
                "ginnel: cannot run {}: {}",
                args.launcher.display(),
                std::io::Error::from_raw_os_error(errno)
            );
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
    // The last one counts; the user's own, which is among those before it, may be another.
    let named = environment.iter().rfind(|(name, _)| name == FABRIC).map(|(_, path)| path.into());
    let named = named.filter(|path: &PathBuf| !path.as_os_str().is_empty());
    let path = named.map_or_else(ginnel_fabric::node::default_path, Ok);
    let done = exec::wait_for(command, environment);
    // Ranks that are just being ended still hold what they have.
    exec::wait_for_the_rest(PATIENCE);
    if let Err(error) =
        path.and_then(|path| ginnel_fabric::node::clean(&path).map_err(|error| error.to_string()))
    {
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
        bail!(
            "{name}: no such program in PATH; Debian has it in the packages openmpi-bin and mpich"
        );
    };
    let library = Library::of(&launcher)?;
    let transport = library.transport(args.over)?;
    let ranks = of_ranks(args.over, args.segment.as_ref(), args.verbose)?;
    // What the user has said of the transport stands.
    let said = |(name, _): &Setting| std::env::var_os(name).is_none();
    let transport: Vec<Setting> = transport.into_iter().filter(said).collect();
    // As it was named: Open MPI's, called by a path, puts its own folder first into the ranks'
    // PATH.
    let mut command = vec![args.launcher.clone()];
    let list = in_list(library, &args.arguments, &ranks)?;
    let handed = if list.is_some() { Vec::new() } else { library.hand_on(&ranks) };
    command.extend(handed.iter().cloned());
    for argument in &args.arguments {
        command.push(argument.clone());
        // A job may have several programs, and Open MPI has variables for the ranks of one.
        if argument == ":" && library == Library::OpenMpi {
            command.extend(handed.iter().cloned());
        }
    }
    let segment = ranks.into_iter().filter(|(name, _)| [FABRIC, KEY].contains(name));
    let environment = std::env::vars_os()
        .chain(segment.chain(transport).chain(list).map(|(name, value)| (name.into(), value)));
    Ok((command, environment.collect()))
}

/// What Open MPI's ranks are given as its list of variables: where its launcher takes the job's
/// programs out of a file (`--app`), it does not look at other variables before that. Whoever hands
/// on variables of their own means a program's argument by that word: Open MPI would forget theirs,
/// too.
fn in_list(library: Library, arguments: &[OsString], ranks: &[Setting]) -> Result<Option<Setting>> {
    let has = |words: [&str; 2]| arguments.iter().any(|word| words.iter().any(|it| word == it));
    if library != Library::OpenMpi || !has(["--app", "-app"]) || has(["-x", "--x"]) {
        return Ok(None);
    }
    let mut list = std::env::var_os(ENV_LIST).filter(|own| !own.is_empty()).unwrap_or_default();
    if !list.is_empty() {
        list.push(";");
    }
    list.push(env_list(ranks)?);
    Ok(Some((ENV_LIST, list)))
}

fn as_run(segment: Option<SegmentName>, verbose: bool) -> Run {
    Run {
        segment,
        policy: None,
        allow: Vec::new(),
        verbose,
        no_spin: false,
        sysv: false,
        command: Vec::new(),
    }
}

/// Prints the settings as a shell's `export` lines.
pub fn env(args: &Env) -> Result<()> {
    let ranks = of_ranks(args.over, args.segment.as_ref(), false)?;
    let settings = match (args.library, args.over) {
        (For::Openmpi, over) => {
            let mut settings = Library::OpenMpi.transport(over)?;
            settings.push((ENV_LIST, env_list(&ranks)?));
            settings.extend(ranks.into_iter().filter(|(name, _)| *name == KEY));
            settings
        }
        (For::Mpich, over) => [Library::Mpich.transport(over)?, ranks].concat(),
        (For::Ucx, Over::Tcp) => [ucx_over_tcp(), ranks].concat(),
        (For::Ucx, Over::Ucx) => ranks,
        (For::Ucx, Over::Fabric) => bail!("UCX does not use libfabric: --over ucx or tcp"),
        (For::Libfabric, Over::Ucx) => {
            bail!("libfabric does not use Ginnel's transport for UCX: --over fabric or tcp")
        }
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
            bail!(
                "{name}={} has a semicolon, which Open MPI's list of variables cannot hold: use ginnel mpirun",
                value.display()
            );
        }
        if !list.is_empty() {
            list.push(";");
        }
        list.push(name);
        // That one is taken from the launcher's environment.
        if *name != KEY {
            list.push("=");
            list.push(value);
        }
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
        assert_eq!(
            Library::by_version("mpirun (Open MPI) 4.1.4\n\nReport bugs"),
            Some(Library::OpenMpi)
        );
        assert_eq!(
            Library::by_version("HYDRA build details:\n    Version:  4.0.2"),
            Some(Library::Mpich)
        );
        assert_eq!(Library::by_version("Intel(R) MPI Library"), None);
    }

    #[test]
    fn each_launcher_hands_variables_on_in_its_own_words() {
        let settings = owned(&[("A", "1"), ("B", "x y")]);
        assert_eq!(Library::OpenMpi.hand_on(&settings), ["-x", "A=1", "-x", "B=x y"]);
        assert_eq!(Library::Mpich.hand_on(&settings), ["-genv", "A", "1", "-genv", "B", "x y"]);
    }

    #[test]
    fn all_of_open_mpi_that_uses_libfabric_takes_the_provider() {
        let set = Library::OpenMpi.transport(Over::Fabric).expect("Open MPI has libfabric");
        for name in ["OMPI_MCA_mtl_ofi_provider_include", "OMPI_MCA_btl_ofi_provider_include"] {
            assert!(set.contains(&(name, "ginnel".into())), "{name}: {set:?}");
        }
    }

    #[test]
    fn long_messages_stay_in_the_segment_beside_other_transports() {
        let set = |transports: &str| beside_others(OsStr::new(transports)).len();
        assert_eq!(
            ["ginnel", "ginnel,self", "ginnel,cma,self", "ginnel,tcp,self", "all"].map(set),
            [0, 0, 0, 2, 2]
        );
    }

    #[test]
    fn words_of_a_shell_and_of_open_mpi() {
        assert_eq!(quoted(OsStr::new("a'b c")), b"'a'\\''b c'");
        assert_eq!(env_list(&owned(&[("A", "1"), ("B", "2")])).expect("a list"), "A=1;B=2");
        assert!(env_list(&owned(&[("A", "1;2")])).is_err());
    }
}
