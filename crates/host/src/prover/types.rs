//! The kernel's type information (BTF, `Documentation/bpf/btf.rst`): which number a function has,
//! and where a member lies in a structure. Nothing else is read out of it.
//!
//! The broker of each group of pods reads it at its start, some of them at once. A library that
//! makes an object of each of 150,000 types takes ten times the file's size for that, and what an
//! allocator keeps of it counts against the node agent's memory for good. This takes the file, and
//! a word for each type, and gives both back.

/// How a file begins, in the processor's byte order.
const MAGIC: u32 = 0xeb9f;
/// Bytes of a type without what follows it: name, kind and count, size or type.
const TYPE: usize = 12;
/// Bytes of a structure's member: name, type, offset in bits.
const MEMBER: usize = 12;
/// Structures within one another, at most: the kernel's are a few.
const DEEPEST: u32 = 16;

// Kinds of types.
const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// What the kernel says of its types.
#[derive(Debug)]
pub struct Types {
    bytes: Vec<u8>,
    /// Where each type is, the first of them number 1.
    at: Vec<usize>,
    /// Where the names begin.
    names: usize,
}

/// One type.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    kind: u32,
    /// Members, for a structure.
    count: usize,
    /// Members say how many bits they have, too.
    has_bits: bool,
}

impl Types {
    /// Looks through a file. `None`: it is none of this form.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let header = |at: usize| word(&bytes, at).and_then(|word| usize::try_from(word).ok());
        if header(0)? & 0xffff != MAGIC as usize {
            return None;
        }
        let (size, types, length) = (header(4)?, header(8)?, header(12)?);
        let names = size.checked_add(header(16)?)?;
        let mut next = size.checked_add(types)?;
        let end = next.checked_add(length)?;
        let mut this = Self { bytes, at: Vec::new(), names };
        while next < end {
            this.at.push(next);
            next = next.checked_add(TYPE)?.checked_add(this.read(next)?.follows()?)?;
        }
        Some(this)
    }

    /// The number of a function.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<u32> {
        let is_it = |&at: &usize| {
            self.read(at).is_some_and(|one| one.kind == FUNC && self.is_named(at, name))
        };
        u32::try_from(self.at.iter().position(is_it)? + 1).ok()
    }

    /// Where a member lies in a structure, bytes; also one of a structure without a name in there.
    /// `None`: there is none, or it is a field of bits.
    #[must_use]
    pub fn place(&self, structure: &str, member: &str) -> Option<u32> {
        let all = self.at.iter().filter_map(|&at| {
            self.read(at).filter(|one| one.kind == STRUCT && self.is_named(at, structure))
        });
        let bits = all.filter_map(|one| self.bits(one, member, 0)).next()?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    fn bits(&self, within: Type, member: &str, depth: u32) -> Option<u32> {
        (0..within.count).find_map(|i| {
            let at = within.at + TYPE + i * MEMBER;
            let offset = word(&self.bytes, at + 8)?;
            let (bits, width) =
                if within.has_bits { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
            if self.is_named(at, member) {
                return (width == 0).then_some(bits);
            }
            let number = usize::try_from(word(&self.bytes, at + 4)?).ok()?;
            let inner = self.read(*self.at.get(number.checked_sub(1)?)?)?;
            let goes_on =
                self.is_named(at, "") && matches!(inner.kind, STRUCT | UNION) && depth < DEEPEST;
            bits.checked_add(goes_on.then(|| self.bits(inner, member, depth + 1))??)
        })
    }

    fn read(&self, at: usize) -> Option<Type> {
        let info = word(&self.bytes, at.checked_add(4)?)?;
        Some(Type {
            at,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bits: info >> 31 == 1,
        })
    }

    /// Does what lies at `at`, a type or a member, have that name?
    fn is_named(&self, at: usize, name: &str) -> bool {
        let begin = word(&self.bytes, at)
            .and_then(|name| self.names.checked_add(usize::try_from(name).ok()?));
        let rest = begin
            .and_then(|begin| self.bytes.get(begin..))
            .and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Type {
    /// Bytes between this one and the next. `None`: a kind that is not known.
    fn follows(self) -> Option<usize> {
        Some(match self.kind {
            INT | VAR | DECL_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => self.count * 12,
            ENUM | FUNC_PROTO => self.count * 8,
            1..=19 => 0,
            _ => return None,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names: what an index says of one.
    const NAMES: &[u8] = b"\0outer\0first\0last\0call\0flag\0";

    fn file(types: &[[u32; 3]], then: &[u32]) -> Vec<u8> {
        let words: Vec<u32> = types.iter().flatten().chain(then).copied().collect();
        let length = u32::try_from(4 * words.len()).expect("small");
        let names = u32::try_from(NAMES.len()).expect("small");
        let header = [MAGIC | 1 << 16, 24, 0, length, length, names];
        header
            .iter()
            .chain(&words)
            .flat_map(|word| word.to_ne_bytes())
            .chain(NAMES.iter().copied())
            .collect()
    }

    const fn info(kind: u32, count: u32) -> u32 {
        kind << 24 | count
    }

    /// A function; an integer; a union of one member; a structure that has one without a name, and
    /// a field of bits.
    fn example() -> Vec<u8> {
        let (outer, first, last, call, flag) = (1, 7, 13, 18, 23);
        file(
            &[[call, info(FUNC, 0), 2], [first, info(INT, 0), 4]],
            &[
                &[0][..],
                &[0, info(UNION, 1), 4, last, 2, 32],
                &[
                    outer,
                    1 << 31 | info(STRUCT, 3),
                    16,
                    first,
                    2,
                    0,
                    0,
                    3,
                    64,
                    flag,
                    2,
                    1 << 24 | 128,
                ],
            ]
            .concat(),
        )
    }

    #[test]
    fn functions_and_members_are_found() {
        let types = Types::new(example()).expect("of this form");
        assert_eq!(
            (types.function("call"), types.function("first"), types.function("cal")),
            (Some(1), None, None)
        );
        assert_eq!(
            (types.place("outer", "first"), types.place("outer", "last")),
            (Some(0), Some(12))
        );
        assert_eq!(
            (
                types.place("outer", "flag"),
                types.place("outer", "firs"),
                types.place("first", "last")
            ),
            (None, None, None)
        );
    }

    #[test]
    fn a_file_that_is_cut_short_or_of_another_form_is_none() {
        let whole = example();
        for length in 0..whole.len() {
            // What is missing may be names alone: then nothing is found.
            if let Some(types) = Types::new(whole[..length].to_vec()) {
                assert_eq!(types.place("outer", "nothing"), None);
            }
        }
        let mut other = whole.clone();
        other[0] ^= 1;
        assert!(Types::new(other).is_none());
        let mut unknown = whole;
        unknown[24 + 7] = 31;
        assert!(Types::new(unknown).is_none());
    }

    /// As it is where these tests run.
    #[test]
    fn this_kernels_own_are_found() {
        let Ok(bytes) = std::fs::read(crate::prover::program::VMLINUX) else {
            eprintln!("this_kernels_own_are_found: skipped, this kernel shows no types");
            return;
        };
        let types = Types::new(bytes).expect("of this form");
        assert!(types.function("bpf_iter_task_file").is_some());
        assert!(types.place("tcp_sock", "rcv_nxt").is_some());
        // In a structure without a name, within the first member.
        assert!(types.place("sock_common", "skc_daddr").is_some());
    }
}
