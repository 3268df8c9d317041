//! Frames that are sent from where they lie, under attack: whatever fails or dies meanwhile, a
//! chain comes back once, not before its bytes are sent, and not long after.

use crate::common::lent::{BROKEN, LIMIT, World, breaks, plain};
use crate::common::{alone, frame, mac};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::hosts::link::{LENT, SLOW, Wire};
use ginnel_switch::hosts::pair::End;
use ginnel_switch::vhost::message::Request;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

#[test]
fn a_frame_that_cannot_be_sent_takes_no_other_ones_buffers_along() {
    let mut world = World::of(Options::default(), false, &[breaks, plain]);
    BROKEN.store(true, Ordering::Relaxed);
    // Both in one turn.
    assert!(world.send(20_000, 1, 1).is_some());
    let sent = frame(mac(19), mac(1), 20_000, 2);
    assert!(world.long.send(&mut world.a, &sent, 1));
    world.turns();
    assert_eq!(world.long.done(&mut world.a), 1, "the other is still being sent");
    assert!(world.others[1].take() == [sent]);
    world.until(|world| world.long.done(&mut world.a) == 1);
    assert!(world.host().trouble.as_ref().is_some_and(|why| why.contains("cannot send")));
    world.undisturbed();
}

#[test]
fn a_host_that_takes_little_by_little_holds_up_no_queue_for_most_of_the_time() {
    let mut world = World::new(Options::default());
    let late = 3 * SLOW;
    let mut waited = Duration::ZERO;
    // Each is taken late, and none so late that the host is lost.
    for n in 0..10 {
        assert!(world.send(60_000, 1, n).is_some());
        let began = Instant::now();
        world.until(|world| {
            if began.elapsed() > late {
                world.others[0].take_one();
            }
            world.long.done(&mut world.a) == 1
        });
        waited += began.elapsed();
    }
    assert!(world.host().link.is_some() && waited < 5 * late, "{waited:?}");
    assert!((1..=2).contains(&world.in_place()), "{}", world.in_place());
    // One that has become quick is lent something again.
    for _ in 0..2 {
        world.take();
        world.until_lent_again();
    }
    let before = world.in_place();
    let sent = world.send(60_000, 1, 77).expect("room");
    world.turns();
    assert!(world.take().last() == Some(&sent) && world.in_place() == before + 1);
    world.until(|world| world.long.done(&mut world.a) == 1);
}

#[test]
fn a_port_that_is_removed_and_added_again_waits_for_what_is_lent() {
    let mut world = World::new(Options::default());
    let sent = world.send(60_000, 3, 1).expect("room");
    world.turns();
    assert_eq!(world.in_place(), 1);
    world.reload(&["b"]);
    world.reload(&["a", "b"]);
    // As its QEMU does, for the same machine, whose buffers would be its own again.
    let next = world.connect(Options::default());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        world.turn();
        let early = next.is_finished() && world.host().link.is_some();
        assert!(!early, "the port is given away too early");
    }
    let got = world.take();
    assert!(got == [sent] || world.host().link.is_none());
    world.until(|_| next.is_finished());
    world.a = next.join().expect("no panic").expect("connected");
    world.undisturbed();
}

#[test]
fn a_front_end_that_dies_leaves_its_port_whatever_it_has_said() {
    if !alone("in_place_attack::a_front_end_that_dies_leaves_its_port_whatever_it_has_said") {
        return;
    }
    let ask = [1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
    for waits in [false, true] {
        let mut world = World::new(Options::default());
        let sent = world.send(60_000, 1, 1).filter(|_| waits);
        if waits {
            world.turns();
            world.a.tell(Request::GetVringBase, &ask, &[]).expect("told");
            world.turns();
        }
        for _ in 0..100 {
            world.a.tell(Request::SetOwner, &[], &[]).expect("told");
        }
        world.kill();
        let next = world.connect(Options::default());
        if waits {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(2));
                world.turn();
            }
            // What is lent is waited for, not that the last one's words are heard.
            let port = world.server.switch().ports().next().expect("a port");
            assert!(port.device().is_none(), "it is not seen that it is gone");
            assert!(!next.is_finished() || world.host().link.is_none());
        }
        let mut got = Vec::new();
        world.until(|world| {
            got.extend(world.take());
            next.is_finished()
        });
        assert!(sent.is_none_or(|sent| got == [sent]) || world.host().link.is_none());
        world.a = next.join().expect("no panic").expect("the next one is served");
        world.undisturbed();
    }
}

#[test]
fn memory_that_is_taken_away_and_given_back_while_frames_are_sent_from_it() {
    let mut world = World::new(Options::default());
    let sent = world.send_three();
    let lent = world.in_place();
    assert!(lent > 0);
    // QEMU does so with a region that becomes longer.
    world.a.unplug().expect("told");
    world.turns();
    let mut got = world.take();
    world.turns();
    assert_eq!(world.long.done(&mut world.a), 0, "its memory is not there");
    world.a.plug().expect("told");
    let mut done = 0;
    world.until(|world| {
        got.extend(world.take());
        done += world.long.done(&mut world.a);
        done == 3
    });
    assert!(got == sent);
    world.undisturbed();
    let sent = vec![world.send(50_000, 1, 7).expect("room")];
    world.turns();
    assert!(world.take() == sent);
    world.until(|world| world.long.done(&mut world.a) == 1);
}

