//! What connections take: of the segment those that lie idle, and of a limit on memory all of them.

use ginnel_tests::limit::MemoryLimit;
use ginnel_tests::{Crowd, Stand, build, json, port, skip};
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

/// So many are open at once.
const CROWD: u64 = 200;
/// Ten thousand have room in a segment of the default size, one gigabyte.
const EACH: u64 = 100 << 10;
const PAGE: u64 = 4096;

#[test]
fn an_idle_connection_takes_no_more_than_a_hundred_kibibytes() {
    let stand = Stand::shimmed("memory", &[]).limit(Duration::from_secs(120));
    let crowd = Crowd::start(
        &stand,
        |_, program| stand.command(program),
        ("127.0.0.1", &port::free()),
        CROWD,
        1000,
    );
    let carried = || stand.status().matches("\"in_carrier\": \"ring\"").count() as u64;
    stand.wait_until(Duration::from_secs(30), "all ends are carried", || carried() >= 2 * CROWD);
    let pages = json::numbers(&stand.status(), "pages")[0];
    // All that is in use, the few pages of both processes themselves included.
    let taken = (pages - stand.free_extents()) * PAGE / CROWD;
    crowd.end();
    assert!(taken > 0 && taken <= EACH, "each takes {taken} bytes");
    println!("each takes {taken} bytes");
}

/// A command that runs the words in the cgroup, as the stand says.
fn limited(stand: &Stand, limit: &MemoryLimit, words: &[&OsStr]) -> Command {
    let enter = limit.enter();
    let mut command = stand.command_behind(&enter.each_ref().map(String::as_str), words[0]);
    command.args(&words[1..]);
    command
}

/// 64 streams where TCP lives with 48 MB: rings that had all the memory that there is would have
/// the programs killed.
#[test]
fn many_streams_under_a_limit_that_tcp_lives_with() {
    let what = "many streams under a limit";
    if !std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join("iperf3").exists())
    {
        return skip(what, "iperf3 is not installed");
    }
    let Some(limit) = MemoryLimit::new(what, 48 << 20) else { return };
    let stand = Stand::shimmed("limit", &[]);
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let mut server =
        stand.start(&mut limited(&stand, &limit, &words("iperf3 -s -1 --forceflush -p 4713")));
    server.wait_for("listening");
    let client =
        stand.run(&mut limited(&stand, &limit, &words("iperf3 -c 127.0.0.1 -p 4713 -P 64 -t 3")));
    assert!(client.success(), "{client}");
    let server = server.finish();
    assert!(server.success(), "{server}");
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}

/// Where the limit's part for rings is spent, connections stay on TCP, and it is said why.
#[test]
fn connections_beyond_what_a_limit_leaves_stay_on_tcp() {
    let Some(limit) = MemoryLimit::new("connections beyond a limit", 64 << 20) else { return };
    // Two rings of a MiB each: eight connections have them in a quarter of 64 MiB.
    let stand = Stand::shimmed("limit-reason", &[("GINNEL_RING", "1048576")]);
    let command = |_, program: &std::path::Path| limited(&stand, &limit, &[program.as_os_str()]);
    let crowd = Crowd::start(&stand, command, ("127.0.0.1", "4714"), 30, 1500);
    let status = stand.status();
    assert!(status.matches("\"in_carrier\": \"ring\"").count() >= 2, "{status}");
    assert!(status.contains("\"reason\": \"memory_limit\""), "{status}");
    crowd.end();
}

/// So little memory that what the library begins with would be a good part of it: nothing is begun.
#[test]
fn under_the_least_limit_all_stays_on_tcp() {
    let Some(limit) = MemoryLimit::new("the least limit", 16 << 20) else { return };
    let stand = Stand::shimmed("limit-least", &[("GINNEL_VERBOSE", "1")]);
    let done = stand.run(&mut limited(&stand, &limit, &[build::program("half_close").as_os_str()]));
    assert!(done.success() && done.stderr.contains("memory limit leaves too little"), "{done}");
    assert_eq!(stand.report().ring_bytes(), 0);
}
