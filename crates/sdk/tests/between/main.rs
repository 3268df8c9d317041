//! A program of two that have a segment in common: `between first` and `between second` play all
//! scenes with each other, `between outlives N` sees N `between dies` come, take hold of everything
//! and die. Two processes of one kernel play it (`tests/between.rs`).

mod deaths;
mod scenes;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["first"] => scenes::play(true),
        ["second"] => scenes::play(false),
        ["outlives", rounds] => {
            deaths::outlives(rounds.parse().expect("a number"), |line| println!("{line}"));
        }
        ["dies"] => deaths::dies(),
        _ => {
            eprintln!("between first | second | outlives N | dies");
            std::process::exit(2);
        }
    }
}
