//! Programs of one user namespace that is not the host's, as containers without root are.

use super::programs::{CLIENT, IN_A_USER_NAMESPACE, SERVER};
use super::{LIMIT, PYTHON, Two, assert_carried};
use ginnel_tests::{Report, Stand};
use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

/// A user's own namespace, in which others of his subordinate users run, as containers without root
/// do: what `ginnel status` says of the client, and what both reported. `second`: how the server's
/// network is made.
fn in_a_user_namespace(what: &str, second: &str, said: &str) -> Option<[Report; 2]> {
    const FIRST: u32 = 100_000;
    const ENTER: &str = "until [ -e \"$1\" ]; do sleep 0.02; done; shift
        exec setpriv --reuid=0 --regid=0 --clear-groups unshare -n sh -c \"$0\" sh \"$@\"";
    let two = Two::new(what, "")?;
    for (stand, user) in [(&two.server, FIRST + 1), (&two.client, FIRST + 2)] {
        chown(stand.dir(), Some(user), Some(user)).expect("root may");
    }
    let (go, stays) = (two.broker.place.dir().join("go"), two.client.dir().join("stays"));
    let seconds = two.client.dir().join("stays2");
    for file in [&stays, &seconds] {
        fs::write(file, "").expect("written");
    }
    let words = |stand: &Stand| {
        let each = stand.environment().into_iter().map(|(key, value)| format!("{key}={value}"));
        each.collect::<Vec<_>>().join(" ")
    };
    let mut command = Command::new("unshare");
    command
        .args(["-U", "--keep-caps", "sh", "-c", ENTER, IN_A_USER_NAMESPACE])
        .arg(&go)
        .arg(second);
    command
        .args([&words(&two.server), &words(&two.client), PYTHON, SERVER, CLIENT])
        .arg(two.port_file())
        .arg(&stays);
    let place = Stand::plain(what).limit(LIMIT);
    let running = place.start(&mut command);
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
    let is_there =
        || namespace(&running.id().to_string()).is_some_and(|own| Some(own) != namespace("self"));
    place.wait_until(LIMIT, "a namespace", is_there);
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{}/{map}", running.id()), format!("0 {FIRST} 1000"))
            .expect("root may");
    }
    fs::write(&go, "").expect("written");
    two.hear_out(running, said, [stays, seconds]);
    Some([two.server.report(), two.client.report()])
}

#[test]
#[ignore = "takes some seconds"]
fn users_of_one_user_namespace_are_carried() {
    if let Some(reports) =
        in_a_user_namespace("one user namespace", "-n", "\"segment\": \"(pair)\"")
    {
        assert_carried(&reports);
    }
}

/// Who owns a network may make any socket there: two of different owners prove each other nothing.
#[test]
#[ignore = "takes ten seconds, of which the broker waits five"]
fn networks_of_two_user_namespaces_stay_on_tcp() {
    for report in
        in_a_user_namespace("two user namespaces", "-Urn", "\"broker_network\"").iter().flatten()
    {
        assert_eq!(report.sum("ring_out"), 0, "{report:?}");
    }
}
