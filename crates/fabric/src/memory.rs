//! Registered memory, and operations on it. Who knows a region's key may use it as it was
//! registered for; every range is checked against the region.

use std::collections::HashMap;

/// A region: where it begins here, how many bytes, and by which address others call its first byte.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// Where it begins.
    pub base: *mut u8,
    /// Bytes.
    pub len: u64,
    /// The address by which others call its first byte: 0, or where it begins here.
    pub origin: u64,
    /// Others may read it.
    pub readable: bool,
    /// Others may write it.
    pub writable: bool,
}

// SAFETY: an address, which is used only as who registered it promised, from any thread.
unsafe impl Send for Region {}

/// A process's registered memory.
#[derive(Default)]
pub struct Memory {
    regions: HashMap<u64, Region>,
}

impl Memory {
    /// Registers a region under a key. False: the key is taken.
    ///
    /// # Safety
    /// The region is readable, and writable if it says so, until it is [removed](Self::remove).
    pub unsafe fn insert(&mut self, key: u64, region: Region) -> bool {
        let free = !self.regions.contains_key(&key);
        if free {
            self.regions.insert(key, region);
        }
        free
    }

    /// Forgets a region.
    pub fn remove(&mut self, key: u64) {
        self.regions.remove(&key);
    }

    /// Where `len` bytes from `address` on lie, by a key, address and length that another wrote.
    /// `None`: not in that region, or it may not be used so.
    #[must_use]
    pub fn find(
        &self,
        key: u64,
        address: u64,
        len: u64,
        write: bool,
        read: bool,
    ) -> Option<*mut u8> {
        let region = self.regions.get(&key)?;
        let from = address.checked_sub(region.origin)?;
        let fits = from.checked_add(len)? <= region.len;
        let may = (region.writable || !write) && (region.readable || !read);
        (fits && may).then(|| region.base.wrapping_add(from as usize))
    }
}

/// What an element is (libfabric's `enum fi_datatype`, in its order).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Signed, of so many bytes.
    Signed(u8),
    /// Unsigned, of so many bytes.
    Unsigned(u8),
    /// 4 bytes.
    Float,
    /// 8 bytes.
    Double,
}

impl Element {
    /// Bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Signed(size) | Self::Unsigned(size) => size.into(),
            Self::Float => 4,
            Self::Double => 8,
        }
    }

    /// By libfabric's number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 | 2 | 4 | 6 => Self::Signed(1 << (number / 2)),
            1 | 3 | 5 | 7 => Self::Unsigned(1 << (number / 2)),
            8 => Self::Float,
            9 => Self::Double,
            _ => return None,
        })
    }
}

/// An operation by libfabric's number (`enum fi_op`).
pub mod op {
    #![expect(missing_docs, reason = "the names say it; fi_atomic(3)")]
    pub const MIN: u32 = 0;
    pub const MAX: u32 = 1;
    pub const SUM: u32 = 2;
    pub const PROD: u32 = 3;
    pub const LOR: u32 = 4;
    pub const LAND: u32 = 5;
    pub const BOR: u32 = 6;
    pub const BAND: u32 = 7;
    pub const LXOR: u32 = 8;
    pub const BXOR: u32 = 9;
    pub const READ: u32 = 10;
    pub const WRITE: u32 = 11;
    pub const CSWAP: u32 = 12;
    pub const CSWAP_NE: u32 = 13;
    pub const CSWAP_LE: u32 = 14;
    pub const CSWAP_LT: u32 = 15;
    pub const CSWAP_GE: u32 = 16;
    pub const CSWAP_GT: u32 = 17;
    pub const MSWAP: u32 = 18;
}

/// Is there such an operation on such elements?
#[must_use]
pub fn is_known(operation: u32, element: Element) -> bool {
    let whole = !matches!(element, Element::Float | Element::Double);
    match operation {
        op::BOR | op::BAND | op::BXOR | op::MSWAP => whole,
        op::MIN..=op::CSWAP_GT => true,
        _ => false,
    }
}

/// Does it compare, and so have a second operand?
#[must_use]
pub fn compares(operation: u32) -> bool {
    (op::CSWAP..=op::MSWAP).contains(&operation)
}

macro_rules! arithmetic {
    ($operation:expr, $old:expr, $with:expr, $compare:expr, $zero:expr, $one:expr, $add:expr, $mul:expr) => {{
        let (old, with, compare) = ($old, $with, $compare);
        let truth = |yes: bool| if yes { $one } else { $zero };
        let (a, b) = (old != $zero, with != $zero);
        let swap = |yes: bool| if yes { with } else { old };
        match $operation {
            op::MIN => swap(with < old),
            op::MAX => swap(with > old),
            op::SUM => $add(old, with),
            op::PROD => $mul(old, with),
            op::LOR => truth(a || b),
            op::LAND => truth(a && b),
            op::LXOR => truth(a != b),
            op::READ => old,
            op::WRITE => with,
            // fi_atomic(3): the target is replaced if "compare OP target" holds.
            op::CSWAP => swap(compare == old),
            op::CSWAP_NE => swap(compare != old),
            op::CSWAP_LE => swap(compare <= old),
            op::CSWAP_LT => swap(compare < old),
            op::CSWAP_GE => swap(compare >= old),
            op::CSWAP_GT => swap(compare > old),
            _ => old,
        }
    }};
}

