//! The behaviour programs by hand, as one table: `cargo run --release -p ginnel-tests --bin
//! programs -- [--full] [NAME…]`. A program that hangs is looked at after 40 s; with `--full` all
//! that is then seen is shown, else its first lines.

use ginnel_tests::programs::{all, run, stand, ways};

fn main() {
    ginnel_tests::exit_on_panic();
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let full = options.iter().any(|option| option == "--full");
    let names = if names.is_empty() { all() } else { names };
    let mut failed = 0;
    for name in &names {
        let expected = run(&stand(name, None), name)
            .unwrap_or_else(|seen| panic!("{name} hangs on TCP: {seen}"));
        assert!(expected.success(), "{name} fails on TCP: {expected}");
        for way in ways(name) {
            let stand = stand(name, Some(way));
            let why = match run(&stand, name) {
                Err(seen) => seen,
                Ok(done) if !done.success() => done.to_string(),
                Ok(done) if done.stdout != expected.stdout => {
                    format!("says\n{}and should say\n{}", done.stdout, expected.stdout)
                }
                Ok(_) if stand.report().ring_bytes() == 0 => {
                    "no byte went through a ring".to_owned()
                }
                Ok(_) => {
                    println!("{name:24} {:8} ok, {} bytes", way.0, stand.report().ring_bytes());
                    continue;
                }
            };
            failed += 1;
            println!("{name:24} {:8} FAILED", way.0);
            let telling = |line: &&str| {
                full || !(line.trim_start().starts_with(['"', '{', '}', ']'])
                    || line.trim().is_empty())
            };
            for line in why.lines().filter(telling).take(if full { usize::MAX } else { 40 }) {
                println!("    {line}");
            }
        }
    }
    println!("{failed} failed");
    std::process::exit(i32::from(failed > 0));
}
