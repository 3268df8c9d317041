//! How often the broker is asked: by one in its place that counts.

use super::programs::{FINDS_NOBODY, GENEROUS, NARROW, SPEAKS};
use super::{LIMIT, PYTHON, ginnel};
use ginnel_tests::{Running, Stand, skip};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A program in the broker's place, the port at which it listens, and a stand whose programs ask
/// it.
fn asks_of(what: &str, program: &str) -> Option<(Stand, Running, String, Stand)> {
    if !Path::new(PYTHON).exists() {
        skip(what, "needs python3.11");
        return None;
    }
    let place = Stand::plain(what).limit(LIMIT);
    let asks = place.dir().join("broker.sock");
    let mut running = place.start(place.command(PYTHON).args(["-c", program]).arg(&asks));
    running.wait_for("\n");
    let port = running.output().trim().to_owned();
    let asking =
        Stand::shimmed(what, &[("GINNEL_BROKER", asks.to_str().expect("UTF-8"))]).limit(LIMIT);
    Some((place, running, port, asking))
}

/// Who has no room for a pair's memory asks for none for a while: the other process would get it in
/// vain each time.
#[test]
fn who_has_no_room_for_memory_does_not_ask_again_at_once() {
    let Some((_place, mut generous, port, narrow)) = asks_of("generous", GENEROUS) else { return };
    let running = narrow.start(narrow.command(PYTHON).args(["-c", NARROW, &port]));
    generous.wait_for("parted");
    let done = generous.finish();
    assert!(done.stdout.ends_with("asked 1\n"), "{done}");
    let done = running.finish();
    assert!(done.success(), "{done}");
}

/// A connection that waited in vain when its process was detached is asked for anew once it waits
/// again.
#[test]
fn who_was_detached_asks_anew() {
    let Some((_place, mut answers, port, speaks)) = asks_of("finds nobody", FINDS_NOBODY) else {
        return;
    };
    let end = speaks.dir().join("end");
    let running = speaks.start(speaks.command(PYTHON).args(["-c", SPEAKS, &port]).arg(&end));
    answers.wait_for("question");
    ginnel(&speaks, "detach");
    let is_away = || speaks.status().contains("\"reason\": \"detached\"");
    speaks.wait_until(LIMIT, "it is detached", is_away);
    // What was asked before that was asked.
    std::thread::sleep(Duration::from_millis(100));
    let questions = || answers.output().matches("question").count();
    let before = questions();
    ginnel(&speaks, "attach");
    speaks.wait_until(LIMIT, "a question", || questions() > before);
    fs::write(&end, "").expect("written");
    for done in [running.finish(), answers.finish()] {
        assert!(done.success(), "{done}");
    }
}
