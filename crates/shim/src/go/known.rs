//! The code of the functions that are replaced, as Go's releases have it (1.19 to 1.27): from
//! src/runtime/sys_linux_amd64.s, src/syscall/asm_linux_amd64.s and internal/runtime/syscall.
//!
//! The whole of a function is compared, byte for byte, but for offsets that the linker fills in.

/// Which function it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A system call by its number: what package syscall, x/sys and the network poller use.
    Syscall,
    /// `clone` and its kin for a child that has another program soon.
    Vfork,
    /// The process's end.
    Exit,
    /// Go 1.19's own for its network poller.
    EpollControl,
    /// Likewise.
    EpollWait,
    /// A new thread.
    Clone,
    /// A thread's end.
    ExitThread,
    /// A signal's handler.
    SignalAction,
    /// The first thread's FS.
    ThreadLocals,
}

/// All of them.
pub const KINDS: [Kind; 9] = [
    Kind::Syscall,
    Kind::Vfork,
    Kind::Exit,
    Kind::EpollControl,
    Kind::EpollWait,
    Kind::Clone,
    Kind::ExitThread,
    Kind::SignalAction,
    Kind::ThreadLocals,
];

/// May a program do without it? Only old releases have those of epoll's own; and the linker leaves
/// out the one for new processes where a program executes nothing.
pub fn is_optional(kind: Kind) -> bool {
    matches!(kind, Kind::EpollControl | Kind::EpollWait | Kind::Vfork)
}

/// One function of one or more releases.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// Which it is.
    pub kind: Kind,
    /// What it is called.
    pub names: &'static [&'static [u8]],
    /// Is it replaced only where Go makes its own threads?
    pub own_threads: bool,
    /// Of those with a result: where that is, from the stack pointer. 0: in registers.
    pub result: u8,
    /// Two digits a byte; `..` is any.
    code: &'static str,
}

impl Body {
    /// Is it this code, and nothing behind it but filling?
    pub fn is(&self, code: &[u8]) -> bool {
        const FILLING: u8 = 0xcc;
        let digits = self.code.bytes().filter(|digit| *digit != b' ').collect::<Vec<_>>();
        let (head, rest) = code.split_at_checked(digits.len() / 2).unwrap_or((&[], code));
        let same = |(byte, digits): (&u8, &[u8])| {
            digits == b".." || format!("{byte:02x}").as_bytes() == digits
        };
        !head.is_empty()
            && head.iter().zip(digits.chunks(2)).all(same)
            && rest.iter().all(|byte| *byte == FILLING)
    }

    /// Where in `clone` its offset from an `m` to its thread-local words stands, and where its
    /// child goes on; `None` in other functions.
    pub fn places_in_clone(&self) -> Option<(usize, usize)> {
        /// `lea` of a place that far from the `m`, …
        const OFFSET: [&[u8]; 3] = [b"4d", b"8d", b"85"];
        /// … and the parent's last instructions.
        const PARENT: [&[u8]; 5] = [b"89", b"44", b"24", b"30", b"c3"];
        let digits = self.code.bytes().filter(|digit| *digit != b' ').collect::<Vec<_>>();
        let bytes = digits.chunks(2).collect::<Vec<_>>();
        let behind = |part: &[&[u8]]| {
            bytes.windows(part.len()).position(|here| here == part).map(|at| at + part.len())
        };
        Some((behind(&OFFSET)?, behind(&PARENT)?)).filter(|_| self.kind == Kind::Clone)
    }
}

/// `runtime.clone`, which differs between releases in how it sets `numbers` (registers, to 0), and
/// between programs in how it stores the thread-local word of a child (`local`).
macro_rules! clone {
    ($numbers:literal, $local:literal) => {
        Body {
            kind: Kind::Clone,
            names: &[b"runtime.clone"],
            own_threads: true,
            result: 0x30,
            code: concat!(
                "8b7c2408 488b742410 ",
                $numbers,
                " 4c8b6c2418 4c8b4c2420 4c8b642428 4983fd00 7418 4983f900 7412 4d8d85....0000 \
                 4983c008 4881cf00000800 b838000000 0f05 4883f800 7405 89442430 c3 4889f4 4983fd00 \
                 74.. 4983f900 74.. b8ba000000 0f05 498945.. ",
                $local,
                " 4d89ce e8........ 41ffd4 bf6f000000 b83c000000 0f05 ebf2"
            ),
        }
    };
}

