use super::*;
use crate::refusal::Refusal;
use crate::settings::DEFAULT_SEGMENT;
use crate::wake::directory::{find_wake_directory, wake_directory};

pub(crate) const LIBRARY: Library = Library::of_process("test");

/// This process's node in a segment that nobody else has.
pub(crate) fn node_in(directory: &Path) -> Node {
    // Made by whoever attaches, and so that user's alone.
    let directory = directory.join("own");
    let segment = directory.join(DEFAULT_SEGMENT);
    let mut settings =
        Settings { directory, segment, tokens: false, ..Settings::from_environment() };
    settings.config.size = 16 << 20;
    Node::new(settings, LIBRARY, |_| Ok(()), |_, _| {}).expect("attached").0
}

/// In a directory that everybody may write into, somebody without any right to the segment may
/// have been first.
#[test]
fn wake_ups_do_not_go_through_a_directory_that_a_stranger_made() {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let own = place.path().join("own");
    home::make_directory(&own).expect("made");
    let segment = own.join(DEFAULT_SEGMENT);
    let wakes = wake_directory(&own, &segment);
    let give = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None).expect("given");
    std::fs::create_dir(&wakes).expect("made");
    give(&wakes, 65534);
    let node = node_in(place.path());
    assert!(!node.joined().fifos && node.joined().wake_dir() == -1, "tokens do without it");
    assert!(crate::waiter::Waiter::new(&node).is_err());
    // Of the segment's owner it is as good as one's own.
    give(&segment, 65534);
    let dir = find_wake_directory(&wakes, &segment).expect("its owner's");
    sys::close(dir);
    give(&segment, 65533);
    assert_eq!(find_wake_directory(&wakes, &segment), Err(libc::EPERM));
    give(&wakes, 0);
    sys::close(find_wake_directory(&wakes, &segment).expect("root's"));
}

/// Nobody would give it up when the process becomes another user.
#[test]
fn who_cannot_join_keeps_no_table() {
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("own");
    let segment = place.path().join("none");
    std::fs::write(&segment, "none").expect("written");
    let settings =
        Settings { directory: directory.clone(), segment, ..Settings::from_environment() };
    let refused =
        Node::new(settings, LIBRARY, |_| Ok(()), |_, _| {}).err().expect("it is no segment");
    assert_eq!(refused.refusal, Refusal::NoSegment);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("read");
    assert!(
        directory.join(PROCESS_TABLE).exists()
            && !maps.contains(directory.to_str().expect("UTF-8")),
        "{maps}"
    );
    // For those who ask, the entry says why.
    let processes = Processes::open(&directory, false).expect("it is there");
    let (_, entry) = processes
        .living()
        .find(|(_, entry)| entry.pid.load(Ordering::Relaxed) == sys::pid())
        .expect("an entry");
    assert_eq!(entry.reason.load(Ordering::Relaxed), Refusal::NoSegment as u32);
}
