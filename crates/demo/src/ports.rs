//! Ports: one that is free, and whether somebody listens on one.

use std::net::TcpListener;

use anyhow::{Context, Result};

/// A port that nobody uses at the moment.
pub fn free() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .context("no free port")?
        .port())
}

/// Whether somebody listens on a port where this process is, seen without connecting.
pub fn is_listening(pid: i32, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default()
    });
    tables.iter().any(|table| listens_in(table, port))
}

/// The table's fields: number, local address and port, remote address and port, state (0A is
/// LISTEN).
fn listens_in(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listener_on_that_port_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n\
                     1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000\n";
        assert!(listens_in(table, 8080));
        assert!(!listens_in(table, 8081));
        assert!(!listens_in(table, 80));
    }
}
