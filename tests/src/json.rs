//! As much of JSON as the tests read: numbers by their key.

/// Every number that follows `"key":` in `text`, in order.
#[must_use]
pub fn numbers(text: &str, key: &str) -> Vec<u64> {
    let quoted = format!("\"{key}\"");
    text.match_indices(&quoted)
        .filter_map(|(at, _)| {
            let rest = text.get(at + quoted.len()..)?.trim_start().strip_prefix(':')?.trim_start();
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.get(..digits)?.parse().ok()
        })
        .collect()
}

/// Their sum.
#[must_use]
pub fn sum(text: &str, key: &str) -> u64 {
    numbers(text, key).iter().sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_found_by_key_whatever_the_spaces() {
        let text = r#"{"in": 12, "into":7, "list": [{"in" : 30}], "name": "in", "in": "x"}"#;
        assert_eq!(super::numbers(text, "in"), [12, 30]);
        assert_eq!(super::sum(text, "into"), 7);
        assert!(super::numbers(text, "absent").is_empty());
    }
}
