//! Figures for people: with their units, and no more digits than say something.

/// A number with three significant digits at least, and a prefix of the SI.
pub fn si(value: f64, unit: &str) -> String {
    let size = value.abs();
    let (scaled, prefix) = match size {
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{} {prefix}{unit}", short(scaled)).trim_end().to_owned()
}

/// Nanoseconds, in the unit that fits.
pub fn time(ns: f64) -> String {
    match ns {
        _ if ns >= 1e9 => format!("{} s", short(ns / 1e9)),
        _ if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        _ if ns >= 1e3 => format!("{} µs", short(ns / 1e3)),
        _ => format!("{} ns", short(ns)),
    }
}

/// A share, 1 being everything.
pub fn percent(share: f64) -> String {
    format!("{} %", short(100.0 * share))
}

/// Three significant digits, and no fewer than there are before the point.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A size in binary units.
pub fn bytes(size: usize) -> String {
    match size {
        _ if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        _ if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        assert_eq!(
            [si(1234.0, "B/s"), si(9.876e9, "B/s"), si(12.0, "")],
            ["1.23 kB/s", "9.88 GB/s", "12.0"]
        );
        assert_eq!([time(394.2), time(23_400.0), time(1.5e9)], ["394 ns", "23.4 µs", "1.50 s"]);
        assert_eq!([percent(0.0123), percent(1.5)], ["1.23 %", "150 %"]);
        assert_eq!(
            [bytes(64), bytes(1500), bytes(4096), bytes(1 << 20)],
            ["64 B", "1500 B", "4 KiB", "1 MiB"]
        );
    }
}
