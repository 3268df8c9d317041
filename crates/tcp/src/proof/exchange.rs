//! How two ends find that they have the same secret, and tell nobody else anything about it.
//!
//! A password-authenticated key exchange, CPace (draft-irtf-cfrg-cpace) in its initiator and
//! responder form, over ristretto255 (RFC 9496) with SHA-512. The secret is the password, what both
//! know of the connection is the channel's identifier, and side 0 is the initiator. Each end shows
//! a *share*; from the other's share and its own it makes a key, and of that a *tag* for each side.
//! Who has another secret finds another key. A share fits every secret equally well, and a tag can
//! only be looked at against the one guess that its owner's share was made with.
//!
//! Nothing here allocates: it runs in the midst of a program's call, perhaps in a signal handler.

use super::Claim;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity;
use ginnel_region::sys;
use sha2::{Digest, Sha512};

/// What a share's and a tag's hashes begin with.
const GENERATOR: &[u8] = b"GinnelCPace1 generator";
const KEY: &[u8] = b"GinnelCPace1 key";
const TAG: &[u8] = b"GinnelCPace1 tag";

/// Bytes of a share, and of the number behind it.
pub const SHARE: usize = 32;

/// One end's part of an exchange that has begun.
#[derive(Clone, Copy)]
pub struct Begun {
    /// The number behind the share: nobody else's to see.
    pub scalar: [u8; SHARE],
    /// What is shown.
    pub share: [u8; SHARE],
}

/// The tags of both sides; none is 0, which stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// What this end shows.
    pub own: u64,
    /// What the other end must show.
    pub other: u64,
}

/// Begins, with the connection's secret.
#[must_use]
pub fn begin(secret: u64, claim: &Claim) -> Begun {
    let mut random = [0u8; 64];
    sys::random(&mut random);
    let scalar = Scalar::from_bytes_mod_order_wide(&random);
    let hash = Sha512::new()
        .chain_update(GENERATOR)
        .chain_update(secret.to_le_bytes())
        .chain_update(claim.hashed());
    let generator = RistrettoPoint::from_uniform_bytes(&hash.finalize().into());
    Begun { scalar: scalar.to_bytes(), share: (generator * scalar).compress().to_bytes() }
}

/// Goes on with the share that the other side shows. `None`: it is none.
#[must_use]
pub fn finish(begun: &Begun, shown: &[u8; SHARE], claim: &Claim) -> Option<Tags> {
    let other = CompressedRistretto(*shown).decompress()?;
    let scalar = Scalar::from_canonical_bytes(begun.scalar).into_option()?;
    let common = other * scalar;
    // A share of no order would make the same key for every secret.
    if common.is_identity() {
        return None;
    }
    let [first, second] =
        if claim.side == 0 { [&begun.share, shown] } else { [shown, &begun.share] };
    let key = Sha512::new()
        .chain_update(KEY)
        .chain_update(claim.hashed())
        .chain_update(common.compress().as_bytes());
    let key = key.chain_update(first).chain_update(second).finalize();
    let tag = |side: u8| {
        let hash =
            Sha512::new().chain_update(TAG).chain_update(key).chain_update([side]).finalize();
        hash.iter().take(8).fold(0u64, |word, byte| word << 8 | u64::from(*byte)).max(1)
    };
    Some(Tags { own: tag(claim.side), other: tag(1 - claim.side) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::claim;
    use super::*;

    fn both(secrets: [u64; 2], claims: [Claim; 2]) -> [Tags; 2] {
        let begun = [begin(secrets[0], &claims[0]), begin(secrets[1], &claims[1])];
        let tags = |side: usize| {
            finish(&begun[side], &begun[1 - side].share, &claims[side]).expect("a share")
        };
        [tags(0), tags(1)]
    }

    #[test]
    fn one_secret_makes_the_same_tags() {
        let [zero, one] = both([7, 7], [claim(0), claim(1)]);
        assert_eq!((zero.own, zero.other), (one.other, one.own));
        assert_ne!(zero.own, zero.other, "a tag says which side shows it");
        let [again, _] = both([7, 7], [claim(0), claim(1)]);
        assert_ne!(again.own, zero.own, "each exchange has numbers of its own");
    }

    #[test]
    fn another_secret_or_another_connection_does_not() {
        let other = Claim { nonces: [3, 5], ..claim(1) };
        for (secrets, claims) in [([7, 8], [claim(0), claim(1)]), ([7, 7], [claim(0), other])] {
            let [zero, one] = both(secrets, claims);
            assert!(zero.own != one.other && zero.other != one.own);
        }
    }

    /// Shares that would make a key of which nobody needs to know the secret.
    #[test]
    fn what_is_no_share_is_refused() {
        let begun = begin(7, &claim(0));
        assert_eq!(finish(&begun, &[0; SHARE], &claim(0)), None, "the identity");
        assert_eq!(finish(&begun, &[0xff; SHARE], &claim(0)), None, "no encoding");
        let mut odd = [0; SHARE];
        odd[0] = 1;
        assert_eq!(
            finish(&begun, &odd, &claim(0)),
            None,
            "a negative one (RFC 9496, section 4.3.1)"
        );
    }

    /// One's own share and tag, shown back, are worth nothing.
    #[test]
    fn a_reflection_is_refused() {
        let begun = begin(7, &claim(0));
        let tags = finish(&begun, &begun.share, &claim(0)).expect("a share");
        assert_ne!(tags.own, tags.other);
    }
}
