//! The rules that `ginnel run` hands to a program: the machine's, and after them the user's.

use anyhow::{Context, Result, bail, ensure};
use ginnel_host::config::DEFAULT_FILE;
use ginnel_tcp::policy::Policy;
use std::env::VarError;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The variable by which the shim learns them.
pub const VARIABLE: &str = "GINNEL_POLICY";

/// The machine's.
const SYSTEM: &str = "/etc/ginnel/policy";

/// All rules that hold for a program: `file` is what `--policy` named, `allowed` what `--allow`
/// did, `trusted` what ginneld's configuration trusts in the segment. `None`: there are none.
pub fn rules(
    file: Option<&Path>,
    allowed: &[String],
    trusted: &[String],
) -> Result<Option<OsString>> {
    let system = read(Path::new(SYSTEM), true)?;
    let given = match std::env::var(VARIABLE) {
        Err(VarError::NotUnicode(_)) => bail!("{VARIABLE} is not UTF-8"),
        given => given,
    };
    let own = match (file, given) {
        (Some(file), _) => read(file, false)?,
        // A program under ginnel that starts another so: they stand there already.
        (None, Ok(given)) => {
            checked(VARIABLE, given.strip_prefix(system.as_str()).unwrap_or(&given).to_owned())?
        }
        (None, Err(_)) => users_file().map_or_else(|| Ok(String::new()), |file| read_own(&file))?,
    };
    let mut all = system + &own;
    let given = allowed.iter().map(|address| ("--allow", address));
    for (place, address) in given.chain(trusted.iter().map(|address| (DEFAULT_FILE, address))) {
        let rule = checked(place, format!("trust address {address}"))?;
        // What a program before this one allowed stands there already.
        if !all.lines().any(|line| line == rule) {
            all = format!("{}\n{rule}\n", all.trim_end());
        }
    }
    // A file that was named counts instead of what the environment says, also if it is empty.
    Ok((file.is_some() || !all.trim().is_empty()).then(|| all.into()))
}

/// The machine's rules, what was allowed and what is trusted in the segment (as for [`rules`]), on
/// one line, for a place that outlives this user's session.
pub fn for_service(allowed: &[String], trusted: &[String]) -> Result<Option<String>> {
    let system = read(Path::new(SYSTEM), true)?;
    let rules = system.lines().map(|line| line.split('#').next().unwrap_or_default());
    let rules = rules.flat_map(|line| line.split(';')).map(|rule| rule.trim().to_owned());
    let mut rules: Vec<String> = rules.filter(|rule| !rule.is_empty()).collect();
    let given = allowed.iter().map(|address| ("--allow", address));
    for (place, address) in given.chain(trusted.iter().map(|address| (DEFAULT_FILE, address))) {
        rules.push(checked(place, format!("trust address {address}"))?);
    }
    Ok((!rules.is_empty()).then(|| rules.join("; ")))
}

fn users_file() -> Option<PathBuf> {
    let configuration =
        std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let configuration = configuration.or_else(|| {
        Some(Path::new(&std::env::var_os("HOME").filter(|dir| !dir.is_empty())?).join(".config"))
    })?;
    Some(configuration.join("ginnel/policy"))
}

/// The user's own, by default: whose home cannot even be entered (it may be that of another user,
/// before a change) has none.
fn read_own(file: &Path) -> Result<String> {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(String::new()),
        _ => read(file, true),
    }
}

fn read(file: &Path, may_be_missing: bool) -> Result<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => checked(&file.display().to_string(), text + "\n"),
        Err(error)
            if may_be_missing
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            Ok(String::new())
        }
        // Whoever wrote it meant something by it: no program runs without.
        Err(error) => Err(error).with_context(|| format!("policy {}", file.display())),
    }
}

fn checked(place: &str, text: String) -> Result<String> {
    // An environment variable ends there, and what follows would not be heeded.
    ensure!(!text.contains('\0'), "policy in {place}: a NUL byte");
    Policy::parse(&text).with_context(|| format!("policy in {place}"))?;
    Ok(text)
}
