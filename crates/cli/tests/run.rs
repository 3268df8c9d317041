//! `ginnel run`: what the program gets, and what is said about programs that cannot be reached. The
//! shim's place is taken by a library that does nothing: the C library itself.

use crate::common::{Place, Said};
use ginnel_tests::build::executable;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The C library that this process has loaded.
fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own maps");
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.contains("/libc.so") || path.contains("/libc-"));
    path.expect("a C library is loaded").into()
}

fn run(place: &Place, arguments: &[&str]) -> Said {
    Said::of(command(place, arguments).output().expect("ginnel starts"))
}

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.ginnel();
    command.env("GINNEL_SHIM", libc()).arg("run").args(arguments);
    command
}

#[test]
fn settings_reach_the_program() {
    let place = Place::new();
    let said = run(&place, &["--segment", "other", "--verbose", "--no-spin", "env"]);
    for line in [
        format!("LD_PRELOAD={}", libc().display()),
        "GINNEL_SEGMENT=other".into(),
        "GINNEL_VERBOSE=1".into(),
        "GINNEL_SPIN=0".into(),
    ] {
        assert!(said.out.lines().any(|said| said == line), "{line}: {said:?}");
    }
    let said = run(&place, &["env"]);
    assert!(
        !["SEGMENT", "VERBOSE", "SPIN"]
            .iter()
            .any(|name| said.out.contains(&format!("GINNEL_{name}="))),
        "{said:?}"
    );
}

