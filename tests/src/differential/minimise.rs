//! Dropping steps of a script while it still differs in the same way (delta debugging: Zeller and
//! Hildebrandt, "Simplifying and Isolating Failure-Inducing Input").

use super::{Judge, Script};

/// The script without what it does not need to show a difference of this kind.
pub fn minimise(judge: &mut Judge, script: &Script, kind: &str) -> Script {
    let mut kept = script.steps.clone();
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let before = kept.len();
        let mut at = 0;
        while at < kept.len() {
            let end = (at + chunk).min(kept.len());
            let fewer: Vec<String> = [&kept[..at], &kept[end..]].concat();
            if judge.shows(&script.with_steps(fewer.clone()), kind) {
                kept = fewer;
            } else {
                at = end;
            }
        }
        if chunk == 1 && kept.len() == before {
            return script.with_steps(kept);
        }
        chunk = chunk.div_ceil(2).min(kept.len().max(1));
    }
}
