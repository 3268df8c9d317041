//! A program of two that meet in a segment: `between first` and `between second` play all scenes
//! with each other, `between outlives N` sees N `between dies` come and die. `between deadline`
//! says whether an event service with a deadline can be made.

extern crate iceoryx2_bb_loggers;

mod deaths;
mod scenes;

use iceoryx2::prelude::*;
use std::time::Duration;

/// iceoryx2 counts it by its creator's clock, which every machine has for itself.
fn makes_a_deadline() -> bool {
    let node = NodeBuilder::new().create::<ginnel_iceoryx2::Service>().expect("a node");
    let service = node.service_builder(&scenes::name("late")).event();
    service.deadline(Duration::from_secs(1)).create().is_ok()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [part @ ("first" | "second")] => {
            let mut stand = scenes::Stand::take("between");
            for scene in scenes::SCENES {
                println!("{}", scene.name);
                stand.play(scene, part == "first");
            }
            println!("{} scenes", scenes::SCENES.len());
        }
        ["outlives", rounds] => drop(deaths::outlives(rounds.parse().expect("a number"))),
        ["dies"] => deaths::dies(),
        ["deadline"] => println!("{}", if makes_a_deadline() { "made" } else { "refused" }),
        _ => {
            eprintln!("between first | second | outlives N | dies | deadline");
            std::process::exit(2);
        }
    }
}
