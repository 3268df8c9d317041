//! Garbage all over a segment or a ledger while programs work in it.

use ginnel_tests::spoil::Spoiler;
use ginnel_tests::{Stand, build};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Garbage over all of a segment while programs work in it. Prints its seed.
fn random(name: &str, settings: &[(&str, &str)], seconds: u32, seed: u64) {
    let _permit = ginnel_tests::permit::cpu(1);
    let stand = Stand::shimmed(&format!("hostile-{name}"), settings)
        .limit(Duration::from_secs(u64::from(seconds) + 60));
    let spoiler = Spoiler::small(&stand);
    let victims =
        stand.start(stand.command(build::program("victims")).arg((seconds + 1).to_string()));
    let hostile = Stand::plain("hostile").limit(Duration::from_secs(u64::from(seconds) + 30));
    let mut attack = hostile.command(build::program("hostile"));
    let attack =
        hostile.start(attack.arg(spoiler.path()).args([seconds.to_string(), seed.to_string()]));
    // Who looks at it meanwhile gets an answer, or is told that this is no segment.
    let mut looks = 0;
    for _ in 0..seconds * 4 {
        std::thread::sleep(Duration::from_millis(200));
        let mut status = std::process::Command::new("timeout");
        let seen = status
            .arg("20")
            .arg(build::ginnel())
            .args(["status", "--json"])
            .env("GINNEL_DIR", stand.dir())
            .output();
        let seen = seen.expect("timeout runs");
        assert!(seen.status.success(), "{name}: seed {seed}: ginnel status: {seen:?}");
        looks += 1;
    }
    let attacked = attack.finish();
    assert!(attacked.success(), "{name}: seed {seed}: {attacked}");
    let done = victims.finish();
    assert!(done.success(), "{name}: seed {seed}: {done}");
    let report = stand.report();
    eprintln!("{name}: seed {seed}, {looks} looks: {}{}", attacked.stdout, done.stdout);
    assert!(report.ring_bytes() > 0, "{name}: seed {seed}: no byte went through a ring");
    // Somebody noticed.
    let lost = ginnel_tests::json::sum(&done.stdout, "resets")
        + ginnel_tests::json::sum(&done.stdout, "limits");
    assert!(lost > 0, "{name}: seed {seed}: the attack did nothing: {done}");
}

/// The same over the ledger, by somebody who has it mapped: nobody but processes of the same user,
/// and before they left it those that gave the user up.
fn random_ledger(name: &str, settings: &[(&str, &str)], seconds: u32, seed: u64) {
    let _permit = ginnel_tests::permit::cpu(1);
    let mut all = vec![("GINNEL_SIZE", "67108864")];
    all.extend_from_slice(settings);
    let stand = Stand::shimmed(&format!("ledger-{name}"), &all)
        .limit(Duration::from_secs(u64::from(seconds) + 80));
    let victims =
        stand.start(stand.command(build::program("victims")).arg((seconds + 1).to_string()));
    let ledger = stand.dir().join("sockets-9");
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while !ledger.exists() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let hostile = Stand::plain("hostile").limit(Duration::from_secs(u64::from(seconds) + 30));
    let mut attack = hostile.command(build::program("spoils_ledger"));
    let attacked = hostile.run(
        attack
            .arg(&ledger)
            .arg(stand.dir().join("processes-1"))
            .args([seconds.to_string(), seed.to_string()]),
    );
    assert!(attacked.success(), "{name}: seed {seed}: {attacked}");
    let done = victims.finish();
    assert!(done.success(), "{name}: seed {seed}: {done}");
    eprintln!("ledger, {name}: seed {seed}: {}{}", attacked.stdout, done.stdout);
    let lost = ginnel_tests::json::sum(&done.stdout, "resets")
        + ginnel_tests::json::sum(&done.stdout, "limits");
    assert!(lost > 0, "{name}: seed {seed}: the attack did nothing: {done}");
}

