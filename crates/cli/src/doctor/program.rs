//! Whether a program can have the preloaded library.

use super::Finding;
use crate::run;
use ginnel_preload::{Unreachable, Way};
use std::ffi::OsStr;

/// Looks at the program that `name` means to a shell.
pub(super) fn check(name: &OsStr) -> Finding {
    let check = "program";
    let Some(file) = run::find(name) else {
        return Finding::wrong(check, format!("{}: no such program", name.display()), "see PATH");
    };
    let Some(finding) = run::look(&file) else {
        return Finding::ok(check, format!("{} can have the library", file.display()));
    };
    let found = format!("{}: it stays on TCP", run::says(finding, &file));
    match finding.why {
        Unreachable::Musl => {
            Finding::ok(check, format!("{} can have the library for musl", file.display()))
        }
        Unreachable::Go | Unreachable::StaticGo if run::way(&finding, &file) != Way::None => {
            Finding::ok(
                check,
                format!(
                    "{} is reached, if its runtime is of a known release",
                    run::says(finding, &file)
                ),
            )
        }
        // It may have it all the same.
        Unreachable::Unknown => Finding::none(check, run::says(finding, &file)),
        Unreachable::OlderGlibc => {
            Finding::wrong(check, found, "use the library that `make portable` builds")
        }
        _ => Finding::wrong(check, found, "no preloaded library reaches it"),
    }
}
