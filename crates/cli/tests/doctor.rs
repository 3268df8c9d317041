//! `ginnel doctor` on a host: each thing that can be wrong, made wrong. In a virtual machine:
//! `guest/tests/doctor.rs`.

use crate::common::{Place, Said};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A configuration of ginneld with two slots, and listeners at so many of them.
fn daemon(place: &Place, slots: u16) -> (String, Vec<UnixListener>) {
    let (file, run) = (place.path("ginneld.toml"), place.path("run"));
    fs::write(&file, format!("run_dir = {run:?}\n[segment.web]\nslots = 2\n")).expect("written");
    fs::create_dir_all(run.join("web")).expect("made");
    let listen = |slot| UnixListener::bind(run.join(format!("web/{slot}.sock"))).expect("a socket");
    (file.to_string_lossy().into_owned(), (1..=slots).map(listen).collect())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// `ginnel doctor` with this in the environment, behind `wrapper`.
fn examine(place: &Place, wrapper: &str, environment: &[(&str, &str)], config: &str) -> Said {
    let ginnel = place.ginnel();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("{wrapper} exec \"$@\""),
        "sh",
        crate::ginnel(),
        "doctor",
        "--config",
        config,
    ]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .envs(ginnel.get_envs().filter_map(|(key, value)| Some((key, value?))))
        .envs(environment.iter().copied());
    Said::of(command.output().expect("sh runs"))
}

/// The line that begins so.
fn line<'a>(said: &'a Said, check: &str) -> &'a str {
    said.out
        .lines()
        .find(|line| line.get(6..).is_some_and(|rest| rest.starts_with(check)))
        .unwrap_or_else(|| panic!("{said:?}"))
}

/// Exactly this check is wrong, and its line has all these words.
fn only_wrong(said: &Said, check: &str, words: &[&str]) {
    assert_eq!(said.code, Some(1), "{said:?}");
    let wrong: Vec<&str> = said.out.lines().filter(|line| line.starts_with("WRONG")).collect();
    assert_eq!(wrong, [line(said, check)], "{said:?}");
    for word in words {
        assert!(wrong[0].contains(word), "{word:?} is not in {}", wrong[0]);
    }
}

#[test]
fn all_is_well_and_nothing_is_made() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let before = fs::read_dir(place.directory()).expect("there").count();
    let said = examine(&place, "", &[], &config);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    for check in [
        "kernel",
        "library",
        "descriptors",
        "directory",
        "room",
        "ledger",
        "segment",
        "io_uring",
        "ginneld",
    ] {
        assert!(line(&said, check).starts_with("ok "), "{said:?}");
    }
    assert!(line(&said, "ginneld").contains("serves segment web with 2 slots"), "{said:?}");
    assert_eq!(
        fs::read_dir(place.directory()).expect("there").count(),
        before,
        "a look made something"
    );
}

#[test]
fn json_says_the_same() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 1);
    let said = place.run(&["doctor", "--json", "--config", &config]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((&report["version"], &report["ok"]), (&1.into(), &false.into()));
    let checks = report["checks"].as_array().expect("a list");
    let wrong: Vec<&str> = checks
        .iter()
        .filter(|check| check["state"] == "wrong")
        .filter_map(|check| check["check"].as_str())
        .collect();
    assert_eq!(wrong, ["ginneld"]);
    assert!(checks.iter().all(|check| check["found"].is_string()
        && (check["state"] == "wrong") == check["advice"].is_string()));
}

#[test]
fn the_library() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let said = examine(&place, "", &[("GINNEL_SHIM", "/no/shim.so")], &config);
    only_wrong(&said, "library", &["there is no file /no/shim.so"]);
    let file = place.path("shim.so");
    fs::write(&file, "no library").expect("written");
    let said = examine(&place, "", &[("GINNEL_SHIM", text(&file))], &config);
    only_wrong(&said, "library", &["cannot be loaded", "shim.so", "from one build"]);
}

#[test]
fn limits_of_the_process() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    only_wrong(
        &examine(&place, "ulimit -n 255;", &[], &config),
        "descriptors",
        &["255 allowed", "ulimit -n"],
    );
    assert_eq!(examine(&place, "ulimit -n 256;", &[], &config).code, Some(0));
    only_wrong(
        &examine(&place, "ulimit -f 100;", &[], &config),
        "room",
        &["ulimit -f", "GINNEL_SIZE"],
    );
}

#[test]
fn the_directory() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let open = place.path("open");
    fs::create_dir(&open)
        .and_then(|()| fs::set_permissions(&open, fs::Permissions::from_mode(0o777)))
        .expect("made");
    let said = examine(&place, "", &[("GINNEL_DIR", text(&open))], &config);
    only_wrong(&said, "directory", &["mode 777", "chmod 700"]);
    let said = examine(&place, "", &[("GINNEL_DIR", "/proc/ginnel/x")], &config);
    assert!(
        line(&said, "directory").starts_with("WRONG")
            && line(&said, "directory").contains("GINNEL_DIR"),
        "{said:?}"
    );
    let said = examine(&place, "", &[("GINNEL_DIR", text(&place.path("new")))], &config);
    assert!(
        said.code == Some(0) && line(&said, "directory").contains("made when first needed"),
        "{said:?}"
    );
}

