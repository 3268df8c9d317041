//! A segment that `ginneld` serves to programs of this host: the behaviour programs in it, which
//! segment a name means, and what is no daemon, or lets nobody in.

use ginnel_tests::daemon::Daemon;
use ginnel_tests::{Done, Stand, build, is_root, permit, programs, skip};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn stand(segment: &Path, more: &[(&'static str, &'static str)]) -> Stand {
    let mut settings = vec![("GINNEL_SEGMENT", segment.to_str().expect("UTF-8"))];
    settings.extend_from_slice(more);
    Stand::shimmed("served", &settings).limit(Duration::from_secs(60))
}

fn run(stand: &Stand, name: &str) -> Done {
    let done = programs::run(stand, name).unwrap_or_else(|said| panic!("{name}: {said}"));
    assert!(done.success(), "{name}: {done}");
    done
}

/// The other end's service thread hears of a hand-over at once, whatever it and its program were
/// doing when the connection moved: else a program without the library is started before its socket
/// is given back to it, and reads a wake-up's byte. Seen in one of seven such runs where the
/// machine is busy.
#[test]
fn hand_overs_are_heard_in_a_busy_machine() {
    let _permit = permit::cpu(2);
    let daemon = Daemon::start("");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..6 {
                    run(&stand(&daemon.socket(), &[("GINNEL_SPIN", "0")]), "vfork_keeps");
                }
            });
        }
    });
}

/// Threads, fork, exec, epoll, death: all of them, spinning and asleep at once.
#[test]
#[ignore = "test-all: every program twice more"]
fn programs_hold_in_a_served_segment() {
    // Most of them wait most of the time.
    let _permit = permit::machine();
    let daemon = Daemon::start("");
    let (all, next) = (programs::all(), AtomicUsize::new(0));
    let hold = || {
        while let Some(name) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let expected = programs::says_plainly(name);
            for more in [&[][..], &[("GINNEL_SPIN", "0")]] {
                let stand = stand(&daemon.socket(), more);
                assert_eq!(run(&stand, name).stdout, expected, "{name} {more:?}");
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(hold))));
    // Each stand had a ledger of its own, of which nobody is left.
    let stand = stand(&daemon.socket(), &[]);
    run(&stand, "half_close");
    assert!(stand.report().ring_bytes() > 0, "{:?}: {}", stand.report(), stand.status());
    assert!(!daemon.log().contains("level=error"), "{}", daemon.log());
}

/// Runs a program as nobody in the daemon's segment. Returns how many bytes rings carried.
fn run_as_nobody(daemon: &Daemon, name: &str, policy: &str) -> u64 {
    const NOBODY: u32 = 65534;
    let (shim, program) =
        (daemon.place.dir().join("libginnel_shim.so"), daemon.place.dir().join(name));
    build::copy_program(&build::shim(), &shim);
    build::copy_program(&build::program(name), &program);
    let preload = shim.to_str().expect("UTF-8").to_owned();
    let socket = daemon.socket();
    let settings = [
        ("GINNEL_SEGMENT", socket.to_str().expect("UTF-8")),
        ("LD_PRELOAD", &*preload),
        ("GINNEL_AFTER", "0"),
        ("GINNEL_POLICY", policy),
    ];
    let stand = Stand::shimmed("nobody", &settings).limit(Duration::from_secs(60));
    chown(stand.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let done = stand.run(&mut stand.command_behind(&wrapper, &program));
    assert!(done.success(), "{done}");
    stand.report().ring_bytes()
}

/// Programs that may not read sequence numbers prove nothing: their user names whom they trust.
#[test]
fn who_may_not_read_numbers_is_carried_where_the_address_is_trusted() {
    if !is_root() {
        return skip("another user in a served segment", "needs root");
    }
    let daemon = Daemon::start("[segment.t.host]\nusers = [65534]\n");
    for directory in daemon.socket().ancestors().skip(1).take(3) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    assert_eq!(run_as_nobody(&daemon, "half_close", ""), 0, "nobody proves anything");
    assert!(run_as_nobody(&daemon, "half_close", "trust address 127.0.0.1; trust address ::1") > 0);
}

/// The same programs beside `ginnel-prover`: it proves for them, and nobody is trusted.
#[test]
fn who_may_not_read_numbers_is_carried_beside_the_prover() {
    if !is_root() || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return skip(
            "another user beside the prover",
            "needs root, and a kernel with BPF and its type information",
        );
    }
    let daemon = Daemon::start("[segment.t.host]\nusers = [65534]\n");
    for directory in daemon.socket().ancestors().skip(1).take(3) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let prover = daemon.prover();
    assert!(run_as_nobody(&daemon, "half_close", "") > 0, "{}", prover.log());
    // A socket that a child has, too, is not put under repair; it can be asked about.
    assert!(run_as_nobody(&daemon, "preforked_server", "") > 0, "{}", prover.log());
    // One that stands still costs a moment, one that is gone nothing.
    let stopped =
        Command::new("kill").args(["-STOP", &prover.pid().to_string()]).status().expect("kill");
    assert!(stopped.success());
    assert_eq!(run_as_nobody(&daemon, "half_close", ""), 0);
    drop(prover);
    assert_eq!(run_as_nobody(&daemon, "half_close", ""), 0);
}

/// Runs on TCP, and one line has these words in it.
fn stays_on_tcp(segment: &Path, words: &str) {
    let stand = stand(segment, &[("GINNEL_VERBOSE", "1")]);
    let said = run(&stand, "half_close").stderr;
    assert!(
        said.contains(words) && said.contains("stay on TCP"),
        "{words:?} is not among what is said: {said}"
    );
    assert_eq!(stand.report().ring_bytes(), 0);
}

