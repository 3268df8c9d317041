//! Random commands of memcached's protocols, from a seed.

use crate::random::Random;

/// Stands for a unique number that an answer told before.
pub const CAS: &str = "{cas}";

fn pick<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len())]
}

fn key(random: &mut Random) -> String {
    match random.below(60) {
        0 => "k".repeat(250),
        1 => "k".repeat(251),
        2 => "ключ".into(),
        3 => "a\tb".into(),
        _ => format!("k{}", random.below(6)),
    }
}

/// A key that a get may have: memcached drops earlier answers where it is too long.
fn short_key(random: &mut Random) -> String {
    let mut key = key(random);
    key.truncate(250);
    key
}

fn exptime(random: &mut Random) -> &'static str {
    pick(
        random,
        &["0", "0", "0", "1000", "5000", "-1", "2592000", "2592001", "4000000000", "x", ""],
    )
}

fn flags(random: &mut Random) -> &'static str {
    pick(random, &["0", "0", "1", "65535", "4294967295", "4294967296", "-1", "a", "+5"])
}

fn number(random: &mut Random) -> String {
    match random.below(8) {
        0 => "4611686018427387904".into(),
        1 => "18446744073709551616".into(),
        2 => pick(random, &["-1", "1x", "", "0", "99999999999999999999"]).into(),
        _ => random.below(2000).to_string(),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => Vec::new(),
        1 => b"with\r\na line end".to_vec(),
        2 => vec![b'L'; 5000 + random.below(200)],
        3..7 => number(random).into_bytes(),
        7 => b"\0\0zeroes\0".to_vec(),
        8 => b"END\r\nVALUE k1 0 1".to_vec(),
        _ => vec![b'v'; random.below(60)],
    }
}

/// A value behind its line, of the length that the line says or of another.
fn with_value(random: &mut Random, line: impl Fn(usize) -> String) -> Vec<u8> {
    let value = value(random);
    let said = match random.below(25) {
        0 => value.len() + 1 + random.below(20),
        1 => value.len().saturating_sub(1 + random.below(3)),
        _ => value.len(),
    };
    [line(said).as_bytes(), b"\r\n", &value, b"\r\n"].concat()
}

fn noreply(random: &mut Random) -> &'static str {
    pick(random, &["", "", "", "", "", " noreply", " noreply", " other"])
}

fn classic(random: &mut Random) -> Vec<u8> {
    let line = match random.below(14) {
        0..3 => {
            let keys: Vec<String> =
                (0..1 + random.below(4)).map(|_| format!("k{}", random.below(6))).collect();
            format!("{} {}", pick(random, &["get", "gets"]), keys.join(" "))
        }
        3 => format!("{} {}", pick(random, &["get", "gets", "bget"]), short_key(random)),
        4 => {
            format!("{} {} {}", pick(random, &["gat", "gats"]), exptime(random), short_key(random))
        }
        5..8 => {
            let name = pick(random, &["set", "set", "add", "replace", "append", "prepend"]);
            let (key, flags, time) = (key(random), flags(random), exptime(random));
            let quiet = noreply(random);
            return with_value(random, |len| format!("{name} {key} {flags} {time} {len}{quiet}"));
        }
        8 => {
            let (key, quiet) = (key(random), noreply(random));
            let cas = pick(random, &[CAS, CAS, CAS, "1", "x", "0"]);
            return with_value(random, |len| format!("cas {key} 0 0 {len} {cas}{quiet}"));
        }
        9 | 10 => {
            let name = pick(random, &["incr", "decr"]);
            format!("{name} {} {}{}", key(random), number(random), noreply(random))
        }
        11 => {
            let hold = pick(random, &["", "", "", " 0", " 1", " 0 noreply"]);
            format!("delete {}{hold}{}", key(random), noreply(random))
        }
        12 => format!("touch {} {}{}", key(random), exptime(random), noreply(random)),
        _ => return odd(random),
    };
    format!("{line}\r\n").into_bytes()
}

/// What is no command, or hardly one.
fn odd(random: &mut Random) -> Vec<u8> {
    let line = pick(
        random,
        &[
            "",
            " ",
            "\r",
            "get",
            "get ",
            "gat 10",
            "gat",
            "set",
            "set k1",
            "set k1 0 0",
            "m",
            "mx k1",
            "GET k1",
            "verbosity",
            "verbosity 0",
            "verbosity x",
            "verbosity 1 noreply",
            "flush_all",
            "flush_all 0",
            "flush_all noreply",
            "flush_all x",
            "flush_all 0 noreply",
            "touch k1",
            "incr k1",
            "delete",
            "stats bogus",
            "mg",
            "ms",
            "ms k1",
            "md",
            "ma",
            "me",
            "bogus",
            "  get k1",
            "get  k1   k2 ",
            "set k1 0 0 -1",
            "set k1 0 0 4294967295",
            "cas k1 0 0 1",
            "get k1\0 k2",
            "delete k1 0 0 0 0",
            "incr k1 1 2 3 4",
            "touch k1 1 2 3",
            "gets k1 k2 k3 k4 k5 k1 k2 k3 k4 k5 k1 k2 k3 k4 k5 k1 k2 k3 k4 k5 k1 k2 k3 k4 k5 k1",
        ],
    );
    format!("{line}\r\n").into_bytes()
}

fn meta_key(random: &mut Random) -> (String, &'static str) {
    match random.below(8) {
        0 => ("azE=".into(), " b"),
        1 => ("AAEC/w==".into(), " b"),
        2 => (key(random), ""),
        _ => (format!("k{}", random.below(6)), ""),
    }
}

