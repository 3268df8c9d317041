//! Who proves, in the segment that is set, that this user's programs hold their connections.

use super::Finding;
use ginnel_channel::attach::Settings;
use ginnel_channel::join;
use ginnel_channel::proof::Prover;
use ginnel_region::{Segment, Source};
use std::path::Path;

const CHECK: &str = "proof";

/// What there is of a prover.
pub fn check(settings: &Settings) -> Finding {
    let path = &settings.segment;
    if join::is_socket(path) {
        return of(Prover::of(false, Source::Host { vectors: 0 }, -1, path), path);
    }
    match Segment::open(path) {
        Ok(segment) => {
            let finding = of(Prover::of(segment.is_own(), segment.source(), -1, path), path);
            segment.close();
            finding
        }
        Err(_) if path.exists() => Finding::none(CHECK, format!("{} cannot be opened", path.display())),
        Err(_) => Finding::ok(CHECK, "none is needed in this user's own segment, which is made when it is first used"),
    }
}

fn of(prover: Prover<'_>, path: &Path) -> Finding {
    if prover.is_there() {
        return Finding::ok(
            CHECK,
            match prover {
                Prover::Nobody => format!("none is needed: {} is this user's own", path.display()),
                Prover::Driver(..) => "the driver proves that connections are this machine's".to_owned(),
                Prover::Daemon(_) => "ginneld's prover, or this process itself, proves whose connections are".to_owned(),
                Prover::Process => "this process may read sequence numbers (CAP_NET_ADMIN)".to_owned(),
            },
        );
    }
    let (found, advice) = match prover {
        Prover::Driver(..) => ("the driver is older than proofs", "update it (driver/README.md)"),
        Prover::Daemon(_) => ("ginneld has no prover on this host", "start it (systemctl start ginneld-prover)"),
        Prover::Process | Prover::Nobody => (
            "others may open the segment, and nothing here can prove whose connections are",
            "use a segment of this user's own, or name whom you trust (ginnel run --allow ADDRESS, both ends)",
        ),
    };
    Finding::wrong(CHECK, format!("{found}: they stay on TCP"), advice)
}
