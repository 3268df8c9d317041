//! Frames go where they should, whole, and nowhere else; what becomes of others is counted.

use crate::common::{ALL, Lab, PATIENCE, frame, mac, next, talk};
use ginnel_switch::front_end::{FrontEnd, GUEST, Options, USER};
use ginnel_switch::vhost::message::Request;
use ginnel_switch::wire::features;
use std::time::{Duration, Instant};

const THREE: &str = "[port.a]\n[port.b]\n[port.c]\n";

fn quiet(guest: &mut FrontEnd) {
    assert_eq!(guest.wait(0, Duration::from_millis(50)), None, "it should have got nothing");
}

#[test]
fn frames_go_to_whom_they_are_for() {
    let lab = Lab::new(THREE);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    // The first was to all.
    assert_eq!(next(&mut c), Some(frame(ALL, mac(1), 50, 1)));
    quiet(&mut c);
    // To one who was not heard yet: to everybody, but not back.
    let unknown = frame(mac(9), mac(1), 50, 3);
    assert!(a.send(1, &unknown));
    assert_eq!((next(&mut b).as_ref(), next(&mut c).as_ref()), (Some(&unknown), Some(&unknown)));
    quiet(&mut a);
    let known: Vec<_> = lab.addresses().into_iter().map(|one| (one.mac, one.port)).collect();
    let at = |n: u8, port: &str| (format!("52:54:00:00:00:0{n}"), port.to_owned());
    assert_eq!(known, [at(1, "a"), at(2, "b")]);
    // To oneself.
    assert!(a.send(1, &frame(mac(1), mac(1), 50, 4)));
    lab.until("a", |port| port.dropped.get("same_port") == Some(&1));
    // A guest that moves to another port is found there.
    assert!(c.send(1, &frame(mac(2), mac(1), 50, 5)));
    assert!(next(&mut b).is_some());
    assert!(b.send(1, &frame(mac(1), mac(2), 50, 6)));
    assert_eq!(next(&mut c), Some(frame(mac(1), mac(2), 50, 6)));
    quiet(&mut a);
}

#[test]
fn every_length_arrives_whole() {
    let lab = Lab::new(THREE);
    let offered = Options::default();
    let plain = Options { features: features::VERSION_1, ..offered };
    let old = Options { features: 0, enables_first: false, ..offered };
    for options in [offered, plain, old] {
        let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, options));
        talk((&mut a, 1), (&mut b, 2));
        let longest = if options.features & features::MRG_RXBUF != 0 { 65000 } else { 2000 };
        for len in
            (0..200).chain([1486, 1500, 2000, 2034, 9000, 65000]).filter(|&len| len <= longest)
        {
            let sent = frame(mac(2), mac(1), len, len as u8);
            assert!(a.send(1, &sent));
            assert_eq!(next(&mut b).as_ref(), Some(&sent), "{len} bytes");
        }
        drop((a, b));
        lab.until("a", |port| port.state == "waiting");
        lab.until("b", |port| port.state == "waiting");
    }
}

#[test]
fn segments_are_apart() {
    let lab =
        Lab::new("[port.a]\nkey = 1\n[port.b]\nkey = 1\n[port.c]\nkey = 2\n[port.d]\nkey = 2\n");
    let [mut a, mut b, mut c, mut d] =
        ["a", "b", "c", "d"].map(|name| lab.guest(name, Options::default()));
    // The same addresses in both.
    talk((&mut a, 1), (&mut b, 2));
    quiet(&mut c);
    talk((&mut c, 1), (&mut d, 2));
    quiet(&mut a);
    assert!(a.send(1, &frame(mac(2), mac(1), 50, 9)));
    assert_eq!(next(&mut b), Some(frame(mac(2), mac(1), 50, 9)));
    quiet(&mut d);
}

