//! A program of two that meet in a segment: `between first` and `between second` play all scenes
//! with each other, `between outlives N` sees N `between dies` come and die.

extern crate iceoryx2_bb_loggers;

mod deaths;
mod scenes;

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
        _ => {
            eprintln!("between first | second | outlives N | dies");
            std::process::exit(2);
        }
    }
}
