//! The page for people. It is whole without its script, which only asks for it again and puts what
//! changed in place.

use super::{PeerHints, PeerStatus, SegmentStatus, Status};
use std::fmt::{self, Display, Write};

/// `/style.css`.
pub const STYLE: &str = include_str!("style.css");
/// `/refresh.js`.
pub const SCRIPT: &str = include_str!("refresh.js");

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>ginneld</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 5h12M2 11h12' stroke='%230a7' stroke-width='3' stroke-linecap='round'/%3E%3C/svg%3E">
<link rel="stylesheet" href="/style.css">
<script src="/refresh.js" defer></script>
</head>
<body>
"#;

/// Text that somebody else chose: no character of it means anything to a browser.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            c => f.write_char(c),
        })
    }
}

/// Bytes as people read them: three digits or so.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let (mut value, mut unit) = (self.0 as f64, "bytes");
        for larger in UNITS {
            // What would be rounded up to 1024 is one of the next.
            if value < 1023.95 {
                break;
            }
            (value, unit) = (value / 1024.0, larger);
        }
        let digits = usize::from(unit != "bytes" && value < 99.95 && value.fract() != 0.0);
        write!(f, "{value:.digits$} {unit}")
    }
}

/// Seconds as people read them.
struct Span(u64);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, unit) = match self.0 {
            n @ ..=119 => (n, "s"),
            n @ ..=7199 => (n / 60, "min"),
            n @ ..=172_799 => (n / 3600, "h"),
            n => (n / 86400, "days"),
        };
        write!(f, "{n} {unit}")
    }
}

/// The page.
#[must_use]
pub fn html(status: &Status) -> String {
    let mut page = String::from(HEAD);
    // Writing to a string cannot fail.
    let _ = body(&mut page, status);
    page
}

fn body(page: &mut String, status: &Status) -> fmt::Result {
    let (class, next) = if status.kept_for_the_next {
        ("good", "a restart disturbs nobody")
    } else {
        ("bad", "not kept: a restart loses the attached machines")
    };
    let up = Span(status.now.saturating_sub(status.started));
    writeln!(
        page,
        "<header>\n<h1>ginneld</h1>\n<p id=\"live\" class=\"state\" role=\"status\">as of loading</p>\n</header>\n<main>\n\
         <p>Version {}, process {}, running for {up}; <span class=\"{class}\">{next}</span>.</p>",
        Text(status.version),
        status.pid
    )?;
    for segment in &status.segments {
        self::segment(page, segment, status.now)?;
    }
    if status.segments.iter().any(|segment| segment.hints.partial) {
        writeln!(page, "<p class=\"note\">“≥”: there was more than is looked at.</p>")?;
    }
    writeln!(
        page,
        "</main>\n<footer>\n<p>Connections and bytes are the peers' own word, written where each of them can write. The other counts are since this \
         instance started.</p>\n<p><a href=\"/metrics\">Metrics</a> <a href=\"/status.json\">JSON</a></p>\n</footer>\n</body>\n</html>"
    )
}

fn segment(page: &mut String, segment: &SegmentStatus, now: u64) -> fmt::Result {
    let (name, hints) = (Text(&segment.name), &segment.hints);
    let least = if hints.partial { "≥ " } else { "" };
    writeln!(
        page,
        "<section aria-labelledby=\"segment-{name}\">\n<h2 id=\"segment-{name}\"><span class=\"kind\">Segment</span> {name}</h2>\n<dl>"
    )?;
    tile(page, "Machines", segment.machines.len(), format_args!("of {} slots", segment.slots))?;
    tile(page, "Connections", format_args!("{least}{}", hints.connections), "in shared memory")?;
    tile(
        page,
        "Carried",
        format_args!("{least}{}", Bytes(hints.bytes)),
        format_args!("now {}/s", Bytes(hints.bytes_per_second)),
    )?;
    tile(
        page,
        "Objects",
        hints.objects,
        format_args!("by name, of {}", Bytes(hints.object_bytes)),
    )?;
    let (size, taken) = (segment.size, segment.resident);
    tile(
        page,
        "Memory taken",
        Bytes(taken),
        format_args!(
            "of {}, {}<meter max=\"{size}\" value=\"{taken}\" aria-label=\"memory taken\">{} of {}</meter>",
            Bytes(size),
            segment.memory,
            Bytes(taken),
            Bytes(size)
        ),
    )?;
    for (label, kinds) in
        [("Refused joins", &segment.refused), ("Wake-ups relayed", &segment.relayed)]
    {
        let seen = kinds.iter().filter(|(_, count)| **count > 0);
        let words: Vec<String> =
            seen.map(|(kind, count)| format!("{count} {}", kind.replace('_', " "))).collect();
        tile(page, label, kinds.values().sum::<u64>(), Text(&words.join(", ")))?;
    }
    writeln!(page, "</dl>")?;
    if segment.machines.is_empty() && segment.processes.is_empty() {
        writeln!(page, "<p class=\"note\">Nobody is attached.</p>")?;
    } else {
        table(page, segment, now)?;
    }
    writeln!(page, "</section>")
}