macro_rules! whole {
    ($type:ty, $operation:expr, $old:expr, $with:expr, $compare:expr) => {{
        let number = |bytes: &[u8]| <$type>::from_le_bytes(bytes.try_into().unwrap_or_default());
        let (old, with, compare) = (number($old), number($with), number($compare));
        let new = match $operation {
            op::BOR => old | with,
            op::BAND => old & with,
            op::BXOR => old ^ with,
            op::MSWAP => with & compare | old & !compare,
            other => arithmetic!(
                other,
                old,
                with,
                compare,
                0,
                1,
                <$type>::wrapping_add,
                <$type>::wrapping_mul
            ),
        };
        $old.copy_from_slice(&new.to_le_bytes());
    }};
}

macro_rules! real {
    ($type:ty, $operation:expr, $old:expr, $with:expr, $compare:expr) => {{
        let number = |bytes: &[u8]| <$type>::from_le_bytes(bytes.try_into().unwrap_or_default());
        let (old, with, compare) = (number($old), number($with), number($compare));
        let new = arithmetic!(
            $operation,
            old,
            with,
            compare,
            0.0,
            1.0,
            |a: $type, b: $type| a + b,
            |a: $type, b: $type| a * b
        );
        $old.copy_from_slice(&new.to_le_bytes());
    }};
}

/// Applies a known operation to one element, whose bytes are `old`. The slices have the element's
/// size.
pub fn apply(operation: u32, element: Element, old: &mut [u8], with: &[u8], compare: &[u8]) {
    match element {
        Element::Signed(1) => whole!(i8, operation, old, with, compare),
        Element::Signed(2) => whole!(i16, operation, old, with, compare),
        Element::Signed(4) => whole!(i32, operation, old, with, compare),
        Element::Signed(_) => whole!(i64, operation, old, with, compare),
        Element::Unsigned(1) => whole!(u8, operation, old, with, compare),
        Element::Unsigned(2) => whole!(u16, operation, old, with, compare),
        Element::Unsigned(4) => whole!(u32, operation, old, with, compare),
        Element::Unsigned(_) => whole!(u64, operation, old, with, compare),
        Element::Float => real!(f32, operation, old, with, compare),
        Element::Double => real!(f64, operation, old, with, compare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_a_region_are_refused() {
        let mut bytes = [0u8; 100];
        let base = bytes.as_mut_ptr();
        let mut memory = Memory::default();
        let region = Region { base, len: 100, origin: 1000, readable: true, writable: false };
        // SAFETY: `bytes` outlives `memory`.
        assert!(unsafe { memory.insert(7, region) } && !unsafe { memory.insert(7, region) });
        let find = |address, len| {
            memory.find(7, address, len, false, true).map(|at| at as usize - base as usize)
        };
        assert_eq!((find(1000, 100), find(1099, 1), find(1100, 0)), (Some(0), Some(99), Some(100)));
        assert_eq!((find(999, 1), find(1100, 1), find(1000, 101)), (None, None, None));
        assert_eq!((find(u64::MAX, 2), find(1001, u64::MAX), find(0, 0)), (None, None, None));
        assert_eq!(memory.find(7, 1000, 1, true, false), None, "it may not be written");
        assert_eq!(memory.find(8, 1000, 1, false, true), None);
        memory.remove(7);
        assert_eq!(memory.find(7, 1000, 1, false, true), None);
    }

    #[test]
    fn operations_do_what_their_names_say() {
        fn on<const N: usize>(
            operation: u32,
            element: Element,
            old: [u8; N],
            with: [u8; N],
            compare: [u8; N],
        ) -> [u8; N] {
            let mut bytes = old;
            apply(operation, element, &mut bytes, &with, &compare);
            bytes
        }
        let long = |operation, old: i64, with: i64, compare: i64| {
            let (old, with, compare) =
                (old.to_le_bytes(), with.to_le_bytes(), compare.to_le_bytes());
            i64::from_le_bytes(on(operation, Element::Signed(8), old, with, compare))
        };
        assert_eq!(
            (long(op::SUM, i64::MAX, 1, 0), long(op::MIN, -3, 2, 0), long(op::MAX, -3, 2, 0)),
            (i64::MIN, -3, 2)
        );
        assert_eq!((long(op::CSWAP, 5, 9, 5), long(op::CSWAP, 5, 9, 6)), (9, 5));
        assert_eq!((long(op::CSWAP_LT, 5, 9, 4), long(op::CSWAP_LT, 5, 9, 5)), (9, 5));
        assert_eq!((long(op::MSWAP, 0b1100, 0b1010, 0b0110), long(op::LXOR, 4, 0, 0)), (0b1010, 1));
        assert_eq!(
            (long(op::READ, 4, 9, 0), long(op::WRITE, 4, 9, 0), long(op::BAND, 6, 3, 0)),
            (4, 9, 2)
        );
        let double = |operation, old: f64, with: f64| {
            f64::from_le_bytes(on(
                operation,
                Element::Double,
                old.to_le_bytes(),
                with.to_le_bytes(),
                [0; 8],
            ))
        };
        assert_eq!((double(op::PROD, 1.5, 2.0), double(op::LAND, 1.5, 0.0)), (3.0, 0.0));
        assert_eq!(on(op::SUM, Element::Unsigned(1), [250], [10], [0]), [4]);
        assert_eq!(
            (Element::of(4), Element::of(9), Element::of(12)),
            (Some(Element::Signed(4)), Some(Element::Double), None)
        );
        assert!(
            !is_known(op::BOR, Element::Float)
                && is_known(op::SUM, Element::Float)
                && !is_known(19, Element::Float)
        );
    }
}
