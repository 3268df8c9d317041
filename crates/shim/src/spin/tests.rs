use super::*;

/// About a turn of the kernel's scheduler, nanoseconds. Where nobody spins for longer, both
/// ends of a pair sleep in each exchange.
const TURN: u64 = 4_000_000;

#[test]
fn who_lost_the_processor_spins_again_within_a_turn() {
    let now = sys::monotonic_ns();
    let lost = || {
        SPINNERS.met(now);
        SPINNERS.until.load(Ordering::Relaxed) - now
    };
    let pauses: Vec<u64> = (0..20).map(|_| lost()).collect();
    assert!(
        pauses[0] < TURN / 4 && pauses[1] > pauses[0] && pauses.iter().all(|&pause| pause < TURN),
        "{pauses:?}"
    );
    paid(&Habit::new());
    assert_eq!(lost(), pauses[0], "once a spin has paid it is as at first");
}

#[test]
fn moments_that_bring_nothing_become_rare() {
    let (habit, moment) = (Habit::new(), 500_000);
    assert!(for_a_moment(&habit, moment, || true, || false));
    let looked = core::cell::Cell::new(0);
    let look = || {
        looked.set(looked.get() + 1);
        false
    };
    let together = || true;
    assert!(!for_a_moment(&habit, moment, look, together), "it cannot have come");
    assert_eq!(looked.get(), 0);
    let in_vain = (0..1000).filter(|_| {
        let tried = habit.worth_it();
        if tried {
            assert!(!for_a_moment(&habit, moment, look, || false));
        }
        tried
    });
    let tried = u32::try_from(in_vain.count()).unwrap_or(u32::MAX);
    assert!((TRUST..TRUST + 1000 / PROBE + 1).contains(&tried), "{tried}");
    assert!(looked.get() >= 20);
}

#[test]
fn who_gave_a_turn_away_does_not_do_so_for_ever_longer() {
    let others = Others::new(YIELDERS.at_first, YIELDERS.at_most, false);
    let now = sys::monotonic_ns();
    for _ in 0..20 {
        others.met(now);
        others.not_met();
    }
    assert_eq!(
        others.until.load(Ordering::Relaxed) - now,
        YIELDERS.at_most,
        "one quick turn proves nothing"
    );
    for _ in 0..1000 {
        others.not_met();
    }
    others.met(now);
    assert_eq!(others.until.load(Ordering::Relaxed) - now, YIELDERS.at_first);
}

#[test]
fn pauses_in_step_end_together() {
    let ends = |first: u64| {
        let others = Others::new(YIELDERS.at_first, YIELDERS.at_most, true);
        // Each is met at other moments; in the end all pauses are the longest.
        (0..20).map(|round| first + round * 3_000_000).for_each(|now| others.met(now));
        others.until.load(Ordering::Relaxed)
    };
    let turn = 7 * YIELDERS.at_most;
    assert_eq!(ends(turn + 1), 8 * YIELDERS.at_most);
    assert_eq!(ends(turn + 50_000_000), 8 * YIELDERS.at_most);
    assert_eq!(ends(turn + 150_000_000), 9 * YIELDERS.at_most, "half a pause at least");
}
