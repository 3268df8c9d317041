//! A peer that means harm: it has the segment and writes into it whatever it likes. Connections may be lost, with ECONNRESET and a reason that is counted; nobody crashes, hangs, spins,
//! or touches anything outside.
//!
//! `chosen`: one thing each that once went wrong. `random`: everything at once, for a while, under programs at work.

use ginnel_tests::spoil::{PAGE, SMALL, Spoiler};
use ginnel_tests::{Running, Stand, build};
use std::io::Write;
use std::time::Duration;

/// In a direction: its words, from the channel's page on.
const DIRECTIONS: [u64; 2] = [0x200, 0x400];
const TAIL: u64 = 0x000;
const GROWN: u64 = 0x010;
const RINGS: u64 = 0x080;
const HEAD: u64 = 0x100;

/// A program that waits with a connection in a ring, in a segment whose last pages hold all there is.
fn hostage(what: &str, settings: &[(&str, &str)]) -> (Stand, Spoiler, Running) {
    let mut all = vec![("GINNEL_RING", "4096")];
    all.extend_from_slice(settings);
    let stand = Stand::shimmed(&format!("hostage-{what}"), &all).limit(Duration::from_secs(60));
    let spoiler = Spoiler::small(&stand);
    spoiler.take_all_but(20);
    let mut running = stand.start(stand.command(build::program("hostage")).arg(what));
    running.wait_for("ready");
    assert!(stand.status().contains("\"in_carrier\": \"ring\""), "no ring carries anything: {}", stand.status());
    (stand, spoiler, running)
}

/// What the program said when its call had ended, and why the connection broke, if it did.
fn outcome(stand: &Stand, mut running: Running) -> (String, bool) {
    running.wait_for("seen?");
    let corrupt = stand.status().contains("\"reason\": \"corrupt\"");
    let said = running.output();
    running.signal(libc::SIGUSR1);
    let done = running.finish();
    assert!(done.success(), "{done}");
    (said, corrupt)
}

/// The next ring is said to begin behind what was read already: as many bytes were copied as both rings hold, out of the smaller one and what lies behind it.
#[test]
fn a_ring_that_begins_in_the_past_is_not_read_beyond_its_end() {
    let (stand, spoiler, running) = hostage("reads", &[]);
    let channel = spoiler.channel();
    for direction in DIRECTIONS.map(|direction| channel + direction) {
        let (grown, head) = (spoiler.word(direction + GROWN) + 1, spoiler.word(direction + HEAD));
        let ring = direction + RINGS + (grown & 1) * 24;
        for (word, value) in [(0, head.wrapping_sub(1)), (8, SMALL - (1 << 20)), (16, 1 << 20)] {
            spoiler.put(ring + word, value);
        }
        spoiler.put(direction + GROWN, grown);
        spoiler.put(direction + TAIL, head + (1 << 20));
    }
    running.signal(libc::SIGUSR1);
    let (said, corrupt) = outcome(&stand, running);
    assert!(said.contains("reads: Connection reset by peer"), "{said}");
    assert!(corrupt, "status does not say why");
}

/// A FIFO that was written to, and a waiter's page that says that nobody wrote: whoever slept there found it readable for ever.
fn sleeps_again(what: &str) {
    let (stand, spoiler, mut running) = hostage(what, &[]);
    running.signal(libc::SIGUSR1);
    running.wait_for("begins");
    std::thread::sleep(Duration::from_millis(200));
    let mut rung = 0;
    for page in spoiler.waiters() {
        let fifo = stand.dir().join(format!("default.wake/w{:016x}", spoiler.word(page + 8)));
        rung += usize::from(std::fs::File::options().read(true).write(true).open(fifo).is_ok_and(|mut fifo| fifo.write(&[0]).is_ok()));
    }
    assert!(rung > 0, "nobody has a FIFO");
    let (said, _) = outcome(&stand, running);
    assert!(said.contains(", asleep"), "{said}");
}

