//! Long frames for other hosts go from where they lie in a machine's memory. Its chains come back
//! once they are sent, in order, whatever becomes of the host, the guest or the switch meanwhile.

use crate::common::fabric::{Net, secret};
use crate::common::lent::{LIMIT, World};
use crate::common::long::{Long, SLOTS};
use crate::common::{frame, mac, talk};
use ginnel_switch::front_end::{FrontEnd, GUEST, Options};
use ginnel_switch::vhost::message::Request;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_chain_comes_back_once_its_frame_is_sent_and_those_behind_it_in_order() {
    let mut world = World::new(Options::default());
    for pieces in [1, 2, 3, 5, 9] {
        world.until_lent_again();
        let before = world.in_place();
        let long = world.send(60_000, pieces, 1).expect("room");
        world.turns();
        assert_eq!((world.in_place(), world.long.done(&mut world.a)), (before + 1, 0), "{pieces}");
        // What is done at once waits for it: used entries are in the order of the available ones.
        let short = frame(mac(9), mac(1), 100, 2);
        assert!(world.long.send(&mut world.a, &short, 1));
        let near = frame(mac(2), mac(1), 100, 3);
        assert!(world.long.send(&mut world.a, &near, 1));
        world.until(|world| world.b.receive(0).is_some_and(|got| got == near));
        world.turns();
        assert_eq!(world.long.done(&mut world.a), 0);
        let mut got = world.take();
        world.until(|world| world.long.done(&mut world.a) == 3);
        world.turns();
        got.extend(world.take());
        assert!(
            got == [long, short],
            "{pieces}: {:?}",
            got.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
    // Once nothing is lent nothing waits.
    assert!(world.long.send(&mut world.a, &frame(mac(2), mac(1), 100, 3), 1));
    world.until(|world| world.long.done(&mut world.a) == 1);
}

#[test]
fn what_a_guest_changes_meanwhile_is_its_own_frame_behind_what_was_checked() {
    let mut world = World::new(Options::default());
    let sent = world.send(60_000, 1, 1).expect("room");
    world.turns();
    world.long.scribble(&world.a, 0xee);
    let [got] = &world.take()[..] else { panic!("one") };
    let kept = got.iter().zip(&sent).take_while(|(got, sent)| got == sent).count();
    // The bytes that were looked at are those of before; the length is.
    assert!(kept >= 82 && got.len() == sent.len(), "{kept}");
    assert!(got[200..] == vec![0xee; sent.len() - 200]);
    world.until(|world| world.long.done(&mut world.a) == 1);
    world.undisturbed();
}

#[test]
fn a_host_that_takes_little_is_sent_copies_and_no_queue_waits_for_those() {
    let mut world = World::new(Options::default());
    let mut sent = Vec::new();
    for n in 0..SLOTS as u8 {
        sent.extend(world.send(60_000, 1, n));
        world.turns();
    }
    // No more are lent than go at once; the others were copied or dropped.
    assert!((1..=2).contains(&world.in_place()), "{}", world.in_place());
    let host = &world.server.switch().hosts.all[0];
    assert!(host.counters.received_frames > 4, "{:?}", host.counters);
    let mut got = Vec::new();
    world.until(|world| {
        got.extend(world.take());
        world.long.done(&mut world.a);
        world.long.is_free()
    });
    world.turns();
    got.extend(world.take());
    assert!(got == sent[..got.len()] && got.len() > 4);
}

#[test]
fn with_a_secret_and_from_memory_that_can_be_cut_short_all_is_copied() {
    let cuttable = Options { sealed: false, ..Options::default() };
    for (options, secret) in [(Options::default(), true), (cuttable, false)] {
        let mut world = World::with(options, secret);
        let sent = world.send(60_000, 1, 1).expect("room");
        world.until(|world| world.long.done(&mut world.a) == 1);
        // It may be anything now.
        world.long.scribble(&world.a, 0xee);
        assert!(world.take() == [sent]);
        assert_eq!(world.in_place(), 0);
        if !options.sealed {
            let sent = world.send(60_000, 1, 2).expect("room");
            world.turn();
            rustix::fs::ftruncate(&world.a.file, 0).expect("cut");
            world.turns();
            let got = world.take();
            assert!(got.is_empty() || got == [sent]);
            assert_eq!(world.host().trouble, None);
        }
    }
    // Of what is sealed nothing can be cut off, and holes are zeroes.
    let mut world = World::new(Options::default());
    let sent = world.send(60_000, 1, 1).expect("room");
    world.turns();
    assert!(rustix::fs::ftruncate(&world.a.file, 0).is_err());
    world.long.punch(&world.a);
    let got = world.take();
    assert!(
        got.len() == 1
            && got[0].len() == sent.len()
            && got[0][8192..] == vec![0; sent.len() - 8192]
    );
    world.undisturbed();
}

#[test]
fn a_guest_is_reset_only_when_nothing_of_it_is_being_sent() {
    let mut world = World::new(Options::default());
    let ask = [1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    let sent = world.send(60_000, 2, 1).expect("room");
    world.turns();
    world.a.tell(Request::GetVringBase, &ask, &[]).expect("told");
    world.a.socket.set_nonblocking(true).expect("set");
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        world.turn();
        assert!(world.a.socket.read(&mut [0; 1]).is_err(), "it is answered too early");
    }
    // Others notice nothing. What it sends now is copied.
    world.undisturbed();
    assert!(world.take() == [sent]);
    let mut answer = [0; 20];
    world.until(|world| world.a.socket.read_exact(&mut answer).is_ok());
    assert_eq!((answer[16], world.long.done(&mut world.a)), (1, 1));
    // It goes on from there.
    world.a.socket.set_nonblocking(false).expect("set");
    world.a.start(1, 1).expect("started");
    for seed in 2..=u8::MAX {
        world.until_lent_again();
        world.turns();
        let sent = world.send(60_000, 2, seed).expect("room");
        let mut got = Vec::new();
        world.until(|world| {
            got.extend(world.take());
            !got.is_empty()
        });
        assert!(got == [sent]);
        world.until(|world| world.long.done(&mut world.a) == 1);
        // Where this test was slow meanwhile, it was copied.
        if world.in_place() == 2 {
            return;
        }
    }
    panic!("nothing is lent any more");
}

#[test]
fn a_host_that_stands_still_is_lost_before_it_holds_up_a_queue_for_long() {
    let mut world = World::new(Options::default());
    let began = Instant::now();
    assert!(world.send(60_000, 1, 1).is_some());
    world.turns();
    assert_eq!(world.in_place(), 1);
    // It says that it lives, and takes nothing.
    world.until(|world| world.long.done(&mut world.a) == 1);
    let took = began.elapsed();
    assert!((900..2500).contains(&took.as_millis()), "{took:?}");
    let host = &world.server.switch().hosts.all[0];
    assert!(
        host.link.is_none()
            && host.trouble.as_ref().is_some_and(|why| why.contains("takes nothing"))
    );
    world.undisturbed();
}

#[test]
fn memory_is_told_anew_while_frames_are_sent_from_it() {
    let mut world = World::new(Options::default());
    let sent = world.send_three();
    // The same table, a queue's place, and the queue again, as when memory is plugged in.
    world.a.share().expect("told");
    world.turns();
    world.a.start(1, 0).expect("told");
    world.turns();
    assert!(world.in_place() > 0 && world.long.done(&mut world.a) == 0);
    let (mut done, mut got) = (0, Vec::new());
    world.until(|world| {
        got.extend(world.take());
        done += world.long.done(&mut world.a);
        done == 3
    });
    assert!(got == sent);
    // No entry came twice.
    world.turns();
    assert_eq!(world.long.done(&mut world.a), 0);
    let sent = world.send(50_000, 1, 7).expect("room");
    world.turns();
    assert!(world.take() == [sent]);
    world.until(|world| world.long.done(&mut world.a) == 1);
}

#[test]
fn a_guest_that_dies_leaves_its_memory_until_its_frames_are_sent() {
    let mut world = World::new(Options::default());
    let sent = world.send(60_000, 3, 1).expect("room");
    world.turns();
    let socket = world.directory.path().join("a");
    let (nowhere, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
    // Its QEMU is killed, and another begins.
    world.a = FrontEnd::prepare(nowhere, Options::default()).expect("memory");
    // A process that another test starts may have its socket a moment longer.
    let gone = |world: &mut World| {
        world.server.switch().ports().next().is_some_and(|port| port.device().is_none())
    };
    world.until(gone);
    let connect = move || FrontEnd::connect(&socket, Options::default()).expect("connected");
    let next = std::thread::spawn(connect);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        world.turn();
        assert!(!next.is_finished(), "the port is given away too early");
    }
    assert!(world.take() == [sent], "what it sent is there");
    world.until(|_| next.is_finished());
    (world.a, world.long) = (next.join().expect("connected"), Long::new());
    world.turns();
    let sent = world.send(60_000, 1, 2).expect("room");
    world.turns();
    assert!(world.take() == [sent]);
    world.until(|world| world.long.done(&mut world.a) == 1);
}

#[test]
fn a_guest_that_offers_more_than_its_queue_holds_breaks_its_own_queue() {
    let mut world = World::new(Options { size: 16, ..Options::default() });
    assert!(world.send(20_000, 1, 1).is_some());
    world.turns();
    assert_eq!(world.in_place(), 1);
    // As if all came back at once: more is out than there are entries.
    world.a.describe(1, 15, GUEST, 60, 0, 0);
    for _ in 0..40 {
        world.a.offer(1, 15);
        world.turn();
    }
    let port = world.server.switch().ports().next().expect("a port");
    assert!(
        port.trouble.as_ref().is_some_and(|why| why.contains("available index")),
        "{:?}",
        port.trouble
    );
    world.take();
    world.turns();
    // A frame of the other goes there all the same: its other queue works.
    world.undisturbed();
}

#[test]
fn content_is_exact_under_load_between_two_switches() {
    let place = tempfile::tempdir().expect("a directory");
    let file = secret(place.path(), "0123456789abcdef");
    for sealed in [false, true] {
        let Some(mut net) = Net::new() else { return };
        net.in_place = Some(2000);
        let labs = net.hosts(&["[port.a]\n"; 2], sealed.then_some(file.as_path()));
        for (n, lab) in labs.iter().enumerate() {
            lab.until_host(&format!("h{}", 2 - n), |host| !host.keys.is_empty());
        }
        let [mut a, mut b] = [0, 1].map(|n: usize| labs[n].guest("a", Options::default()));
        talk((&mut a, 1), (&mut b, 2));
        let taken = load(&mut a, &mut b, |n| n < 800);
        let host = labs[0].host("h2");
        assert_eq!(host.in_place_frames > 100, !sealed, "{host:?}");
        assert!(taken > 200, "{taken} arrived: {host:?}");
    }
}

/// Sends long frames as long as there are to be more, with nothing that comes back left as it is,
/// and takes them in another thread: each is exact, and they are in order. How many arrived?
pub fn load(a: &mut FrontEnd, b: &mut FrontEnd, mut more: impl FnMut(u32) -> bool) -> u32 {
    let numbered = |n: u32| {
        let len = 1000 + (n.wrapping_mul(7919) % 60_000) as usize;
        let mut frame = frame(mac(2), mac(1), len, n as u8);
        frame[14..18].copy_from_slice(&n.to_le_bytes());
        frame
    };
    // What it sent before is its own again.
    while a.used(1).is_some() {}
    let (done, until) = (AtomicBool::new(false), Instant::now() + 9 * LIMIT);
    std::thread::scope(|scope| {
        let takes = scope.spawn(|| {
            let (mut taken, mut last) = (0, None);
            loop {
                let Some(got) = b.wait(0, Duration::from_millis(300)) else {
                    if done.load(Ordering::Relaxed) || Instant::now() > until {
                        return taken;
                    }
                    continue;
                };
                let n = u32::from_le_bytes(got[14..18].try_into().expect("four"));
                assert!(last < Some(n) && got == numbered(n), "frame {n} behind {last:?}");
                (taken, last) = (taken + 1, Some(n));
                if taken % 8 == 0 {
                    // So that it is known where this one is.
                    b.send(1, &frame(mac(1), mac(2), 50, 0));
                }
            }
        });
        let mut long = Long::new();
        for n in (0..).take_while(|&n| more(n)) {
            let until = Instant::now() + LIMIT;
            while !long.send(a, &numbered(n), 1 + n as usize % 6) {
                assert!(Instant::now() < until, "nothing comes back");
                std::thread::yield_now();
                long.done(a);
            }
            // Not more than the other guest has buffers for, mostly.
            if n % 8 == 7 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        done.store(true, Ordering::Relaxed);
        takes.join().expect("all was well")
    })
}
