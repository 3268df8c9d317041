//! Several hosts: frames of a segment reach its ports on all of them, once each; hosts die, come
//! back, and are turned away.

use crate::common::fabric::{Net, secret};
use crate::common::{ALL, Lab, PATIENCE, frame, mac, next, talk};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::wire::features;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ONE: &str = "[port.a]\n";

fn quiet(guest: &mut FrontEnd) {
    assert_eq!(guest.wait(0, Duration::from_millis(50)), None, "it should have got nothing");
}

fn guests<const N: usize>(labs: &[Lab], options: [Options; N]) -> [FrontEnd; N] {
    std::array::from_fn(|n| labs[n].guest("a", options[n]))
}

/// Both hosts know that the other has the segment.
fn know(labs: &[Lab]) {
    for (n, lab) in labs.iter().enumerate() {
        for other in (0..labs.len()).filter(|&other| other != n) {
            lab.until_host(&format!("h{}", other + 1), |host| !host.keys.is_empty());
        }
    }
}

#[test]
fn frames_reach_all_hosts_once_and_those_for_one_reach_that_one() {
    Net::each(|net| {
        let labs = net.hosts(&[ONE; 3], None);
        know(&labs);
        let [mut a, mut b, mut c] = guests(&labs, [Options::default(); 3]);
        talk((&mut a, 1), (&mut b, 2));
        assert_eq!(next(&mut c), Some(frame(ALL, mac(1), 50, 1)));
        for guest in [&mut a, &mut b, &mut c] {
            quiet(guest);
        }
        // To one who was not heard yet: to all, and nobody sends it on.
        let unknown = frame(mac(9), mac(1), 50, 3);
        assert!(a.send(1, &unknown));
        assert_eq!(
            (next(&mut b).as_ref(), next(&mut c).as_ref()),
            (Some(&unknown), Some(&unknown))
        );
        quiet(&mut a);
        let known = |lab: &Lab| -> Vec<_> {
            lab.addresses().into_iter().map(|one| (one.mac, one.port)).collect()
        };
        let at = |n: u8, port: &str| (format!("52:54:00:00:00:0{n}"), port.to_owned());
        assert_eq!(known(&labs[0]), [at(1, "a"), at(2, "@h2")]);
        assert_eq!(known(&labs[1]), [at(1, "@h1"), at(2, "a")]);
        assert_eq!(labs[0].host("h2").received_frames, 2);
        assert_eq!(labs[1].host("h1").sent_frames, 2);
        // A machine that moves to another host is found there.
        assert!(c.send(1, &frame(ALL, mac(2), 50, 5)));
        assert!(next(&mut a).is_some() && next(&mut b).is_some());
        assert!(a.send(1, &frame(mac(2), mac(1), 50, 6)));
        assert_eq!(next(&mut c), Some(frame(mac(2), mac(1), 50, 6)));
        quiet(&mut b);
    });
}

#[test]
fn segments_are_apart_and_only_those_asked_for_cross() {
    Net::each(|net| {
        let ports = "[port.a]\nkey = 1\n[port.b]\nkey = 2\n[port.c]\nkey = 3\n";
        let keys = |n, keys: &str| {
            let text =
                net.text(n, 2, None).replace("[fabric]\n", &format!("[fabric]\nkeys = {keys}\n"));
            Lab::new(&format!("{ports}{text}"))
        };
        let labs = [keys(1, "[1, 2]"), keys(2, "[1, 3]")];
        know(&labs);
        assert_eq!(labs[0].host("h2").keys, [1]);
        let guests = |name: &str| [0, 1].map(|n: usize| labs[n].guest(name, Options::default()));
        let ([mut a, mut far], [mut b, mut not], [mut c, mut nor]) =
            (guests("a"), guests("b"), guests("c"));
        talk((&mut a, 1), (&mut far, 2));
        for from in [&mut b, &mut c, &mut not, &mut nor] {
            assert!(from.send(1, &frame(ALL, mac(1), 50, 1)));
        }
        for guest in [&mut a, &mut b, &mut c, &mut far, &mut not, &mut nor] {
            quiet(guest);
        }
        assert_eq!(labs[0].port("b").dropped.get("nobody_there"), Some(&1));
    });
}

#[test]
fn every_length_crosses_whole() {
    Net::each(|net| {
        let place = tempfile::tempdir().expect("a directory");
        let labs = net.hosts(&[ONE; 2], Some(&secret(place.path(), "0123456789abcdef")));
        know(&labs);
        let [mut a, mut b] = guests(&labs, [Options::default(); 2]);
        talk((&mut a, 1), (&mut b, 2));
        for len in (0..200).chain([1486, 1500, 2000, 2034, 9000, 65000]) {
            let sent = frame(mac(2), mac(1), len, len as u8);
            assert!(a.send(1, &sent));
            assert_eq!(next(&mut b).as_ref(), Some(&sent), "{len} bytes");
        }
        // Many at once, which go together.
        for round in 0..20u8 {
            for n in 0..100 {
                assert!(a.send(1, &frame(mac(2), mac(1), 400, n)));
            }
            for n in 0..100 {
                assert_eq!(next(&mut b), Some(frame(mac(2), mac(1), 400, n)), "{round}");
            }
        }
        let host = labs[1].host("h1");
        assert!(host.sent_messages < host.sent_frames, "{host:?}");
    });
}

