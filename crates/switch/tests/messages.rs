//! What a front end may say beside what every test's says: in another order, again, or seldom.

use crate::common::{ALL, Lab, frame, mac, next, talk};
use ginnel_switch::front_end::{FrontEnd, GUEST, Options, USER};
use ginnel_switch::vhost::message::Request;
use ginnel_switch::wire::features;
use rustix::event::{EventfdFlags, eventfd};
use std::io::Read;

const TWO: &str = "[port.a]\n[port.b]\n";

/// Protocol features: RARP, RESET_DEVICE, CONFIGURE_MEM_SLOTS and STATUS beside the usual ones.
fn seldom() -> Options {
    let options = Options::default();
    Options { protocol: options.protocol | 1 << 2 | 1 << 13 | 1 << 15 | 1 << 16, ..options }
}

fn pair(lab: &Lab) -> [FrontEnd; 2] {
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, seldom()));
    talk((&mut a, 1), (&mut b, 2));
    [a, b]
}

/// What has been heard by then has been done.
fn is_heard(guest: &mut FrontEnd) {
    guest.number(Request::GetFeatures, &[]).expect("heard");
}

/// Index of the used ring: where another device goes on.
fn stands(guest: &FrontEnd, queue: usize) -> u16 {
    u16::from_le_bytes(guest.read(guest.queues[queue].places()[2] + 2))
}

#[test]
fn a_machine_that_was_moved_is_announced_as_what_it_may_be() {
    let lab = Lab::new("[port.a]\n[port.b]\nmac = \"52:54:00:00:00:02\"\n");
    let [mut a, b] = pair(&lab);
    let announce = |address: [u8; 6]| {
        let [x, y, z, u, v, w] = address;
        b.tell(Request::SendRarp, &[x, y, z, u, v, w, 0, 0], &[]).expect("told");
    };
    announce(mac(2));
    let wanted = [&ALL[..], &mac(2), &[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]].concat();
    let wanted = [&wanted[..], &mac(2), &[0; 4], &mac(2), &[0; 22]].concat();
    assert_eq!(next(&mut a), Some(wanted));
    announce(mac(1));
    lab.until("b", |port| port.dropped.get("spoofed_mac") == Some(&1));
}

#[test]
fn what_is_said_while_queues_are_served_changes_nothing_before_its_time() {
    let lab = Lab::new(TWO);
    let [mut a, mut b] = pair(&lab);
    for round in 0..4 {
        let queue = 1 - round % 2;
        let number = (queue as u32).to_le_bytes();
        // Where it stands is the device's to say while it serves the queue.
        let base = [number, 999u32.to_le_bytes()].concat();
        a.tell(Request::SetVringBase, &base, &[]).expect("told");
        let [descriptors, available, used] = a.queues[queue].places().map(|at| at - GUEST + USER);
        let places = [descriptors, used, available, 0].map(u64::to_le_bytes).concat();
        let addresses = [&number[..], &[0; 4], &places].concat();
        a.tell(Request::SetVringAddr, &addresses, &[]).expect("told");
        a.tell(Request::SetMemTable, &[0; 8], &[]).expect("told");
        a.share().expect("told");
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        a.queues[queue].kick = eventfd(0, flags).expect("an eventfd");
        let index = (queue as u64).to_le_bytes();
        a.tell(Request::SetVringKick, &index, &[&a.queues[queue].kick]).expect("told");
        is_heard(&mut a);
        talk((&mut a, 1), (&mut b, 2));
    }
    // A frame that was sent before the queue was switched off is sent, and none after it.
    assert!(a.send(1, &frame(mac(2), mac(1), 50, 7)));
    assert_eq!(next(&mut b), Some(frame(mac(2), mac(1), 50, 7)));
    a.enable(false).expect("told");
    is_heard(&mut a);
    assert!(a.send(1, &frame(mac(2), mac(1), 50, 8)));
    lab.until("a", |port| port.dropped.get("queue_disabled") == Some(&1));
}

#[test]
fn a_device_that_is_reset_is_set_up_anew() {
    let lab = Lab::new(TWO);
    let [mut a, mut b] = pair(&lab);
    assert_eq!(a.number(Request::GetMaxMemSlots, &[]).expect("an answer"), 32);
    a.tell(Request::SetStatus, &15u64.to_le_bytes(), &[]).expect("told");
    assert_eq!(a.number(Request::GetStatus, &[]).expect("an answer"), 15);
    a.tell(Request::ResetDevice, &[], &[]).expect("told");
    assert_eq!(a.number(Request::GetStatus, &[]).expect("an answer"), 0);
    // Until then nothing of it is served.
    assert!(a.send(1, &frame(mac(2), mac(1), 50, 7)));
    a.kick(1);
    lab.until("a", |port| port.state != "up");
    assert!(b.send(1, &frame(mac(1), mac(2), 50, 7)));
    lab.until("a", |port| port.missed.get("receiver_absent") == Some(&1));
    a.tell(Request::SetFeatures, &seldom().features.to_le_bytes(), &[]).expect("told");
    a.enable(true).expect("told");
    for queue in 0..2 {
        a.start(queue, stands(&a, queue)).expect("told");
    }
    assert_eq!(next(&mut b), Some(frame(mac(2), mac(1), 50, 7)));
    talk((&mut a, 1), (&mut b, 2));
}

#[test]
fn a_log_goes_and_another_comes_while_frames_do() {
    let lab = Lab::new(TWO);
    let [mut a, mut b] = pair(&lab);
    let plain = seldom().features;
    for round in 0..4u64 {
        let bytes = (GUEST >> 15) + 4096 * (1 + round);
        let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).expect("a log");
        rustix::fs::ftruncate(&log, bytes).expect("long");
        let words = [bytes, 0].map(u64::to_le_bytes).concat();
        a.tell(Request::SetLogBase, &words, &[&log]).expect("told");
        a.answer().expect("heard");
        let logged = (plain | features::LOG_ALL).to_le_bytes();
        a.tell(Request::SetFeatures, &logged, &[]).expect("told");
        talk((&mut a, 1), (&mut b, 2));
        let mut marks = vec![0; bytes as usize];
        rustix::io::pread(&log, &mut marks[..], 0).expect("read");
        assert!(marks.iter().any(|&byte| byte != 0), "the frame that came is not marked");
        if round % 2 == 0 {
            a.tell(Request::SetFeatures, &plain.to_le_bytes(), &[]).expect("told");
        }
    }
}

#[test]
fn what_was_not_offered_ends_the_connection() {
    let lab = Lab::new(TWO);
    // Of what is on its way (GET_INFLIGHT_FD, SET_INFLIGHT_FD), of post-copy, of an IOMMU.
    for number in [31u8, 32, 28, 22] {
        let mut a = lab.guest("a", Options::default());
        a.raw(&[number, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], &[]).expect("told");
        assert!(!a.socket.read(&mut [0; 12]).is_ok_and(|len| len > 0));
        let port = lab.until("a", |port| port.state == "waiting");
        let why = format!("request {number} is not known");
        assert!(port.trouble.is_some_and(|said| said.contains(&why)));
    }
    // More files than a table has regions.
    let mut a = lab.guest("a", Options::default());
    let files = vec![&a.file; 9];
    let table = [&[8u8, 0, 0, 0, 0, 0, 0, 0][..], &[0; 256]].concat();
    a.tell(Request::SetMemTable, &table, &files).expect("told");
    assert!(!a.socket.read(&mut [0; 12]).is_ok_and(|len| len > 0));
    let port = lab.until("a", |port| port.state == "waiting");
    assert!(port.trouble.is_some_and(|said| said.contains("9 descriptors")));
}
