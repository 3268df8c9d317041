//! What neighbours say of the order of events may be wrong, by malice or since their machine has
//! another clock. Everything that is ready in a set has its turn all the same.

use ginnel_tcp::order::ticks;
use ginnel_tests::spoil::Spoiler;
use ginnel_tests::{Stand, build};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// In a segment's first page: how often somebody said something over TCP, how often somebody had
/// begun to, and the last that did, in words.
const BY_TCP: u64 = 320;
const BEGUN: u64 = 328;
const LATELY: std::ops::Range<u64> = 1024..2048;
/// In a channel: its directions; in each, the stamps, and up to where it is read.
const DIRECTIONS: [u64; 2] = [0x200, 0x400];
const STAMPS: std::ops::Range<u64> = 0x020..0x040;
const HEAD: u64 = 0x100;

/// A time that has not come, as stamps have it: of a machine that was started a minute earlier.
fn to_come() -> u64 {
    (ticks() + (1 << 37)) >> 4 & ((1 << 36) - 1) | 1
}

/// The program is through in the end, though `again` is done before each of its waits.
fn spoilt(what: &str, again: impl Fn(&Spoiler) + Sync) {
    let stand = Stand::shimmed(&format!("in-turn-{what}"), &[]).limit(Duration::from_secs(60));
    let spoiler = Spoiler::small(&stand);
    let fifos = ["again", "spoilt"].map(|name| stand.dir().join(name));
    for fifo in &fifos {
        let made = std::process::Command::new("mkfifo").arg(fifo).status().expect("mkfifo runs");
        assert!(made.success(), "{}", fifo.display());
    }
    let mut running =
        stand.start(stand.command(build::program("in_turn")).arg(what).arg(stand.dir()));
    running.wait_for("ready");
    assert!(
        stand.status().contains("\"in_carrier\": \"ring\""),
        "no ring carries anything: {}",
        stand.status()
    );
    // It has both open for writing until it ends.
    let mut told = File::open(&fifos[0]).expect("a FIFO");
    let mut tells = File::options().write(true).open(&fifos[1]).expect("a FIFO");
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while told.read(&mut [0]).is_ok_and(|n| n == 1) {
                again(&spoiler);
                tells.write_all(&[0]).expect("it is read");
            }
        });
        running.signal(libc::SIGUSR1);
        running.try_finish()
    });
    let done = done.unwrap_or_else(|seen| panic!("{what}: {seen}"));
    assert!(done.success(), "{what}: {done}");
}

fn add(spoiler: &Spoiler, at: u64, more: u64) {
    spoiler.put(at, spoiler.word(at).wrapping_add(more));
}

/// The kernel was asked first in every wait, and always had something.
#[test]
fn rings_have_their_turn_however_much_is_said_over_tcp() {
    let says = |spoiler: &Spoiler| {
        [(BEGUN, 1000), (BY_TCP, 1)].into_iter().for_each(|(at, more)| add(spoiler, at, more))
    };
    spoilt("rings", says);
}

/// What was said over TCP seemed to come after what rings have, for ever.
#[test]
fn the_kernel_has_its_turn_whenever_something_was_said_over_tcp() {
    let calls = AtomicU64::new(0);
    let says = |spoiler: &Spoiler| {
        LATELY.step_by(8).for_each(|at| spoiler.put(at, to_come()));
        // Seldom more than are kept begin before the kernel is asked once more.
        add(spoiler, BEGUN, u64::from(calls.fetch_add(1, Relaxed).is_multiple_of(100)));
        add(spoiler, BY_TCP, 1);
    };
    spoilt("kernel", says);
}

/// What seems to have come after a wait began was left to the next one, for ever.
#[test]
fn a_ring_has_its_turn_whatever_clock_its_writer_has() {
    let late = |spoiler: &Spoiler| {
        for direction in spoiler
            .channels()
            .into_iter()
            .flat_map(|channel| DIRECTIONS.map(|direction| channel + direction))
        {
            let stamp = spoiler.word(direction + HEAD) << 36 | to_come();
            STAMPS.step_by(8).for_each(|at| spoiler.put(direction + at, stamp));
        }
    };
    spoilt("late", late);
}
