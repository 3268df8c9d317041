//! What connections that lie idle take of the segment.

use ginnel_tests::{Crowd, Stand, json, port};
use std::time::Duration;

/// So many are open at once.
const CROWD: u64 = 200;
/// Ten thousand have room in a segment of the default size, one gigabyte.
const EACH: u64 = 100 << 10;
const PAGE: u64 = 4096;

#[test]
fn an_idle_connection_takes_no_more_than_a_hundred_kibibytes() {
    let stand = Stand::shimmed("memory", &[]).limit(Duration::from_secs(120));
    let crowd = Crowd::start(&stand, |_, program| stand.command(program), ("127.0.0.1", &port::free()), CROWD, 1000);
    let carried = || stand.status().matches("\"in_carrier\": \"ring\"").count() as u64;
    stand.wait_until(Duration::from_secs(30), "all ends are carried", || carried() >= 2 * CROWD);
    let pages = json::numbers(&stand.status(), "pages")[0];
    // All that is in use, the few pages of both processes themselves included.
    let taken = (pages - stand.free_extents()) * PAGE / CROWD;
    crowd.end();
    assert!(taken > 0 && taken <= EACH, "each takes {taken} bytes");
    println!("each takes {taken} bytes");
}