#[test]
fn segments_of_tcp_cross_whole_and_are_cut_there_for_whom_takes_none() {
    Net::each(|net| {
        let labs = net.hosts(&["[port.a]\n", "[port.a]\n[port.b]\n"], None);
        know(&labs);
        let plain = Options { features: features::VERSION_1, ..Options::default() };
        let [mut a, mut b] = guests(&labs, [Options::default(), plain]);
        let mut c = labs[1].guest("b", Options::default());
        talk((&mut b, 2), (&mut a, 1));
        assert!(next(&mut c).is_some());
        talk((&mut c, 3), (&mut a, 1));
        assert!(next(&mut b).is_some());
        let mut large = frame(mac(3), mac(1), 40 + 60000, 7);
        large[12..14].copy_from_slice(&[8, 0]);
        large[14..34]
            .copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        large[46..48].copy_from_slice(&[0x50, 0x10]);
        let header = [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0];
        assert!(a.send_with(1, &header, &large));
        let got = c.wait_with(0, PATIENCE).expect("it came");
        assert_eq!((&got[..10], &got[12..]), (&header[..10], &large[..]));
        large[5] = 2;
        assert!(a.send_with(1, &header, &large));
        let pieces: Vec<_> = (0..60).map(|_| next(&mut b).expect("a segment")).collect();
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [1054; 60]);
        assert_eq!((labs[0].host("h2").received_frames, labs[1].port("a").cut), (4, 1));
    });
}

#[test]
fn a_host_that_dies_is_forgotten_and_found_again() {
    Net::each(|net| {
        let place = tempfile::tempdir().expect("a directory");
        let file = secret(place.path(), "0123456789abcdef");
        let mut labs = net.hosts(&[ONE; 2], Some(&file));
        let mut texts = Vec::new();
        for n in 1..=2 {
            texts.push(format!("{ONE}{}", net.text(n, 2, Some(&file))));
        }
        // Whether it is the one that calls, or the one that answers.
        for (lives, dies) in [(0, 1), (1, 0)] {
            know(&labs);
            let options = Options::default();
            let [mut one, mut two] = [lives, dies].map(|n: usize| labs[n].guest("a", options));
            talk((&mut one, 1), (&mut two, 2));
            let began = Instant::now();
            drop(two);
            labs[dies].stop();
            let name = format!("h{}", dies + 1);
            let host = labs[lives].until_host(&name, |host| host.state == "down");
            assert!(host.trouble.is_some() && host.keys.is_empty(), "{host:?}");
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            assert!(labs[lives].addresses().iter().all(|one| one.port == "a"));
            assert!(one.send(1, &frame(ALL, mac(1), 50, 1)));
            labs[lives].until("a", |port| port.dropped.contains_key("nobody_there"));
            labs[dies].start(&texts[dies]);
            labs[lives].until_host(&name, |host| host.state == "up" && host.connections >= 2);
            know(&labs);
            let mut two = labs[dies].guest("a", options);
            talk((&mut one, 1), (&mut two, 2));
        }
    });
}

#[test]
fn hosts_of_another_secret_get_nothing_and_status_says_why() {
    let Some(net) = Net::new() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let [one, two] =
        ["0123456789abcdef", "another one than that"].map(|text| secret(place.path(), text));
    for (first, second, why) in [
        (Some(&one), Some(&two), "another secret"),
        (Some(&one), None, "secret"),
        (None, Some(&two), "secret"),
    ] {
        let lab = |n, file: Option<&std::path::PathBuf>| {
            let text = net.text(n, 2, file.map(|path| path.as_path()));
            Lab::new(&format!("{ONE}{text}"))
        };
        let labs = [lab(1, first), lab(2, second)];
        let trouble = |lab: &Lab, name: &str, why: &str| {
            lab.until_host(name, |host| {
                assert_eq!((host.state.as_str(), host.connections), ("down", 0));
                host.trouble.as_ref().is_some_and(|said| said.contains(why))
            });
        };
        // The one that answers sees it; the one that calls is turned away.
        trouble(&labs[1], "h1", why);
        trouble(&labs[0], "h2", "turns this host away");
        let [mut a, mut b] = guests(&labs, [Options::default(); 2]);
        for guest in [&mut a, &mut b] {
            assert!(guest.send(1, &frame(ALL, mac(1), 50, 1)));
        }
        quiet(&mut a);
        quiet(&mut b);
    }
}

