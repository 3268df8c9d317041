//! The page that people see where Prometheus finds its metrics: what [`Status`] says, as tables. It
//! has no scripts, takes nothing from elsewhere, and is read anew every two seconds.

use crate::status::{HostStatus, PortStatus, Status, VsockStatus};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8>\
<meta http-equiv=refresh content=2><title>ginnel-switch</title><style>\
body{font:15px sans-serif;margin:2em;color:#222;background:#fff}\
table{border-collapse:collapse;margin:0 0 2em}\
td,th{padding:.3em .8em;border-bottom:1px solid #ccc;text-align:right;font-weight:normal}\
th{color:#555}td:first-child,th:first-child,.t{text-align:left}.bad{color:#a00}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}\
th{color:#aaa}.bad{color:#f88}}</style>";

/// Text between tags, and in quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

/// A table. Cells are text; those of the last column stand to the left.
fn table(name: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("<h2>{name}</h2><table><tr>");
    // Writing to a string cannot fail.
    for (n, cell) in head.iter().enumerate() {
        let class = if n + 1 == head.len() { " class=t" } else { "" };
        let _ = write!(text, "<th{class}>{cell}");
    }
    for row in rows {
        text += "<tr>";
        for (n, cell) in row.iter().enumerate() {
            let class = if n + 1 == row.len() { " class=\"t bad\"" } else { "" };
            let _ = write!(text, "<td{class}>{}", escaped(cell));
        }
    }
    text + "</table>"
}

/// What is wrong, and what was dropped: nothing where there is nothing.
fn wrong(trouble: Option<&String>, reasons: [(&str, &BTreeMap<String, u64>); 2]) -> String {
    let mut all: Vec<String> = trouble.cloned().into_iter().collect();
    for (who, reasons) in reasons {
        let counts = reasons.iter().map(|(reason, count)| format!("{count} {who} {reason}"));
        all.extend(counts);
    }
    all.join("; ")
}

fn port(port: &PortStatus) -> Vec<String> {
    let reasons = [("sent:", &port.dropped), ("for it:", &port.missed)];
    let numbers = [port.sent_frames, port.sent_bytes, port.received_frames, port.received_bytes];
    let mut row = vec![port.name.clone(), port.key.to_string(), port.state.clone()];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(wrong(port.trouble.as_ref(), reasons));
    row
}

fn host(host: &HostStatus) -> Vec<String> {
    let reasons = [("sent:", &host.dropped), ("for it:", &host.missed)];
    let numbers = [host.sent_frames, host.sent_bytes, host.received_frames, host.received_bytes];
    let mut row = vec![host.name.clone(), host.at.clone(), host.state.clone()];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(wrong(host.trouble.as_ref(), reasons));
    row
}

fn vsock(one: &VsockStatus) -> Vec<String> {
    let state = if one.up { "up" } else { "waiting" };
    let mut row = vec![one.name.clone(), one.cid.to_string(), one.key.to_string(), state.into()];
    let numbers = [one.connections, one.sent_bytes, one.received_bytes, one.refused, one.reset];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(one.trouble.clone().unwrap_or_default());
    row
}

/// The page.
#[must_use]
pub fn html(status: &Status) -> String {
    let Status { version, seconds, addresses, .. } = status;
    let ports = table(
        "Ports",
        &["port", "key", "state", "frames sent", "bytes", "received", "bytes", "what is wrong"],
        &status.ports.iter().map(port).collect::<Vec<_>>(),
    );
    let hosts = table(
        "Other hosts",
        &["host", "at", "state", "frames sent", "bytes", "received", "bytes", "what is wrong"],
        &status.hosts.iter().map(host).collect::<Vec<_>>(),
    );
    let head = ["machine", "cid", "key", "state", "connections", "sent", "received", "refused"];
    let vsock = table(
        "Sockets",
        &[&head[..], &["reset", "what is wrong"]].concat(),
        &status.vsock.iter().map(vsock).collect::<Vec<_>>(),
    );
    format!(
        "{HEAD}<h1>ginnel-switch {}</h1><p>Up for {seconds:.0} s; {addresses} addresses known. \
         <a href=/metrics>Metrics</a> for Prometheus.</p>{ports}{hosts}{vsock}\n",
        escaped(version)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_somebody_named_is_a_tag() {
        let text = escaped("<b onclick=\"x\">&amp;");
        assert_eq!(text, "&lt;b onclick=&quot;x&quot;&gt;&amp;amp;");
        let rows = [vec!["a".into(), "<script>".into()]];
        let made = table("T", &["name", "what is wrong"], &rows);
        assert!(made.contains("&lt;script&gt;") && !made.contains("<script>"), "{made}");
        assert_eq!(table("T", &["name"], &[]), "");
    }
}
