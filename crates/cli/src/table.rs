//! Tables for people.

use crate::report::{Carrier, Connection, Holder, Process, Segment, Wake};
use crate::size::human;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// Columns of text where standard output is no terminal.
const WIDTH: u16 = 100;
/// Below this, tables are not squeezed further.
const NARROWEST: u16 = 80;

/// Columns to fill.
pub fn width() -> u16 {
    use std::io::IsTerminal;
    let columns = std::io::stdout()
        .is_terminal()
        .then(crossterm::terminal::size)
        .and_then(Result::ok);
    columns.map_or(WIDTH, |(columns, _)| columns.max(NARROWEST))
}

fn table(width: u16, header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    table.set_header(header.iter().map(|title| Cell::new(title.to_uppercase())));
    table
}

fn number(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// The table's lines, without the spaces at their ends.
fn lines(table: &Table) -> String {
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Segments.
pub fn segments(segments: &[Segment], width: u16) -> String {
    let mut table = table(
        width,
        &[
            "segment", "size", "in use", "mode", "wake-up", "members", "remarks",
        ],
    );
    for segment in segments {
        let use_of = segment
            .pages
            .zip(segment.free_pages)
            .map(|(all, free)| human(u64::from(all.saturating_sub(free)) * ginnel_region::PAGE));
        let alive = segment.members.iter().filter(|member| member.alive).count();
        table.add_row([
            Cell::new(&segment.name),
            number(human(segment.size)),
            number(use_of.unwrap_or_default()),
            Cell::new(&segment.mode),
            Cell::new(match segment.tokens_only {
                Some(true) => "token",
                Some(false) => "fifo",
                None => "",
            }),
            number(if segment.error.is_some() {
                String::new()
            } else {
                alive.to_string()
            }),
            Cell::new(segment.error.as_deref().unwrap_or_default()),
        ]);
    }
    lines(&table)
}

/// Processes.
pub fn processes(processes: &[Process], width: u16) -> String {
    let mut table = table(width, &["pid", "process", "segment", "remarks"]);
    for process in processes {
        let elsewhere = process
            .other_pid_namespace
            .then_some("of another pid namespace");
        let remarks: Vec<&str> = elsewhere
            .into_iter()
            .chain(process.explanation.as_deref())
            .collect();
        let segment =
            process
                .segment
                .as_deref()
                .unwrap_or(if process.attached { "(removed)" } else { "" });
        table.add_row([
            number(process.pid.to_string()),
            Cell::new(&process.name),
            Cell::new(segment),
            Cell::new(remarks.join("; ")),
        ]);
    }
    lines(&table)
}

/// `nginx 12, 13`: one name for neighbours of the same.
pub fn holders(holders: &[Holder]) -> String {
    let mut text = String::new();
    let mut last: Option<&str> = None;
    for (count, holder) in holders.iter().enumerate() {
        if count == 3 {
            text += &format!(" +{}", holders.len() - 3);
            break;
        }
        let divider = if count == 0 { "" } else { ", " };
        if last == Some(&holder.name) {
            text += &format!("{divider}{}", holder.pid);
        } else {
            text += &format!("{divider}{} {}", holder.name, holder.pid);
        }
        last = Some(&holder.name);
    }
    text
}

fn carrier(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Tcp => "tcp",
        Carrier::Ring => "ring",
    }
}

/// How it is woken, or why it is on TCP.
fn remark(connection: &Connection) -> String {
    let wake = match connection.wake {
        Wake::Fifo => "fifo",
        Wake::Token => "token",
        Wake::None => "",
    };
    let why = connection.explanation.as_deref().unwrap_or_default();
    [wake, why]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

fn ends(connection: &Connection) -> [Cell; 5] {
    let end = |address: &Option<String>| Cell::new(address.as_deref().unwrap_or("?"));
    [
        Cell::new(holders(&connection.processes)),
        end(&connection.local),
        end(&connection.remote),
        Cell::new(carrier(connection.out_carrier)),
        Cell::new(carrier(connection.in_carrier)),
    ]
}

/// Connections with their bytes so far.
pub fn connections(connections: &[Connection], width: u16) -> String {
    let mut table = table(
        width,
        &[
            "process",
            "local",
            "remote",
            "out",
            "in",
            "by ring",
            "by tcp",
            "wake-up, or why tcp",
        ],
    );
    for connection in connections {
        let amounts = [
            number(human(connection.ring_bytes())),
            number(human(connection.tcp_bytes())),
        ];
        table.add_row(
            ends(connection)
                .into_iter()
                .chain(amounts)
                .chain([Cell::new(remark(connection))]),
        );
    }
    lines(&table)
}

/// A connection and what it moved in one second.
pub struct Rated<'a> {
    /// The connection.
    pub connection: &'a Connection,
    /// Bytes through rings in a second, both ways.
    pub ring: u64,
    /// Bytes over TCP in a second, both ways.
    pub tcp: u64,
    /// Wake-ups sent in a second, of both kinds.
    pub wakes: u64,
}

/// Connections with their rates.
pub fn rates(rows: &[Rated], width: u16) -> String {
    let mut table = table(
        width,
        &[
            "process",
            "local",
            "remote",
            "out",
            "in",
            "ring/s",
            "tcp/s",
            "wakes/s",
            "wake-up, or why tcp",
        ],
    );
    for row in rows {
        let amounts = [
            number(human(row.ring)),
            number(human(row.tcp)),
            number(row.wakes.to_string()),
        ];
        table.add_row(
            ends(row.connection)
                .into_iter()
                .chain(amounts)
                .chain([Cell::new(remark(row.connection))]),
        );
    }
    lines(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32, name: &str) -> Holder {
        Holder {
            pid,
            name: name.into(),
        }
    }

    #[test]
    fn holders_of_one_name_are_named_once() {
        assert_eq!(holders(&[holder(1, "a")]), "a 1");
        assert_eq!(
            holders(&[holder(1, "a"), holder(2, "a"), holder(3, "b")]),
            "a 1, 2, b 3"
        );
        assert_eq!(
            holders(&(1..=5).map(|pid| holder(pid, "a")).collect::<Vec<_>>()),
            "a 1, 2, 3 +2"
        );
    }

    fn connection() -> Connection {
        Connection {
            cookie: 1,
            generation: 1,
            processes: vec![holder(12345, "redis-server")],
            local: Some(crate::address::text([0xfd; 16], 6379)),
            remote: Some("10.100.200.201:54321".into()),
            segment: Some("default".into()),
            stage: "active",
            out_carrier: Carrier::Ring,
            in_carrier: Carrier::Tcp,
            out_tcp: 1 << 20,
            out_ring: 1 << 40,
            in_tcp: 999,
            in_ring: 0,
            wake: Wake::Fifo,
            wakes: 1,
            tokens: 0,
            upgrades: 1,
            downgrades: 0,
            reason: Some("no_peer".into()),
            explanation: Some("peer has no shim or uses another segment".into()),
        }
    }

    #[test]
    fn tables_keep_to_their_width() {
        let one = connection();
        let rated = Rated {
            connection: &one,
            ring: 1 << 35,
            tcp: 12345,
            wakes: 100_000,
        };
        for width in [80, 100] {
            for text in [
                connections(&[connection()], width),
                rates(&[Rated { ..rated }], width),
            ] {
                assert!(
                    text.lines()
                        .all(|line| line.chars().count() <= usize::from(width)),
                    "{text}"
                );
            }
        }
    }
}
