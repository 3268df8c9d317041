//! `ginnel run`: becomes the program, with the shim preloaded.

use crate::args::Run;
use crate::name::SegmentName;
use crate::{exec, policy, served};
use anyhow::{Context, Result, bail, ensure};
use ginnel_node::home::{check_directory, default_directory};
use ginnel_node::join::is_socket;
use ginnel_preload::{BY_LOADER, Finding, LIB, LOADER, Preload, TOKEN, Unreachable, Way};
use ginnel_region::device;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// As env(1): ginnel itself failed, the program cannot be started, the program was not found.
pub const OWN: i32 = 125;
pub const CANNOT: i32 = 126;
const MISSING: i32 = 127;

const SHIM: &str = "libginnel_shim.so";
/// What is preloaded beside it for System V objects.
const SYSV: &str = "libginnel_sysv.so";

/// Settings that are numbers. The shim itself takes what it does not understand for not said: it
/// must not keep a program from running.
const NUMBERS: [&str; 7] = [
    "GINNEL_SIZE",
    "GINNEL_SPIN",
    "GINNEL_AFTER",
    "GINNEL_RING",
    "GINNEL_RING_MAX",
    "GINNEL_TOKENS",
    "GINNEL_VERBOSE",
];

/// Runs the program; returns only where that failed, with the exit status.
pub fn run(args: &Run) -> i32 {
    let Some(program) = args.command.first() else {
        return OWN;
    };
    let file = find(program);
    let name = file.as_deref().and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
    let finding =
        file.as_deref().and_then(look).filter(|finding| finding.why != Unreachable::Unknown);
    let loader = loader(finding.as_ref(), name.as_deref());
    let way = if is_switched_off(finding.as_ref()) {
        Way::None
    } else {
        ginnel_preload::way(finding.map(|finding| finding.why), loader.is_some())
    };
    // The file to execute in the program's place.
    let in_place = loader.filter(|_| way == Way::Loader);
    let mut environment =
        match environment(args, finding.map_or(Preload::Kept, |finding| finding.preload())) {
            Ok(environment) => environment,
            Err(error) => {
                eprintln!("ginnel: {error:#}");
                return OWN;
            }
        };
    let directory = default_directory();
    // The shim will say no more than that in silence.
    if let Err(why) = if directory.exists() { check_directory(&directory) } else { Ok(()) } {
        eprintln!("ginnel: {why}; connections stay on TCP");
    }
    if let (Some(_), Some(file)) = (&in_place, &file) {
        environment.push((BY_LOADER.to_string_lossy().into_owned().into(), file.into()));
    }
    if let (Some(finding), Some(file)) = (finding.filter(|_| way == Way::None), &file) {
        let sysv = if args.sysv { ", and its System V objects in the kernel" } else { "" };
        eprintln!("ginnel: {}: it stays on TCP{sysv}", says(finding, file));
    }
    let errno = exec::exec(&args.command, in_place.as_deref(), environment);
    let error = std::io::Error::from_raw_os_error(errno);
    let name = program.display();
    if errno != libc::ENOENT {
        eprintln!("ginnel: cannot run {name}: {error}");
        return CANNOT;
    }
    match file {
        // Then what is missing is the interpreter that the file names.
        Some(file) => {
            eprintln!("ginnel: cannot run {}: its interpreter is missing", file.display())
        }
        None if program.as_bytes().contains(&b'/') => eprintln!("ginnel: {name}: no such file"),
        None => eprintln!("ginnel: {name}: no such program in PATH"),
    }
    MISSING
}

/// Looks whether the program in `file` can have the library; `None` if it can.
pub fn look(file: &Path) -> Option<Finding> {
    look_with(file, shim().ok().as_deref())
}

/// The same for a library that is known; `None` for it: what it needs is not.
pub fn look_with(file: &Path, library: Option<&Path>) -> Option<Finding> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
    ginnel_preload::look(&name(file)?, library.and_then(name).as_deref())
}