/// A number with its name above it and what belongs to it below.
fn tile(page: &mut String, name: &str, value: impl Display, more: impl Display) -> fmt::Result {
    writeln!(page, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"more\">{more}</dd></div>")
}

const COLUMNS: [&str; 8] =
    ["Slot", "Process", "User", "Attached", "Joins", "Connections", "Sent", "Received"];

/// On a narrow screen each row is a list of its own, where `data-name` stands for the column's
/// head; the roles keep it a table for those who do not see it.
fn table(page: &mut String, segment: &SegmentStatus, now: u64) -> fmt::Result {
    writeln!(
        page,
        "<table role=\"table\">\n<caption>Attached to {}</caption>\n<thead role=\"rowgroup\">\n<tr role=\"row\">",
        Text(&segment.name)
    )?;
    for name in COLUMNS {
        writeln!(page, "<th role=\"columnheader\" scope=\"col\">{name}</th>")?;
    }
    writeln!(page, "</tr>\n</thead>\n<tbody role=\"rowgroup\">")?;
    if segment.processes.len() > 1 {
        let all = format!("all {}", segment.processes.len());
        cells(
            page,
            "host",
            [all, String::new(), String::new(), String::new()],
            Some(segment.hints.host),
        )?;
    }
    for one in segment.processes.iter().chain(&segment.machines) {
        let slot = if one.slot == 0 { "host".to_owned() } else { one.slot.to_string() };
        let alone = one.slot == 0 && segment.processes.len() == 1;
        row(page, &slot, one, if alone { Some(segment.hints.host) } else { one.hints }, now)?;
    }
    writeln!(page, "</tbody>\n</table>")
}

fn row(
    page: &mut String,
    slot: &str,
    one: &PeerStatus,
    hints: Option<PeerHints>,
    now: u64,
) -> fmt::Result {
    let since =
        one.since.map(|since| Span(now.saturating_sub(since)).to_string()).unwrap_or_default();
    cells(
        page,
        slot,
        [one.pid.to_string(), one.uid.to_string(), since, one.generation.to_string()],
        hints,
    )
}

fn cells(page: &mut String, slot: &str, own: [String; 4], hints: Option<PeerHints>) -> fmt::Result {
    let hints = hints.map(|hints| {
        [
            hints.connections.to_string(),
            Bytes(hints.sent).to_string(),
            Bytes(hints.received).to_string(),
        ]
    });
    writeln!(
        page,
        "<tr role=\"row\"><th role=\"rowheader\" scope=\"row\" data-name=\"{}\">{slot}</th>",
        COLUMNS[0]
    )?;
    for (name, value) in COLUMNS[1..].iter().zip(own.into_iter().chain(hints.unwrap_or_default())) {
        let (class, value) =
            if value.is_empty() { (" class=\"none\"", "–") } else { ("", value.as_str()) };
        writeln!(page, "<td role=\"cell\"{class} data-name=\"{name}\">{value}</td>")?;
    }
    writeln!(page, "</tr>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_name_is_only_text() {
        let name = "<img src=x onerror=alert(1)>\"'&amp;";
        let segment = SegmentStatus {
            name: name.into(),
            size: 1 << 30,
            resident: 5 << 20,
            memory: "memfd",
            slots: 3,
            vectors: 2,
            hints: super::super::Hints { partial: true, ..Default::default() },
            refused: [("slot_taken", 2)].into(),
            relayed: [("to_host", 0)].into(),
            machines: vec![],
            processes: vec![],
        };
        let status = Status {
            version: "0.0.0",
            pid: 1,
            started: 0,
            now: 200,
            kept_for_the_next: false,
            segments: vec![segment],
        };
        let page = html(&status);
        assert!(!page.contains("<img") && !page.contains("onerror=alert(1)>\"'&amp;"), "{page}");
        assert_eq!(
            page.matches("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;amp;").count(),
            3,
            "{page}"
        );
        for words in [
            "running for 3 min",
            "of 1 GiB, memfd",
            "2 slot taken",
            "≥ 0 bytes",
            "Nobody is attached",
            "a restart loses",
        ] {
            assert!(page.contains(words), "{words:?} in {page}");
        }
    }

    #[test]
    fn bytes_and_spans_are_short() {
        let bytes = [0, 1023, 1024, 1536, 102_348, 1_048_575, 1 << 30, u64::MAX]
            .map(|n| Bytes(n).to_string());
        assert_eq!(
            bytes,
            ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "99.9 KiB", "1.0 MiB", "1 GiB", "16 EiB"]
        );
        let spans = [0, 119, 120, 7200, 172_800].map(|n| Span(n).to_string());
        assert_eq!(spans, ["0 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