/// A guest, its front end and another host that do what they may, in an order that a number
/// decides.
struct Life {
    world: World,
    state: u64,
    /// Frames that the host has not got, in order.
    sent: VecDeque<Vec<u8>>,
    count: u32,
    /// Chains that came back, of all that there were.
    back: u16,
}

impl Life {
    fn new(seed: u64) -> Self {
        let world = World::new(Options::default());
        Self { world, state: seed, sent: VecDeque::new(), count: 0, back: 0 }
    }

    /// Below this (Steele, Lea and Flood's SplitMix64).
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }

    fn send(&mut self, to: u8, len: u64) {
        let (len, pieces) = (60 + self.below(len) as usize, 1 + self.below(9) as usize);
        let mut sent = frame(mac(to), mac(1), len, self.count as u8);
        sent[14..18].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        if self.world.long.send(&mut self.world.a, &sent, pieces) && to == 9 {
            self.sent.push_back(sent);
        }
    }

    /// The host takes what has come: each is what was sent, in order, and once.
    fn take(&mut self, all: bool) {
        while let Some(frames) = self.world.others[0].take_one() {
            for got in frames {
                // Those that there was no room for were dropped.
                let place = self.sent.iter().position(|sent| *sent == got);
                let place = place.expect("no frame that was sent and is still to come");
                self.sent.drain(..=place);
            }
            if !all {
                return;
            }
        }
    }

    fn done(&mut self) {
        self.back = self.back.wrapping_add(self.world.long.done(&mut self.world.a) as u16);
    }

    /// Stops the queue, and starts it where it stood.
    fn stop(&mut self) {
        let ask = [1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
        self.world.a.tell(Request::GetVringBase, &ask, &[]).expect("told");
        self.world.a.socket.set_nonblocking(true).expect("set");
        let (mut answer, until) = ([0; 20], Instant::now() + LIMIT);
        while self.world.a.socket.read_exact(&mut answer).is_err() {
            assert!(Instant::now() < until, "no answer");
            self.world.turn();
            if self.below(4) == 0 {
                self.take(false);
            }
        }
        self.world.a.socket.set_nonblocking(false).expect("set");
        self.done();
        let base = u16::from_le_bytes([answer[16], answer[17]]);
        assert_eq!(base, self.back, "it stands elsewhere than what it gave back");
        self.world.a.start(1, base).expect("told");
    }

    fn step(&mut self) {
        match self.below(32) {
            0..10 => self.send(9, 60_000),
            10..12 => self.send(9, 200),
            12 => self.send(2, 200),
            13..18 => self.take(false),
            18..20 => self.done(),
            20 => self.world.a.share().expect("told"),
            21 => self.world.a.start(1, 0).expect("told"),
            22 => {
                self.world.a.unplug().expect("told");
                for _ in 0..self.below(3) {
                    self.world.turn();
                    self.take(false);
                }
                self.world.a.plug().expect("told");
            }
            23 => self.stop(),
            _ => self.world.turn(),
        }
        while self.world.b.receive(0).is_some() {}
    }
}

#[test]
fn whatever_happens_each_chain_comes_back_once_and_each_frame_is_what_was_sent() {
    let (mut lent, mut lost) = (0, 0);
    for seed in 0..40 {
        let mut life = Life::new(seed);
        for _ in 0..600 {
            life.step();
        }
        let until = Instant::now() + LIMIT;
        while !life.world.long.is_free() {
            assert!(Instant::now() < until, "chains of {seed} do not come back");
            life.take(true);
            life.world.turn();
            life.done();
        }
        life.world.undisturbed();
        (lent, lost) =
            (lent + life.world.in_place(), lost + u64::from(life.world.host().link.is_none()));
    }
    // This machine may have stood still for a second now and then.
    assert!(lent > 400 && lost < 20, "{lent} were lent, {lost} hosts lost");
}

/// As what a device knows of the memory of a machine that is gone: it takes its time to forget it.
#[derive(Debug)]
struct Forgets(Sender<ThreadId>);

impl Drop for Forgets {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().id());
    }
}

#[test]
fn a_device_that_forgets_memory_holds_up_no_frame() {
    static HEARS: Mutex<Option<Receiver<ThreadId>>> = Mutex::new(None);
    let forgets = |end: End| -> Box<dyn Wire> {
        let (tell, hears) = channel();
        *HEARS.lock().expect("no panic") = Some(hears);
        Box::new(end.keeping(Arc::new(Forgets(tell))))
    };
    let mut world = World::of(Options::default(), false, &[forgets]);
    let hears = HEARS.lock().expect("no panic").take().expect("made");
    let sent = world.send(60_000, 1, 1).expect("room");
    world.turns();
    assert!(world.take() == [sent] && hears.try_recv().is_err());
    world.until(|world| world.long.done(&mut world.a) == 1);
    let thread = hears.recv_timeout(LIMIT).expect("it is let go");
    assert_ne!(thread, std::thread::current().id(), "the thread of the frames waits for it");
}

#[test]
fn the_end_of_a_switch_waits_for_nobody() {
    let mut world = World::new(Options::default());
    assert!(world.send(60_000, 3, 1).is_some());
    world.turns();
    assert_eq!(world.in_place(), 1);
    let World { server, a, .. } = world;
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < LENT, "{:?}", began.elapsed());
    drop::<FrontEnd>(a);
}
