//! Memory that a front end takes away may be its file's last, so that all pages are freed when it is
//! unmapped: the thread that moves frames does neither.

use crate::common::{Lab, PATIENCE, alone, mac, talk};
use crate::hostile::lingering;
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::vhost::message::{Head, Request};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const SIZE: u64 = 1 << 20;

/// Memory that nobody else has, by its name.
fn memory(name: &str) -> OwnedFd {
    let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    rustix::fs::ftruncate(&file, SIZE).expect("long");
    file
}

/// Has this process, and with it the switch, mapped that?
fn is_mapped(name: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    maps.contains(&format!("/memfd:{name} "))
}

/// The region of this number is plugged in, and taken out, perhaps with a descriptor beside the word.
fn plug_and_unplug(evil: &mut FrontEnd, number: u64, name: &str, beside: Option<OwnedFd>) {
    let region = [0, number << 40, SIZE, number << 40, 0].map(u64::to_le_bytes).concat();
    evil.tell(Request::AddMemReg, &region, &[&memory(name)]).expect("told");
    evil.number(Request::GetFeatures, &[]).expect("heard");
    assert!(is_mapped(name));
    let head = Head { request: Request::RemMemReg, need_reply: false, size: region.len() };
    let word = [&head.bytes()[..], &region].concat();
    // In two parts, so that the switch has the last copy of the descriptor when it hears the word.
    evil.raw(&word[..11], &beside.iter().collect::<Vec<_>>()).expect("told");
    drop(beside);
    evil.raw(&word[11..], &[]).expect("told");
    evil.number(Request::GetFeatures, &[]).expect("heard");
}

#[test]
fn it_is_unmapped_where_that_holds_up_its_port_alone() {
    if !alone("taken_away::it_is_unmapped_where_that_holds_up_its_port_alone") {
        return;
    }
    let lab = Lab::new("[port.evil]\n");
    let mut evil = lab.guest("evil", Options::default());
    let log = |evil: &mut FrontEnd, name: &str| {
        let words = [SIZE, 0].map(u64::to_le_bytes).concat();
        evil.tell(Request::SetLogBase, &words, &[&memory(name)]).expect("told");
        evil.answer().expect("heard");
    };
    log(&mut evil, "first-log");
    log(&mut evil, "second-log");
    plug_and_unplug(&mut evil, 1, "freed", None);
    let until = Instant::now() + PATIENCE;
    while is_mapped("freed") || is_mapped("first-log") {
        assert!(Instant::now() < until, "it stays mapped");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Who closes what this port was sent waits for two minutes: what is taken away waits with it.
    plug_and_unplug(&mut evil, 2, "before", Some(lingering(120)));
    plug_and_unplug(&mut evil, 3, "behind", None);
    log(&mut evil, "third-log");
    assert!(is_mapped("behind") && is_mapped("second-log"), "it was unmapped among the frames");
}

/// As QEMU does with a region that becomes longer: the room for all is that for one of the two.
#[test]
fn what_comes_in_its_place_waits_until_there_is_room() {
    let lab = Lab::new("memory = \"64M\"\n[port.a]\nmemory = \"64M\"\n");
    let mut a = lab.guest("a", Options::default());
    let size = 40 << 20;
    let file = memory("again");
    rustix::fs::ftruncate(&file, size).expect("long");
    let region = [0, 1 << 40, size, 1 << 40, 0].map(u64::to_le_bytes).concat();
    for _ in 0..50 {
        a.tell(Request::AddMemReg, &region, &[&file]).expect("told");
        a.tell(Request::RemMemReg, &region, &[]).expect("told");
    }
    a.number(Request::GetFeatures, &[]).expect("heard");
    assert_eq!(lab.port("a").trouble, None);
    // More than that is refused all the same.
    let region = [0, 1 << 40, 64 << 20, 1 << 40, 0].map(u64::to_le_bytes).concat();
    a.tell(Request::AddMemReg, &region, &[&file]).expect("told");
    lab.until("a", |port| port.trouble.as_ref().is_some_and(|why| why.contains("more")));
}

/// What its owner cuts short is made up for, also where this process may have no more memory of its
/// own than a little, as on a host that promises no more than there is: a file of holes is as long
/// as its owner likes.
#[test]
fn what_is_cut_short_is_made_up_for_where_memory_is_little() {
    if !alone("taken_away::what_is_cut_short_is_made_up_for_where_memory_is_little") {
        return;
    }
    let lab = Lab::new("[port.a]\n[port.b]\n[port.evil]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    let status = std::fs::read_to_string("/proc/self/status").expect("this process");
    let own = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("its data");
    let own: u64 = own.trim().trim_end_matches(" kB").parse().expect("a number");
    let more = Some((own << 10) + (256 << 20));
    let limit = rustix::process::Rlimit { current: more, maximum: more };
    rustix::process::setrlimit(rustix::process::Resource::Data, limit).expect("limited");
    for _ in 0..3 {
        let mut evil = lab.guest("evil", Options::default());
        talk((&mut evil, 3), (&mut a, 1));
        let (file, size) = (memory("holes"), 8u64 << 30);
        rustix::fs::ftruncate(&file, size).expect("long");
        let words = [0, 1 << 40, size, 1 << 40, 0].map(u64::to_le_bytes).concat();
        evil.tell(Request::AddMemReg, &words, &[&file]).expect("told");
        evil.number(Request::GetFeatures, &[]).expect("heard");
        // It is given a frame there, once there is nothing.
        rustix::fs::ftruncate(&file, 0).expect("cut");
        for index in 0..256 {
            evil.describe(0, index, 1 << 40, 2048, 2, 0);
        }
        assert!(a.send(1, &crate::common::frame(mac(3), mac(1), 50, 1)));
        let port = lab.until("evil", |port| port.state == "waiting");
        assert!(port.trouble.is_some_and(|why| why.contains("cut short")));
        drop(evil);
        while b.receive(0).is_some() {}
        talk((&mut a, 1), (&mut b, 2));
    }
    // Of what was written there since nothing stays.
    let until = Instant::now() + PATIENCE;
    while is_mapped("zeroes") {
        assert!(Instant::now() < until, "it stays mapped");
        std::thread::sleep(Duration::from_millis(1));
    }
    let files = std::fs::read_dir("/proc/self/fd").expect("its files").flatten();
    let zeroes = files.map(|file| file.path()).find(|path| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("/memfd:zeroes"))
    });
    let zeroes = rustix::fs::stat(zeroes.expect("a file of zeroes")).expect("its state");
    assert_eq!(zeroes.st_blocks, 0);
}