#[test]
fn a_port_says_only_what_it_may() {
    let lab = Lab::new(
        "[port.a]\nmac = \"52:54:00:00:00:01\"\naddress = \"10.0.0.1\"\nbroadcasts = 1\n\
         [port.b]\nmacs = 2\n[port.c]\nmac = \"52:54:00:00:00:03\"\n",
    );
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    assert!(next(&mut c).is_some());
    assert!(a.send(1, &frame(mac(2), mac(7), 50, 1)));
    lab.until("a", |port| port.dropped.get("spoofed_mac") == Some(&1));
    // Another's fixed address is taken by nobody, whatever is asked of oneself.
    assert!(b.send(1, &frame(mac(1), mac(3), 50, 1)));
    lab.until("b", |port| port.dropped.get("spoofed_mac") == Some(&1));
    let mut packet = frame(mac(2), mac(1), 40, 1);
    packet[12..14].copy_from_slice(&[8, 0]);
    assert!(a.send(1, &packet));
    lab.until("a", |port| port.dropped.get("spoofed_address") == Some(&1));
    packet[26..30].copy_from_slice(&[10, 0, 0, 1]);
    assert!(a.send(1, &packet));
    assert_eq!(next(&mut b).as_ref(), Some(&packet));
    // What is unknown goes to nobody whose addresses are all known.
    assert!(b.send(1, &frame(mac(9), mac(2), 50, 1)));
    lab.until("b", |port| port.dropped.get("nobody_there") == Some(&1));
    for n in 100..110 {
        assert!(b.send(1, &frame(mac(1), mac(n), 50, 1)));
        assert!(next(&mut a).is_some(), "it goes through, learned or not");
    }
    let port = lab.port("b");
    assert_eq!(port.unlearned, 9, "two of ten and one, and the rest not");
    for _ in 0..50 {
        assert!(a.send(1, &frame(ALL, mac(1), 50, 1)));
    }
    lab.until("a", |port| port.dropped.get("broadcast_rate").is_some_and(|&count| count > 20));
}

#[test]
fn a_rate_is_kept_and_nothing_is_lost_by_it() {
    // 8 Mb/s are 1 MB/s, and 128 KiB of them at once.
    let lab = Lab::new("[port.a]\nrate = \"8M\"\n[port.b]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let (began, mut sent, mut got) = (Instant::now(), 0u32, 0);
    while got < 400 {
        assert!(began.elapsed() < PATIENCE, "{got} of {sent}");
        if sent < 400 && a.send(1, &frame(mac(2), mac(1), 986, sent as u8)) {
            sent += 1;
        }
        while let Some(frame) = b.receive(0) {
            assert_eq!(frame[14], got as u8, "in order");
            got += 1;
        }
    }
    // 400 KB, less those that were saved up.
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(lab.port("a").dropped.len(), 0);
}

#[test]
fn what_a_receiver_did_not_agree_to_is_done_for_it() {
    let lab = Lab::new(THREE);
    let mut a = lab.guest("a", Options::default());
    let mut b = lab.guest("b", Options { features: features::VERSION_1, ..Options::default() });
    let mut c = lab.guest("c", Options::default());
    talk((&mut b, 2), (&mut a, 1));
    assert!(next(&mut c).is_some());
    talk((&mut c, 3), (&mut a, 1));
    assert!(next(&mut b).is_some());
    // TCP over IPv4, of 3000 bytes in segments of 1000.
    let mut large = frame(mac(2), mac(1), 40 + 3000, 7);
    large[12..14].copy_from_slice(&[8, 0]);
    large[14..34]
        .copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    large[46..48].copy_from_slice(&[0x50, 0x10]);
    let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
    assert!(a.send_with(1, &header, &large));
    let pieces: Vec<_> = (0..3).map(|_| next(&mut b).expect("a segment")).collect();
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [1054; 3]);
    assert!(pieces.iter().enumerate().all(|(n, one)| one[54..] == large[54 + 1000 * n..][..1000]));
    assert_eq!(lab.port("b").cut, 1);
    // Whoever agreed gets it as it is, header and all.
    large[5] = 3;
    assert!(a.send_with(1, &header, &large));
    let got = loop {
        if let Some(got) = c.receive_with(0) {
            break got;
        }
    };
    assert_eq!((&got[..10], &got[12..]), (&header[..10], &large[..]));
    // Headers that make no sense: segments of nothing, a sum behind the end, segments whose sum is
    // not TCP's.
    for wrong in [
        [1, 1, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 255, 255, 16, 0, 0, 0],
        [1, 1, 54, 0, 0xe8, 3, 34, 0, 6, 0, 0, 0],
    ] {
        assert!(a.send_with(1, &wrong, &large));
    }
    lab.until("a", |port| port.dropped.get("bad_offload") == Some(&3));
    // What would have to be cut, and is no TCP; what is too long for one buffer.
    large[23] = 17;
    large[5] = 2;
    assert!(a.send_with(1, &header, &large));
    lab.until("b", |port| port.missed.get("not_tcp") == Some(&1));
    assert!(a.send(1, &frame(mac(2), mac(1), 3000, 7)));
    lab.until("b", |port| port.missed.get("too_long") == Some(&1));
    quiet(&mut b);
}

