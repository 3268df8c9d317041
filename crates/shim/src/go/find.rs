//! Finding the functions of Go's runtime that make system calls, stripped or not.
//!
//! Go's own tables name every function and say where it begins (`.gopclntab`, read here as
//! debug/gosym does): the runtime needs them itself, so no `strip` removes them. A function is
//! taken for what it is called only if its code, from its first byte to the next function's, is one
//! of those that Go's releases have ([`super::known`]).

use super::image::Image;
use super::known::{self, Body};
use core::ops::Range;

/// What was found in a Go program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The functions that are to be replaced.
    pub sites: Vec<Site>,
    /// Threads are the C library's (cgo), and so is the FS register.
    pub cgo: bool,
    /// From a thread's `m` to its thread-local words, where `clone` says so.
    pub tls: usize,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// What it is.
    pub body: &'static Body,
    /// Where it begins.
    pub at: usize,
    /// How much room it has.
    pub len: usize,
}

/// Go's table of functions (`runtime.pcHeader`), in memory.
struct Table<'a> {
    /// How many functions.
    count: usize,
    /// What their offsets are counted from.
    text: usize,
    /// Their names, each with a zero byte behind it.
    names: &'a [u8],
    /// The functions, in the order of their code: [`Table::function`].
    functions: &'a [u8],
}

/// Names whose presence says that the program is left alone: the race detector and the sanitizers
/// keep C code beside the runtime that must see each call; plugins bring code of their own.
const FOREIGN: [&[u8]; 5] = [
    b"runtime.racefuncenter",
    b"runtime.msancall",
    b"runtime.asancall",
    b"plugin.Open",
    b"plugin.open",
];

/// Is in programs whose threads are the C library's (runtime/cgo, asm_amd64.s).
const CGO: &[u8] = b"crosscall2";

/// The programs' entry where no C code runs before Go's (runtime/rt0_linux_amd64.s).
const ENTRY: &[u8] = b"_rt0_amd64_linux";

/// Looks through the program of the open file `fd`, mapped as `image` says, which starts at
/// `entry`.
///
/// # Errors
/// Why it is left alone.
pub fn find(image: &Image, fd: i32, entry: usize) -> Result<Found, &'static str> {
    let tables = image
        .section(fd, &[b".gopclntab", b".data.rel.ro.gopclntab"])
        .ok_or("it has no .gopclntab")?;
    let table = Table::new(image, tables).ok_or("its table of functions is of an unknown kind")?;
    let mut wanted: Vec<(&'static Body, u32)> = Vec::new();
    let (mut cgo, mut start) = (false, None);
    for (at, name) in table.names() {
        if FOREIGN.contains(&name) {
            return Err("it has a race detector, a sanitizer or plugins");
        }
        cgo |= name == CGO;
        if name == ENTRY {
            start = Some(at);
        }
        wanted.extend(
            known::BODIES.iter().filter(|body| body.names.contains(&name)).map(|body| (body, at)),
        );
    }
    wanted.retain(|(body, _)| !cgo || !body.own_threads);
    let sites = table.bodies(image, &wanted, start.map(|start| (start, entry)).filter(|_| !cgo))?;
    let found = Found { tls: tls_of(image, &sites), sites, cgo };
    found.is_whole(&wanted).map(|()| found)
}