/// What was found about the program in `file`, or about the interpreter that it names.
pub fn says(finding: Finding, file: &Path) -> String {
    let file = file.to_string_lossy();
    let decided = finding.interpreter().map_or(file, |interpreter| interpreter.to_string_lossy());
    format!("{decided} {}", finding.why)
}

/// What is executed in the place of a program in Go without a dynamic linker: it lies beside the
/// library.
fn loader(finding: Option<&Finding>, program: Option<&CStr>) -> Option<PathBuf> {
    finding.filter(|finding| {
        finding.why == Unreachable::StaticGo && finding.interpreter().is_none()
    })?;
    let loader = shim().ok()?.with_file_name(LOADER);
    let name = CString::new(loader.as_os_str().as_bytes()).ok()?;
    ginnel_preload::can_load(&name, program?).then_some(loader)
}

/// Is it in Go, and has the user switched such programs off, or not asked for static ones?
fn is_switched_off(finding: Option<&Finding>) -> bool {
    finding.is_some_and(|finding| match finding.why {
        Unreachable::Go => ginnel_preload::is_go_off(),
        Unreachable::StaticGo => !ginnel_preload::is_static_go_on(),
        _ => false,
    })
}

/// How the program in `file`, of which this was found, comes to have the library.
pub fn way(finding: &Finding, file: &Path) -> Way {
    if is_switched_off(Some(finding)) {
        return Way::None;
    }
    let name = CString::new(file.as_os_str().as_bytes()).ok();
    ginnel_preload::way(Some(finding.why), loader(Some(finding), name.as_deref()).is_some())
}

/// The file that the program's name means.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists().then(|| program.into());
    }
    // The C library's own default where there is no PATH (confstr(3), _CS_PATH).
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| exec::is_executable(file))
}

/// The variables that are numbers must be numbers.
fn check_numbers() -> Result<()> {
    for key in NUMBERS {
        if let Some(value) = std::env::var_os(key).filter(|value| !value.is_empty()) {
            let is_number = value.to_str().is_some_and(|value| value.trim().parse::<u64>().is_ok());
            ensure!(
                is_number,
                "{key}={}: not a whole number (see ginnel run --help)",
                value.display()
            );
        }
    }
    Ok(())
}

