//! `ginnel top` and its terminal.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until it is so, 20 s at most. False: it never was.
fn comes(so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !so() {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
    true
}

/// `top` in a terminal that goes away (a window that is closed, a connection that breaks).
fn loses_its_terminal(before: &str) {
    let place = tempfile::tempdir().expect("a directory");
    let (pid_file, typescript) = (place.path().join("pid"), place.path().join("typescript"));
    let line = format!("{before} echo $$ >{}; exec {} top", pid_file.display(), crate::ginnel());
    let mut terminal = Command::new("script")
        .args(["-qfc", &line])
        .arg(&typescript)
        .env("GINNEL_DIR", place.path())
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script (of bsdutils) starts");
    // The alternate screen.
    let shown =
        comes(|| fs::read_to_string(&typescript).is_ok_and(|text| text.contains("[?1049h")));
    let pid = fs::read_to_string(&pid_file).expect("written before");
    let command_line =
        || fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    let running = command_line().contains("ginnel");
    terminal.kill().expect("killed");
    terminal.wait().expect("gone");
    let ended = comes(|| !command_line().contains("ginnel"));
    if !ended {
        let _ = Command::new("kill").args(["-9", pid.trim()]).status();
    }
    assert!(shown && running, "top shows a picture, and runs");
    assert!(ended, "top goes on without its terminal");
}

#[test]
fn ends_with_its_terminal() {
    loses_its_terminal("");
}

#[test]
fn ends_with_its_terminal_where_no_signal_says_so() {
    loses_its_terminal("trap '' HUP;");
}