#[test]
fn a_policy_reaches_the_program_and_a_wrong_one_is_named() {
    let place = Place::new();
    let own = place.path("config/ginnel/policy");
    std::fs::create_dir_all(own.parent().expect("a folder")).expect("made");
    std::fs::write(&own, "deny port 22 # administration").expect("write");
    let other = place.path("other");
    let named = ["--policy", other.to_str().expect("UTF-8"), "env"];
    std::fs::write(&other, "deny address 10.0.0.0/8\n").expect("write");
    let variable = |said: &Said| {
        said.out
            .split("GINNEL_POLICY=")
            .nth(1)
            .map(|rest| rest.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(variable(&run(&place, &["env"])).as_deref(), Some("deny port 22 # administration"));
    assert_eq!(variable(&run(&place, &named)).as_deref(), Some("deny address 10.0.0.0/8"));
    let given =
        Said::of(command(&place, &["env"]).env("GINNEL_POLICY", "allow").output().expect("starts"));
    assert_eq!(variable(&given).as_deref(), Some("allow"));
    std::fs::write(&other, "allow port 1\nforbid port 5432\n").expect("write");
    let said = run(&place, &named);
    assert_eq!(said.code, Some(125));
    assert!(
        said.err.contains("forbid port 5432") && said.err.contains(&other.display().to_string()),
        "{said:?}"
    );
    std::fs::remove_file(&other).expect("removed");
    let said = run(&place, &named);
    assert!(said.code == Some(125) && said.err.contains(&other.display().to_string()), "{said:?}");
    std::fs::remove_file(&own).expect("removed");
    assert_eq!(variable(&run(&place, &["env"])), None);
}

#[test]
fn a_segment_given_by_a_relative_path_is_the_same_in_every_directory() {
    let place = Place::new();
    let said = Said::of(
        command(&place, &["--segment", "./seg", "env"])
            .current_dir(place.directory())
            .output()
            .expect("starts"),
    );
    let path = place.directory().canonicalize().expect("there").join("seg");
    assert!(said.out.contains(&format!("GINNEL_SEGMENT={}\n", path.display())), "{said:?}");
    let said = run(&place, &["--segment", "/no/such/directory/seg", "env"]);
    assert_eq!(said.code, Some(125));
    assert!(said.err.contains("there is no directory /no/such/directory"), "{said:?}");
}

#[test]
fn another_preload_is_kept_behind_the_shim() {
    let place = Place::new();
    let said = Said::of(
        command(&place, &["env"]).env("LD_PRELOAD", "/lib/other.so").output().expect("starts"),
    );
    assert!(
        said.out.contains(&format!("LD_PRELOAD={}:/lib/other.so\n", libc().display())),
        "{said:?}"
    );
}

#[test]
fn the_programs_exit_status_is_the_commands() {
    let place = Place::new();
    assert_eq!(run(&place, &["sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(run(&place, &["--", "sh", "-c", "exit 8"]).code, Some(8));
    assert_eq!(run(&place, &["no-such-program-at-all"]).code, Some(127));
    assert_eq!(run(&place, &["/no/such/program"]).code, Some(127));
    assert_eq!(run(&place, &[&place.directory().display().to_string()]).code, Some(126));
    let script = place.path("script");
    executable(&script, b"#!/no/such/interpreter\n");
    let said = run(&place, &[&script.display().to_string()]);
    assert_eq!(said.code, Some(127));
    assert!(said.err.contains("its interpreter is missing"), "{said:?}");
}

#[test]
fn a_script_without_an_interpreter_is_run_by_the_shell() {
    let place = Place::new();
    let script = place.path("script");
    executable(&script, b"echo \"$1\"\n");
    let said = run(&place, &[&script.display().to_string(), "a b"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "a b\n"), "{said:?}");
}

#[test]
fn without_a_shim_nothing_is_run() {
    let place = Place::new();
    let said = Said::of(
        place
            .ginnel()
            .env("GINNEL_SHIM", "/no/shim.so")
            .args(["run", "true"])
            .output()
            .expect("starts"),
    );
    assert_eq!(said.code, Some(125));
    assert!(said.err.contains("/no/shim.so"), "{said:?}");
}

#[test]
fn a_setting_that_is_no_number_is_named() {
    let place = Place::new();
    for value in ["abc", "-1", "99999999999999999999", "0x10"] {
        let said = Said::of(
            command(&place, &["true"]).env("GINNEL_SPIN", value).output().expect("starts"),
        );
        assert_eq!(said.code, Some(125));
        assert!(said.err.contains(&format!("GINNEL_SPIN={value}: not a whole number")), "{said:?}");
    }
    let said =
        Said::of(command(&place, &["true"]).env("GINNEL_SPIN", "").output().expect("starts"));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "empty is not said");
}

/// A service manager's choice: systemd starts services with SIGPIPE ignored. Rust's runtime would
/// change it on the way.
#[test]
fn ignored_signals_and_closed_descriptors_are_inherited_unchanged() {
    let place = Place::new();
    let ginnel = crate::ginnel();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .env("GINNEL_DIR", place.directory())
            .env("GINNEL_SHIM", libc());
        Said::of(command.stdin(Stdio::null()).output().expect("sh starts")).out
    };
    for signals in ["", "trap '' PIPE;", "trap '' HUP USR1;"] {
        let ask = "grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status";
        let plain = shell(&format!("{signals} exec {ask}"));
        assert_eq!(shell(&format!("{signals} exec {ginnel} run {ask}")), plain, "{signals}");
        assert!(plain.contains("SigIgn"), "{plain}");
    }
    let ask = "sh -c 'if test -e /proc/self/fd/0; then echo open; else echo closed; fi'";
    assert_eq!(shell(&format!("exec {ginnel} run {ask} <&-")), "closed\n");
    assert_eq!(shell(&format!("exec {ginnel} run {ask}")), "open\n");
}

#[test]
fn programs_out_of_reach_run_and_are_named() {
    let place = Place::new();
    assert_eq!(run(&place, &["true"]).err, "", "nothing is said about others");
    let (source, program) = (place.path("p.c"), place.path("program"));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 3; }\n")
        .expect("write");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    if !built.is_ok_and(|built| built.status.success()) {
        eprintln!("not tried: cc -static fails here");
        return;
    }
    let name = program.display().to_string();
    let said = run(&place, &[&name]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), "ran\n"), "{said:?}");
    assert_eq!(said.err, format!("ginnel: {name} is statically linked: it stays on TCP\n"));
    let script = place.path("script");
    executable(&script, format!("#!{name}\n").as_bytes());
    let said = run(&place, &[&script.display().to_string()]);
    assert_eq!(
        said.err,
        format!("ginnel: {name} is statically linked: it stays on TCP\n"),
        "the interpreter decides"
    );
}
