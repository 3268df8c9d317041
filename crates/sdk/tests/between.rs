//! What two play that meet in a segment (`between/`), as two processes of one kernel.

use crate::between_deaths::{dies, outlives};
use crate::scenes::{self, LONG};
use crate::stage::{Part, play, role};
use ginnel::{Event, Reset, Segment};
use std::time::Duration;

fn own() -> Segment {
    Segment::own().expect("a segment")
}

#[test]
fn two_processes_play_every_scene() {
    play("between::two_processes_play_every_scene", |part| match part {
        Part::Test => {
            let second = role("second", "");
            scenes::play(&own(), true);
            second.ends();
        }
        Part::Role(..) => scenes::play(&own(), false),
    });
}

/// Killed with everything in its hands, and everybody else asleep for it.
#[test]
fn one_outlives_others_that_hold_everything() {
    const ROUNDS: u32 = 3;
    play("between::one_outlives_others_that_hold_everything", |part| {
        let told = |what: &str| Event::open_or_create(&own(), what, Reset::Manual).expect("room");
        match part {
            Part::Role(role, _) if role == "dies" => dies(&own()),
            Part::Role(..) => {
                outlives(&own(), ROUNDS, |what| told(what).set().expect("told"));
            }
            Part::Test => {
                let survivor = role("outlives", "");
                for round in 1..=ROUNDS {
                    let dies = role("dies", "");
                    told(&format!("met {round}")).wait_timeout(LONG).expect("it comes");
                    // Where they have come to sleep, and where they have not.
                    std::thread::sleep(Duration::from_millis(if round == 1 { 0 } else { 150 }));
                    dies.kill();
                    told(&format!("gone {round}")).wait_timeout(LONG).expect("it is told");
                }
                survivor.ends();
            }
        }
    });
}
