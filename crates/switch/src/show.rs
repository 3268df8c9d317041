//! What a switch says, as tables for people.

use anyhow::Result;
use ginnel_switch::reload::Outcome;
use ginnel_switch::status::{Address, HostStatus, PortStatus, Status};
use std::fmt::Write;

fn parse(json: &str) -> Result<Status> {
    Ok(serde_json::from_str(json)?)
}

/// Rows as columns: text to the left, numbers to the right.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let all =
        || std::iter::once(head.iter().map(|&cell| cell.to_owned()).collect()).chain(rows.to_vec());
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().map(|row: Vec<String>| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in all() {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            let number = cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains(':');
            // Writing to a string cannot fail.
            let _ = match number {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// What it does, and what is wrong.
pub fn status(json: &str) -> Result<String> {
    let status = parse(json)?;
    let up = status.ports.iter().filter(|port| port.state == "up").count();
    let mut text = format!(
        "ginnel-switch {}, process {}, up for {} s\n{} ports, {up} of them up; {} addresses\n",
        status.version,
        status.pid,
        status.seconds as u64,
        status.ports.len(),
        status.addresses
    );
    for port in &status.ports {
        if let Some(trouble) = &port.trouble {
            text += &format!("port {} ({}): {trouble}\n", port.name, port.state);
        }
        for (who, reasons) in [("sent", &port.dropped), ("received", &port.missed)] {
            for (reason, count) in reasons {
                text +=
                    &format!("port {}: {count} frames {who} were dropped: {reason}\n", port.name);
            }
        }
    }
    text += &hosts(&status);
    for one in &status.vsock {
        let (name, cid, state) = (&one.name, one.cid, if one.up { "up" } else { "waiting" });
        let (connections, sent, received) = (one.connections, one.sent_bytes, one.received_bytes);
        text += &format!(
            "vsock {name} (cid {cid}, {state}): {connections} connections, {sent} bytes sent, \
             {received} received\n"
        );
        if let Some(trouble) = &one.trouble {
            text += &format!("vsock {name}: {trouble}\n");
        }
        for (count, what) in [
            (one.refused, "connections that it asked for were refused"),
            (one.reset, "connections were reset: it broke a rule, or too much waited for it"),
            (one.bad, "packets of it were none, or named another sender"),
        ] {
            if count > 0 {
                text += &format!("vsock {name}: {count} {what}\n");
            }
        }
    }
    Ok(text)
}

/// Other hosts, and what is wrong with them.
fn hosts(status: &Status) -> String {
    let mut text = String::new();
    if !status.hosts.is_empty() {
        let up = status.hosts.iter().filter(|host| host.state == "up").count();
        let (count, at) = (status.hosts.len(), &status.listens);
        let sealed = if status.sealed { "sealed" } else { "open to whoever has their addresses" };
        text +=
            &format!("{count} hosts, {up} of them up; this one is {at}; messages are {sealed}\n");
    }
    for host in &status.hosts {
        if host.received_frames > 0 {
            let (name, all, some) = (&host.name, host.received_frames, host.in_place_frames);
            text += &format!("host {name}: was given {all} frames, {some} without a copy\n");
        }
        if let Some(trouble) = &host.trouble {
            text += &format!("host {} ({}): {trouble}\n", host.name, host.state);
        }
        for (who, reasons) in [("sent", &host.dropped), ("received", &host.missed)] {
            for (reason, count) in reasons {
                text +=
                    &format!("host {}: {count} frames {who} were dropped: {reason}\n", host.name);
            }
        }
    }
    text
}

/// Its ports.
pub fn ports(json: &str) -> Result<String> {
    let row = |port: PortStatus| {
        let dropped: u64 = port.dropped.values().chain(port.missed.values()).sum();
        let numbers =
            [port.sent_frames, port.sent_bytes, port.received_frames, port.received_bytes];
        let mut row = vec![port.name, port.key.to_string(), port.state];
        row.extend(numbers.iter().chain([&dropped]).map(u64::to_string));
        row.push(port.at);
        row
    };
    let host = |host: HostStatus| {
        let dropped: u64 = host.dropped.values().chain(host.missed.values()).sum();
        let numbers =
            [host.sent_frames, host.sent_bytes, host.received_frames, host.received_bytes];
        let keys = host.keys.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let mut row = vec![format!("@{}", host.name), keys, host.state];
        row.extend(numbers.iter().chain([&dropped]).map(u64::to_string));
        row.push(host.at);
        row
    };
    let status = parse(json)?;
    let hosts = status.hosts.into_iter().map(host);
    let rows: Vec<_> = status.ports.into_iter().map(row).chain(hosts).collect();
    Ok(table(
        &["port", "key", "state", "sent", "bytes", "received", "bytes", "dropped", "at"],
        &rows,
    ))
}

/// Its table.
pub fn fdb(json: &str) -> Result<String> {
    let addresses: Vec<Address> = serde_json::from_str(json)?;
    let age = |age: Option<u32>| age.map_or_else(|| "fixed".into(), |age| format!("{age} s"));
    let row = |one: Address| vec![one.key.to_string(), one.mac, one.port, age(one.age)];
    let rows: Vec<_> = addresses.into_iter().map(row).collect();
    Ok(table(&["key", "address", "port", "age"], &rows))
}

/// What its ports did between two looks.
pub fn rates(before: &str, now: &str) -> Result<String> {
    let (before, now) = (parse(before)?, parse(now)?);
    let seconds = (now.seconds - before.seconds).max(0.001);
    let rate = |now: u64, was: u64| format!("{:.0}", now.saturating_sub(was) as f64 / seconds);
    let bits =
        |now: u64, was: u64| format!("{:.1}", now.saturating_sub(was) as f64 * 8e-6 / seconds);
    let mut rows = Vec::new();
    for port in &now.ports {
        let Some(was) = before.ports.iter().find(|was| was.name == port.name) else { continue };
        let lost =
            |port: &PortStatus| port.dropped.values().chain(port.missed.values()).sum::<u64>();
        rows.push(vec![
            port.name.clone(),
            port.state.clone(),
            rate(port.sent_frames, was.sent_frames),
            bits(port.sent_bytes, was.sent_bytes),
            rate(port.received_frames, was.received_frames),
            bits(port.received_bytes, was.received_bytes),
            rate(lost(port), lost(was)),
        ]);
    }
    for host in &now.hosts {
        let Some(was) = before.hosts.iter().find(|was| was.name == host.name) else { continue };
        let lost =
            |host: &HostStatus| host.dropped.values().chain(host.missed.values()).sum::<u64>();
        rows.push(vec![
            format!("@{}", host.name),
            host.state.clone(),
            rate(host.sent_frames, was.sent_frames),
            bits(host.sent_bytes, was.sent_bytes),
            rate(host.received_frames, was.received_frames),
            bits(host.received_bytes, was.received_bytes),
            rate(lost(host), lost(was)),
        ]);
    }
    let head = ["port", "state", "sent/s", "Mb/s", "received/s", "Mb/s", "dropped/s"];
    Ok(table(&head, &rows) + "\n")
}

/// What came of another configuration: a line for each kind, nothing where nothing is otherwise.
pub fn outcome(outcome: &Outcome) -> String {
    let Outcome { added, removed, changed, .. } = outcome;
    let kinds = [("added", added), ("removed", removed), ("changed", changed)];
    let some = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    some.map(|(kind, names)| format!("{kind}: {}\n", names.join(", "))).collect()
}

/// The machines' names and addresses, as hosts(5) has them; of one segment where that is said.
pub fn hosts_file(json: &str, key: Option<u32>) -> Result<String> {
    let ports = parse(json)?.ports;
    let of = ports.iter().filter(|port| key.is_none_or(|key| key == port.key));
    let line = |port: &PortStatus| -> String {
        port.addresses.iter().map(|address| format!("{address}\t{}\n", port.name)).collect()
    };
    Ok(of.map(line).collect())
}
