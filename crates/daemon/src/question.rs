//! What visitors of a daemon's page ask, by HTTP on loopback.

use std::net::IpAddr;
use std::time::Duration;

/// How long a visitor may take over its question and our answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a question.
pub const MOST: usize = 8192;
/// What one is told who [does not ask here](asks_here), with status 421 (RFC 9110, 15.5.20).
pub const ELSEWHERE: &str = "Ask by an address, such as 127.0.0.1, or as localhost.\n";

/// Does the question name this host by an address, as `localhost`, or not at all? A page of another
/// site can have its own name lead here (DNS rebinding), and what it then asks for is, to the
/// browser, its own.
#[must_use]
pub fn asks_here(question: &[u8]) -> bool {
    let text = String::from_utf8_lossy(question);
    let mut hosts = text.split("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    hosts.all(|host| {
        // "NAME", "NAME:PORT", "[v6]:PORT" (RFC 9110, 7.2)
        let name = host
            .rsplit_once(':')
            .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
            .map_or(host, |(name, _)| name);
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::asks_here;

    #[test]
    fn only_addresses_and_localhost_are_here() {
        let ask = |host: &str| {
            asks_here(format!("GET / HTTP/1.1\r\nAccept: */*\r\nhOst: {host}\r\n\r\n").as_bytes())
        };
        for host in
            ["127.0.0.1", "127.0.0.1:9190", "localhost", "LocalHost:80", "[::1]", "[::1]:9190"]
        {
            assert!(ask(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9190",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "",
        ] {
            assert!(!ask(host), "{host}");
        }
        assert!(asks_here(b"GET / HTTP/1.0\r\n\r\n"));
        assert!(!asks_here(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"));
    }
}