#[test]
fn random_garbage_over_the_ledger() {
    random_ledger("fifo", &[], 6, ginnel_tests::seed());
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn random_garbage_over_the_ledger_under_tokens() {
    random_ledger(
        "tokens",
        &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0"), ("GINNEL_RING", "4096")],
        6,
        ginnel_tests::seed(),
    );
}

#[test]
fn random_garbage_under_fifos() {
    random("fifo", &[], 6, ginnel_tests::seed());
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn random_garbage_under_tokens() {
    random(
        "tokens",
        &[("GINNEL_TOKENS", "1"), ("GINNEL_SPIN", "0"), ("GINNEL_RING", "4096")],
        6,
        ginnel_tests::seed(),
    );
}

#[test]
#[ignore = "test-all: as others here, in one more way"]
fn random_garbage_under_random_switches() {
    random(
        "chaos",
        &[("GINNEL_CHAOS", "5:40"), ("GINNEL_RING", "4096"), ("GINNEL_RING_MAX", "16384")],
        6,
        ginnel_tests::seed(),
    );
}

/// Unmodified nginx and wrk meanwhile. nginx serves on, and none of its processes has ended; wrk
/// ends as it should, errors or not.
#[test]
fn nginx_lives_through_random_garbage() {
    let _permit = ginnel_tests::permit::cpu(1);
    const SECONDS: u32 = 6;
    let seed = ginnel_tests::seed();
    let stand = Stand::shimmed("hostile-nginx", &[]).limit(Duration::from_secs(90));
    let (dir, port) = (
        stand.dir().to_owned(),
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("loopback").port(),
    );
    write_conf(&dir, port);
    let spoiler = Spoiler::small(&stand);
    let nginx =
        stand.start(stand.command("nginx").args(["-e", "stderr", "-c"]).arg(dir.join("conf")));
    let get = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
        let mut said = String::new();
        socket.read_to_string(&mut said).map(|_| said)
    };
    assert!(
        (0..100).any(|_| get().is_ok() || {
            std::thread::sleep(Duration::from_millis(100));
            false
        }),
        "nginx does not start"
    );
    let url = format!("http://127.0.0.1:{port}/page");
    let wrk = stand.start(stand.command("wrk").args([
        "-t1",
        "-c16",
        "--timeout",
        "1s",
        &format!("-d{SECONDS}s"),
        &url,
    ]));
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        stand.status().contains("\"in_carrier\": \"ring\""),
        "no ring carries anything: {}",
        stand.status()
    );
    let hostile = Stand::plain("hostile").limit(Duration::from_secs(60));
    let mut attack = hostile.command(build::program("hostile"));
    let attacked =
        hostile.run(attack.arg(spoiler.path()).args([(SECONDS - 1).to_string(), seed.to_string()]));
    assert!(attacked.success(), "seed {seed}: {attacked}");
    let load = wrk.finish();
    assert!(load.success(), "seed {seed}: {load}");
    eprintln!("nginx: seed {seed}: {}", load.stdout);
    let page = get()
        .unwrap_or_else(|error| panic!("seed {seed}: nginx does not answer any more: {error}"));
    assert!(
        page.starts_with("HTTP/1.1 200") && page.ends_with(&"x".repeat(5000)),
        "seed {seed}: {page}"
    );
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    assert!(!log.contains("exited on signal"), "seed {seed}: {log}");
    nginx.signal(libc::SIGQUIT);
    let done = nginx.finish();
    assert!(done.success(), "seed {seed}: {done}");
}

/// A configuration of nginx, and a page for it.
fn write_conf(dir: &Path, port: u16) {
    let conf = format!(
        "daemon off; master_process on; worker_processes 1; user root root; pid {d}/pid; error_log {d}/log; events {{}}
         http {{ access_log off; client_body_temp_path {d}/a; proxy_temp_path {d}/b; fastcgi_temp_path {d}/c; uwsgi_temp_path {d}/d; scgi_temp_path {d}/e;
         keepalive_requests 500; server {{ listen 127.0.0.1:{port}; root {d}/pages; }} }}",
        d = dir.display()
    );
    fs::create_dir(dir.join("pages"))
        .and_then(|()| fs::write(dir.join("pages/page"), vec![b'x'; 5000]))
        .expect("own directory");
    fs::write(dir.join("conf"), conf).expect("own directory");
}