#[test]
fn ledger_and_segment() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let look = || examine(&place, "", &[], &config);
    fs::write(place.path("sockets-1"), "").expect("written");
    only_wrong(&look(), "ledger", &["another version (sockets-1)", "start them again"]);
    fs::write(place.path("sockets-9"), "no ledger at all").expect("written");
    fs::set_permissions(place.path("sockets-9"), fs::Permissions::from_mode(0o600)).expect("ours");
    only_wrong(&look(), "ledger", &["none of this version", "remove it"]);
    fs::remove_file(place.path("sockets-1"))
        .and_then(|()| fs::remove_file(place.path("sockets-9")))
        .expect("removed");

    assert_eq!(place.run(&["segment", "create", "default", "--size", "16M"]).code, Some(0));
    assert!(line(&look(), "segment").contains("pages free"), "{:?}", look());
    let file = place.path("default");
    let good = fs::read(&file).expect("read");
    let mut other = good.clone();
    other[8] = 99;
    fs::write(&file, &other).expect("written");
    only_wrong(&look(), "segment", &["layout version 99", "`ginnel segment remove`"]);
    fs::write(&file, &good[..5000]).expect("written");
    only_wrong(&look(), "segment", &["has 5000 bytes"]);
    fs::write(&file, "no segment").expect("written");
    only_wrong(&look(), "segment", &["not a Ginnel segment", "--segment"]);
    let said = examine(&place, "", &[("GINNEL_SEGMENT", "/no/directory/segment")], &config);
    only_wrong(&said, "segment", &["there is no directory for it"]);
}

#[test]
fn the_daemon() {
    let place = Place::new();
    let (config, listeners) = daemon(&place, 2);
    drop(listeners);
    let look = || examine(&place, "", &[], &config);
    only_wrong(&look(), "ginneld", &["segment web", "nobody listens in", "start it ("]);
    let _one = {
        let socket = place.path("run/web/1.sock");
        fs::remove_file(&socket).expect("there");
        UnixListener::bind(socket).expect("a socket")
    };
    only_wrong(&look(), "ginneld", &["nobody listens at 1 of 2 slots", "restart"]);
    fs::remove_dir_all(place.path("run")).expect("removed");
    only_wrong(&look(), "ginneld", &["not running: there is no", "start it"]);
    fs::write(&config, "[segment.web]\nsize = 5\n").expect("written");
    only_wrong(&look(), "ginneld", &["ginneld.toml:2: segment.web.size: must be a power of two"]);
}

/// `ginnel doctor` with a /run of its own, in which a command makes what is to be there.
fn examine_with_run(place: &Place, made: &str, arguments: &[&str]) -> Said {
    let script = format!("mount -t tmpfs tmpfs /run && {made} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", crate::ginnel(), "doctor"]);
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("GINNEL_DIR", place.directory());
    Said::of(command.output().expect("unshare runs"))
}

/// `systemctl` is named where systemd runs (sd_booted(3)), and only there.
#[test]
fn how_the_daemon_is_started() {
    if !ginnel_tests::is_root() {
        return ginnel_tests::skip("how_the_daemon_is_started", "mounting needs root");
    }
    let place = Place::new();
    let (config, listeners) = daemon(&place, 2);
    drop(listeners);
    let booted = "mkdir -p /run/systemd/system";
    let container = "mkdir /run/systemd";
    let look = |made| examine_with_run(&place, made, &["--config", &config]);
    only_wrong(&look(booted), "ginneld", &["nobody listens in", "(systemctl start ginneld)"]);
    only_wrong(&look(container), "ginneld", &["nobody listens in", "(`ginneld`; ", "on its host"]);
    assert!(!look(container).out.contains("systemctl"), "{:?}", look(container));
    fs::remove_dir_all(place.path("run")).expect("removed");
    only_wrong(&look(booted), "ginneld", &["not running", "(systemctl start ginneld)"]);
    only_wrong(&look(container), "ginneld", &["not running", "(`ginneld`; ", "on its host"]);
    assert!(!look(container).out.contains("systemctl"), "{:?}", look(container));
}

