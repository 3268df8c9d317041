//! Numbers that a seed decides, and choices by weight.

/// A sequence of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c908)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From `first` to `last`, both among them.
    pub fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// So in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them; `None` where there is none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(usize::try_from(self.below(of.len() as u64)).ok()?).copied()
    }

    /// One of them, each as often as its weight says.
    ///
    /// # Panics
    /// When there is nothing to choose from.
    pub fn weigh<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut left = self.below(of.iter().map(|&(weight, _)| weight).sum());
        for &(weight, value) in of {
            if left < weight {
                return value;
            }
            left -= weight;
        }
        of[0].1
    }
}
