//! Sizes and modes as people write them.

use ginnel_region::PAGE;
use std::str::FromStr;

/// Bytes, whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a number with K, M, G or T (powers of 1024), like 256M".to_owned();
        let bytes = ginnel_region::parse_size(text).ok_or_else(wrong)?;
        bytes.checked_next_multiple_of(PAGE).map(Self).ok_or_else(wrong)
    }
}

/// Permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
            Ok(mode) if mode & !0o666 == 0 && mode & 0o600 == 0o600 => Ok(Self(mode)),
            Ok(_) => {
                Err("the owner reads and writes, others may; nobody executes: 600, 660, 666".into())
            }
            Err(_) => Err("permissions in octal, like 660".into()),
        }
    }
}

/// Bytes in three digits or so, and a unit: `17 B`, `1.2 MiB`.
pub fn human(bytes: u64) -> String {
    let (number, unit) = scaled(bytes);
    if unit.is_empty() { format!("{number} B") } else { format!("{number} {unit}iB") }
}

/// The same for narrow columns, as sizes are given on the command line: `17`, `1.2M`.
pub fn short(bytes: u64) -> String {
    let (number, unit) = scaled(bytes);
    number + unit
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn scaled(bytes: u64) -> (String, &'static str) {
    if bytes < 1000 {
        return (bytes.to_string(), "");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = "K";
    for larger in ["M", "G", "T"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    (if value >= 99.95 { format!("{value:.0}") } else { format!("{value:.1}") }, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("16M", 16 << 20),
            ("1g", 1 << 30),
            ("2GiB", 2 << 30),
            ("4096", 4096),
            ("1", 4096),
            ("3 KB", 4096),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "M", "-1", "1.5G", "1X", "99999999999T"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn modes() {
        assert_eq!("660".parse(), Ok(Mode(0o660)));
        assert_eq!("0600".parse(), Ok(Mode(0o600)));
        for bad in ["", "999", "060", "755", "1600"] {
            assert!(bad.parse::<Mode>().is_err(), "{bad}");
        }
    }

    #[test]
    fn humans_read_three_digits() {
        let shown = [0, 17, 999, 1000, 1 << 20, 1_287_651_328, u64::MAX].map(human);
        assert_eq!(
            shown,
            ["0 B", "17 B", "999 B", "1.0 KiB", "1.0 MiB", "1.2 GiB", "16777216 TiB"]
        );
        assert_eq!([17, 150 << 10, 1 << 20].map(short), ["17", "150K", "1.0M"]);
    }
}
