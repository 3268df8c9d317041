//! Values that a peer wrote.

/// A peer wrote a value that no honest peer writes. The connection ends with ECONNRESET; nothing
/// else suffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// A value that a peer wrote: copied out once, not yet checked.
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct Untrusted<T>(T);

impl<T> Untrusted<T> {
    /// Marks a copy of a shared value as unchecked.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, once `check` approves of it.
    ///
    /// # Errors
    /// [`Corrupt`] if it does not.
    pub fn checked(self, check: impl FnOnce(&T) -> bool) -> Result<T, Corrupt> {
        if check(&self.0) { Ok(self.0) } else { Err(Corrupt) }
    }
}

impl Untrusted<u64> {
    /// The value, if it is at most `max`.
    ///
    /// # Errors
    /// [`Corrupt`] if it is larger.
    pub fn at_most(self, max: u64) -> Result<u64, Corrupt> {
        if self.0 <= max { Ok(self.0) } else { Err(Corrupt) }
    }

    /// The value, if it lies in `low..=high`.
    ///
    /// # Errors
    /// [`Corrupt`] if it lies outside.
    pub fn within(self, low: u64, high: u64) -> Result<u64, Corrupt> {
        if self.0 >= low && self.0 <= high { Ok(self.0) } else { Err(Corrupt) }
    }

    /// The distance from `from` up to the value (which wraps), if it is at most `max`.
    ///
    /// # Errors
    /// [`Corrupt`] if it is larger.
    pub fn ahead_of(self, from: u64, max: u64) -> Result<u64, Corrupt> {
        let distance = self.0.wrapping_sub(from);
        if distance <= max { Ok(distance) } else { Err(Corrupt) }
    }

    /// The value, if it is a power of two in `low..=high`.
    ///
    /// # Errors
    /// [`Corrupt`] if it is not.
    pub fn power_of_two(self, low: u64, high: u64) -> Result<u64, Corrupt> {
        if self.0.is_power_of_two() { self.within(low, high) } else { Err(Corrupt) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        assert_eq!(Untrusted::new(5).at_most(5), Ok(5));
        assert_eq!(Untrusted::new(6).at_most(5), Err(Corrupt));
        assert_eq!(Untrusted::new(4).within(4, 4), Ok(4));
        assert_eq!(Untrusted::new(3).within(4, 9), Err(Corrupt));
        assert_eq!(Untrusted::new(10).ahead_of(4, 6), Ok(6));
        assert_eq!(Untrusted::new(11).ahead_of(4, 6), Err(Corrupt));
        assert_eq!(
            Untrusted::new(3).ahead_of(4, u64::MAX / 2),
            Err(Corrupt),
            "a step back is a huge step forward"
        );
        assert_eq!(Untrusted::new(1).ahead_of(u64::MAX, 2), Ok(2), "offsets wrap");
        assert_eq!(Untrusted::new(4096).power_of_two(4096, 8192), Ok(4096));
        assert_eq!(Untrusted::new(6000).power_of_two(4096, 8192), Err(Corrupt));
        assert_eq!(Untrusted::new(0).power_of_two(0, 8192), Err(Corrupt));
    }
}
