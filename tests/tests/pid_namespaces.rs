//! Programs in pid namespaces of their own, where their numbers say nothing outside: what they held
//! is freed all the same.

use ginnel_tests::{Stand, build, port};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What `unshare` is to do before it runs the program.
const APART: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

/// Starts a program in a pid namespace that ends with `unshare`.
fn start(stand: &Stand, program: &std::path::Path, args: &[&str]) -> Child {
    let wrapper = [&APART[..], &["--kill-child"]].concat();
    let mut command = stand.command_behind(&wrapper, program);
    command.args(args).stdout(Stdio::null()).process_group(0).spawn().expect("unshare runs")
}

fn processes(status: &str) -> usize {
    status.matches("\"other_pid_namespace\": true").count()
}

#[test]
fn what_they_held_is_freed() {
    if !ginnel_tests::is_root() {
        ginnel_tests::skip("what_they_held_is_freed", "pid namespaces need root");
        return;
    }
    if !Command::new(APART[0])
        .args(&APART[1..])
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        ginnel_tests::skip("what_they_held_is_freed", "unshare does not make a pid namespace here");
        return;
    }
    let stand = Stand::shimmed("pid-namespaces", &[]);
    let crowd = build::program("crowd");
    let short = build::program("half_close");
    // Makes the segment.
    assert!(stand.run(&mut stand.command(&short)).success());
    let baseline = stand.free_extents();
    for _ in 0..5 {
        let done = stand.run(&mut stand.command_behind(&APART, &short));
        assert!(done.success(), "{done}");
    }
    // Others speak for a minute, and are killed in the middle of it.
    let speaking: Vec<[Child; 2]> = (0..3)
        .map(|_| {
            let port = port::free();
            let server = start(&stand, &crowd, &["server", "127.0.0.1", &port, "5"]);
            std::thread::sleep(Duration::from_millis(500));
            [server, start(&stand, &crowd, &["client", "127.0.0.1", &port, "5", "60000"])]
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    // Those that live are seen to live, for longer than a dead one is in doubt.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(8) {
        let status = stand.status();
        assert!(processes(&status) >= 6, "six processes live: {status}");
        assert!(stand.free_extents() < baseline);
        std::thread::sleep(Duration::from_millis(300));
    }
    for mut child in speaking.into_iter().flatten() {
        child.kill().expect("it ran until now");
        let _ = child.wait();
    }
    stand.assert_nothing_lost(baseline);
    let status = stand.status();
    assert_eq!(processes(&status), 0, "{status}");
    let wakes = std::fs::read_dir(stand.dir().join("default.wake"))
        .expect("the directory of FIFOs")
        .flatten();
    let fifos: Vec<_> = wakes
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with('w'))
        .collect();
    assert!(fifos.is_empty(), "{fifos:?}");
    let removed = Command::new(build::ginnel())
        .args(["segment", "remove", "default"])
        .env("GINNEL_DIR", stand.dir())
        .output();
    let removed = removed.expect("ginnel runs");
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
}

/// An observer who may not write another user's list (root, a node's agent) knows after a while,
/// too, who has ended in another pid namespace.
#[test]
fn an_observer_sees_who_has_ended() {
    const NOBODY: u32 = 65534;
    let wrapper = [
        &APART[..],
        &[
            "--kill-child",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "timeout",
            "60",
        ],
    ]
    .concat();
    if !ginnel_tests::is_root()
        || !Command::new(wrapper[0])
            .args(&wrapper[1..])
            .arg("true")
            .status()
            .is_ok_and(|done| done.success())
    {
        return ginnel_tests::skip("an_observer_sees_who_has_ended", "it needs root, and unshare");
    }
    // Where the other user may read them.
    let place = Stand::plain("readable");
    std::fs::set_permissions(place.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("ours");
    let (shim, crowd) = (place.dir().join("libginnel_shim.so"), place.dir().join("crowd"));
    build::copy_program(&build::shim(), &shim);
    build::copy_program(&build::program("crowd"), &crowd);
    let stand = Stand::shimmed("observer", &[("LD_PRELOAD", shim.to_str().expect("UTF-8"))]);
    std::os::unix::fs::chown(stand.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let mut command = stand.command_behind(&wrapper, &crowd);
    let mut server = command
        .args(["server", "127.0.0.1", "4725", "5"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("unshare");
    stand.wait_until(Duration::from_secs(20), "the process is seen", || {
        processes(&stand.status()) == 1
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(processes(&stand.status()), 1, "it lives");
    // The program itself: the kernel forgets about --kill-child when it becomes another user.
    let children = format!("/proc/{0}/task/{0}/children", server.id());
    let child =
        std::fs::read_to_string(children).expect("there").trim().parse::<i32>().expect("one");
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    let _ = server.wait();
    let status = stand.status();
    assert_eq!(processes(&status), 0, "one look says so: {status}");
}
