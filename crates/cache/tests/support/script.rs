//! Scripts of commands, batch by batch, as files.

/// Returns `text` with each `from` in it replaced.
pub fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|part| part == from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// A script as a file has it: a line for each command, an empty one between batches.
pub fn to_file(script: &[Vec<Vec<u8>>]) -> String {
    let batch = |batch: &Vec<Vec<u8>>| {
        batch.iter().map(|command| format!("{}\n", command.escape_ascii())).collect::<String>()
    };
    script.iter().map(batch).collect::<Vec<_>>().join("\n")
}

pub fn of_file(text: &str) -> Vec<Vec<Vec<u8>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut script = vec![Vec::new()];
    for line in lines {
        if line.is_empty() {
            script.push(Vec::new());
        } else {
            script.last_mut().expect("one").push(unescape(line));
        }
    }
    script
}

fn unescape(line: &str) -> Vec<u8> {
    let (mut out, mut bytes) = (Vec::new(), line.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next().expect("an escape") {
            b'r' => out.push(b'\r'),
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'x' => {
                let digits = [bytes.next().expect("two digits"), bytes.next().expect("two digits")];
                let digits = std::str::from_utf8(&digits).expect("digits");
                out.push(u8::from_str_radix(digits, 16).expect("digits"));
            }
            other => out.push(other),
        }
    }
    out
}