/// What GINNEL_SEGMENT is to be for the segment that the user named.
fn segment_of(segment: &SegmentName) -> Result<OsString> {
    let path = segment.path(&default_directory());
    if !segment.is_path() {
        return Ok(served::socket(segment.as_str())
            .map_or_else(|| segment.as_str().into(), PathBuf::into_os_string));
    }
    // The program may change its directory.
    let path = std::path::absolute(&path).with_context(|| format!("segment {}", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    // Where a daemon is gone the program goes on over TCP, and the shim says why.
    ensure!(
        directory.is_dir() || is_socket(&path),
        "segment {}: there is no directory {}",
        path.display(),
        directory.display()
    );
    Ok(path.into())
}

/// This process's environment, with Ginnel's settings.
pub fn environment(args: &Run, preload: Preload) -> Result<Vec<(OsString, OsString)>> {
    check_numbers()?;
    let mut changes: Vec<(&str, OsString)> = Vec::new();
    if preload != Preload::Gone {
        let shim = shim()?;
        let list = with_shim(std::env::var_os("LD_PRELOAD"), &shim, preload)?;
        let list = if args.sysv { with_sysv(&list, &shim)? } else { list };
        changes.push(("LD_PRELOAD", list));
        changes.push(("ASAN_OPTIONS", sanitizers_options(std::env::var_os("ASAN_OPTIONS"))));
    }
    if let Some(segment) = &args.segment {
        changes.push(("GINNEL_SEGMENT", segment_of(segment)?));
    } else if let Some(socket) = served::from_environment() {
        changes.push(("GINNEL_SEGMENT", socket.into()));
    }
    // In a virtual machine: the segment that its host shares with it, unless something else was
    // said.
    if args.segment.is_none()
        && std::env::var_os("GINNEL_SEGMENT").is_none()
        && let Some(device) = device::find()
    {
        changes.push(("GINNEL_SEGMENT", device.into()));
        // After a detach another device may be taken.
        changes.push(("GINNEL_FOUND", "1".into()));
    }
    let socket =
        changes.iter().find(|(key, _)| *key == "GINNEL_SEGMENT").map(|(_, path)| Path::new(path));
    let trusted = socket.map(served::trusted).unwrap_or_default();
    if let Some(rules) = policy::rules(args.policy.as_deref(), &args.allow, &trusted)? {
        changes.push((policy::VARIABLE, rules));
    }
    if args.verbose {
        changes.push(("GINNEL_VERBOSE", "1".into()));
    }
    if args.no_spin {
        changes.push(("GINNEL_SPIN", "0".into()));
    }
    let stale = |key: &OsString| {
        args.segment.is_some() && key == "GINNEL_FOUND"
            || changes.iter().any(|(changed, _)| key == changed)
    };
    let kept = std::env::vars_os().filter(|(key, _)| !stale(key)).collect::<Vec<_>>();
    Ok(kept
        .into_iter()
        .chain(changes.into_iter().map(|(key, value)| (key.into(), value)))
        .collect())
}

/// The library to preload.
pub fn shim() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("GINNEL_SHIM") {
        let path = std::path::absolute(&given).unwrap_or_else(|_| given.into());
        ensure!(path.is_file(), "GINNEL_SHIM: there is no file {}", path.display());
        return Ok(path);
    }
    let own = std::env::current_exe()
        .context("cannot tell where ginnel is; set GINNEL_SHIM to its library")?;
    let here = own.parent().unwrap_or(Path::new("/"));
    let beside = here.parent().unwrap_or(Path::new("/"));
    let places = [
        here.join(SHIM),
        beside.join("lib/ginnel").join(SHIM),
        Path::new("/usr/lib/ginnel").join(SHIM),
    ];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.clone()),
        None => bail!(
            "{SHIM} is not in {}, nor in ../lib/ginnel or /usr/lib/ginnel: build it (make build), or set GINNEL_SHIM",
            here.display()
        ),
    }
}

/// How the library is named where nobody sees which programs are started: for each C library that
/// there is one for.
pub fn for_all(shim: &Path) -> Preload {
    let name = CString::new(shim.as_os_str().as_bytes());
    if name.is_ok_and(|name| ginnel_preload::has_musl(&name)) {
        Preload::Either
    } else {
        Preload::Token
    }
}

/// The list of preloads with the shim first, once (ld.so(8): divided by spaces or colons).
pub fn with_shim(before: Option<OsString>, shim: &Path, preload: Preload) -> Result<OsString> {
    let name = shim.as_os_str().as_bytes();
    let divides = |byte: &u8| *byte == b' ' || *byte == b':';
    ensure!(
        !name.iter().any(divides),
        "{} cannot be preloaded: its path has a space or a colon",
        shim.display()
    );
    let before = before.unwrap_or_default();
    let own = ginnel_preload::parts(name);
    let mut list = match preload {
        Preload::Either => {
            let (folder, file) =
                (shim.parent().unwrap_or(Path::new("/")), shim.file_name().unwrap_or_default());
            folder.join(LIB).join(file).into_os_string()
        }
        Preload::Kept => shim.into(),
        Preload::Token | Preload::TokenOnly | Preload::Gone => {
            [OsStr::new(TOKEN), shim.as_os_str()].into_iter().collect()
        }
    };
    let is_shim = |other: &[u8]| {
        other == name || ginnel_preload::parts(other).is_some_and(|parts| Some(parts) == own)
    };
    for other in
        before.as_bytes().split(divides).filter(|other| !other.is_empty() && !is_shim(other))
    {
        list.push(":");
        list.push(OsStr::from_bytes(other));
    }
    Ok(list)
}

