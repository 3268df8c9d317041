//! Places for numbers that nobody else chooses: mixed, not hashed.

use core::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers of the program's own. It is looked into in every wait, and nobody
/// else chooses the keys: they are mixed, not hashed.
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Mixed>>;

/// 2^64 divided by the golden ratio, which is odd: what is multiplied with it is mixed.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// See [`Map`].
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        // The map takes its bits from both ends.
        let mixed = (self.0 ^ key).wrapping_mul(GOLDEN);
        self.0 = mixed ^ mixed >> 32;
    }

    #[inline]
    fn write_i32(&mut self, key: i32) {
        self.write_u64(key.cast_unsigned().into());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
