//! Tables for people: columns as wide as what is in them, and one remark per row, which moves below
//! the row where it does not fit.

use crate::report::{Carrier, Connection, Holder, Process, Segment, Wake};
use crate::size::short;

/// Columns of text where standard output is no terminal.
const WIDTH: usize = 100;
/// Between two columns.
const GAP: usize = 2;
/// Before a remark below its row.
const INDENT: usize = 4;

/// Columns to fill.
pub fn width() -> usize {
    use std::io::IsTerminal;
    let columns =
        std::io::stdout().is_terminal().then(crossterm::terminal::size).and_then(Result::ok);
    columns.map_or(WIDTH, |(columns, _)| columns.into())
}

/// A cell's text and whether it stands at the right of its column.
struct Cell(String, bool);

fn text(text: &str) -> Cell {
    // Names of processes and files may hold anything, also what a terminal obeys.
    Cell(clean(text), false)
}

fn number(text: impl ToString) -> Cell {
    Cell(text.to_string(), true)
}

/// Text without characters that a terminal obeys.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Rows of cells, each with a remark that may be empty.
struct Table<'a> {
    header: &'a [&'a str],
    remarks: &'a str,
    rows: Vec<(Vec<Cell>, String)>,
}

impl<'a> Table<'a> {
    fn new(header: &'a [&'a str], remarks: &'a str) -> Self {
        Self { header, remarks, rows: Vec::new() }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = Cell>, remark: &str) {
        self.rows.push((cells.into_iter().collect(), clean(remark)));
    }

    fn lines(&self, width: usize) -> String {
        let length = |text: &str| text.chars().count();
        let widths: Vec<usize> = (self.header.iter().enumerate())
            .map(|(column, title)| {
                let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(column));
                cells.map(|cell| length(&cell.0)).chain([length(title)]).max().unwrap_or(0)
            })
            .collect();
        let body: usize = widths.iter().map(|width| width + GAP).sum();
        let right = |column: usize| {
            let cell = self.rows.first().and_then(|(cells, _)| cells.get(column));
            cell.is_some_and(|cell| cell.1)
        };
        let fits = |remark: &str| body + length(remark) <= width;
        let title = if fits(self.remarks) { self.remarks } else { "" };
        let titles = (self.header.iter().enumerate())
            .map(|(column, title)| Cell((*title).to_owned(), right(column)));
        let mut lines = join(&titles.collect::<Vec<_>>(), &widths, title);
        for (cells, remark) in &self.rows {
            if remark.is_empty() || fits(remark) {
                lines += &join(cells, &widths, remark);
            } else {
                lines += &join(cells, &widths, "");
                lines += &format!("{:INDENT$}{remark}\n", "");
            }
        }
        lines
    }
}

fn join(cells: &[Cell], widths: &[usize], remark: &str) -> String {
    let mut line = String::new();
    for (Cell(text, right), width) in cells.iter().zip(widths) {
        line += &if *right { format!("{text:>width$}") } else { format!("{text:<width$}") };
        line += &" ".repeat(GAP);
    }
    line += remark;
    format!("{}\n", line.trim_end())
}

/// Segments.
pub fn segments(segments: &[Segment], width: usize) -> String {
    let header = ["SEGMENT", "SIZE", "IN USE", "MODE", "WAKE-UP", "MEMBERS"];
    let mut table = Table::new(&header, "");
    for segment in segments {
        let in_use = segment.in_use().map(short).unwrap_or_default();
        let alive = segment.members.iter().filter(|member| member.alive);
        let better = if segment.path.starts_with("/dev/ginnel") { "doorbell" } else { "fifo" };
        let wake = segment.tokens_only.map(|only| if only { "token" } else { better });
        let cells = [
            text(&segment.name),
            number(short(segment.size)),
            number(in_use),
            text(&segment.mode),
            text(wake.unwrap_or_default()),
            number(alive.count()),
        ];
        table.row(cells, segment.error.as_deref().unwrap_or_default());
    }
    table.lines(width)
}

/// Named objects of a segment.
pub fn objects(objects: &[ginnel::ObjectInfo], width: usize) -> String {
    let mut table = Table::new(&["NAME", "KIND", "SIZE", "OWNER", "WAITING", "USERS"], "");
    for object in objects {
        let owner =
            object.owner.as_ref().map_or("(kept)".to_owned(), |owner| owner.pid.to_string());
        let user = |user: &ginnel::User| format!("{} ({})", user.pid, user.program);
        let users: Vec<String> = object.users.iter().map(user).collect();
        let cells = [
            text(&object.name),
            text(object.kind.name()),
            number(short(object.size)),
            text(&owner),
            number(object.waiting),
            text(&users.join(", ")),
        ];
        table.row(cells, if object.removed { "removed; freed when nobody uses it" } else { "" });
    }
    table.lines(width)
}

/// Processes.
pub fn processes(processes: &[Process], width: usize) -> String {
    let mut table = Table::new(&["PID", "PROCESS", "SEGMENT"], "");
    for process in processes {
        let elsewhere = process.other_pid_namespace.then_some("of another pid namespace");
        let remarks: Vec<&str> =
            elsewhere.into_iter().chain(process.explanation.as_deref()).collect();
        let none = if process.attached { "(removed)" } else { "" };
        let segment = process.segment.as_deref().unwrap_or(none);
        table.row([number(process.pid), text(&process.name), text(segment)], &remarks.join("; "));
    }
    table.lines(width)
}