/// In a container that a broker serves, /run/ginnel holds the broker's socket alone: no daemon is
/// missing there.
#[test]
fn a_brokers_directory_is_no_daemons() {
    let what = "a_brokers_directory_is_no_daemons";
    if !ginnel_tests::is_root() || Path::new("/etc/ginnel/ginneld.toml").exists() {
        return ginnel_tests::skip(what, "it needs root, and no configuration of ginneld's");
    }
    let place = Place::new();
    let broker = examine_with_run(&place, "mkdir -p /run/ginnel/broker", &[]);
    assert_eq!(
        line(&broker, "ginneld"),
        "-     ginneld     not running: there is no /run/ginnel/default"
    );
    let ended = examine_with_run(&place, "mkdir -p /run/ginnel/default", &[]);
    only_wrong(&ended, "ginneld", &["segment default: nobody listens in"]);
}

/// Programs that use io_uring are named.
#[test]
fn io_uring() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let source = place.path("uring.c");
    let program: PathBuf = place.path("uring");
    let text_of = "#include <stdio.h>\n#include <sys/socket.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
                   int main(void) { static char p[256]; syscall(SYS_io_uring_setup, 8, p); socket(AF_INET, SOCK_STREAM, 0); puts(\"there\"); fflush(stdout); \
                   return getchar() == 'x'; }\n";
    fs::File::create(&source)
        .and_then(|mut file| file.write_all(text_of.as_bytes()))
        .expect("written");
    assert!(
        Command::new("cc")
            .args([text(&source), "-o", text(&program)])
            .status()
            .expect("cc")
            .success()
    );
    let mut running = place.ginnel();
    running.args(["run", "--", text(&program)]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = running.spawn().expect("ginnel starts");
    let mut said = String::new();
    BufReader::new(running.stdout.take().expect("piped")).read_line(&mut said).expect("read");
    assert_eq!(said, "there\n");
    only_wrong(&examine(&place, "", &[], &config), "io_uring", &["used by uring ", "stay on TCP"]);
    drop(running.stdin.take());
    running.wait().expect("ended");
    assert_eq!(line(&examine(&place, "", &[], &config), "io_uring").get(..3), Some("ok "));
}

/// A program is looked at as `ginnel run` looks at it.
#[test]
fn a_program() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let said = place.run(&["doctor", "--config", &config, "sh"]);
    assert!(
        said.code == Some(0) && line(&said, "program").contains("can have the library"),
        "{said:?}"
    );
    let said = place.run(&["doctor", "--config", &config, "no-such-program"]);
    only_wrong(&said, "program", &["no such program"]);
    let (source, program) = (place.path("p.c"), place.path("static"));
    fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let built = Command::new("cc")
        .args(["-static", "-o", text(&program), text(&source)])
        .status()
        .expect("cc");
    assert!(built.success());
    let said = place.run(&["doctor", "--config", &config, text(&program)]);
    only_wrong(&said, "program", &["static is statically linked", "stays on TCP"]);
}

/// What a container's memory limit leaves for rings.
#[test]
fn the_memory_limit() {
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let look = |bytes| {
        let limit = ginnel_tests::limit::MemoryLimit::new("doctor and a memory limit", bytes)?;
        let [.., procs] = limit.enter();
        let enter = format!("echo $$ >{procs};");
        Some(examine(&place, &enter, &[], &config))
    };
    let (Some(tight), Some(roomy)) = (look(16 << 20), look(256 << 20)) else { return };
    only_wrong(&tight, "memory", &["allowed to this cgroup", "nothing is carried"]);
    assert!(
        line(&roomy, "memory").starts_with("ok ") && roomy.out.contains("256 MiB allowed"),
        "{roomy:?}"
    );
}

/// What container runtimes give as `/dev/shm` is enough, and said to be.
#[test]
fn sixty_four_megabytes() {
    if !ginnel_tests::is_root() {
        return ginnel_tests::skip("sixty_four_megabytes", "mounting needs root");
    }
    let place = Place::new();
    let (config, _listeners) = daemon(&place, 2);
    let (small, report) = (place.path("small"), place.path("report"));
    fs::create_dir(&small).expect("made");
    let (program, ginnel) =
        (ginnel_tests::build::program("half_close"), ginnel_tests::build::ginnel());
    let run = format!(
        "GINNEL_AFTER=0 GINNEL_REPORT={} {} run -- {}",
        text(&report),
        text(&ginnel),
        text(&program)
    );
    let mount = "mount -t tmpfs -o size=64m,mode=700 tmpfs \\\"$GINNEL_DIR\\\"";
    // What comes behind it begins with a word of its own.
    let wrapper = format!(
        "exec unshare --mount sh -c \"{mount} && {run} >/dev/null && shift && exec \\\"\\$@\\\"\" sh"
    );
    let said = examine(
        &place,
        &wrapper.replace("$GINNEL_DIR", text(&small)),
        &[("GINNEL_DIR", text(&small))],
        &config,
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(line(&said, "room").starts_with("ok "), "{said:?}");
    let reported = fs::read_to_string(&report).expect("a report");
    assert!(ginnel_tests::json::sum(&reported, "ring_in") > 0, "{reported}");
}
