//! How two hosts begin to talk: one calls, the other answers, and both have keys for this
//! connection alone.
//!
//! A call carries the caller's address, 16 random bytes, and a tag by which the other host sees at
//! once that both have one secret. The answer carries 16 random bytes of the other, and proves with
//! them that it has the secret: nobody can replay an earlier answer, as it covers the caller's
//! bytes. The keys are made of both; the caller proves that it has the secret by the first message
//! that it seals with them. So what was recorded of one connection is refused in every other.
//!
//! All of it is BLAKE3 keyed by what the secret file holds. Where no secret is set nothing is
//! proved, and anybody who can send from a host's address is that host.

use crate::secret::Secret;
use blake3::Hash;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a call: RDMA's connection manager carries no more than 55 (fi_verbs(7)).
pub const CALL: usize = 48;
/// Bytes of an answer.
pub const ANSWER: usize = 40;
/// What both begin with: these letters, and a version.
const MAGIC: [u8; 5] = *b"GNSW\x01";
/// Bytes that are taken once.
pub type Nonce = [u8; 16];

/// Why a call or an answer is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is none, or another version's.
    Unknown,
    /// It comes from an address that no host has.
    Stranger,
    /// It has another secret.
    Secret,
    /// It has a secret, and this host has none.
    NoneHere,
    /// It has none, and this host has one.
    NoneThere,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no ginnel-switch, or one of another version",
            Self::Stranger => "its address is none of [fabric.hosts]",
            Self::Secret => "it has another secret",
            Self::NoneHere => "it has a secret, and this host has none",
            Self::NoneThere => "it has no secret, and this host has one",
        })
    }
}

/// The keys of one connection.
#[derive(Clone)]
pub struct Keys {
    /// Of what this host sends; `None`: nothing is sealed.
    pub ours: Option<[u8; 32]>,
    /// Of what the other sends.
    pub theirs: Option<[u8; 32]>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.ours.is_some())
    }
}

fn address(of: SocketAddr) -> [u8; 18] {
    let ip = match of.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..2].copy_from_slice(&of.port().to_le_bytes());
    bytes[2..].copy_from_slice(&ip.octets());
    bytes
}

/// Is the sealing agreed on? Both have a secret, or neither.
fn agrees(secret: Option<&Secret>, flag: u8) -> Result<(), Refused> {
    match (secret, flag & 1 == 1) {
        (None, true) => Err(Refused::NoneHere),
        (Some(_), false) => Err(Refused::NoneThere),
        _ => Ok(()),
    }
}

/// A call from `from` to `to`.
#[must_use]
pub fn call(secret: Option<&Secret>, from: SocketAddr, to: SocketAddr, nonce: Nonce) -> [u8; CALL] {
    let mut call = [0; CALL];
    call[..5].copy_from_slice(&MAGIC);
    call[5] = u8::from(secret.is_some());
    call[6..24].copy_from_slice(&address(from));
    call[24..40].copy_from_slice(&nonce);
    if let Some(secret) = secret {
        let tag = secret.mac(&[b"call", &call[..40], &address(to)]);
        call[40..].copy_from_slice(&tag.as_bytes()[..8]);
    }
    call
}

/// The address that a call says is its caller's. Nothing is proved by it.
///
/// # Errors
/// [`Refused::Unknown`].
pub fn caller(call: &[u8]) -> Result<SocketAddr, Refused> {
    let call: &[u8; CALL] = call.first_chunk().ok_or(Refused::Unknown)?;
    let [low, high] = [call[6], call[7]];
    let ip: [u8; 16] = call[8..24].try_into().map_err(|_| Refused::Unknown)?;
    if call[..5] != MAGIC {
        return Err(Refused::Unknown);
    }
    Ok(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), u16::from_le_bytes([low, high])))
}

/// Answers a call to `to`: the answer, and the keys of the connection. The caller has proved
/// nothing yet.
///
/// # Errors
/// [`Refused`].
pub fn answer(
    secret: Option<&Secret>,
    call: &[u8],
    to: SocketAddr,
    nonce: Nonce,
) -> Result<([u8; ANSWER], Keys), Refused> {
    caller(call)?;
    let call: &[u8; CALL] = call.first_chunk().ok_or(Refused::Unknown)?;
    agrees(secret, call[5])?;
    let mut answer = [0; ANSWER];
    answer[..5].copy_from_slice(&MAGIC);
    answer[5] = u8::from(secret.is_some());
    answer[8..24].copy_from_slice(&nonce);
    let Some(secret) = secret else { return Ok((answer, Keys { ours: None, theirs: None })) };
    let tag = secret.mac(&[b"call", &call[..40], &address(to)]);
    if !same(&tag.as_bytes()[..8], &call[40..]) {
        return Err(Refused::Secret);
    }
    let proof = secret.mac(&[b"answer", call, &answer[..24]]);
    answer[24..].copy_from_slice(&proof.as_bytes()[..16]);
    Ok((answer, keys(secret, call, &answer, false)))
}

