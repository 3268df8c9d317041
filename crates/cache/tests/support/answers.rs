//! When answers of two servers are the same.

use crate::script::replace;

/// How a word of an answer may differ.
enum Rule {
    /// Not at all.
    Same,
    /// By two seconds.
    Time,
    /// As it likes.
    Free,
}

/// Which rule holds for a word of an answer's line.
fn rule(line: &[u8], word: &[u8]) -> Rule {
    let debugs = line.starts_with(b"ME ");
    let answers = line.starts_with(b"HD") || line.starts_with(b"VA");
    match word {
        // The class and the size of an item are those of its allocator.
        _ if debugs && (word.starts_with(b"cls=") || word.starts_with(b"size=")) => Rule::Free,
        _ if debugs && (word.starts_with(b"exp=") || word.starts_with(b"la=")) => Rule::Time,
        [b't' | b'l', digits @ ..] if answers && digits.iter().all(u8::is_ascii_digit) => {
            Rule::Time
        }
        _ => Rule::Same,
    }
}

fn seconds(word: &[u8]) -> Option<i64> {
    let start = word.iter().position(|byte| byte.is_ascii_digit() || *byte == b'-')?;
    std::str::from_utf8(&word[start..]).ok()?.parse().ok()
}

/// Are these the same answers, as far as the rules want it?
pub fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left == right {
        return true;
    }
    let lines =
        |text: &[u8]| text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (left, right) = (lines(&plain_keys(left)), lines(&plain_keys(right)));
    left.len() == right.len()
        && left.iter().zip(&right).all(|(left, right)| is_same_line(left, right))
}

/// Shows the generator's keys in base64 as they are.
fn plain_keys(text: &[u8]) -> Vec<u8> {
    let keys: [(&[u8], &[u8]); 2] = [(b"azE=", b"k1"), (b"AAEC/w==", b"\0\x01\x02\xff")];
    keys.iter().fold(text.to_vec(), |text, (base64, plain)| {
        let text = replace(&text, &[base64, &b" b"[..]].concat(), plain);
        replace(&text, base64, plain)
    })
}

fn is_same_line(left: &[u8], right: &[u8]) -> bool {
    let words = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let (one, other) = (words(left), words(right));
    left == right
        || one.len() == other.len()
            && one.iter().zip(&other).all(|(one, other)| match rule(left, one) {
                Rule::Same => one == other,
                Rule::Time => match (seconds(one), seconds(other)) {
                    (Some(one), Some(other)) => (one - other).abs() <= 2,
                    _ => one == other,
                },
                Rule::Free => true,
            })
}