#[test]
fn a_checksum_is_not_completed_over_an_address() {
    let lab = Lab::new("[port.a]\naddress = \"10.0.0.5\"\n[port.b]\n");
    let mut a = lab.guest("a", Options::default());
    let mut b = lab.guest("b", Options { features: features::VERSION_1, ..Options::default() });
    let mut packet = frame(ALL, mac(1), 20 + 20, 0);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..34]
        .copy_from_slice(&[0x45, 0, 0, 40, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 5, 10, 0, 0, 9]);
    let header = |start: u8, offset: u8| [1, 0, 0, 0, 0, 0, start, 0, offset, 0, 0, 0];
    // Whoever receives it would see a packet from another.
    for offset in [12, 14, 0] {
        assert!(a.send_with(1, &header(14, offset), &packet));
    }
    lab.until("a", |port| port.dropped.get("spoofed_address") == Some(&3));
    quiet(&mut b);
    assert!(a.send_with(1, &header(34, 6), &packet));
    let got = next(&mut b).expect("a packet");
    assert_eq!((got.len(), &got[14..34]), (packet.len(), &packet[14..34]));
}

#[test]
fn what_nobody_takes_is_counted() {
    let lab = Lab::new("[port.a]\n[port.b]\n[port.c]\nmac = \"52:54:00:00:00:03\"\n");
    let mut a = lab.guest("a", Options::default());
    assert!(a.send(1, &frame(ALL, mac(1), 50, 1)));
    lab.until("a", |port| port.dropped.get("nobody_there") == Some(&1));
    assert!(a.send(1, &frame(mac(3), mac(1), 50, 1)));
    lab.until("c", |port| port.missed.get("receiver_absent") == Some(&1));
    let mut b = lab.guest("b", Options::default());
    talk((&mut a, 1), (&mut b, 2));
    for wrong in [vec![0; 13], vec![]] {
        assert!(a.send(1, &wrong));
    }
    lab.until("a", |port| port.dropped.get("bad_length") == Some(&2));
    assert!(a.send(1, &frame(mac(2), ALL, 50, 1)));
    assert!(a.send(1, &frame([1, 0x80, 0xc2, 0, 0, 0], mac(1), 50, 1)));
    lab.until("a", |port| port.dropped.get("link_local") == Some(&1));
    assert_eq!(lab.port("a").dropped.get("bad_source"), Some(&1));
    // A receiver that takes nothing: its buffers fill, and the rest is counted at it.
    let (mut sent, began) = (0, Instant::now());
    while sent < 1000 && began.elapsed() < PATIENCE {
        sent += u64::from(a.send(1, &frame(mac(2), mac(1), 50, 1)));
    }
    let port = lab.until("b", |port| {
        port.received_frames + port.missed.get("no_buffers").unwrap_or(&0) >= sent
    });
    assert!(port.missed["no_buffers"] >= 1000 - 256, "{port:?}");
    // And it goes on when it takes again.
    while b.receive(0).is_some() {}
    talk((&mut a, 1), (&mut b, 2));
    b.enable(false).expect("told");
    b.number(Request::GetFeatures, &[]).expect("heard");
    assert!(b.send(1, &frame(mac(1), mac(2), 50, 1)));
    lab.until("b", |port| port.dropped.get("queue_disabled") == Some(&1));
}

#[test]
fn several_queues_keep_their_order() {
    let lab = Lab::new("[port.a]\nqueues = 4\n[port.b]\nqueues = 4\n");
    let options = Options { pairs: 4, ..Options::default() };
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, options));
    let hello = frame(ALL, mac(2), 50, 0);
    assert!(b.send(1, &hello));
    assert!((0..8).step_by(2).any(|queue| a.wait(queue, Duration::from_millis(500)).is_some()));
    for n in 0..100u8 {
        for queue in 0..4 {
            assert!(a.send(2 * queue + 1, &frame(mac(2), mac(1), 50, n)));
        }
        let began = Instant::now();
        let mut got = 0;
        while got < 4 {
            assert!(began.elapsed() < PATIENCE);
            for queue in (0..8).step_by(2) {
                if let Some(frame) = b.receive(queue) {
                    assert_eq!(frame[14], n);
                    got += 1;
                }
            }
        }
    }
    assert_eq!(lab.port("b").pairs, 4);
}