#[test]
fn an_address_that_is_a_ports_own_is_not_taken_by_a_host() {
    let Some(net) = Net::new() else { return };
    let own = "[port.a]\nmac = \"52:54:00:00:00:02\"\n";
    let labs = net.hosts(&[ONE, own], None);
    know(&labs);
    let [mut a, mut b] = guests(&labs, [Options::default(); 2]);
    talk((&mut b, 2), (&mut a, 1));
    assert!(a.send(1, &frame(ALL, mac(2), 50, 1)));
    labs[1].until_host("h1", |host| host.dropped.get("spoofed_mac") == Some(&1));
    quiet(&mut b);
    // Nor is what is unknown given to whom all addresses are known of.
    assert!(a.send(1, &frame(mac(9), mac(1), 50, 1)));
    labs[1].until_host("h1", |host| host.dropped.get("nobody_there") == Some(&1));
}

#[test]
fn the_command_line_says_it_all() {
    let Some(net) = Net::new() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let file = secret(place.path(), "0123456789abcdef").display().to_string();
    let program = env!("CARGO_BIN_EXE_ginnel-switch");
    let dir = |n: u32| place.path().join(format!("run{n}")).display().to_string();
    let mut switches: Vec<_> = [(1, 2, "b"), (2, 1, "a")]
        .map(|(own, other, name)| {
            let run_dir = dir(own);
            let port = format!("vm:{run_dir}/vm.sock");
            let [listen, host] =
                [net.address(own).to_string(), format!("{name}={}", net.address(other))];
            let arguments =
                ["--run-dir", &run_dir, "--port", &port, "--listen", &listen, "--host", &host];
            let mut command = Command::new(program);
            command.args(arguments).args(["--secret", &file, "--provider", "tcp"]);
            command.stderr(Stdio::null()).spawn().expect("it runs")
        })
        .into();
    let control = format!("{}/control.sock", dir(1));
    let began = Instant::now();
    let ports = loop {
        let (_, ports, _) = run(&["ports", "--control", &control]);
        if ports.lines().any(|line| line.starts_with("@b") && line.contains("  up  ")) {
            break ports;
        }
        assert!(began.elapsed() < PATIENCE, "{ports}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ports.contains(&format!("{}:9192", net.address(2))), "{ports}");
    let (_, status, _) = run(&["status", "--control", &control]);
    assert!(status.contains("1 hosts, 1 of them up") && status.contains("sealed"), "{status}");
    for switch in &mut switches {
        switch.kill().expect("killed");
        switch.wait().expect("ended");
    }
}

/// `ginnel-switch` with these arguments, to its end: its code, and what it printed.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"))
        .args(arguments)
        .output()
        .expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn hosts_that_cannot_be_are_refused_by_the_command_line() {
    for (arguments, words) in [
        (vec!["--port", "a:/x", "--listen", "127.0.0.1"], "--host"),
        (vec!["--port", "a:/x", "--host", "b=127.0.0.2"], "--listen"),
        (
            vec!["--port", "a:/x", "--listen", "0.0.0.0", "--host", "b=127.0.0.2"],
            "no host's address",
        ),
        (
            vec![
                "--port",
                "a:/x",
                "--listen",
                "127.0.0.1",
                "--host",
                "b=127.0.0.2",
                "--secret",
                "/dev/null",
            ],
            "is no file",
        ),
    ] {
        let (code, _, said) = run(&arguments);
        assert!(code == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
}

/// A port of each host has the machine's address, as it may come to any of them.
#[test]
fn an_address_that_is_a_ports_own_moves_with_its_machine() {
    let Some(net) = Net::new() else { return };
    let ports = "[port.vm]\nmac = \"52:54:00:00:00:07\"\n[port.a]\n[port.evil]\n";
    let labs = net.hosts(&[ports; 2], None);
    know(&labs);
    let [mut a, mut b] = guests(&labs, [Options::default(); 2]);
    let mut evil = labs[0].guest("evil", Options::default());
    // To and fro: each time it says once that it is there, as a machine does that was moved.
    for home in [0, 1, 0] {
        let mut vm = labs[home].guest("vm", Options::default());
        assert!(vm.send(1, &frame(ALL, mac(7), 50, 1)));
        for other in [&mut a, &mut b, &mut evil] {
            assert_eq!(next(other), Some(frame(ALL, mac(7), 50, 1)));
        }
        for (other, n) in [(&mut a, 1), (&mut b, 2)] {
            talk((&mut vm, 7), (other, n));
        }
        // What it said to all.
        for other in [&mut a, &mut b, &mut evil] {
            while other.wait(0, Duration::from_millis(50)).is_some() {}
        }
        // Nobody else has it, wherever that machine is.
        assert!(evil.send(1, &frame(mac(1), mac(7), 50, 2)));
        quiet(&mut a);
        assert!(a.send(1, &frame(mac(7), mac(1), 50, 3)));
        assert_eq!(next(&mut vm), Some(frame(mac(7), mac(1), 50, 3)));
        quiet(&mut evil);
    }
}
