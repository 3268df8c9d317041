//! `ginnel segment` and `ginnel status` on real files.

use crate::common::Place;
use ginnel_node::processes::PROCESS_TABLE;
use ginnel_node::settings::Settings as NodeSettings;
use ginnel_node::waiter::Waiter;
use ginnel_tcp::Attachment;
use ginnel_tcp::ledger::LEDGER;
use ginnel_tcp::settings::Settings;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn attach(directory: &Path, segment: &str) -> Attachment {
    let given = Settings::from_environment();
    let node = NodeSettings {
        directory: directory.into(),
        segment: directory.join(segment),
        ..given.node.clone()
    };
    let settings = Settings { node, ..given };
    Attachment::new(settings, |_, _| {}).unwrap_or_else(|error| panic!("{}", error.message))
}

#[test]
fn a_segment_is_created_listed_and_removed() {
    let place = Place::new();
    let said =
        place.run(&["segment", "create", "mine", "--size", "32M", "--mode", "660", "--tokens"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let meta = fs::metadata(place.path("mine")).expect("made");
    assert_eq!(
        (meta.len(), meta.permissions().mode() & 0o777),
        (32 << 20, 0o660),
        "whatever the umask"
    );
    let listed: Value =
        serde_json::from_str(&place.run(&["segment", "list", "--json"]).out).expect("JSON");
    let one = &listed[0];
    assert_eq!(
        (&one["name"], &one["tokens_only"], &one["mode"]),
        (&"mine".into(), &true.into(), &"660".into())
    );
    assert_eq!(one["free_pages"], one["pages"]);
    assert!(place.run(&["segment", "list"]).out.contains("mine"));
    let said = place.run(&["segment", "create", "mine"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("exists already"), "{said:?}");
    assert_eq!(place.run(&["segment", "remove", "mine"]).code, Some(0));
    assert_eq!(names(place.directory()), [""; 0]);
    let said = place.run(&["segment", "remove", "mine"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("there is no segment mine"), "{said:?}");
}

#[test]
fn the_directory_is_made_for_its_owner_alone() {
    let place = Place::new();
    let directory = place.path("fresh");
    let done = place
        .ginnel()
        .env("GINNEL_DIR", &directory)
        .args(["segment", "create", "a", "--size", "16M"])
        .status();
    assert!(done.expect("ginnel starts").success());
    assert_eq!(fs::metadata(&directory).expect("made").permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_segment_in_use_is_removed_only_by_force_and_its_wake_ups_stay() {
    let place = Place::new();
    let attachment = attach(place.directory(), "used");
    let waiter = Waiter::new(&attachment.node).expect("a waiter");
    let said = place.run(&["segment", "remove", "used"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(&std::process::id().to_string()), "it names who: {said:?}");
    assert_eq!(names(place.directory()), [PROCESS_TABLE, LEDGER, "used", "used.wake"]);
    let said = place.run(&["segment", "remove", "used", "--force"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(names(place.directory()), [PROCESS_TABLE, LEDGER, "used.wake"]);
    assert_eq!(names(&place.path("used.wake")).len(), 2, "whoever sleeps is still found");
    waiter.retire(&attachment.node);
}

#[test]
fn removing_takes_nothing_else_along() {
    let place = Place::new();
    assert_eq!(place.run(&["segment", "create", "a", "--size", "16M"]).code, Some(0));
    fs::create_dir(place.path("a.wake")).expect("made");
    fs::write(place.path("a.wake/notes"), "mine").expect("written");
    fs::write(place.path("a.wake/m0"), "").expect("written");
    fs::write(place.path("a.txt"), "mine").expect("written");
    let said = place.run(&["segment", "remove", "a"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("holds other files"), "{said:?}");
    assert_eq!(names(place.directory()), ["a.txt", "a.wake"]);
    assert_eq!(names(&place.path("a.wake")), ["notes"]);
    let said = place.run(&["segment", "remove", "a.txt"]);
    assert!(said.err.contains("is no Ginnel segment"), "{said:?}");
    assert!(place.path("a.txt").exists());
}

#[test]
fn a_segment_of_another_version_is_listed_with_its_error_and_can_be_removed() {
    let place = Place::new();
    assert_eq!(place.run(&["segment", "create", "old", "--size", "16M"]).code, Some(0));
    let mut bytes = fs::read(place.path("old")).expect("readable");
    bytes[8] = 99;
    fs::write(place.path("old"), &bytes).expect("written");
    fs::write(place.path("short"), &bytes[..4096]).expect("written");
    let status = place.status();
    let error =
        |index: usize| status["segments"][index]["error"].as_str().unwrap_or_default().to_owned();
    assert!(error(0).contains("99"), "{status}");
    assert!(status["segments"][0]["pages"].is_null());
    assert_eq!(place.run(&["status"]).code, Some(0));
    assert_eq!(place.run(&["segment", "remove", "old"]).code, Some(0));
    assert_eq!(place.run(&["segment", "remove", "short"]).code, Some(0));
}

#[test]
fn an_empty_or_missing_directory_is_an_empty_status() {
    let place = Place::new();
    for directory in [place.directory().to_owned(), place.path("absent")] {
        let output = place
            .ginnel()
            .env("GINNEL_DIR", &directory)
            .args(["status", "--json"])
            .output()
            .expect("starts");
        assert!(output.status.success());
        let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (&status["version"], &status["directory"]),
            (&1.into(), &directory.display().to_string().into())
        );
        for list in ["segments", "processes", "connections"] {
            assert_eq!(status[list].as_array().map(Vec::len), Some(0), "{list}");
        }
    }
    assert!(place.run(&["status"]).out.contains("Nothing has run under ginnel yet"));
    assert_eq!(names(place.directory()), [""; 0], "looking makes nothing");
}

#[test]
fn processes_and_connections_are_shown() {
    let place = Place::new();
    let attachment = attach(place.directory(), "default");
    let (slot, _) = attachment
        .ledger
        .find_or_claim(&attachment.node.processes, 4711, attachment.node.me(), |_| {})
        .expect("room");
    assert!(slot.hold(attachment.node.me()));
    let status = place.status();
    let me: Value = std::process::id().into();
    assert_eq!(status["processes"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(
        (&status["processes"][0]["pid"], &status["processes"][0]["segment"]),
        (&me, &"default".into())
    );
    let connection = &status["connections"][0];
    assert_eq!((&connection["cookie"], &connection["processes"][0]["pid"]), (&4711.into(), &me));
    assert_eq!(
        (&connection["out_carrier"], &connection["reason"]),
        (&"tcp".into(), &"young".into())
    );
    assert_eq!(status["segments"][0]["members"][0]["alive"], true);
    slot.let_go(attachment.node.me());
    attachment.ledger.free(slot);
}

/// Not a test of its own: attaches, takes memory and is killed.
#[test]
#[ignore = "the victim of the next test"]
fn victim() {
    let Some(directory) = std::env::var_os("VICTIM") else { return };
    let attachment = attach(directory.as_ref(), "default");
    let (slot, _) = attachment
        .ledger
        .find_or_claim(&attachment.node.processes, 1234, attachment.node.me(), |_| {})
        .expect("room");
    assert!(slot.hold(attachment.node.me()));
    let _waiter = Waiter::new(&attachment.node).expect("a waiter");
    std::process::abort();
}

#[test]
fn memory_of_the_dead_is_free_after_one_look() {
    let place = Place::new();
    let own = std::env::current_exe().expect("own path");
    let victim = std::process::Command::new(own)
        .args(["--ignored", "--exact", "segment::victim"])
        .env("VICTIM", place.directory())
        .output()
        .expect("starts");
    assert_eq!(victim.status.code(), None, "killed by a signal");
    let before =
        ginnel_region::Segment::open(&place.path("default")).expect("a segment").page_counts();
    assert_eq!(before.0, before.1 - 1, "it left a page behind");
    let status = place.status();
    let segment = &status["segments"][0];
    assert_eq!(segment["free_pages"], segment["pages"], "{status}");
    assert_eq!(status["connections"].as_array().map(Vec::len), Some(0));
    let wake_ups = names(&place.path("default.wake"));
    assert!(!wake_ups.iter().any(|name| name.starts_with('w')), "its FIFO too: {wake_ups:?}");
    assert_eq!(place.run(&["segment", "remove", "default"]).code, Some(0));
}

/// A container's processes have a list of their own, in a `/dev/shm` of their own, and a segment of
/// ours.
#[test]
fn members_with_another_list_are_counted_and_said_to_be_unseen() {
    let (place, container) = (Place::new(), Place::new());
    assert_eq!(place.run(&["segment", "create", "shared", "--size", "16M"]).code, Some(0));
    let segment = place.path("shared");
    let given = Settings::from_environment();
    let node =
        NodeSettings { directory: container.directory().into(), segment, ..given.node.clone() };
    let settings = Settings { node, ..given };
    let _attachment =
        Attachment::new(settings, |_, _| {}).unwrap_or_else(|error| panic!("{}", error.message));
    let listed: Value =
        serde_json::from_str(&place.run(&["segment", "list", "--json"]).out).expect("JSON");
    assert_eq!(
        (&listed[0]["members"][0]["alive"], &listed[0]["members"][0]["own"]),
        (&true.into(), &false.into()),
        "{listed}"
    );
    let status = place.run(&["status"]).out;
    assert!(
        status.contains("shared: 1 member of other lists")
            && status.contains("are not shown here\n"),
        "{status}"
    );
    let said = place.run(&["segment", "remove", "shared"]);
    assert!(said.code == Some(1) && said.err.contains("not in this user's list"), "{said:?}");
}

/// As root sees another user's processes: whom it shows, it does not count as unseen.
#[test]
fn an_observer_takes_the_lists_own_member_for_its_own() {
    if !ginnel_tests::is_root() {
        return ginnel_tests::skip("an observer", "only root can give a directory away");
    }
    let place = Place::new();
    let _attachment = attach(place.directory(), "default");
    std::os::unix::fs::chown(place.directory(), Some(65534), None).expect("root may");
    let status: Value = serde_json::from_str(&place.run(&["status", "--json"]).out).expect("JSON");
    let members = &status["segments"][0]["members"];
    assert_eq!(
        (&members[0]["alive"], &members[0]["own"]),
        (&true.into(), &true.into()),
        "{status}"
    );
    let said = place.run(&["status"]).out;
    assert!(!said.contains("of other lists"), "{said}");
}

/// A directory that the library does not take: everything stays on TCP, and the first to be asked
/// says so.
#[test]
fn a_directory_that_is_not_the_users_alone_is_named() {
    let place = Place::new();
    let open = place.path("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("ours");
    let look =
        || place.ginnel().env("GINNEL_DIR", &open).args(["status"]).output().expect("starts");
    let said = String::from_utf8_lossy(&look().stdout).into_owned();
    assert!(
        said.contains("chmod 700")
            && said.contains("stay on TCP")
            && !said.contains("Nothing has run"),
        "{said}"
    );
    // Root's, for a user: here the other way round.
    if std::os::unix::fs::chown(&open, Some(12345), None).is_ok() {
        let said = String::from_utf8_lossy(&look().stdout).into_owned();
        assert!(said.contains("belongs to user 12345") && said.contains("stay on TCP"), "{said}");
    }
}