impl Found {
    /// Is every function there that such a program must have, once?
    fn is_whole(&self, wanted: &[(&'static Body, u32)]) -> Result<(), &'static str> {
        let count = |kind| self.sites.iter().filter(|site| site.body.kind == kind).count();
        for kind in known::KINDS {
            let own_threads =
                known::BODIES.iter().any(|body| body.kind == kind && body.own_threads);
            let named = wanted.iter().any(|(body, _)| body.kind == kind);
            let needed = if known::is_optional(kind) { named } else { !own_threads || !self.cgo };
            if count(kind) != usize::from(needed) {
                return Err("a function of its runtime is not as any known release of Go has it");
            }
        }
        if !self.cgo && self.tls == 0 {
            return Err("its threads' local words were not found");
        }
        Ok(())
    }
}

/// The offset that `clone` adds to an `m`.
fn tls_of(image: &Image, sites: &[Site]) -> usize {
    let place = sites.iter().find_map(|site| Some(site.at + site.body.places_in_clone()?.0));
    let bytes = place.and_then(|place| image.bytes(place, 4));
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
}

impl<'a> Table<'a> {
    fn new(image: &Image, span: Range<usize>) -> Option<Self> {
        /// Go 1.18 and 1.20: the first word (debug/gosym, `go118magic`, `go120magic`), then two
        /// zero bytes, the least size of an instruction, and a pointer's.
        const KINDS: [[u8; 8]; 2] =
            [[0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8], [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]];
        let all = image.bytes(span.start, span.len())?;
        let word = |index: usize| {
            let bytes = all.get(index.checked_mul(8)?..)?.get(..8)?;
            bytes.try_into().ok().map(usize::from_le_bytes)
        };
        if !KINDS.iter().any(|kind| all.starts_with(kind)) {
            return None;
        }
        let (count, text, names, end, functions) =
            (word(1)?, word(3)?, word(4)?, word(5)?, word(8)?);
        // Each function takes two numbers.
        let fits = count != 0 && count.checked_mul(8).is_some_and(|len| len < all.len());
        let (names, functions) = (all.get(names..end)?, all.get(functions..)?);
        // Since 1.26 it is the module's data only that says where the code begins.
        let text = if text == 0 { text_of_module(image, span.start)? } else { text };
        fits.then_some(Self { count, text, names, functions })
    }

    /// The names, and the number that stands for each.
    fn names(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let mut at = 0usize;
        self.names.split(|byte| *byte == 0).map(move |name| {
            // What does not fit is no number of a name, and found nowhere.
            let here = u32::try_from(at).unwrap_or(u32::MAX);
            at = at.saturating_add(name.len() + 1);
            (here, name)
        })
    }

    fn number(&self, at: usize) -> Option<u32> {
        let bytes = self.functions.get(at..)?.get(..4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    }

    /// Where function `index` begins, where the next does, and the number of its name.
    fn function(&self, index: usize) -> Option<(usize, usize, u32)> {
        let at = index.checked_mul(8)?;
        let (start, data, end) = (self.number(at)?, self.number(at + 4)?, self.number(at + 8)?);
        let name = self.number((data as usize).checked_add(4)?)?;
        Some((self.text.checked_add(start as usize)?, self.text.checked_add(end as usize)?, name))
    }

    /// Looks through the functions for those that are `wanted`, until all are found. `start`: the
    /// number of a name, and where the function must begin that is called so.
    fn bodies(
        &self,
        image: &Image,
        wanted: &[(&'static Body, u32)],
        mut start: Option<(u32, usize)>,
    ) -> Result<Vec<Site>, &'static str> {
        let mut sites: Vec<Site> = Vec::new();
        let mut kinds = wanted.iter().map(|(body, _)| body.kind).collect::<Vec<_>>();
        kinds.dedup();
        for index in 0..self.count {
            let Some((at, end, name)) = self.function(index) else {
                return Err("its table of functions is damaged");
            };
            if start.is_some_and(|(entry, begin)| entry == name && begin == at) {
                start = None;
            }
            // Wrappers for Go's two calling conventions have their function's name, and other code.
            let named = wanted.iter().filter(|(_, number)| *number == name);
            if let Some((body, _)) = named.into_iter().find(|(body, _)| {
                end.checked_sub(at)
                    .and_then(|len| image.bytes(at, len))
                    .is_some_and(|code| body.is(code))
            }) {
                sites.push(Site { body, at, len: end - at });
            }
            if sites.len() == kinds.len() && start.is_none() {
                break;
            }
        }
        if start.is_some() { Err("it starts with code that is not Go's") } else { Ok(sites) }
    }
}

/// Where the code begins, as the program's module says (`runtime.moduledata`): found by its first
/// word, which is the table's address.
fn text_of_module(image: &Image, table: usize) -> Option<usize> {
    /// The fields `minpc` and `text` (runtime/symtab.go, the same since 1.18).
    const FIRST: usize = 160;
    const TEXT: usize = 176;
    let code = image.code();
    image.loaded(libc::PF_R | libc::PF_W).find_map(|(_, span)| {
        let start = span.start.next_multiple_of(8);
        (start..span.end.saturating_sub(TEXT + 8)).step_by(8).find_map(|at| {
            let text = (image.word(at)? == table).then(|| image.word(at + TEXT)).flatten()?;
            (code.contains(&text) && image.word(at + FIRST)? == text).then_some(text)
        })
    })
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may fail by a panic")]
mod tests {
    use super::*;

    fn found(kinds: &[known::Kind], named: &[known::Kind]) -> Result<(), &'static str> {
        let body = |kind: &known::Kind| {
            &known::BODIES[known::BODIES.iter().position(|body| body.kind == *kind).unwrap_or(0)]
        };
        let sites = kinds.iter().map(|kind| Site { body: body(kind), at: 64, len: 64 }).collect();
        let wanted = named.iter().map(|kind| (body(kind), 1)).collect::<Vec<_>>();
        Found { sites, cgo: true, tls: 0 }.is_whole(&wanted)
    }

    #[test]
    fn a_program_that_executes_nothing_need_not_have_the_function_for_that() {
        use known::Kind::{Exit, Syscall, Vfork};
        assert_eq!(found(&[Syscall, Exit], &[Syscall, Exit]), Ok(()));
        assert!(
            found(&[Syscall, Exit], &[Syscall, Exit, Vfork]).is_err(),
            "it is there, and not as it should be"
        );
        assert!(found(&[Syscall, Vfork], &[Syscall, Vfork]).is_err());
        assert!(found(&[Exit, Vfork], &[Exit, Vfork]).is_err());
    }
}
