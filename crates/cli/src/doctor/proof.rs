//! Who proves, in the segment that is set, that this user's programs hold their connections.

use super::Finding;
use ginnel_node::join;
use ginnel_region::{Segment, Source};
use ginnel_tcp::proof::{Prover, can_prove_by_itself};
use ginnel_tcp::settings::Settings;
use std::path::Path;

const CHECK: &str = "proof";

/// What there is of a prover.
pub fn check(settings: &Settings) -> Finding {
    let path = &settings.node.segment;
    if join::is_socket(path) {
        return of(Prover::of(false, Source::Host { vectors: 0 }, -1, path), path);
    }
    match Segment::open(path) {
        Ok(segment) => {
            let finding = of(Prover::of(segment.is_own(), segment.source(), -1, path), path);
            segment.close();
            finding
        }
        Err(_) if path.exists() => {
            Finding::none(CHECK, format!("{} cannot be opened", path.display()))
        }
        Err(_) => Finding::ok(
            CHECK,
            "none is needed in this user's own segment, which is made when it is first used",
        ),
    }
}

fn of(prover: Prover<'_>, path: &Path) -> Finding {
    let shown = path.display();
    let is_there = prover.is_there();
    let wrong = |found: &str, advice: &str| {
        Finding::wrong(CHECK, format!("{found}: they stay on TCP"), advice)
    };
    match prover {
        Prover::Nobody => Finding::ok(CHECK, format!("none is needed: {shown} is this user's own")),
        Prover::Driver(..) if is_there => {
            Finding::ok(CHECK, "the driver proves that connections are this machine's")
        }
        Prover::Driver(..) => {
            wrong("the driver is older than proofs of connections", "update it (driver/README.md)")
        }
        Prover::Process(_) if can_prove_by_itself() => {
            Finding::ok(CHECK, "this process may read sequence numbers (CAP_NET_ADMIN)")
        }
        Prover::Process(_) if is_there => {
            Finding::ok(CHECK, "ginnel-prover proves that connections are this user's")
        }
        Prover::Process(_) => wrong(
            "this process may not read sequence numbers (CAP_NET_ADMIN), and no ginnel-prover does it in its stead",
            "in a virtual machine load the driver; on a host start ginnel-prover (docs/ginneld.md), or name whom you trust \
             (ginnel run --allow ADDRESS, at both ends)",
        ),
        Prover::Nothing => wrong(
            &format!("others may open {shown}, and nothing proves whose connections are"),
            "use a segment of this user's own, or name whom you trust (ginnel run --allow ADDRESS, at both ends)",
        ),
    }
}
