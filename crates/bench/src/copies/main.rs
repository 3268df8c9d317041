//! Files copied by `ginnel cp` and by every other way there is, which `make bench-cp` measures.
//!
//! ```text
//! ginnel-bench-copies guests [ROUNDS] [MIB] [FILES] [OUT]   between emulated machines; as root
//! ginnel-bench-copies record TIMES OUT                      draws what bench-cp.sh measured
//! ```
//!
//! A line of TIMES is `what|way|route|round|microseconds`. `what` is `BYTESxFILES`. All ways are
//! taken in turn in each round, so that a machine that does something else beside it does so to
//! all of them.

mod guests;
mod record;

use anyhow::{Result, bail};
use std::path::Path;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |at: usize, usual: u32| words.get(at).map_or(Ok(usual), |text| text.parse());
    match words[..] {
        ["record", times, out] => {
            let samples = record::read(&std::fs::read_to_string(times)?)?;
            record::write(&samples, "between two network namespaces of one kernel", Path::new(out))
        }
        ["guests", ..] => {
            let sizes = guests::Sizes { mib: number(2, 24)?, files: number(3, 1000)? };
            let (samples, how) = guests::run(number(1, 3)?, sizes)?;
            match words.get(4) {
                Some(out) => record::write(&samples, &how, Path::new(out)),
                None => {
                    println!("{how}\n\n{}", record::tables(&samples));
                    Ok(())
                }
            }
        }
        _ => bail!("ginnel-bench-copies guests [ROUNDS] [MIB] [FILES] [OUT] | record TIMES OUT"),
    }
}
