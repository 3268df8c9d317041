//! What others do to a program in Go at work: `ginnel detach` and `attach`, an end that is killed,
//! a proxy in C between its two ends.

use super::{command, end, run, serve, stand};
use ginnel_tests::go::{KINDS, program};
use ginnel_tests::{Running, Stand, build, json, permit, port, skip};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Nothing that is to happen takes as long, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that exchanges with the server at `address` until SIGTERM, carried.
fn talk(stand: &Stand, program: &Path, address: &str) -> Running {
    let client = stand.start(&mut command(stand, program, &["talk", address, "4"]));
    moves_on(stand, "in_ring");
    client
}

/// Waits until the ends have received much more by this carrier.
fn moves_on(stand: &Stand, carrier: &str) {
    let before = json::sum(&stand.status(), carrier);
    stand.wait_until(PATIENCE, carrier, || json::sum(&stand.status(), carrier) > before + 200_000);
}

/// `ginnel WORD`, for the programs of the stand.
fn ask_for(stand: &Stand, word: &str) {
    let settings = stand.environment().into_iter().filter(|(key, _)| key != "LD_PRELOAD");
    let said = Command::new(build::ginnel()).arg(word).envs(settings).output().expect("it runs");
    assert!(said.status.success(), "{word}: {}", String::from_utf8_lossy(&said.stderr));
}

/// No connection breaks, and no byte is lost or repeated.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn connections_go_to_tcp_and_come_back() {
    let _permit = permit::cpu(2);
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-detach", &[]);
        let (server, address) = serve(&stand, &program, "serve");
        let client = talk(&stand, &program, &address);
        for _ in 0..3 {
            ask_for(&stand, "detach");
            let status = stand.status();
            assert!(!status.contains("\": \"ring\""), "{}: {status}", program.display());
            moves_on(&stand, "in_tcp");
            ask_for(&stand, "attach");
            moves_on(&stand, "in_ring");
        }
        client.signal(libc::SIGTERM);
        let done = client.finish();
        assert!(done.success() && done.stdout.ends_with("OK\n"), "{}: {done}", program.display());
        end(server);
    }
}

/// Who was connected hears of it, and a server goes on with others.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn an_end_that_is_killed_is_missed() {
    let _permit = permit::cpu(2);
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-killed", &[]);
        let (server, address) = serve(&stand, &program, "serve");
        let client = talk(&stand, &program, &address);
        client.signal(libc::SIGKILL);
        let _ = client.finish();
        run(&stand, &program, &["ask", &address, "8", "300"]);
        let client = talk(&stand, &program, &address);
        server.signal(libc::SIGKILL);
        let _ = server.finish();
        let done = client.finish();
        assert_eq!(done.status.code(), Some(1), "{}: {done}", program.display());
        let told = ["reset by peer", "EOF", "broken pipe"];
        assert!(told.iter().any(|word| done.stdout.contains(word)), "{done}");
    }
}

/// Both of nginx's sides are carried: from the client, and to the server behind it.
#[test]
#[ignore = "test-all: Go is asked for by name"]
fn nginx_stands_between_two_programs() {
    if !Path::new("/usr/sbin/nginx").exists() {
        return skip("Go and nginx", "nginx is not installed");
    }
    for program in KINDS.into_iter().filter_map(program) {
        let stand = stand("go-nginx", &[]);
        let (server, address) = serve(&stand, &program, "host");
        let (proxy, near) = nginx(&stand, &address);
        run(&stand, &program, &["visit", &near, "100"]);
        proxy.signal(libc::SIGTERM);
        let done = proxy.finish();
        assert!(done.success(), "{done}");
        end(server);
        let report = stand.report();
        let (ring, tcp) = (report.sum("ring_in"), report.sum("tcp_in"));
        assert!(ring > 4 * tcp, "{}: {ring} out of rings, {tcp} over TCP", program.display());
    }
}

/// An nginx of one process that passes everything on, and where it listens.
fn nginx(stand: &Stand, upstream: &str) -> (Running, String) {
    let (near, dir) = (format!("127.0.0.1:{}", port::free()), stand.dir().display());
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n"))
        .concat();
    let file = stand.dir().join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\naccess_log off; keepalive_requests 100000;\n{folders}\
         upstream far {{ server {upstream}; keepalive 16; }}\n\
         server {{ listen {near}; location / {{ proxy_pass http://far; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; }} }} }}\n"
    );
    std::fs::write(&file, text).expect("a configuration");
    let words = ["-e", "stderr", "-c", &file.to_string_lossy()].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let proxy = stand.start(&mut command(stand, Path::new("/usr/sbin/nginx"), &words));
    stand.wait_until(PATIENCE, "nginx listens", || std::net::TcpStream::connect(&near).is_ok());
    (proxy, near)
}
