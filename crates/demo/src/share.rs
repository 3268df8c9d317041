//! How much of a client's traffic went through shared memory, as the shim reports it at the end of
//! each process.

use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The variable that names the file to which the shim appends one JSON line per process.
pub const REPORT_VARIABLE: &str = "GINNEL_REPORT";

/// One process's line: bytes of payload by carrier and direction. What else is in it does not
/// matter here.
#[derive(Debug, Deserialize)]
struct Line {
    tcp_in: u64,
    tcp_out: u64,
    ring_in: u64,
    ring_out: u64,
}

/// The share of all bytes that went through rings, 0 to 1; `None` where nothing was reported or
/// nothing moved.
pub fn read(path: &Path) -> Option<f64> {
    of(&fs::read_to_string(path).ok()?)
}

#[expect(clippy::cast_precision_loss, reason = "counts of bytes stay far below 2^53")]
fn of(report: &str) -> Option<f64> {
    let lines = report.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let (ring, all) = lines.fold((0_u64, 0_u64), |(ring, all), line| {
        let rings = line.ring_in.saturating_add(line.ring_out);
        let tcp = line.tcp_in.saturating_add(line.tcp_out);
        (ring.saturating_add(rings), all.saturating_add(rings).saturating_add(tcp))
    });
    (all > 0).then(|| ring as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_processes_are_added_up() {
        let report = "{\"pid\":1,\"program\":\"wrk\",\"tcp_in\":10,\"tcp_out\":10,\"ring_in\":50,\"ring_out\":10,\"x\":[]}\n\
                      {\"pid\":2,\"program\":\"wrk\",\"tcp_in\":0,\"tcp_out\":0,\"ring_in\":20,\"ring_out\":0}\n";
        assert_eq!(of(report), Some(0.8));
    }

    #[test]
    fn nothing_reported_is_not_zero() {
        assert_eq!(of(""), None);
        assert_eq!(of("half a li"), None);
        assert_eq!(of("{\"tcp_in\":0,\"tcp_out\":0,\"ring_in\":0,\"ring_out\":0}"), None);
    }
}
