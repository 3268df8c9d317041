//! Addresses in the usual notation.

use std::net::{Ipv6Addr, SocketAddr};

/// `10.0.0.1:80`, `[fe80::1]:80`; an IPv4 address that was kept as IPv6 is shown as IPv4.
pub fn text(address: [u8; 16], port: u16) -> String {
    SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn mapped_addresses_are_shown_as_ipv4() {
        assert_eq!(text(Ipv4Addr::new(10, 7, 0, 1).to_ipv6_mapped().octets(), 80), "10.7.0.1:80");
    }

    #[test]
    fn ipv6_has_brackets() {
        assert_eq!(text(Ipv6Addr::LOCALHOST.octets(), 6379), "[::1]:6379");
        let global: Ipv6Addr = "2001:db8::5".parse().expect("an address");
        assert_eq!(text(global.octets(), 65535), "[2001:db8::5]:65535");
    }
}
