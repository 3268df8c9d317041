//! What a segment goes through: other names for its file, other users of its pages, processes that
//! fork, and such as are killed anywhere.

mod crowd;
mod stopped;
mod threads;
mod unheard;

use super::*;
use crate::active::Active;
use crate::endpoint::{Endpoint, Tuning};
use crate::matching::Buffers;
use crate::memory::Memory;
use crate::operation::Message;
use ginnel_node::{Library, Settings};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Tells a test's program which part of it it is, and where.
const PLACE: &str = "GINNEL_TEST_PLACE";

/// With room for all that comes to an endpoint which reads nothing while others come and go.
fn config() -> Config {
    Config { size: 64 << 20, ..Config::default() }
}

fn open(path: &Path) -> Endpoint {
    Endpoint::open(path, &config(), Tuning::default()).expect("an endpoint")
}

/// This test once more, in a process of its own.
fn again(name: &str, place: &Path) -> Command {
    let mut again = Command::new(std::env::current_exe().expect("a test is a program"));
    again.args(["--exact", &format!("node::attacks::{name}"), "--nocapture"]).env(PLACE, place);
    again
}

fn files_in(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).expect("there");
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.expect("there").path()).collect();
    all.retain(|path| !path.ends_with("table"));
    all
}

/// Sends a word that nobody waits for.
fn say(endpoint: &mut Endpoint, to: EndpointId, word: &[u8; 8]) -> Result<(), Error> {
    let to = endpoint.peer(to);
    let buffers = Buffers::one(word.as_ptr().cast_mut(), word.len());
    let (tag, data, token, report) = (Some(1), None, 0, false);
    // SAFETY: so short a message is copied at once.
    unsafe { endpoint.send(to, Message { tag, data, buffers, token, report, delivered: false }) }
}

/// A link to the file, and a path from where the process is, which goes elsewhere afterwards.
#[test]
fn a_segment_is_one_whichever_way_its_path_is_written() {
    const NAME: &str = "a_segment_is_one_whichever_way_its_path_is_written";
    let Some(place) = std::env::var_os(PLACE) else {
        let place = tempfile::tempdir().expect("a directory");
        let ran = again(NAME, place.path()).status().expect("started");
        assert!(ran.success());
        return;
    };
    let place = Path::new(&place);
    std::env::set_current_dir(place).expect("there");
    let (mut a, link) = (open(Path::new("mpi")), place.join("link"));
    symlink(place.join("mpi"), &link).expect("made");
    std::env::set_current_dir("/").expect("there");
    let b = open(&link);
    assert!(a.node().lives(b.id()) && b.node().lives(a.id()), "each has its lock beside the file");
    say(&mut a, b.id(), b"word,...").expect("room for a ring");
    assert_eq!(files_in(place).len(), 3, "{:?}", files_in(place));
    b.close();
    assert!(link.exists(), "the segment is another's, still");
    a.close();
    assert_eq!(files_in(place), [link], "what was made was removed, and nothing else");
}

/// The file is a program's segment under the shim, too, which has nothing in it at the moment.
#[test]
fn the_last_endpoint_leaves_a_file_that_others_have_joined() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("mpi");
    let mut settings = Settings::from_environment();
    (settings.directory, settings.segment) = (place.path().join("table"), path.clone());
    (settings.found, settings.config) = (false, config());
    let node =
        ginnel_node::Node::new(settings, Library::of_program("other-1"), |_| Ok(()), |_, _| {});
    let (node, ()) = node.map_err(|refused| refused.message).expect("joined");
    open(&path).close();
    let there = ginnel_region::open::open(&path);
    assert!(there.is_ok_and(|(fd, _)| node.joined().segment.is_in(fd.0)), "its file is there");
    assert!(path.with_extension("wake").exists());
    node.leave(0);
    open(&path).close();
    assert_eq!(files_in(place.path()).len(), 0, "the last removes it");
}

/// A filter with which the kernel kills a process that calls write(2).
fn die_of_writing() {
    let mut filter = [
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_write as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_KILL_PROCESS },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program is readable.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
            0
        );
    }
}

