//! Whether a broker is there, which gives two processes of different users or containers memory of
//! their own.

use super::Finding;
use ginnel_tcp::broker;
use std::path::Path;

const CHECK: &str = "broker";

/// What there is of a broker at `path`; `None`: none is asked.
pub fn check(path: Option<&Path>) -> Finding {
    let Some(path) = path else {
        return Finding::none(CHECK, "programs ask none (GINNEL_BROKER=off)");
    };
    let shown = path.display();
    if broker::connect(path).is_some() {
        return Finding::ok(
            CHECK,
            format!("gives programs of different users memory for each pair, at {shown}"),
        );
    }
    if path.exists() {
        return Finding::wrong(
            CHECK,
            format!("nobody answers at {shown}, or somebody who is neither root nor its owner"),
            "start ginnel-broker (docs/ginneld.md), or set GINNEL_BROKER=off",
        );
    }
    Finding::none(
        CHECK,
        format!("none at {shown}: connections between different users or containers stay on TCP"),
    )
}
