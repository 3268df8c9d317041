//! Another configuration under load, in the middle of something, and a thousand times.

use crate::common::{ALL, Lab, PATIENCE, alone, frame, mac, talk};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::vhost::message::{Head, Request};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[track_caller]
fn good(lab: &Lab, text: &str) {
    assert_eq!(lab.reload(text).error, None);
}

/// Sends frame after frame until it is to stop, and has each arrive once, at one of the receivers,
/// which have theirs in order.
fn every_frame_arrives(
    a: &mut FrontEnd,
    receivers: &mut [&mut FrontEnd],
    to: [u8; 6],
    mut stop: impl FnMut(u64) -> bool,
) {
    // Fewer on their way than a queue has room for.
    const WINDOW: u64 = 32;
    let numbered = |n: u64| [&frame(to, mac(1), 8, 0)[..], &n.to_be_bytes()].concat();
    let mut next = vec![0; receivers.len()];
    // All before `got`, and these.
    let (mut got, mut ahead) = (0, BTreeSet::new());
    let (mut sent, mut ends, mut last) = (0, false, Instant::now());
    while !ends || got < sent {
        ends = ends || stop(got);
        while !ends && sent < got + WINDOW && a.send(1, &numbered(sent)) {
            sent += 1;
        }
        for (receiver, next) in receivers.iter_mut().zip(&mut next) {
            while let Some(frame) = receiver.receive(0) {
                let number = frame.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                assert!((*next..sent).contains(&number) && frame == numbered(number));
                assert!(number >= got && ahead.insert(number), "{number} has come twice");
                *next = number + 1;
            }
        }
        while ahead.remove(&got) {
            (got, last) = (got + 1, Instant::now());
        }
        assert!(last.elapsed() < PATIENCE, "{got} of {sent} arrived, and {ahead:?}");
        std::thread::yield_now();
    }
}

#[test]
fn no_frame_is_lost_while_others_come_and_go() {
    let texts = [
        "[port.a]\n[port.b]\nbroadcasts = 1000000\n[port.x]\nmac = \"52:54:00:00:00:07\"\n",
        "[port.b]\n[port.a]\nmacs = 5\n[port.y]\nkey = 3\n[vsock.v]\ncid = 3\n",
        "poll_us = 0\n[port.a]\nmac = \"52:54:00:00:00:01\"\n[port.b]\naddress = \"10.0.0.1\"\n",
        "[port.a]\n[port.b]\nqueues = 2\nmemory = \"1M\"\n[port.oops]\nkey = 1.5\n",
    ];
    let lab = Lab::new(texts[0]);
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    std::thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            for n in 0..100 {
                let error = lab.reload(texts[n % 4]).error;
                assert_eq!(error.is_some(), n % 4 == 3, "{error:?}");
            }
        });
        every_frame_arrives(&mut a, &mut [&mut b], mac(2), |got| {
            reloads.is_finished() && got > 1000
        });
        reloads.join().expect("no panic");
    });
    for name in ["a", "b"] {
        let port = lab.port(name);
        assert_eq!((port.connections, port.dropped.len()), (1, 0), "{port:?}");
    }
}

#[test]
fn frames_in_flight_reach_the_segment_of_before_or_of_now_and_never_both() {
    let text = |key: u32| format!("[port.a]\nkey = {key}\n[port.b]\n[port.c]\nkey = 7\n");
    let lab = Lab::new(&text(0));
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| lab.guest(name, Options::default()));
    std::thread::scope(|scope| {
        let reloads = scope.spawn(|| (0..60).for_each(|n| good(&lab, &text(n % 2 * 7))));
        every_frame_arrives(&mut a, &mut [&mut b, &mut c], ALL, |got| {
            reloads.is_finished() && got > 1000
        });
        reloads.join().expect("no panic");
    });
    assert!(lab.addresses().iter().all(|one| one.key == 7), "of another segment nothing is known");
}

#[test]
fn a_front_end_that_is_half_set_up_is_set_up_as_it_began() {
    const STEPS: [fn(&mut FrontEnd); 8] = [
        |a| assert_ne!(a.number(Request::GetFeatures, &[]).expect("an answer"), 0),
        |a| {
            let protocol = Options::default().protocol.to_le_bytes();
            a.tell(Request::SetProtocolFeatures, &protocol, &[]).expect("told");
        },
        |a| a.enable(true).expect("told"),
        |a| {
            let features = Options::default().features.to_le_bytes();
            a.tell(Request::SetFeatures, &features, &[]).expect("told");
        },
        |a| a.share().expect("told"),
        |a| a.start(0, 0).expect("told"),
        |a| a.start(1, 0).expect("told"),
        |a| a.fill(0),
    ];
    let texts = ["[port.a]\nqueues = 2\n[port.b]\n", "[port.a]\nkey = 7\n[port.b]\nkey = 7\n"];
    let lab = Lab::new(texts[0]);
    let mut b = lab.guest("b", Options::default());
    // Each time it has come a step further, and into the middle of a message.
    for cut in 0..=STEPS.len() {
        good(&lab, texts[0]);
        lab.until("a", |port| port.state == "waiting");
        let socket = UnixStream::connect(lab.socket("a")).expect("connected");
        let mut a = FrontEnd::prepare(socket, Options::default()).expect("made");
        assert_eq!(a.number(Request::GetQueueNum, &[]).expect("an answer"), 2);
        STEPS[..cut].iter().for_each(|step| step(&mut a));
        let owner = Head { request: Request::SetOwner, need_reply: false, size: 0 }.bytes();
        a.raw(&owner[..5], &[]).expect("told");
        good(&lab, texts[1]);
        a.raw(&owner[5..], &[]).expect("told");
        STEPS[cut..].iter().for_each(|step| step(&mut a));
        assert_eq!(a.number(Request::GetQueueNum, &[]).expect("an answer"), 2, "as it began");
        talk((&mut a, 1), (&mut b, 2));
    }
}

#[test]
fn a_thousand_of_them_leave_no_descriptor_and_no_thread() {
    if !alone("reload_load::a_thousand_of_them_leave_no_descriptor_and_no_thread") {
        return;
    }
    let texts = [
        "[port.a]\n[port.b]\n[port.c]\n[vsock.v]\ncid = 3\n",
        "[port.a]\n[port.b]\n[port.d]\n[vsock.w]\ncid = 4\n",
        "[port.a]\n[port.b]\n[port.new]\n[port.w]\nsocket = \"/proc/no/w\"\n",
    ];
    let lab = Lab::new(texts[0]);
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    let count =
        |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).expect("a list").count();
    // What closes things is gone a moment later.
    let settled = |most: Option<[usize; 2]>| {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = [count("fd"), count("task")];
            let few = most.is_none_or(|most| now[0] <= most[0] && now[1] <= most[1]);
            if few || Instant::now() > until {
                return now;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let mut before = None;
    for n in 0..1000 {
        let _ = lab.reload(texts[n % 3]);
        if n % 100 == 2 {
            let now = settled(before);
            assert!(before.is_none_or(|before| now <= before), "{n}: {now:?}, before {before:?}");
            before = before.or(Some(now));
            talk((&mut a, 1), (&mut b, 2));
        }
    }
}