/// Whoever was to wake a sleeper is killed at that very moment: the next one does.
#[test]
fn a_sleeper_is_woken_by_the_next_when_its_ringer_is_killed() {
    const NAME: &str = "a_sleeper_is_woken_by_the_next_when_its_ringer_is_killed";
    if let Some(place) = std::env::var_os(PLACE) {
        let mut b = open(&Path::new(&place).join("mpi"));
        let sleeper = b.node().endpoints().find(|head| head.page() != b.id().page()).expect("a");
        let nonce = word(b.node().segment(), sleeper.page(), NONCE).load(Ordering::Relaxed);
        die_of_writing();
        let _ = say(&mut b, EndpointId(u64::from(sleeper.page()) << 32 | nonce), b"word,...");
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("mpi");
    let a = open(&path);
    a.node().sleeping();
    let ended = again(NAME, place.path()).status().expect("started");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(libc::SIGSYS));
    assert_eq!(sys::poll(a.node().fifo(), libc::POLLIN, 0), 0, "it was killed before");
    let mut c = open(&path);
    say(&mut c, a.id(), b"another.").expect("room");
    assert_eq!(sys::poll(a.node().fifo(), libc::POLLIN, 1000), 1, "nobody woke it");
    a.node().awake();
    a.close();
    c.close();
    assert_eq!(files_in(place.path()).len(), 0);
}

/// Processes come and go, and each may be the last that removes the segment, or the first that
/// makes it.
#[test]
fn processes_that_come_and_go_meet_or_are_alone() {
    const NAME: &str = "processes_that_come_and_go_meet_or_are_alone";
    if let Some(place) = std::env::var_os(PLACE) {
        for _ in 0..100 {
            let open = || open(&Path::new(&place).join("mpi"));
            let (a, b) = (open(), open());
            assert!(a.node().lives(b.id()) && a.segment_id() == b.segment_id());
            a.close();
            b.close();
        }
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let start = || again(NAME, place.path()).spawn().expect("started");
    let all: Vec<Child> = (0..3).map(|_| start()).collect();
    for mut one in all {
        assert!(one.wait().expect("ended").success());
    }
    assert_eq!(files_in(place.path()).len(), 0);
}

/// Processes open, send and close for as long as they are let live.
fn live(path: &Path) {
    loop {
        let (mut a, b) = (open(path), open(path));
        let others: Vec<EndpointId> = a
            .node()
            .endpoints()
            .map(|head| {
                let nonce = word(a.node().segment(), head.page(), NONCE).load(Ordering::Relaxed);
                EndpointId(u64::from(head.page()) << 32 | nonce)
            })
            .collect();
        assert!(a.node().lives(b.id()) && a.segment_id() == b.segment_id());
        for other in others {
            // It may be gone by now.
            let _ = say(&mut a, other, b"word,...");
        }
        a.close();
        b.close();
    }
}

/// What is in the segment.
fn heads_of(path: &Path) -> Vec<(Use, bool, u64)> {
    let Ok(segment) = Segment::open(path) else { return Vec::new() };
    let first = |head: &Head| word(&segment, head.page(), 0).load(Ordering::Relaxed);
    let all = segment.heads_within_reach();
    all.map(|head| (head.owner().kind, head.is_busy(), first(&head))).collect()
}

/// Processes are killed at whatever they do, with others living and without. Nothing is left of
/// them, nobody waits for them, and the living keep what is theirs.
#[test]
fn processes_that_are_killed_anywhere_leave_nothing() {
    const NAME: &str = "processes_that_are_killed_anywhere_leave_nothing";
    if let Some(place) = std::env::var_os(PLACE) {
        // SAFETY: no memory is passed. It ends with the test, however that ends.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        live(&Path::new(&place).join("mpi"));
    }
    let rounds = std::env::var("GINNEL_TEST_ROUNDS").ok().and_then(|text| text.parse().ok());
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("mpi");
    let mut random = 7u64;
    for round in 0..rounds.unwrap_or(20) {
        // With one that lives throughout, and without.
        let (memory, mut stays) =
            (Memory::default(), (round % 2 == 0).then(|| (open(&path), open(&path))));
        let mut all: Vec<Child> =
            (0..3).map(|_| again(NAME, place.path()).spawn().expect("started")).collect();
        for one in &mut all {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_micros(5000 + (random >> 33) % 60_000));
            assert!(one.try_wait().expect("a child").is_none(), "it failed by itself");
            one.kill().expect("a child");
            if round % 3 == 0 {
                one.wait().expect("a child");
            }
        }
        all.iter_mut().for_each(|one| drop(one.wait()));
        let begun = Instant::now();
        if let Some((a, b)) = &mut stays {
            say(a, b.id(), b"word,...").expect("room");
            assert!(b.progress(&memory), "it was given what was sent");
            a.look_for_the_dead();
        }
        if let Some((a, b)) = stays {
            a.close();
            b.close();
        } else {
            clean(&path).expect("cleaned");
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "somebody was waited for");
        // What a process was about to make a segment of, without its name so far, stays.
        let mut left = files_in(place.path());
        left.retain(|file| file.extension().is_none_or(|extension| extension != "new"));
        assert!(left.is_empty(), "round {round}: {left:?}, {:?}", heads_of(&path));
    }
}

