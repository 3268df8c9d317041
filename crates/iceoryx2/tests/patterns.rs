//! The scenes of `between`, each between two processes that have the segment at different
//! addresses; and processes that are killed with the other ends of this one's ports.

use crate::deaths_between::{dies, outlives, told};
use crate::scenes::{LONG, SCENES, Stand};
use crate::stage::{self, Part};
use std::time::Duration;

/// Plays a scene: this process is the first, another the second.
fn scene(name: &str) {
    stage::play(&format!("patterns::{name}"), |part| {
        let scene = SCENES.iter().find(|scene| scene.name == name).expect("a scene");
        let (is_first, role) = match part {
            Part::Test => (true, Some(stage::role("second", ""))),
            Part::Role(..) => (false, None),
        };
        Stand::take("scene").play(scene, is_first);
        role.into_iter().for_each(stage::Guarded::ends);
    });
}

macro_rules! tests {
    ($($scene:ident)*) => {
        $(#[test]
        fn $scene() {
            scene(stringify!($scene));
        })*

        #[test]
        fn every_scene_is_a_test() {
            let tests = [$(stringify!($scene)),*];
            let scenes: Vec<_> = SCENES.iter().map(|scene| scene.name).collect();
            assert_eq!(scenes, tests);
        }
    };
}

tests! {
    samples flat_map slices history no_overflow held headers refused shared_by_threads
    woken wait_sets kept_together told_of_notifiers
    answers streams given_up largest_answers
    values whole_values
    seen services_end
}

/// The other is killed at any moment, again and again: its ports go, its loans come back, and the
/// next one finds room for its own.
#[test]
fn one_outlives_many() {
    const KILLED: u32 = 10;
    stage::play("patterns::one_outlives_many", |part| match part {
        Part::Role(role, _) if role == "outlives" => {
            let _ends = outlives(KILLED);
            told("over").set().expect("told");
            told("leave").wait_timeout(LONG).expect("told");
        }
        Part::Role(..) => dies(),
        Part::Test => {
            let survivor = stage::role("outlives", "");
            told("ready").wait_timeout(LONG).expect("it is there");
            let (met, over) = (told("met"), told("over"));
            for round in 0.. {
                if over.is_set() {
                    break;
                }
                let other = stage::role("dies", "");
                // Every other one has all its ports, the rest die before.
                if round % 2 == 0 {
                    stage::until("met", || met.try_wait().is_ok() || over.is_set());
                }
                std::thread::sleep(Duration::from_millis(round * 37 % 150));
                other.kill();
            }
            told("leave").set().expect("told");
            survivor.ends();
        }
    });
}
