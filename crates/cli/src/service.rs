//! `ginnel service`: a systemd service runs with the library, by a drop-in, and without it again.
//!
//! The drop-in names the library and the segment, and opens the unit's sandbox where it is narrower
//! than the library needs. It names no directory (`GINNEL_DIR`): that of the service's own user is
//! the library's choice, also where the service changes its user, or has another one each time.

mod dropin;
mod sandbox;
mod status;
pub mod systemd;

use crate::args::service::{Disable, Enable, ServiceCommand};
use crate::status::print;
use crate::{policy, run, served};
use anyhow::{Context, Result, bail, ensure};
use ginnel_node::join::is_socket;
use ginnel_preload::{Unreachable, Way};
use status::{count, processes, status};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use systemd::{Manager, Unit};

/// So long a service must run to count as started.
const SETTLING: Duration = Duration::from_secs(1);

/// Runs one of them.
pub fn service(command: &ServiceCommand) -> Result<()> {
    match command {
        ServiceCommand::Enable(args) => enable(args),
        ServiceCommand::Disable(args) => disable(args),
        ServiceCommand::Status(args) => status(args),
    }
}

/// What is to be done for one service.
struct Plan {
    unit: Unit,
    place: PathBuf,
    text: String,
    remarks: Vec<String>,
}

fn enable(args: &Enable) -> Result<()> {
    let manager = Manager { user: args.user };
    manager.must_run()?;
    let library = library(args.user)?;
    let common = variables(args)?;
    // All of them are looked at before anything is written.
    let plans: Vec<Plan> = args
        .units
        .iter()
        .map(|name| plan(manager, name, &library, &common))
        .collect::<Result<_>>()?;
    let mut written = Vec::new();
    let done = plans.iter().try_for_each(|plan| {
        let before = dropin::is_there(&plan.place)?;
        dropin::write(&plan.place, &plan.text)?;
        written.extend((!before).then_some(&plan.place));
        Ok(())
    });
    let done = done.and_then(|()| manager.systemctl(&["daemon-reload"]).map(drop));
    let done =
        done.and_then(|()| plans.iter().try_for_each(|plan| counts(manager, plan, &library)));
    if let Err(error) = done {
        take_back(manager, &written);
        return Err(error);
    }
    // Where one does not start, the others are switched on nevertheless.
    let mut done = Ok(());
    for plan in &plans {
        report(manager, plan)?;
        if args.now {
            done = done.and(restart(manager, plan, &library));
        }
    }
    done.and(users_apart(&plans, args))
}

fn report(manager: Manager, plan: &Plan) -> Result<()> {
    let name = &plan.unit.name;
    let mut text = format!("{name}: switched on by {}\n", plan.place.display());
    for remark in &plan.remarks {
        text += &format!("  {remark}\n");
    }
    if plan.unit.get("ActiveState") == "active" {
        let user = if manager.user { "--user " } else { "" };
        text += &format!("  it runs; --now restarts it, or `systemctl {user}restart {name}`\n");
    }
    print(&text)
}

/// The library as services may load it: not every user can read what lies below a home.
fn library(user: bool) -> Result<PathBuf> {
    let library = run::shim()?;
    let library = library.canonicalize().with_context(|| library.display().to_string())?;
    let closed = library.ancestors().find(|path| {
        let bits = if path == &library { 0o004 } else { 0o001 };
        fs::metadata(path).map_or(true, |meta| meta.permissions().mode() & bits == 0)
    });
    match closed.filter(|_| !user) {
        Some(path) => bail!(
            "{} cannot be loaded by every user's services ({} is closed to others): install Ginnel (docs/install.md), \
             or name a library with GINNEL_SHIM",
            library.display(),
            path.display()
        ),
        None => Ok(library),
    }
}

/// The variables that are the same for all services.
fn variables(args: &Enable) -> Result<Vec<(String, String)>> {
    let (mut all, mut trusted) = (Vec::new(), Vec::new());
    if let Some(segment) = &args.segment {
        let named = match served::socket(segment.as_str()).filter(|_| !segment.is_path()) {
            Some(socket) => socket,
            None => PathBuf::from(segment.as_str()),
        };
        if segment.is_path() {
            let there = named.is_absolute()
                && (is_socket(&named) || named.parent().is_some_and(Path::is_dir));
            ensure!(
                there,
                "segment {}: must be an absolute path in a directory that is there",
                named.display()
            );
        }
        trusted = served::trusted(&named);
        all.push(("GINNEL_SEGMENT".to_owned(), named.to_string_lossy().into_owned()));
    }
    // The machine's rules and those given here; not this user's, who may be another than the
    // service's.
    if let Some(rules) = policy::for_service(&args.allow, &trusted)? {
        all.push((policy::VARIABLE.to_owned(), rules));
    }
    Ok(all)
}

