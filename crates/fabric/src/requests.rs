//! Requests that wait for the other end, known to it by a number: place and generation. An address
//! is never handed out, and a number that comes back late or wrong finds nothing.

/// A table of requests.
pub struct Requests<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Requests<T> {
    /// Keeps a request; its number, never 0.
    pub fn insert(&mut self, value: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, kept) = &mut self.places[place as usize];
        *generation = generation.wrapping_add(1).max(1);
        *kept = Some(value);
        u64::from(*generation) << 32 | u64::from(place)
    }

    /// The request with this number, which another may have written.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (generation, kept) = self.places.get_mut((number & 0xffff_ffff) as usize)?;
        if u64::from(*generation) == number >> 32 { kept.as_mut() } else { None }
    }

    /// Takes it out.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.get_mut(number)?;
        let place = (number & 0xffff_ffff) as u32;
        let kept = self.places.get_mut(place as usize)?.1.take();
        self.free.push(place);
        kept
    }

    /// Every request, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let number = |place: usize, generation: u32| u64::from(generation) << 32 | place as u64;
        self.places.iter().enumerate().filter_map(move |(place, (generation, kept))| {
            Some((number(place, *generation), kept.as_ref()?))
        })
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_number_finds_nothing() {
        let mut requests = Requests::default();
        let (a, b) = (requests.insert('a'), requests.insert('b'));
        assert_eq!(requests.get_mut(a), Some(&mut 'a'));
        assert_eq!(requests.remove(b), Some('b'));
        assert_eq!(requests.remove(b), None);
        assert_eq!(requests.get_mut(b), None);
        let c = requests.insert('c');
        assert!(
            c != b && c & 0xffff_ffff == b & 0xffff_ffff,
            "the place is used again, the number is not"
        );
        assert_eq!(requests.get_mut(b), None);
        for number in [0, u64::MAX, 7 << 32, 1 << 32 | 5] {
            assert_eq!(requests.get_mut(number), None);
        }
        assert_eq!(requests.iter().count(), 2);
    }
}