/// Every function of every release. From 1.27 on Go's assembler has a small number moved into a
/// register by a shorter instruction.
pub static BODIES: [Body; 18] = [
    Body {
        kind: Kind::Syscall,
        names: &[
            b"runtime/internal/syscall.Syscall6",
            b"internal/runtime/syscall.Syscall6",
            b"internal/runtime/syscall/linux.Syscall6",
        ],
        own_threads: false,
        result: 0,
        code: "4989f2 4889fa 4889ce 4889df 0f05 483d01f0ffff 7615 48f7d8 4889c1 48c7c0ffffffff \
               48c7c300000000 c3 4889d3 48c7c100000000 c3",
    },
    // 1.27.
    Body {
        kind: Kind::Syscall,
        names: &[b"internal/runtime/syscall/linux.Syscall6"],
        own_threads: false,
        result: 0,
        code: "4989f2 4889fa 4889ce 4889df 0f05 483d01f0ffff 7613 48f7d8 4889c1 48c7c0ffffffff \
               bb00000000 c3 4889d3 b900000000 c3",
    },
    Body {
        kind: Kind::Vfork,
        names: &[b"syscall.rawVforkSyscall"],
        own_threads: false,
        result: 0x28,
        code: "488b7c2410 488b742418 488b542420 41ba00000000 41b800000000 41b900000000 488b442408 \
               415c 0f05 4154 483d01f0ffff 7612 48c7442428ffffffff 48f7d8 4889442430 c3 4889442428 \
               48c744243000000000 c3",
    },
    // 1.21 to 1.26.
    Body {
        kind: Kind::Vfork,
        names: &[b"syscall.rawVforkSyscall"],
        own_threads: false,
        result: 0x28,
        code: "488b7c2410 488b742418 488b542420 49c7c200000000 49c7c000000000 49c7c100000000 488b442408 \
               415c 0f05 4154 483d01f0ffff 7612 48c7442428ffffffff 48f7d8 4889442430 c3 4889442428 \
               48c744243000000000 c3",
    },
    // 1.20.
    Body {
        kind: Kind::Vfork,
        names: &[b"syscall.rawVforkSyscall"],
        own_threads: false,
        result: 0x20,
        code: "488b7c2410 488b742418 48c7c200000000 49c7c200000000 49c7c000000000 49c7c100000000 \
               488b442408 415c 0f05 4154 483d01f0ffff 7612 48c7442420ffffffff 48f7d8 4889442428 c3 \
               4889442420 48c744242800000000 c3",
    },
    // 1.19.
    Body {
        kind: Kind::Vfork,
        names: &[b"syscall.rawVforkSyscall"],
        own_threads: false,
        result: 0x18,
        code: "488b7c2410 48c7c600000000 48c7c200000000 49c7c200000000 49c7c000000000 49c7c100000000 \
               488b442408 415c 0f05 4154 483d01f0ffff 7612 48c7442418ffffffff 48f7d8 4889442420 c3 \
               4889442418 48c744242000000000 c3",
    },
    Body {
        kind: Kind::Exit,
        names: &[b"runtime.exit"],
        own_threads: false,
        result: 0,
        code: "8b7c2408 b8e7000000 0f05 c3",
    },
    Body {
        kind: Kind::EpollControl,
        names: &[b"runtime.epollctl"],
        own_threads: false,
        result: 0x20,
        code: "8b7c2408 8b74240c 8b542410 4c8b542418 b8e9000000 0f05 89442420 c3",
    },
    Body {
        kind: Kind::EpollWait,
        names: &[b"runtime.epollwait"],
        own_threads: false,
        result: 0x20,
        code: "8b7c2408 488b742410 8b542418 448b54241c 49c7c000000000 b819010000 0f05 89442420 c3",
    },
    clone!("48c7c200000000 49c7c200000000 49c7c000000000", "4d896930 644c890c25f8ffffff"),
    // Of a position-independent program.
    clone!("48c7c200000000 49c7c200000000 49c7c000000000", "48c7c1f8ffffff 4d896930 644c8909"),
    // 1.27.
    clone!("ba00000000 41ba00000000 41b800000000", "4d896930 644c890c25f8ffffff"),
    // The same in a position-independent program.
    clone!("ba00000000 41ba00000000 41b800000000", "48c7c1f8ffffff 4d896930 644c8909"),
    Body {
        kind: Kind::ExitThread,
        names: &[b"runtime.exitThread"],
        own_threads: true,
        result: 0,
        code: "488b442408 c70000000000 bf00000000 b83c000000 0f05 cd03 ebfe",
    },
    Body {
        kind: Kind::SignalAction,
        names: &[b"runtime.rt_sigaction"],
        own_threads: true,
        result: 0x28,
        code: "488b7c2408 488b742410 488b542418 4c8b542420 b80d000000 0f05 89442428 c3",
    },
    // 1.27.
    Body {
        kind: Kind::ThreadLocals,
        names: &[b"runtime.settls"],
        own_threads: true,
        result: 0,
        code: "55 4889e5 4883ec20 4883c708 4889fe bf02100000 b89e000000 0f05 483d01f0ffff 760b \
               c70425f1000000f1000000 4883c420 5d c3",
    },
    // 1.21 to 1.26.
    Body {
        kind: Kind::ThreadLocals,
        names: &[b"runtime.settls"],
        own_threads: true,
        result: 0,
        code: "55 4889e5 4883ec20 4883c708 4889fe 48c7c702100000 48c7c09e000000 0f05 483d01f0ffff 760b \
               c70425f1000000f1000000 4883c420 5d c3",
    },
    // 1.19 and 1.20.
    Body {
        kind: Kind::ThreadLocals,
        names: &[b"runtime.settls"],
        own_threads: true,
        result: 0,
        code: "4883ec28 48896c2420 488d6c2420 4883c708 4889fe 48c7c702100000 48c7c09e000000 0f05 \
               483d01f0ffff 760b c70425f1000000f1000000 488b6c2420 4883c428 c3",
    },
];

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may fail by a panic")]
mod tests {
    use super::{BODIES, Kind};

    #[test]
    fn every_clone_says_where_its_child_goes_on() {
        for body in &BODIES {
            let Some((offset, child)) = body.places_in_clone() else {
                assert_ne!(body.kind, Kind::Clone);
                continue;
            };
            let digits = body.code.replace(' ', "");
            assert_eq!(&digits[2 * offset..2 * offset + 8], "....0000");
            // It takes the stack that it was given.
            assert_eq!(&digits[2 * child..2 * child + 6], "4889f4");
        }
    }
}
