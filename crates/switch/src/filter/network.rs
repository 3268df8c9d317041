//! An address, or a network of them, as configurations write it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address, or a network of them: `10.0.0.5`, `10.0.0.0/24`, `2001:db8::/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub(super) address: IpAddr,
    /// Bits that must agree.
    pub(super) bits: u8,
}

impl Network {
    /// The address, if it is one and no network.
    #[must_use]
    pub fn single(&self) -> Option<IpAddr> {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        (self.bits == most).then_some(self.address)
    }

    /// Its first address: the one whose other bits are zero.
    fn first(&self) -> IpAddr {
        let bits = u32::from(self.bits);
        match self.address {
            IpAddr::V4(four) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                Ipv4Addr::from_bits(four.to_bits() & mask).into()
            }
            IpAddr::V6(six) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                Ipv6Addr::from_bits(six.to_bits() & mask).into()
            }
        }
    }

    /// Is this address in it?
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                (ours.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("\"{text}\" is no address or network, like \"10.0.0.5\" or \"2001:db8::/64\"")
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        // (A number may begin with a plus for `parse`.)
        let digits = bits.is_none_or(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()));
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most || !digits {
            return Err(wrong());
        }
        if let IpAddr::V6(six) = address
            && let Some(four) = six.to_ipv4_mapped()
        {
            return Err(format!("\"{text}\" is in no packet: write \"{four}\""));
        }
        // As an interface's address is written, but it would allow all of its network.
        let first = Self { address, bits }.first();
        if first != address {
            return Err(format!(
                "\"{text}\" is more than one: write \"{address}\" or \"{first}/{bits}\""
            ));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