fn plan(manager: Manager, name: &str, library: &Path, common: &[(String, String)]) -> Result<Plan> {
    let unit = manager.show(name)?;
    unit.must_be_there()?;
    let place = dropin::place(manager, &unit.name)?;
    dropin::is_there(&place)?;
    programs(&unit, library)?;
    environment(&unit)?;
    let socket =
        common.iter().any(|(name, value)| name == "GINNEL_SEGMENT" && is_socket(Path::new(value)));
    let openings = sandbox::look(&unit, library, socket)?;
    let before = unit.variable("LD_PRELOAD").or_else(|| manager.variable("LD_PRELOAD"));
    // A unit may start other programs before its own.
    let list = run::with_shim(before.map(Into::into), library, run::for_all(library))?;
    let mut variables = vec![("LD_PRELOAD".to_owned(), list.to_string_lossy().into_owned())];
    variables.extend_from_slice(common);
    let mut remarks = openings.remarks;
    if unit.is("DynamicUser") && !common.iter().any(|(name, _)| name == "GINNEL_SEGMENT") {
        remarks.push("DynamicUser=: its user is its own, so it meets no other service; --segment names where it does".into());
    }
    Ok(Plan { text: dropin::text(&unit.name, &variables, &openings.lines), unit, place, remarks })
}

/// # Errors
/// The first program of the service's that the library cannot reach; or there is none.
fn programs(unit: &Unit, library: &Path) -> Result<()> {
    let name = &unit.name;
    let files = unit.programs();
    // Debian's postgresql.service is one: it stands for one service of each cluster.
    ensure!(
        files.iter().any(|file| file.file_name().is_some_and(|name| name != "true")),
        "{name} starts no program of its own (ExecStart=): name the services that belong to it \
         (`systemctl list-dependencies {name}`)"
    );
    for file in files {
        // A program that may not be looked at may have it all the same. The environment alone does
        // not start the loader of static ones in Go.
        let is_reached = |why| {
            why == Unreachable::Unknown || ginnel_preload::way(Some(why), false) == Way::Preload
        };
        let finding =
            run::look_with(&file, Some(library)).filter(|finding| !is_reached(finding.why));
        let Some(finding) = finding else { continue };
        bail!(
            "{}: {}, so no preloaded library reaches it; its connections stay on TCP (`ginnel doctor {}`)",
            unit.name,
            run::says(finding, &file),
            file.display()
        );
    }
    Ok(())
}

/// # Errors
/// What else has a word in the service's environment.
fn environment(unit: &Unit) -> Result<()> {
    let name = &unit.name;
    if let Some(taken) = unit
        .words("UnsetEnvironment")
        .iter()
        .find(|word| word.split('=').next() == Some("LD_PRELOAD"))
    {
        bail!(
            "{name} has UnsetEnvironment={taken}: no library can be preloaded; take that line out (`systemctl edit {name}`)"
        );
    }
    for file in unit.environment_files() {
        // What counts more than a unit's own lines; a file that is missing says nothing.
        let text = fs::read_to_string(&file).unwrap_or_default();
        let sets = |line: &&str| {
            ["LD_PRELOAD", "GINNEL_OFF"]
                .iter()
                .any(|key| line.trim_start().starts_with(&format!("{key}=")))
        };
        if let Some(line) = text.lines().find(sets) {
            bail!(
                "{name} has {line:?} from {}, which counts more than a drop-in: move it to an Environment= line \
                 (`systemctl edit {name}`), whose libraries are kept",
                file.display()
            );
        }
    }
    Ok(())
}

