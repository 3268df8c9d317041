//! A hundred thousand short connections in a row leave nothing behind: no descriptor or memory of
//! the process, no memory of the segment, no place in the table where ends meet.

use ginnel_tests::{Stand, build};
use std::time::Duration;

#[test]
#[ignore = "test-all: a minute of both processors"]
fn a_hundred_thousand_connections() {
    let _permit = ginnel_tests::permit::cpu(2);
    for settings in [&[][..], &[("GINNEL_TOKENS", "1")]] {
        let stand = Stand::shimmed("leaks", settings).limit(Duration::from_secs(300));
        let connections = |count: u64| {
            let done = stand
                .run(stand.command(build::program("short_connections")).arg(count.to_string()));
            assert!(done.success(), "{settings:?}: {done}");
        };
        connections(100);
        let baseline = stand.free_extents();
        let count = 100_000;
        connections(count);
        stand.assert_nothing_lost(baseline);
        // The table is much smaller: an entry that stayed would keep later connections out.
        let upgrades = stand.report().sum("upgrades");
        assert!(upgrades >= 2 * count / 5, "{settings:?}: only {upgrades} upgrades");
    }
}
