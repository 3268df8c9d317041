//! What connections that lie idle take of the segment.

use ginnel_tests::{Stand, build};
use std::time::{Duration, Instant};

/// So many are open at once.
const CROWD: u64 = 200;
/// Ten thousand have room in a segment of the default size, one gigabyte.
const EACH: u64 = 100 << 10;
const PAGE: u64 = 4096;

#[test]
fn an_idle_connection_takes_no_more_than_a_hundred_kibibytes() {
    let stand = Stand::shimmed("memory", &[]).limit(Duration::from_secs(120));
    let program = build::program("crowd");
    let count = CROWD.to_string();
    let mut server = stand.start(stand.command(&program).args(["server", "127.0.0.1", "4712", &count]));
    server.wait_for("listening");
    let before = stand.free_extents();
    let mut client = stand.start(stand.command(&program).args(["client", "127.0.0.1", "4712", &count, "1000"]));
    client.wait_for("idle");
    let since = Instant::now();
    let carried = || stand.status().matches("\"in_carrier\": \"ring\"").count() as u64;
    while carried() < 2 * CROWD {
        assert!(since.elapsed() < Duration::from_secs(30), "{} of {} ends are carried", carried(), 2 * CROWD);
        std::thread::sleep(Duration::from_millis(200));
    }
    let taken = (before - stand.free_extents()) * PAGE / CROWD;
    client.signal(libc::SIGUSR1);
    for done in [client.finish(), server.finish()] {
        assert!(done.success() && done.stdout.contains("all of"), "{done}");
    }
    assert!(taken > 0 && taken <= EACH, "each takes {taken} bytes");
    println!("each takes {taken} bytes");
}