/// The list with the library for System V objects in it, once, which lies beside the shim. It is
/// named so that only glibc's dynamic linker finds it: see [`TOKEN`].
fn with_sysv(list: &OsStr, shim: &Path) -> Result<OsString> {
    let library = shim.with_file_name(SYSV);
    ensure!(
        library.is_file(),
        "{SYSV} is not in {}: build it (make build)",
        shim.parent().unwrap_or(shim).display()
    );
    let mut name = OsString::from(TOKEN);
    name.push(&library);
    let is_it = |other: &[u8]| other == name.as_bytes() || other == library.as_os_str().as_bytes();
    let others = list
        .as_bytes()
        .split(|byte| *byte == b':')
        .filter(|other| !is_it(other))
        .map(OsStr::from_bytes);
    let mut others: Vec<OsString> = others.map(OsStr::to_owned).collect();
    others.insert(others.len().min(1), name);
    Ok(others.join(OsStr::new(":")))
}

/// A program built with an address sanitizer does not start where a preloaded library comes before
/// the sanitizer's own, lest that go unnoticed (compiler-rt, `asan_linux.cpp`), unless it is told
/// to. The shim's calls go on to those of the sanitizer, so it may start.
fn sanitizers_options(before: Option<OsString>) -> OsString {
    const OPTION: &str = "verify_asan_link_order";
    let before = before.unwrap_or_default();
    if before.to_string_lossy().contains(OPTION) {
        return before;
    }
    let mut options = before;
    if !options.is_empty() {
        options.push(":");
    }
    options.push(format!("{OPTION}=0"));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shim_is_preloaded_first_and_once() {
        let named = |before: &str, preload| {
            with_shim(Some(before.into()), Path::new("/l/shim.so"), preload).expect("a list")
        };
        let with = |before: &str| named(before, Preload::Kept);
        assert_eq!(with(""), "/l/shim.so");
        assert_eq!(with("/a.so /b.so"), "/l/shim.so:/a.so:/b.so");
        assert_eq!(with("/a.so:/l/shim.so"), "/l/shim.so:/a.so");
        let token = format!("{TOKEN}/l/shim.so");
        assert_eq!(
            with(&format!("{token}:/a.so")),
            "/l/shim.so:/a.so",
            "it is one library by either name"
        );
        assert_eq!(named("/l/shim.so", Preload::Token), token.as_str());
        assert_eq!(named(&token, Preload::Token), token.as_str());
        let either = "/l/$LIB/shim.so";
        assert_eq!(named(&token, Preload::Either), either);
        assert_eq!(with(&format!("{either}:/a.so")), "/l/shim.so:/a.so");
        assert!(with_shim(None, Path::new("/with space/shim.so"), Preload::Kept).is_err());
    }

    #[test]
    fn the_library_for_system_v_comes_behind_the_shim_and_once() {
        let place = tempfile::tempdir().expect("a directory");
        let shim = place.path().join(SHIM);
        let with = |list: &str| with_sysv(OsStr::new(list), &shim);
        assert!(with("/shim.so").is_err(), "it is not there");
        std::fs::write(place.path().join(SYSV), "").expect("written");
        let name = format!("{TOKEN}{}", place.path().join(SYSV).display());
        let once = with("/shim.so:/a.so").expect("a list");
        assert_eq!(once, format!("/shim.so:{name}:/a.so").as_str());
        assert_eq!(with(&once.to_string_lossy()).expect("a list"), once);
    }

    #[test]
    fn sanitizers_are_told_once_and_the_users_word_stands() {
        let with = |before: &str| sanitizers_options(Some(before.into()));
        assert_eq!(sanitizers_options(None), "verify_asan_link_order=0");
        assert_eq!(with("detect_leaks=0"), "detect_leaks=0:verify_asan_link_order=0");
        assert_eq!(with("verify_asan_link_order=1"), "verify_asan_link_order=1");
    }

    #[test]
    fn programs_are_found_as_the_c_library_finds_them() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find(OsStr::new("no-such-program-anywhere")), None);
        assert_eq!(find(OsStr::new("/no/such/file")), None);
        assert_eq!(find(OsStr::new("/bin/sh")), Some("/bin/sh".into()));
    }
}
