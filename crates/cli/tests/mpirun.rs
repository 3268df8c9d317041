//! `ginnel mpirun`: what the launcher gets. Its place is taken by a script, which says what it was
//! given.

use crate::common::{Place, Said};
use ginnel_tests::build::executable;
use std::process::Command;

/// `ginnel mpirun --over fabric` of a launcher that says so of its version, and then runs this
/// script.
fn command(place: &Place, version: &str, script: &str) -> Command {
    let launcher = place.path("launcher");
    let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && exit\n{script}\n");
    executable(&launcher, text.as_bytes());
    for library in ["libginnel_shim.so", "libginnel-fi.so"] {
        std::fs::write(place.path(library), "").expect("written");
    }
    let mut command = place.ginnel();
    command.env("GINNEL_SHIM", place.path("libginnel_shim.so"));
    command.args(["mpirun", "--over", "fabric", "--launcher"]).arg(launcher);
    command
}

fn run(command: &mut Command) -> Said {
    let said = Said::of(command.output().expect("ginnel starts"));
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

/// Open MPI has variables for the ranks of one program, of which a job may have several.
#[test]
fn each_program_of_a_job_gets_the_settings() {
    let place = Place::new();
    let mut job = command(&place, "mpirun (Open MPI) 4.1.4", "printf \"%s\\n\" \"$@\"");
    let said = run(job.args(["-n", "1", "a", ":", "-n", "2", "b", "c"]));
    let folder = format!("FI_PROVIDER_PATH={}", place.directory().display());
    let own = format!("GINNEL_DIR={}", place.directory().display());
    let handed = ["-x", &folder, "-x", &own];
    let wanted = [&handed[..], &["-n", "1", "a", ":"], &handed, &["-n", "2", "b", "c"]].concat();
    assert_eq!(said.out.lines().collect::<Vec<_>>(), wanted);
}

/// Open MPI's launcher looks at no variable before the file that names the programs, and refuses
/// both ways at once.
#[test]
fn programs_in_a_file_get_the_settings_as_a_list() {
    let place = Place::new();
    let list = |words: &[&str], own: &str| {
        let script = "printf \"%s\\n\" \"$@\" \"list $OMPI_MCA_mca_base_env_list\"";
        let mut job = command(&place, "mpirun (Open MPI) 4.1.4", script);
        let said = run(job.args(words).env("OMPI_MCA_mca_base_env_list", own));
        said.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let folder = place.directory().display();
    let set = format!("FI_PROVIDER_PATH={folder};GINNEL_DIR={folder}");
    assert_eq!(list(&["--app", "file"], ""), ["--app", "file", &format!("list {set}")]);
    assert_eq!(list(&["-app", "file"], "A=1"), ["-app", "file", &format!("list A=1;{set}")]);
    let handed = list(&["-x", "A", "-n", "1", "program", "--app"], "");
    assert_eq!((&handed[0][..], handed.last()), ("-x", Some(&"list ".to_owned())), "{handed:?}");
}

/// Which of the signals that end a job a process ignores, by its `/proc/PID/status`.
fn ignored(status: &str) -> [bool; 4] {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a number");
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]
        .map(|signal| mask >> (signal - 1) & 1 == 1)
}

/// As of a job that is started by nohup, or behind a script.
#[test]
fn what_is_ignored_the_launcher_ignores() {
    let place = Place::new();
    let launcher = |traps: &str| {
        let job = command(&place, "mpirun (Open MPI) 4.1.4", "cat /proc/self/status");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{traps} exec \"$0\" \"$@\"")]).arg(job.get_program());
        shell.args(job.get_args()).args(["-n", "1"]);
        for (name, value) in job.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        ignored(&run(&mut shell).out)
    };
    // The test may have been started with some of them ignored.
    let own = ignored(&std::fs::read_to_string("/proc/self/status").expect("own status"));
    assert_eq!(launcher(""), own);
    assert_eq!(launcher("trap '' HUP;"), [true, own[1], own[2], own[3]]);
    assert_eq!(launcher("trap '' INT QUIT TERM;"), [own[0], true, true, true]);
}

/// A rank's working directory may be another one than the launcher's.
#[test]
fn ranks_get_their_segment_by_a_path_from_the_root() {
    let place = Place::new();
    let mut job = command(&place, "mpirun (Open MPI) 4.1.4", "printf \"%s\\n\" \"$@\"");
    job.current_dir(place.directory()).env("GINNEL_DIR", "own").env("GINNEL_FABRIC", "job/1");
    let said = run(job.args(["-n", "1", "a"]));
    for (name, path) in [("GINNEL_DIR", "own"), ("GINNEL_FABRIC", "job/1")] {
        let wanted = format!("{name}={}", place.path(path).display());
        assert!(said.out.lines().any(|line| line == wanted), "{wanted}: {said:?}");
    }
}

/// What killed ranks left is looked for where they were: in the segment that is named last, or the
/// default one.
#[test]
fn the_segment_that_ranks_had_is_the_one_that_is_looked_after() {
    for (words, fabric, looked) in [
        (&["--segment", "named"][..], "other", "named"),
        (&[], "other", "other"),
        (&[], "", "mpi"),
        (&["--segment", "named"], "", "named"),
    ] {
        let place = Place::new();
        // What lies there is none, and is told as that.
        for name in ["named", "other", "mpi"] {
            std::fs::write(place.path(name), "not a segment").expect("written");
        }
        let mut job = command(&place, "mpirun (Open MPI) 4.1.4", "exit 0");
        let fabric = if fabric.is_empty() { fabric.into() } else { place.path(fabric) };
        let said = run(job.args(words).args(["-n", "1", "a"]).env("GINNEL_FABRIC", fabric));
        let wanted = format!("{}: not a Ginnel segment", place.path(looked).display());
        assert!(said.err.contains(&wanted), "{looked}: {said:?}");
        assert!(!said.err.contains("Refused("), "words: {said:?}");
    }
}