/// Several ring one sleeper, each as soon as its last news was seen.
#[test]
fn no_ring_of_several_ringers_is_lost() {
    const ROUNDS: u64 = 3000;
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("mpi");
    let (a, ringers) = (open(&path), [open(&path), open(&path), open(&path)]);
    let (news, seen) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let (to, all) = (a.id(), ROUNDS * 3);
    std::thread::scope(|scope| {
        for ringer in ringers {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let own = news.fetch_add(1, Ordering::SeqCst) + 1;
                    ringer.node().wake(to);
                    while seen.load(Ordering::SeqCst) < own {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut known = 0;
        while known < all {
            a.node().sleeping();
            if news.load(Ordering::SeqCst) == known {
                let rung = sys::poll(a.node().fifo(), libc::POLLIN, 20_000);
                if rung == 0 {
                    seen.store(u64::MAX, Ordering::SeqCst);
                    panic!("nobody woke it, after {known}");
                }
            }
            a.node().awake();
            known = news.load(Ordering::SeqCst);
            seen.store(known, Ordering::SeqCst);
        }
    });
}

/// Somebody who has the segment writes into the pages of endpoints, or frees them.
#[test]
fn garbage_in_an_endpoints_page_ends_no_process() {
    let mut random = 11u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % limit
    };
    for _ in 0..150 {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("mpi");
        let (mut a, mut b, memory) = (open(&path), open(&path), Memory::default());
        let begun = Instant::now();
        for _ in 0..1 + below(6) {
            let segment = a.node().segment();
            let pages: Vec<Head> = segment.heads_within_reach().collect();
            if pages.is_empty() {
                break;
            }
            let head = pages[below(pages.len() as u64) as usize];
            let values = [0, 1, 2, 7, 4095, u64::MAX, segment.len() - 8, u64::from(head.page())];
            let value = match below(3) {
                0 => below(1 << 31) * below(1 << 31),
                _ => values[below(values.len() as u64) as usize],
            };
            match below(8) {
                0 => {
                    let taken = segment.take(head);
                    taken.into_iter().for_each(|head| _ = segment.release_groups(&[head]));
                }
                1 => {
                    let table = table_of(segment, head.page());
                    let entry = table.map(|table| segment.word(table + below(8) * 8));
                    entry.into_iter().for_each(|entry| entry.store(value, Ordering::Relaxed));
                }
                _ => word(segment, head.page(), below(18) * 8).store(value, Ordering::Relaxed),
            }
            // Whatever comes of each.
            let (to_a, to_b) = (a.id(), b.id());
            let _ = say(&mut b, to_a, b"word,...");
            let _ = say(&mut a, to_b, b"word,...");
            a.node().sleeping();
            b.node().wake(to_a);
            a.node().awake();
            for end in [&mut a, &mut b] {
                end.progress(&memory);
                end.look_for_the_dead();
                let _ = (end.node().count(), end.node().is_crowded());
            }
            if below(2) == 0 {
                open(&path).close();
            }
        }
        a.close();
        b.close();
        clean(&path).expect("cleaned");
        assert!(begun.elapsed() < Duration::from_secs(5), "somebody was waited for");
    }
}