/// Looks at the answer to a call: the keys of the connection. Who answered has proved that it has
/// the secret, if there is one.
///
/// # Errors
/// [`Refused`].
pub fn answered(
    secret: Option<&Secret>,
    call: &[u8; CALL],
    answer: &[u8],
) -> Result<Keys, Refused> {
    let answer: &[u8; ANSWER] = answer.first_chunk().ok_or(Refused::Unknown)?;
    if answer[..5] != MAGIC {
        return Err(Refused::Unknown);
    }
    agrees(secret, answer[5])?;
    let Some(secret) = secret else { return Ok(Keys { ours: None, theirs: None }) };
    let proof = secret.mac(&[b"answer", call, &answer[..24]]);
    if !same(&proof.as_bytes()[..16], &answer[24..]) {
        return Err(Refused::Secret);
    }
    Ok(keys(secret, call, answer, true))
}

fn keys(secret: &Secret, call: &[u8; CALL], answer: &[u8; ANSWER], calls: bool) -> Keys {
    let key = |what: &[u8]| Some(*secret.mac(&[what, call, answer]).as_bytes());
    let (caller, answerer) = (key(b"from the caller"), key(b"from the answerer"));
    let (ours, theirs) = if calls { (caller, answerer) } else { (answerer, caller) };
    Keys { ours, theirs }
}

/// Are both the same? In the same time whatever they are, as [`Hash`] compares.
fn same(one: &[u8], other: &[u8]) -> bool {
    let whole = |part: &[u8]| {
        let mut whole = [0; 32];
        whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        Hash::from_bytes(whole)
    };
    one.len() == other.len() && whole(one) == whole(other)
}

/// Random bytes.
///
/// # Panics
/// Where the system has none: nothing could be proved then.
#[must_use]
pub fn nonce() -> Nonce {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // Up to 256 bytes are given whole (getrandom(2)).
    assert_eq!(got, Ok(bytes.len()), "the system gives no random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> [SocketAddr; 2] {
        ["10.0.0.1:9192", "[fd00::2]:7"].map(|text| text.parse().expect("an address"))
    }

    #[test]
    fn two_of_one_secret_agree_on_keys_that_nobody_else_has() {
        let [a, b] = addresses();
        let secret = Secret::new(b"sixteen bytes or");
        let call = call(Some(&secret), a, b, [1; 16]);
        assert_eq!(caller(&call), Ok(a));
        let (answer, theirs) = answer(Some(&secret), &call, b, [2; 16]).expect("answered");
        let ours = answered(Some(&secret), &call, &answer).expect("good");
        assert_eq!((ours.ours, ours.theirs), (theirs.theirs, theirs.ours));
        assert_ne!(ours.ours, ours.theirs, "nothing can be sent back to whom it came from");
        let again = super::answer(Some(&secret), &call, b, [3; 16]).expect("answered").1;
        assert_ne!(again.theirs, theirs.theirs, "another connection has other keys");
    }

    #[test]
    fn what_was_recorded_or_is_of_another_secret_is_refused() {
        let [a, b] = addresses();
        let (secret, other) = (Secret::new(b"one"), Secret::new(b"two"));
        let good = call(Some(&secret), a, b, [1; 16]);
        assert_eq!(answer(Some(&other), &good, b, [2; 16]).err(), Some(Refused::Secret));
        // To one host it is no call to another.
        assert_eq!(answer(Some(&secret), &good, a, [2; 16]).err(), Some(Refused::Secret));
        assert_eq!(answer(None, &good, b, [2; 16]).err(), Some(Refused::NoneHere));
        let open = call(None, a, b, [1; 16]);
        assert_eq!(answer(Some(&secret), &open, b, [2; 16]).err(), Some(Refused::NoneThere));
        assert!(answer(None, &open, b, [2; 16]).is_ok());
        let (recorded, _) = answer(Some(&secret), &good, b, [2; 16]).expect("answered");
        let later = call(Some(&secret), a, b, [9; 16]);
        assert_eq!(answered(Some(&secret), &later, &recorded).err(), Some(Refused::Secret));
        let plain = answer(None, &open, b, [2; 16]).expect("answered").0;
        assert_eq!(answered(Some(&secret), &good, &plain).err(), Some(Refused::NoneThere));
        for len in 0..CALL {
            assert_eq!(
                answer(Some(&secret), &good[..len], b, [2; 16]).err(),
                Some(Refused::Unknown)
            );
        }
        for bit in 0..8 * CALL {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let refused = answer(Some(&secret), &bad, b, [2; 16]).is_err();
            // Bits that mean nothing are covered, too.
            assert!(refused, "bit {bit}");
        }
    }
}
