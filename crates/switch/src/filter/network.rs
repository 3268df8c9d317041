//! An address, or a network of them, as configurations write it.

use std::fmt;
use std::net::IpAddr;
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
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
