//! Numbers in text, read as C's strtoul and memcached read them: as C strings, which end at a 0.

/// Returns the digits' value, their sign, and what follows them: blanks before, a sign, then
/// decimal digits, and after them an end or a blank.
fn parse(text: &[u8]) -> Option<(bool, u128)> {
    let text = c_string(text);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let (negative, digits) = match text[start..].split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, &text[start..]),
    };
    let len = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if len == 0 || digits.get(len).is_some_and(|byte| !is_blank(byte)) {
        return None;
    }
    let digits = &digits[..len];
    let value = digits.iter().try_fold(0u128, |value, digit| {
        value.checked_mul(10)?.checked_add(u128::from(digit - b'0'))
    });
    Some((negative, value.unwrap_or(u128::MAX)))
}

fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Returns an unsigned number of 64 bits, or nothing where memcached would refuse the text.
///
/// C's strtoull takes a sign and wraps; memcached refuses only what then looks negative.
#[must_use]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    let (negative, value) = parse(text)?;
    let value = u64::try_from(value).ok()?;
    let value = if negative { value.wrapping_neg() } else { value };
    let looks_negative = value > i64::MAX.cast_unsigned() && c_string(text).contains(&b'-');
    (!looks_negative).then_some(value)
}

/// Returns the low 32 bits of an unsigned number, as memcached takes flags.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "memcached cuts it so, too")]
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|value| value as u32)
}

/// Returns the low 32 bits of a signed number of 64 bits, as memcached takes times and lengths.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "memcached cuts it so, too")]
pub fn signed_32(text: &[u8]) -> Option<i32> {
    let (negative, value) = parse(text)?;
    let value = i128::try_from(value).ok()?;
    let value = if negative { -value } else { value };
    i64::try_from(value).ok().map(|value| value as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_c_reads_them() {
        for (text, value) in [
            ("0", Some(0)),
            (" 12", Some(12)),
            ("12 34", Some(12)),
            ("+7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("-0", Some(0)),
            ("-18446744073709551615", Some(1)),
            ("", None),
            (" ", None),
            ("12a", None),
            ("x", None),
            ("4\0x", Some(4)),
            ("\0", None),
            ("99999999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(unsigned(text.as_bytes()), value, "{text:?}");
        }
        assert_eq!(signed_32(b"-1"), Some(-1));
        assert_eq!(signed_32(b"4294967297"), Some(1), "cut to 32 bits");
        assert_eq!(signed_32(b"9223372036854775808"), None);
        assert_eq!(unsigned_32(b"4294967296"), Some(0), "cut to 32 bits");
    }
}
