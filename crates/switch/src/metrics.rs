//! Metrics as Prometheus reads them (its text format 0.0.4), and a page for people, on loopback.
//! Threads of their own answer, and ask the switch as every visitor of its control socket does:
//! whoever asks for metrics, however slowly, takes nothing from frames but one answer, and nothing
//! from others who ask. (A library would wait for visitors who do not read, and have as many as
//! there are descriptors.)

use crate::rests::EXHAUSTED;
use crate::status::{HostStatus, PortStatus, Status, VsockStatus};
use crate::{control, page};
use anyhow::{Context, Result};
use ginnel_daemon::log;
use ginnel_daemon::question::{ELSEWHERE, MOST, PATIENCE, asks_here};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Visitors at once.
const MAX_VISITORS: usize = 16;
/// What the page may do (Content Security Policy Level 3): have a style of its own, and be in no
/// other site's frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// What can be asked for, up to the blank behind it; of what kind it is; its text.
type Page = (&'static str, &'static str, fn(&Status) -> String);

const PAGES: [Page; 2] = [
    ("/ ", "text/html; charset=utf-8", page::html),
    ("/metrics ", "text/plain; version=0.0.4", text),
];
const PLAIN: &str = "text/plain; charset=utf-8";

type Value = fn(&PortStatus) -> u64;

const COUNTERS: [(&str, &str, Value); 10] = [
    ("sent_frames", "Frames that the port's guest sent", |port| port.sent_frames),
    ("sent_bytes", "Bytes that the port's guest sent", |port| port.sent_bytes),
    ("received_frames", "Frames that the port's guest was given", |port| port.received_frames),
    ("received_bytes", "Bytes that the port's guest was given", |port| port.received_bytes),
    ("flooded_frames", "Frames that went to the whole segment", |port| port.flooded),
    ("unlearned_addresses", "Addresses above the port's limit", |port| port.unlearned),
    ("bursts", "Looks at the port's queues that found frames", |port| port.bursts),
    ("kicks", "Kicks of queues that were heard", |port| port.kicks),
    ("interrupts", "Interrupts that the guest was given", |port| port.interrupts),
    ("connections", "Front ends that have connected", |port| port.connections),
];

/// The text.
#[must_use]
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail. Names of ports need no escape: see `config`.
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let head = |line: &mut dyn FnMut(String), name: &str, help: &str, kind: &str| {
        line(format!("# HELP ginnel_switch_{name} {help}\n# TYPE ginnel_switch_{name} {kind}"));
    };
    for (name, help, value) in COUNTERS {
        let name = format!("{name}_total");
        head(&mut line, &name, help, "counter");
        for port in &status.ports {
            let labels = format!("port=\"{}\",key=\"{}\"", port.name, port.key);
            line(format!("ginnel_switch_{name}{{{labels}}} {}", value(port)));
        }
    }
    head(&mut line, "dropped_frames_total", "Frames that reached nobody, by reason", "counter");
    for port in &status.ports {
        for (direction, reasons) in [("sent", &port.dropped), ("received", &port.missed)] {
            for (reason, count) in reasons {
                line(format!(
                    "ginnel_switch_dropped_frames_total{{port=\"{}\",direction=\"{direction}\",\
                     reason=\"{reason}\"}} {count}",
                    port.name
                ));
            }
        }
    }
    hosts(&mut line, status);
    type Count = fn(&VsockStatus) -> u64;
    let counts: [(&str, &str, Count); 5] = [
        ("vsock_sent_bytes", "Bytes that a machine sent by its sockets", |one| one.sent_bytes),
        ("vsock_received_bytes", "Bytes that it was given", |one| one.received_bytes),
        ("vsock_refused", "Connections that it asked for in vain", |one| one.refused),
        ("vsock_reset", "Connections that were reset by its fault", |one| one.reset),
        ("vsock_bad_packets", "Packets that were none, or named another sender", |one| one.bad),
    ];
    for (name, help, value) in counts.iter().filter(|_| !status.vsock.is_empty()) {
        head(&mut line, &format!("{name}_total"), help, "counter");
        for one in &status.vsock {
            let (machine, cid, key) = (&one.name, one.cid, one.key);
            let labels = format!("vsock=\"{machine}\",cid=\"{cid}\",key=\"{key}\"");
            line(format!("ginnel_switch_{name}_total{{{labels}}} {}", value(one)));
        }
    }
    head(&mut line, "port_up", "Do frames go in and out?", "gauge");
    for port in &status.ports {
        let up = u8::from(port.state == "up");
        line(format!("ginnel_switch_port_up{{port=\"{}\"}} {up}", port.name));
    }
    head(&mut line, "addresses", "Addresses in the forwarding table", "gauge");
    line(format!("ginnel_switch_addresses {}", status.addresses));
    text
}