#[test]
fn a_reader_sleeps_again_after_a_false_alarm() {
    sleeps_again("sleeps");
}

#[test]
fn a_poll_sleeps_again_after_a_false_alarm() {
    sleeps_again("polls");
}

/// Urgent data sent past the shim, while a ring carries: it cannot be thrown away as wake-ups are, and kept the socket readable for ever.
#[test]
fn urgent_data_past_the_shim_ends_the_connection() {
    for settings in [&[][..], &[("GINNEL_TOKENS", "1")]] {
        let (stand, _spoiler, running) = hostage("urgent", settings);
        running.signal(libc::SIGUSR1);
        let (said, corrupt) = outcome(&stand, running);
        assert!(said.contains("urgent: Connection reset by peer, asleep"), "{said}");
        assert!(corrupt, "status does not say why");
    }
}

/// Garbage over all of a segment while programs work in it. Prints its seed.
fn random(name: &str, settings: &[(&str, &str)], seconds: u32, seed: u64) {
    let stand = Stand::shimmed(&format!("hostile-{name}"), settings).limit(Duration::from_secs(u64::from(seconds) + 60));
    let spoiler = Spoiler::small(&stand);
    let victims = stand.start(stand.command(build::program("victims")).arg((seconds + 1).to_string()));
    let hostile = Stand::plain("hostile").limit(Duration::from_secs(u64::from(seconds) + 30));
    let mut attack = hostile.command(build::program("hostile"));
    let attack = hostile.start(attack.arg(spoiler.path()).args([seconds.to_string(), seed.to_string()]));
    // Who looks at it meanwhile gets an answer, or is told that this is no segment.
    let mut looks = 0;
    for _ in 0..seconds * 4 {
        std::thread::sleep(Duration::from_millis(200));
        let mut status = std::process::Command::new("timeout");
        let seen = status.arg("20").arg(build::ginnel()).args(["status", "--json"]).env("GINNEL_DIR", stand.dir()).output();
        let seen = seen.expect("timeout runs");
        assert!(seen.status.success(), "{name}: seed {seed}: ginnel status: {seen:?}");
        looks += 1;
    }
    let attacked = attack.finish();
    assert!(attacked.success(), "{name}: seed {seed}: {attacked}");
    let done = victims.finish();
    assert!(done.success(), "{name}: seed {seed}: {done}");
    let report = stand.report();
    eprintln!("{name}: seed {seed}, {looks} looks: {}{}", attacked.stdout, done.stdout);
    assert!(report.ring_bytes() > 0, "{name}: seed {seed}: no byte went through a ring");
    // Somebody noticed.
    let lost = ginnel_tests::json::sum(&done.stdout, "resets") + ginnel_tests::json::sum(&done.stdout, "limits");
    assert!(lost > 0, "{name}: seed {seed}: the attack did nothing: {done}");
}

#[test]
fn random_garbage_under_fifos() {
    random("fifo", &[], 6, ginnel_tests::seed());
}

#[test]
fn random_garbage_under_tokens() {
    random("tokens", &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0"), ("GINNEL_RING", "4096")], 6, ginnel_tests::seed());
}

#[test]
fn random_garbage_under_random_switches() {
    random("chaos", &[("GINNEL_CHAOS", "5:40"), ("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "16384")], 6, ginnel_tests::seed());
}

#[test]
fn rings_lie_where_they_are_looked_for() {
    // What `spoil` knows of the layout is what the command says of it.
    let stand = Stand::shimmed("layout", &[]);
    let spoiler = Spoiler::small(&stand);
    let before = stand.free_extents();
    spoiler.take_all_but(20);
    assert_eq!((before > 20, stand.free_extents()), (true, 20));
    assert_eq!(spoiler.word(0), u64::from_le_bytes(*b"GINNELSG"));
    assert_eq!(SMALL % PAGE, 0);
}
