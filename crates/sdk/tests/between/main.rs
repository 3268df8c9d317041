//! A program of two that have a segment in common: `between first` and `between second` play all
//! scenes with each other, `between outlives N` sees N `between dies` come, take hold of everything
//! and die. `between loses` asks `between answers N`, loses the device of its machine, and asks
//! again. Two processes of one kernel play it (`tests/between.rs`), two users (`tests/users.rs`)
//! and two machines (`guest/tests/objects.rs`).

mod deaths;
mod scenes;
mod unplugged;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let segment = || ginnel::Segment::own().expect("a segment");
    match words[..] {
        ["first"] => scenes::play(&segment(), true),
        ["second"] => scenes::play(&segment(), false),
        ["outlives", rounds] => {
            let rounds = rounds.parse().expect("a number");
            deaths::outlives(&segment(), rounds, |line| println!("{line}"));
        }
        ["dies"] => deaths::dies(&segment()),
        ["answers", count] => unplugged::answers(&segment(), count.parse().expect("a number")),
        ["loses"] => unplugged::loses_its_device(segment(), |line| println!("{line}")),
        _ => {
            eprintln!("between first | second | outlives N | dies | answers N | loses");
            std::process::exit(2);
        }
    }
}
