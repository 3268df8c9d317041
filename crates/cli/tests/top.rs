//! `ginnel top` and its terminal.

mod common;

use common::Place;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until it is so. Watchdog: 20 s.
fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < end, "not so in time: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// `top` in a terminal that goes away (a window that is closed, a connection that breaks).
fn loses_its_terminal(before: &str) {
    let place = Place::new();
    let (pid_file, typescript) = (place.path("pid"), place.path("typescript"));
    let line = format!("{before} echo $$ >{}; exec {} top", pid_file.display(), env!("CARGO_BIN_EXE_ginnel"));
    let mut terminal = Command::new("script")
        .args(["-qfc", &line])
        .arg(&typescript)
        .env("GINNEL_DIR", place.directory())
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script (of bsdutils) starts");
    // The alternate screen.
    until("top shows a picture", || fs::read_to_string(&typescript).is_ok_and(|text| text.contains("[?1049h")));
    let pid = fs::read_to_string(&pid_file).expect("written before");
    let running = || {
        let command = fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
        String::from_utf8_lossy(&command).contains("ginnel")
    };
    assert!(running(), "top runs");
    terminal.kill().expect("killed");
    terminal.wait().expect("gone");
    let end = Instant::now() + Duration::from_secs(20);
    while running() {
        if Instant::now() > end {
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
            panic!("top goes on without its terminal");
        }
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn ends_with_its_terminal() {
    loses_its_terminal("");
}

#[test]
fn ends_with_its_terminal_where_no_signal_says_so() {
    loses_its_terminal("trap '' HUP;");
}