#[test]
fn a_restarted_switch_goes_on_with_the_same_guests() {
    let mut lab = Lab::new(THREE);
    let options = Options::default();
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, options));
    talk((&mut a, 1), (&mut b, 2));
    for round in 0..3u8 {
        lab.stop();
        // What the guest sends meanwhile waits in its memory.
        let late = frame(ALL, mac(1), 50, 100 + round);
        assert!(a.send(1, &late));
        lab.start(THREE);
        for (guest, name) in [(&mut b, "b"), (&mut a, "a")] {
            guest.socket =
                std::os::unix::net::UnixStream::connect(lab.socket(name)).expect("connected");
            guest.share().expect("shared");
            guest.tell(Request::SetFeatures, &options.features.to_le_bytes(), &[]).expect("told");
            guest.enable(true).expect("enabled");
            for queue in 0..2 {
                // QEMU goes on where the used ring stands: what was taken and not given back comes
                // again.
                let used = guest.queues[queue].places()[2] + 2;
                let base = u16::from_le_bytes(guest.read(used));
                guest.start(queue, base).expect("started");
            }
        }
        assert_eq!(next(&mut b), Some(late));
        talk((&mut a, 1), (&mut b, 2));
    }
}

#[test]
fn a_queue_that_is_stopped_says_where_it_stands_whatever_was_said_before() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    // QEMU 7.2 says that the device's status is zero first; a machine that was moved then began
    // at zero in its new place, and was refused there.
    a.tell(Request::SetStatus, &0u64.to_le_bytes(), &[]).expect("told");
    for queue in 0..2u8 {
        let state =
            a.question(Request::GetVringBase, &[queue, 0, 0, 0, 0, 0, 0, 0]).expect("asked");
        assert_eq!(state[..4], [queue, 0, 0, 0]);
        assert_eq!(state[4..], [1, 0, 0, 0], "one frame was sent, and one received");
    }
}

#[test]
fn what_is_written_while_a_machine_moves_is_logged() {
    let lab = Lab::new(THREE);
    let options = Options::default();
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, options));
    talk((&mut a, 1), (&mut b, 2));
    let file = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    let bytes = (GUEST >> 15) + 4096;
    rustix::fs::ftruncate(&file, bytes).expect("long");
    let dirty = |at: u64| {
        let mut bits = [0];
        rustix::io::pread(&file, &mut bits[..], at >> 15).expect("read");
        bits[0] & 1 << (at >> 12 & 7) != 0
    };
    b.tell(Request::SetLogBase, &[bytes, 0].map(u64::to_le_bytes).concat(), &[&file])
        .expect("told");
    b.answer().expect("heard");
    let features = options.features | features::LOG_ALL;
    b.tell(Request::SetFeatures, &features.to_le_bytes(), &[]).expect("told");
    // The used ring of the queue that receives, where the guest has it.
    let [descriptors, available, used] = b.queues[0].places();
    let user = [descriptors, used, available].map(|at| at - GUEST + USER);
    let places = [&[1 << 32][..], &user, &[used]].concat();
    let places: Vec<u8> = places.iter().flat_map(|word| word.to_le_bytes()).collect();
    b.tell(Request::SetVringAddr, &places, &[]).expect("told");
    b.number(Request::GetFeatures, &[]).expect("heard");
    // (Of the used ring the switch has written by now when it wants to be kicked.)
    let mut written = vec![0_u8; bytes as usize];
    rustix::io::pread(&file, &mut written[..], 0).expect("read");
    let before = u16::from_le_bytes(b.read(used + 2));
    assert!(a.send(1, &frame(mac(2), mac(1), 50, 9)));
    assert!(next(&mut b).is_some());
    let entry = used + 4 + 8 * u64::from(before % options.size);
    let [head, _]: [u32; 2] = [0, 4].map(|at| u32::from_le_bytes(b.read(entry + at)));
    let descriptor: [u8; 8] = b.read(descriptors + 16 * u64::from(head));
    let buffer = u64::from_le_bytes(descriptor);
    assert!(dirty(used) && dirty(buffer), "the used ring at {used:#x}, the frame at {buffer:#x}");
    let (byte, bit) = ((buffer >> 15) as usize, 1 << (buffer >> 12 & 7));
    assert!(written[byte] & bit == 0, "nothing was written there yet");
    assert!(!dirty(descriptors), "what the guest itself writes is not the switch's to log");
}

#[test]
fn an_idle_switch_sleeps() {
    let lab = Lab::new(THREE);
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    std::thread::sleep(Duration::from_millis(100));
    let (kicks, before) = (lab.port("a").kicks, lab.cpu());
    std::thread::sleep(Duration::from_millis(500));
    let used = lab.cpu() - before;
    assert!(used < Duration::from_millis(50), "{used:?} of half a second");
    assert_eq!(lab.port("a").kicks, kicks);
    talk((&mut a, 1), (&mut b, 2));
    assert!(lab.port("a").kicks > kicks, "it slept, and was kicked");
}