/// # Errors
/// Another drop-in has the last word.
fn counts(manager: Manager, plan: &Plan, library: &Path) -> Result<()> {
    let unit = manager.show(&plan.unit.name)?;
    let list = unit.variable("LD_PRELOAD").unwrap_or_default();
    let parts = |name| ginnel_preload::parts(name);
    let own = parts(library.as_os_str().as_bytes());
    ensure!(
        list.split(':').any(|entry| own.is_some() && parts(entry.as_bytes()) == own),
        "{}: a drop-in that comes after {} sets LD_PRELOAD={list}; give it a name that sorts before, and try again",
        unit.name,
        plan.place.display()
    );
    Ok(())
}

/// Nothing half done stays behind.
fn take_back(manager: Manager, written: &[&PathBuf]) {
    for place in written {
        let _ = dropin::remove(place);
    }
    let _ = manager.systemctl(&["daemon-reload"]);
}

/// Starts a service anew, if it runs. Where it does not start with the library, it gets back what
/// it had.
fn restart(manager: Manager, plan: &Plan, library: &Path) -> Result<()> {
    let name = &plan.unit.name;
    let ran = plan.unit.get("ActiveState") == "active";
    let done = manager.systemctl(&["try-restart", "--", name]);
    let state = settled(manager, name, ran && done.is_ok())?;
    if ran && (done.is_err() || state.get("ActiveState") != "active") {
        dropin::remove(&plan.place)?;
        manager.systemctl(&["daemon-reload"])?;
        let _ = manager.systemctl(&["reset-failed", "--", name]);
        let back = manager.systemctl(&["restart", "--", name]);
        let now = if back.is_ok() {
            "it runs again as before"
        } else {
            "and it does not start without it either"
        };
        bail!(
            "{name} did not start with the library: {now}; `journalctl -u {name}` has what it said"
        );
    }
    if ran {
        let (all, with) = processes(&state, library);
        print(&format!(
            "  restarted; {with} of its {} have the library\n",
            count(all, "process", "processes")
        ))?;
    }
    Ok(())
}

/// What became of a service that was started: one that systemd need not wait for may end at once.
fn settled(manager: Manager, name: &str, started: bool) -> Result<Unit> {
    let until = Instant::now() + SETTLING;
    loop {
        let unit = manager.show(name)?;
        if !started || unit.get("ActiveState") != "active" || Instant::now() > until {
            return Ok(unit);
        }
        std::thread::sleep(SETTLING / 5);
    }
}

/// Says which of the services do not meet, since they run as different users.
fn users_apart(plans: &[Plan], args: &Enable) -> Result<()> {
    let user = |plan: &Plan| {
        Some(plan.unit.get("User").to_owned())
            .filter(|user| !user.is_empty())
            .unwrap_or("root".into())
    };
    let users: BTreeSet<String> = plans.iter().map(user).collect();
    if users.len() < 2 || args.segment.is_some() || args.user {
        return Ok(());
    }
    let users: Vec<String> = users.into_iter().collect();
    print(&format!(
        "They run as {}: connections between services of different users stay on TCP, unless --segment names one that \
         all of them may join (docs/install.md)\n",
        users.join(", ")
    ))
}

fn disable(args: &Disable) -> Result<()> {
    let manager = Manager { user: args.user };
    let units = if args.all { dropin::all(manager)? } else { Vec::new() };
    let named =
        args.units.iter().map(|name| systemd::full_name(name)).collect::<Result<Vec<_>>>()?;
    let mut gone = Vec::new();
    for name in units.into_iter().chain(named) {
        // By its own name; by the one that was said, too, which may have become an alias since, or
        // that of no unit.
        let id = manager.show(&name).map_or(name.clone(), |unit| unit.name);
        let mut removed = dropin::remove(&dropin::place(manager, &name)?)?;
        removed |= dropin::remove(&dropin::place(manager, &id)?)?;
        print(&format!(
            "{id}: {}\n",
            if removed { "switched off" } else { "was not switched on" }
        ))?;
        gone.extend(removed.then_some(id));
    }
    if gone.is_empty() {
        return Ok(());
    }
    // Where no systemd runs, there is nothing to tell.
    let told = manager.systemctl(&["daemon-reload"]);
    for name in gone.iter().filter(|_| told.is_ok()) {
        if args.now {
            manager.systemctl(&["try-restart", "--", name])?;
        } else if manager.show(name).is_ok_and(|unit| unit.get("ActiveState") == "active") {
            print(&format!("  {name} runs, as it is until it is started anew\n"))?;
        }
    }
    Ok(())
}
