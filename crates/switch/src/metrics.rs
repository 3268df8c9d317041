//! Metrics as Prometheus reads them (its text format 0.0.4), on loopback. A thread of its own
//! answers, and asks the switch as every visitor of its control socket does: whoever asks for
//! metrics, however slowly, takes nothing from frames but one answer.

use crate::status::{PortStatus, Status};
use crate::{control, log};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tiny_http::{Header, Method, Response, Server};

type Value = fn(&PortStatus) -> u64;

const COUNTERS: [(&str, &str, Value); 9] = [
    ("sent_frames", "Frames that the port's guest sent", |port| port.sent_frames),
    ("sent_bytes", "Bytes that the port's guest sent", |port| port.sent_bytes),
    ("received_frames", "Frames that the port's guest was given", |port| port.received_frames),
    ("received_bytes", "Bytes that the port's guest was given", |port| port.received_bytes),
    ("flooded_frames", "Frames that went to the whole segment", |port| port.flooded),
    ("unlearned_addresses", "Addresses above the port's limit", |port| port.unlearned),
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
    head(&mut line, "port_up", "Do frames go in and out?", "gauge");
    for port in &status.ports {
        let up = u8::from(port.state == "up");
        line(format!("ginnel_switch_port_up{{port=\"{}\"}} {up}", port.name));
    }
    head(&mut line, "addresses", "Addresses in the forwarding table", "gauge");
    line(format!("ginnel_switch_addresses {}", status.addresses));
    text
}

/// Serves them in a thread of its own, for as long as the process lives.
///
/// # Errors
/// Where the address cannot be had.
pub fn serve(address: SocketAddr, control: PathBuf) -> Result<()> {
    let server = Server::http(address).map_err(|error| anyhow::anyhow!("{error}"));
    let server = server.with_context(|| format!("metrics at {address}"))?;
    log!(Info, "metrics", url = format!("http://{}/metrics", server.server_addr()));
    std::thread::Builder::new().name("metrics".into()).spawn(move || {
        for request in server.incoming_requests() {
            let good = *request.method() == Method::Get && request.url() == "/metrics";
            let text = if good { read(&control) } else { Err(anyhow::anyhow!("GET /metrics")) };
            let (status, text) = match text {
                Ok(text) => (200, text),
                Err(error) if good => (503, format!("{error:#}\n")),
                Err(error) => (404, format!("{error:#}\n")),
            };
            let kind = Header::from_bytes("Content-Type", "text/plain; version=0.0.4");
            let response = Response::from_string(text).with_status_code(status);
            let response = match kind {
                Ok(kind) => response.with_header(kind),
                Err(()) => response,
            };
            // Whoever asked may have gone.
            let _ = request.respond(response);
        }
    })?;
    Ok(())
}

fn read(control: &Path) -> Result<String> {
    let mut answer = String::new();
    control::ask(control, "status")?.read_to_string(&mut answer)?;
    Ok(text(&serde_json::from_str(&answer)?))
}