/// Flags of a meta command: of those that it knows, and now and then another, or one twice.
fn meta_flags(random: &mut Random, of: &[&str]) -> String {
    let mut flags = String::new();
    for _ in 0..random.below(6) {
        let flag = match random.below(30) {
            0 => pick(random, &["Z", "Tx", "T", "Fx", "C", "MM", "Nx", "!", "é"]),
            _ => pick(random, of),
        };
        flags = format!("{flags} {flag}");
    }
    if random.below(4) == 0 {
        flags += match random.below(8) {
            0 => " O123456789012345678901234567890123",
            _ => " Oabc",
        };
    }
    flags
}

fn meta(random: &mut Random) -> Vec<u8> {
    let (key, base64) = meta_key(random);
    let line = match random.below(10) {
        0..4 => {
            let known = [
                "v", "v", "t", "c", "f", "s", "k", "h", "q", "u", "l", "T1000", "T0", "N500", "N0",
                "R30", "R5000", "T-1", "v", "I", "P1", "L1",
            ];
            format!("mg {key}{base64}{}", meta_flags(random, &known))
        }
        4..7 => {
            let cas = format!("C{CAS}");
            let known = [
                "T0", "T1000", "F7", "c", "k", "q", "I", "MS", "ME", "MA", "MP", "MR", &cas, &cas,
                "C1", "T-1", "Ms", "S5",
            ];
            let flags = meta_flags(random, &known);
            return with_value(random, |len| format!("ms {key} {len}{base64}{flags}"));
        }
        7 => {
            let cas = format!("C{CAS}");
            let known = ["q", "I", "T100", &cas, "C1", "k", "c", "T0"];
            format!("md {key}{base64}{}", meta_flags(random, &known))
        }
        8 => {
            let cas = format!("C{CAS}");
            let delta = format!("D{}", number(random));
            let known = [
                "v", "v", "t", "c", "q", "N100", "N0", "J13", "J0", "Jx", "MI", "MD", "M+", "M-",
                "MX", &cas, "C1", "k", &delta, &delta,
            ];
            format!("ma {key}{base64}{}", meta_flags(random, &known))
        }
        _ => format!("me {key}{base64}"),
    };
    format!("{line}\r\n").into_bytes()
}

/// Returns a command of the text protocol.
pub fn text(random: &mut Random) -> Vec<u8> {
    if random.below(2) == 0 { classic(random) } else { meta(random) }
}

/// Stands for a unique number in a request, as [`CAS`] does in text.
pub const BINARY_CAS: u64 = 0x7b63_6173_7d7b_637d;

/// Returns a command of the binary protocol.
pub fn binary(random: &mut Random) -> Vec<u8> {
    let opcodes = [
        0x00, 0x09, 0x0c, 0x0d, 0x01, 0x01, 0x11, 0x02, 0x12, 0x03, 0x13, 0x0e, 0x19, 0x0f, 0x1a,
        0x04, 0x14, 0x05, 0x15, 0x06, 0x16, 0x08, 0x0a, 0x1c, 0x1d, 0x1e, 0x23, 0x24, 0x7f, 0x20,
        0x21,
    ];
    let opcode = opcodes[random.below(opcodes.len())];
    let times = [0u32, 0, 0, 1000, 5000, 4_000_000_000, 2_592_001, u32::MAX];
    let time = times[random.below(times.len())].to_be_bytes();
    let key = format!("k{}", random.below(6)).into_bytes();
    let (extras, key, value) = match opcode {
        0x01..=0x03 | 0x11..=0x13 => {
            let flags = (random.below(3) as u32 * 1_000_000).to_be_bytes();
            ([flags, time].concat(), key, value(random))
        }
        0x0e | 0x0f | 0x19 | 0x1a => (Vec::new(), key, value(random)),
        0x05 | 0x06 | 0x15 | 0x16 => {
            let (by, initial) = (random.below(2000) as u64, random.below(50) as u64);
            ([&by.to_be_bytes()[..], &initial.to_be_bytes(), &time].concat(), key, Vec::new())
        }
        0x1c..=0x1e | 0x23 | 0x24 => (time.to_vec(), key, Vec::new()),
        0x08 | 0x0a | 0x7f => (Vec::new(), Vec::new(), Vec::new()),
        _ => (Vec::new(), key, Vec::new()),
    };
    let cas = match random.below(4) {
        0 => BINARY_CAS,
        1 if random.below(4) == 0 => 1,
        _ => 0,
    };
    packet(opcode, &extras, &key, &value, random.next() as u32, cas)
}

/// Returns whether a command changes a number.
pub fn changes_number(command: &[u8]) -> bool {
    match command {
        [0x80, opcode, ..] => matches!(opcode, 0x05 | 0x06 | 0x15 | 0x16),
        _ => [&b"incr"[..], b"decr", b"ma "].iter().any(|name| command.starts_with(name)),
    }
}

/// Returns whether a command takes all items away.
pub fn flushes(command: &[u8]) -> bool {
    command.starts_with(b"flush_all") || matches!(command, [0x80, 0x08 | 0x18, ..])
}

/// Returns a request.
pub fn packet(
    opcode: u8,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
    opaque: u32,
    cas: u64,
) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend((key.len() as u16).to_be_bytes());
    packet.extend([extras.len() as u8, 0, 0, 0]);
    packet.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    packet.extend(opaque.to_be_bytes());
    packet.extend(cas.to_be_bytes());
    [&packet[..], extras, key, value].concat()
}