/// Other hosts.
fn hosts(line: &mut dyn FnMut(String), status: &Status) {
    type Count = fn(&HostStatus) -> u64;
    let counts: [(&str, &str, &str, Count); 9] = [
        ("up", "gauge", "Do frames go to the host?", |one| u64::from(one.state == "up")),
        ("connections_total", "counter", "Connections with the host", |one| one.connections),
        ("sent_frames_total", "counter", "Frames that the host sent here", |one| one.sent_frames),
        ("sent_bytes_total", "counter", "Their bytes", |one| one.sent_bytes),
        ("received_frames_total", "counter", "Frames for the host", |one| one.received_frames),
        ("received_bytes_total", "counter", "Their bytes", |one| one.received_bytes),
        ("in_place_frames_total", "counter", "Of those, without a copy", |one| one.in_place_frames),
        ("flooded_frames_total", "counter", "Frames of it for a whole segment", |one| one.flooded),
        ("unlearned_addresses_total", "counter", "Addresses above its limit", |one| one.unlearned),
    ];
    for (name, kind, help, value) in counts.iter().filter(|_| !status.hosts.is_empty()) {
        let name = format!("ginnel_switch_host_{name}");
        line(format!("# HELP {name} {help}\n# TYPE {name} {kind}"));
        for host in &status.hosts {
            line(format!("{name}{{host=\"{}\"}} {}", host.name, value(host)));
        }
    }
    let name = "ginnel_switch_host_dropped_frames_total";
    if !status.hosts.is_empty() {
        line(format!("# HELP {name} Frames that reached nobody, by reason\n# TYPE {name} counter"));
    }
    for host in &status.hosts {
        for (direction, reasons) in [("sent", &host.dropped), ("received", &host.missed)] {
            for (reason, count) in reasons {
                let host = &host.name;
                line(format!(
                    "{name}{{host=\"{host}\",direction=\"{direction}\",reason=\"{reason}\"}} {count}"
                ));
            }
        }
    }
}

/// Those who are being answered: their streams, the longest there first.
type Visitors = Arc<Mutex<VecDeque<Arc<TcpStream>>>>;

/// Serves them in threads of their own, for as long as the process lives.
///
/// # Errors
/// Where the address cannot be had.
pub fn serve(address: SocketAddr, control: PathBuf) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("metrics at {address}"))?;
    log!(Info, "metrics", url = format!("http://{}/metrics", listener.local_addr()?));
    let visitors = Visitors::default();
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => visit(Arc::new(stream), &control, &visitors),
                // Without descriptors it would fail again and again.
                Err(_) => std::thread::sleep(EXHAUSTED),
            }
        }
    })?;
    Ok(())
}

/// Answers one visitor in a thread of its own. Where there are too many, the one who is there
/// longest goes: it has had its time.
fn visit(stream: Arc<TcpStream>, control: &Path, visitors: &Visitors) {
    let mut all = visitors.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= MAX_VISITORS
        && let Some(longest) = all.pop_front()
    {
        // Its thread finds out.
        let _ = longest.shutdown(Shutdown::Both);
    }
    all.push_back(Arc::clone(&stream));
    drop(all);
    let (control, others) = (control.to_owned(), Arc::clone(visitors));
    let own = Arc::clone(&stream);
    let answered = std::thread::Builder::new().name("metrics".into()).spawn(move || {
        // Whoever asked may have gone.
        let _ = answer(&own, &control);
        leave(&others, &own);
    });
    if answered.is_err() {
        leave(visitors, &stream);
    }
}

fn leave(visitors: &Visitors, stream: &Arc<TcpStream>) {
    let mut all = visitors.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|one| !Arc::ptr_eq(one, stream));
}

fn answer(stream: &TcpStream, control: &Path) -> std::io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let question = hear(stream, until)?;
    let asked = PAGES.iter().find(|(path, ..)| {
        question.strip_prefix(b"GET ").is_some_and(|rest| rest.starts_with(path.as_bytes()))
    });
    let (status, kind, text) = match asked.map(|(_, kind, text)| (*kind, text, status(control))) {
        _ if !asks_here(&question) => ("421 Misdirected Request", PLAIN, ELSEWHERE.to_owned()),
        None => ("404 Not Found", PLAIN, "GET / or /metrics\n".to_owned()),
        Some((kind, text, Ok(status))) => ("200 OK", kind, text(&status)),
        Some((_, _, Err(error))) => ("503 Service Unavailable", PLAIN, format!("{error:#}\n")),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\r\n",
        text.len()
    );
    let answer = (head + &text).into_bytes();
    let (mut stream, mut rest) = (stream, &answer[..]);
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        let written = stream.write(rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    // What it still sends would have the answer thrown away (RFC 9112, 9.6).
    stream.shutdown(Shutdown::Write)?;
    let mut bytes = [0; 4096];
    while stream.set_read_timeout(Some(left(until)?)).is_ok() && stream.read(&mut bytes)? > 0 {}
    Ok(())
}

/// The question, up to the empty line at its end.
fn hear(mut stream: &TcpStream, until: Instant) -> std::io::Result<Vec<u8>> {
    let (mut question, mut bytes) = (Vec::new(), [0; 1024]);
    while !question.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left(until)?))?;
        let len = stream.read(&mut bytes)?;
        question.extend_from_slice(&bytes[..len]);
        if len == 0 || question.len() > MOST {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    Ok(question)
}

fn left(until: Instant) -> std::io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn status(control: &Path) -> Result<Status> {
    let answer = control::answer_of(control, "status", Some(control::PATIENCE))?;
    Ok(serde_json::from_str(&answer)?)
}