/// `nginx 12, 13`: one name for neighbours of the same.
pub fn holders(holders: &[Holder]) -> String {
    const SHOWN: usize = 2;
    let mut text = String::new();
    let mut last = None;
    for holder in holders.iter().take(SHOWN) {
        let divider = if text.is_empty() { "" } else { ", " };
        let name =
            if last == Some(&holder.name) { String::new() } else { format!("{} ", holder.name) };
        text += &format!("{divider}{name}{}", holder.pid);
        last = Some(&holder.name);
    }
    match holders.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} +{more}"),
    }
}

fn carrier(carrier: Carrier) -> Cell {
    text(match carrier {
        Carrier::Tcp => "tcp",
        Carrier::Ring => "ring",
    })
}

fn ends(connection: &Connection) -> [Cell; 5] {
    let end = |address: &Option<String>| text(address.as_deref().unwrap_or("?"));
    [
        text(&holders(&connection.processes)),
        end(&connection.local),
        end(&connection.remote),
        carrier(connection.out_carrier),
        carrier(connection.in_carrier),
    ]
}

fn wake(connection: &Connection) -> Cell {
    text(match connection.wake {
        Wake::Fifo => "fifo",
        Wake::Doorbell => "doorbell",
        Wake::Line => "line",
        Wake::Token => "token",
        Wake::None => "-",
    })
}

/// Why a direction is on TCP.
fn why(connection: &Connection) -> &str {
    connection.explanation.as_deref().unwrap_or_default()
}

/// Connections with their bytes so far.
pub fn connections(connections: &[Connection], width: usize) -> String {
    let header = ["PROCESS", "LOCAL", "REMOTE", "OUT", "IN", "RING", "TCP", "WAKE"];
    let mut table = Table::new(&header, "WHY TCP");
    for connection in connections {
        let amounts =
            [number(short(connection.ring_bytes())), number(short(connection.tcp_bytes()))];
        let cells = ends(connection).into_iter().chain(amounts).chain([wake(connection)]);
        table.row(cells, why(connection));
    }
    table.lines(width)
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
pub fn rates(rows: &[Rated], width: usize) -> String {
    let header = ["PROCESS", "LOCAL", "REMOTE", "OUT", "IN", "RING/S", "TCP/S", "WAKES/S", "WAKE"];
    let mut table = Table::new(&header, "WHY TCP");
    for row in rows {
        let amounts = [number(short(row.ring)), number(short(row.tcp)), number(row.wakes)];
        let cells = ends(row.connection).into_iter().chain(amounts).chain([wake(row.connection)]);
        table.row(cells, why(row.connection));
    }
    table.lines(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32, name: &str) -> Holder {
        Holder { pid, name: name.into() }
    }

    #[test]
    fn holders_of_one_name_are_named_once() {
        assert_eq!(holders(&[holder(1, "a")]), "a 1");
        assert_eq!(holders(&[holder(1, "a"), holder(2, "a")]), "a 1, 2");
        assert_eq!(holders(&[holder(1, "a"), holder(2, "b")]), "a 1, b 2");
        let many: Vec<Holder> = (1..=5).map(|pid| holder(pid, "a")).collect();
        assert_eq!(holders(&many), "a 1, 2 +3");
    }

    fn connection(local: &str, explanation: &str) -> Connection {
        Connection {
            cookie: 1,
            generation: 1,
            processes: vec![holder(1_234_567, "redis-se\x1b[2J")],
            local: Some(local.into()),
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
            explanation: Some(explanation.into()),
        }
    }

    #[test]
    fn a_remark_that_does_not_fit_stands_below() {
        let both = [
            connection("10.100.200.202:6379", "too long to stand beside it"),
            connection("10.0.0.1:1", ""),
        ];
        let lines = connections(&both, 100);
        let rows: Vec<&str> = lines.lines().collect();
        assert_eq!(rows.len(), 4, "{lines}");
        assert_eq!(connections(&both, 20).lines().count(), 4, "an empty one takes no line");
        assert!(rows[1].ends_with("ring  tcp  1.0T  1.0M  fifo"), "{lines}");
        assert_eq!(rows[2], "    too long to stand beside it");
        let column = |row: &str, word: &str| row.find(word);
        assert_eq!(column(rows[0], "REMOTE"), column(rows[1], "10.100.200.201"), "{lines}");
        assert_eq!(column(rows[3], "10.100.200.201"), column(rows[1], "10.100.200.201"), "{lines}");
        assert!(connections(&both, 200).contains("fifo  too long"), "there is room");
        assert!(!lines.contains('\x1b'), "the terminal obeys nothing of it");
    }

    #[test]
    fn usual_rows_fit_their_width() {
        let one = Connection {
            processes: vec![holder(12345, "redis-server")],
            remote: Some("10.100.0.3:54321".into()),
            ..connection("10.100.0.2:6379", "")
        };
        let rated = Rated { connection: &one, ring: 1 << 35, tcp: 12345, wakes: 100_000 };
        for text in [connections(std::slice::from_ref(&one), 100), rates(&[rated], 100)] {
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }
}