#[test]
fn who_is_not_let_in_stays_on_tcp() {
    let daemon = Daemon::start("[segment.t.host]\nprocesses = 0\n");
    stays_on_tcp(&daemon.socket(), "ginneld does not let this process in");
    stays_on_tcp(&daemon.socket().with_file_name("1.sock"), "a virtual machine's socket");
    let socket = daemon.socket();
    drop(daemon);
    stays_on_tcp(&socket, "join ginneld: No such file");
}

#[test]
fn what_is_no_daemon_is_left_alone() {
    let place = Stand::plain("nobody");
    let at = |name: &str| place.dir().join(name);
    fs::write(at("file.sock"), "no socket").expect("written");
    stays_on_tcp(&at("file.sock"), "join ginneld: Connection refused");
    drop(UnixListener::bind(at("deaf.sock")).expect("bound"));
    stays_on_tcp(&at("deaf.sock"), "join ginneld: Connection refused");
    let _silent = UnixListener::bind(at("silent.sock")).expect("bound");
    stays_on_tcp(&at("silent.sock"), "nobody answers");
    // Numbers that make sense one by one, and memory that is none: fuzz/ has all others.
    for (name, said) in [
        ("hangs_up", &b""[..]),
        ("speaks", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("bare", &[0; 24]),
    ] {
        let listener = UnixListener::bind(at(&format!("{name}.sock"))).expect("bound");
        std::thread::spawn(move || {
            for joiner in listener.incoming() {
                let _ = joiner.expect("a joiner").write_all(said);
            }
        });
        stays_on_tcp(&at(&format!("{name}.sock")), "see whether ginneld runs there");
    }
}

/// Where the daemon's sockets are, a name is the daemon's segment; elsewhere it is a file.
#[test]
fn a_name_is_the_daemons_segment_where_it_serves_it() {
    if !is_root() {
        return skip(
            "a_name_is_the_daemons_segment_where_it_serves_it",
            "a /run of its own needs root",
        );
    }
    let daemon = Daemon::start("");
    let dir = daemon.place.dir().join("ginnel");
    // In a mount namespace of its own, where /run/ginnel is the daemon's.
    let ginnel = |args: &str| {
        let run = daemon.place.dir().join("run");
        let script = format!(
            "mount -t tmpfs none /run && ln -s {} /run/ginnel && exec {} {args}",
            run.display(),
            build::ginnel().display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script])
            .env("GINNEL_DIR", &dir)
            .env_remove("GINNEL_SEGMENT")
            .env_remove("RUNTIME_DIRECTORY");
        let output = command.output().expect("unshare");
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    let segment = "run --segment t -- sh -c 'echo $GINNEL_SEGMENT'";
    assert_eq!(ginnel(segment).trim(), "/run/ginnel/t/host.sock");
    assert_eq!(ginnel("run --segment other -- sh -c 'echo $GINNEL_SEGMENT'").trim(), "other");
    assert_eq!(
        ginnel("run -- sh -c 'echo $GINNEL_SEGMENT'").trim(),
        "",
        "never without being asked"
    );
    assert!(
        ginnel("segment create t --size 16M").contains("ginneld serves a segment of that name")
    );
    assert_eq!(
        ginnel(segment).trim(),
        "/run/ginnel/t/host.sock",
        "also where there is a file of that name"
    );
    let listed = ginnel("segment list");
    assert!(
        listed.contains("/run/ginnel/t/host.sock")
            && listed.contains("64.0M")
            && listed.contains("16.0M"),
        "{listed}"
    );
    let removed = ginnel("segment remove /run/ginnel/t/host.sock --force");
    assert!(removed.contains("is not removed from here") && daemon.socket().exists(), "{removed}");
}

/// Addresses that the host's configuration trusts are rules of the programs that join that segment,
/// and of no others.
#[test]
fn what_the_configuration_trusts_is_a_rule_of_the_programs() {
    if !is_root() {
        return skip(
            "what_the_configuration_trusts_is_a_rule_of_the_programs",
            "an /etc of its own needs root",
        );
    }
    let daemon = Daemon::start("[segment.t.host]\ntrust = [\"10.0.0.7\", \"fd00::/64\"]\n");
    let (etc, config) = (daemon.place.dir().join("etc"), daemon.place.dir().join("ginneld.toml"));
    fs::create_dir_all(etc.join("ginnel")).expect("a directory");
    for file in ["passwd", "group", "ld.so.cache"] {
        fs::copy(Path::new("/etc").join(file), etc.join(file)).expect("copied");
    }
    fs::copy(config, etc.join("ginnel/ginneld.toml")).expect("copied");
    let rules = |segment: &str| {
        let ginnel = build::ginnel();
        let script = format!(
            "mount --bind {} /etc && exec {} run --segment {segment} -- sh -c 'echo \"$GINNEL_POLICY\"'",
            etc.display(),
            ginnel.display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script])
            .env("GINNEL_DIR", daemon.place.dir().join("ginnel"));
        let output = command.env_remove("GINNEL_POLICY").output().expect("unshare");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let served = rules("t");
    for rule in ["trust address 10.0.0.7", "trust address fd00::/64"] {
        assert!(served.lines().any(|line| line == rule), "{served}");
    }
    assert!(!rules("other").contains("trust"));
}
