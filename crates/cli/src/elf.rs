//! Whether a program can be reached by a preloaded library, from its file: ELF header, program headers and notes (elf(5)),
//! the `#!` line of scripts (execve(2)), permission bits.

use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a program stays on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// No dynamic linker is named in it.
    Static,
    /// Written in Go, which makes its system calls itself.
    Go,
    /// 32-bit where this is 64-bit, say.
    OtherClass,
    /// For another processor.
    OtherMachine,
    /// Linked with musl, which cannot load a library made for glibc: it must not even be tried.
    Musl,
    /// Set-user-id or set-group-id.
    Setuid,
    /// Has file capabilities.
    Capabilities,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "is statically linked",
            Self::Go => "is written in Go, which passes the C library by",
            Self::OtherClass => "is a program of another word size than ginnel",
            Self::OtherMachine => "is a program for another processor",
            Self::Musl => "uses another C library (musl)",
            Self::Setuid => "is set-user-id or set-group-id",
            Self::Capabilities => "has file capabilities",
        })
    }
}

/// What was found about a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file that decided: the program, or the interpreter of a script.
    pub file: PathBuf,
    /// Why it stays on TCP.
    pub why: Unreachable,
}

/// Interpreters of interpreters that the kernel follows.
const DEPTH: usize = 4;

/// Looks whether the program at `path` can be reached; `None` if so, or if nothing can be said.
pub fn look(path: &Path) -> Option<Finding> {
    let mut file = path.to_owned();
    for _ in 0..=DEPTH {
        match inspect(&file) {
            Kind::Unreachable(why) => return Some(Finding { file, why }),
            Kind::Script(interpreter) => file = interpreter,
            Kind::Reachable => return None,
        }
    }
    None
}

enum Kind {
    Reachable,
    Unreachable(Unreachable),
    Script(PathBuf),
}

fn inspect(path: &Path) -> Kind {
    let Ok(file) = File::open(path) else {
        return Kind::Reachable;
    };
    let start = bytes(&file, 0, 256);
    if let Some(interpreter) = script(&start) {
        // Set-user-id bits of scripts are not honoured.
        return Kind::Script(interpreter);
    }
    if !start.starts_with(b"\x7fELF") {
        return Kind::Reachable;
    }
    // Also where it is static or Go: that is what can be said for sure.
    elf(&file, path, &start).or_else(|| privileged(&file, path)).map_or(Kind::Reachable, Kind::Unreachable)
}

fn bytes(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let mut have = 0;
    while have < len {
        match file.read_at(&mut buffer[have..], offset + have as u64) {
            Ok(0) | Err(_) => break,
            Ok(n) => have += n,
        }
    }
    buffer.truncate(have);
    buffer
}

/// The interpreter that a script's first line names.
fn script(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let name = line.split(|&byte| byte == b' ' || byte == b'\t').find(|word| !word.is_empty())?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

/// Numbers of an ELF file.
struct Fields<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Fields<'_> {
    fn number(&self, at: usize, len: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(len)?)?;
        let fold = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if self.little { bytes.iter().rev().fold(0, fold) } else { bytes.iter().fold(0, fold) })
    }
}

const CLASS_64: u8 = 2;
const LITTLE: u8 = 1;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
/// Longest part of a program's file that is read for its notes.
const NOTE_MAX: u64 = 64 << 10;

/// `e_machine` of this program; 0: not known.
const MACHINE: u64 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else if cfg!(target_arch = "riscv64") {
    243
} else {
    0
};

fn elf(file: &File, path: &Path, start: &[u8]) -> Option<Unreachable> {
    let (&class, &data) = (start.get(4)?, start.get(5)?);
    let header = Fields { bytes: start, little: data == LITTLE };
    let machine = header.number(18, 2)?;
    if MACHINE != 0 && machine != MACHINE {
        // 32-bit x86 runs on a 64-bit kernel: its word size is what the user knows it by.
        return Some(if class == CLASS_64 { Unreachable::OtherMachine } else { Unreachable::OtherClass });
    }
    if class != CLASS_64 {
        return Some(Unreachable::OtherClass);
    }
    let (table, entry, count) = (header.number(32, 8)?, header.number(54, 2)?, header.number(56, 2)?);
    if entry < 56 {
        return None;
    }
    let table = bytes(file, table, usize::try_from(entry * count).ok()?);
    let headers: Vec<(u64, u64, u64)> = table
        .chunks_exact(usize::try_from(entry).ok()?)
        .filter_map(|bytes| {
            let fields = Fields { bytes, little: data == LITTLE };
            Some((fields.number(0, 4)?, fields.number(8, 8)?, fields.number(32, 8)?))
        })
        .collect();
    let part = |offset: u64, len: u64| bytes(file, offset, usize::try_from(len.min(NOTE_MAX)).unwrap_or(0));
    if headers.iter().any(|&(kind, offset, len)| kind == PT_NOTE && has_go_note(&part(offset, len), data == LITTLE)) {
        return Some(Unreachable::Go);
    }
    match headers.iter().find(|(kind, ..)| *kind == PT_INTERP) {
        Some(&(_, offset, len)) if contains(&part(offset, len), b"ld-musl") => Some(Unreachable::Musl),
        Some(_) => None,
        // The dynamic linker itself can be called as a program, and names no other.
        None if is_linker(path) => None,
        None => Some(Unreachable::Static),
    }
}

fn is_linker(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    [&b"ld-linux"[..], b"ld.so", b"ld64.so"].iter().any(|linker| name.starts_with(linker))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Does a part with notes hold Go's build id (name "Go", type 4)?
fn has_go_note(notes: &[u8], little: bool) -> bool {
    let fields = Fields { bytes: notes, little };
    let mut at = 0;
    let field = |at: usize| fields.number(at, 4).and_then(|n| usize::try_from(n).ok());
    while let (Some(name), Some(value), Some(kind)) = (field(at), field(at + 4), field(at + 8)) {
        if kind == 4 && notes.get(at + 12..).is_some_and(|rest| rest.starts_with(b"Go\0")) {
            return true;
        }
        at += 12 + name.next_multiple_of(4) + value.next_multiple_of(4);
    }
    false
}

/// Would it run with more rights than this process, so that the dynamic linker ignores preloads (ld.so(8), secure execution)?
fn privileged(file: &File, path: &Path) -> Option<Unreachable> {
    let meta = file.metadata().ok()?;
    let (uid, gid) = crate::exec::effective_ids();
    let set = |bit: u32, theirs: u32, own: u32| meta.mode() & bit != 0 && theirs != own;
    if set(libc::S_ISUID, meta.uid(), uid) || set(libc::S_ISGID, meta.gid(), gid) {
        return Some(Unreachable::Setuid);
    }
    (uid != 0 && crate::exec::has_capabilities(path)).then_some(Unreachable::Capabilities)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn why(path: &Path) -> Option<Unreachable> {
        look(path).map(|finding| finding.why)
    }

    /// Builds a C program; `None` where there is no compiler, or not this sort of library.
    fn compile(dir: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let (source, program) = (dir.join("p.c"), dir.join(name));
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("source");
        let done = Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).output().ok()?;
        done.status.success().then_some(program)
    }

    #[test]
    fn real_programs() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(why(Path::new("/bin/sh")), None);
        for (name, flags, expected) in [
            ("dynamic", &[][..], None),
            ("static", &["-static"][..], Some(Unreachable::Static)),
            ("static-pie", &["-static-pie"][..], Some(Unreachable::Static)),
            ("no-pie", &["-no-pie"][..], None),
            ("narrow", &["-m32"][..], Some(Unreachable::OtherClass)),
        ] {
            match compile(dir.path(), name, flags) {
                Some(program) => assert_eq!(why(&program), expected, "{name}"),
                None => eprintln!("not tried, cc {flags:?} fails here"),
            }
        }
    }

    #[test]
    fn the_dynamic_linker_is_not_taken_for_a_static_program() {
        let linkers = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        for linker in linkers.map(Path::new) {
            assert_eq!(why(linker), None, "{}", linker.display());
        }
    }

    #[test]
    fn scripts_are_their_interpreters() {
        let dir = tempfile::tempdir().expect("a directory");
        let script = dir.path().join("script");
        std::fs::write(&script, "#! /bin/sh -e\n").expect("script");
        assert_eq!(look(&script), None);
        if let Some(program) = compile(dir.path(), "interpreter", &["-static"]) {
            std::fs::write(&script, format!("#!{}\n", program.display())).expect("script");
            let outer = dir.path().join("outer");
            std::fs::write(&outer, format!("#!{} x", script.display())).expect("script");
            let found = look(&outer).expect("found");
            assert_eq!((found.file, found.why), (program, Unreachable::Static));
        }
        std::fs::write(&script, format!("#!{}\n", script.display())).expect("script");
        assert_eq!(look(&script), None, "its own interpreter: the kernel will say so");
    }

    #[test]
    fn set_group_id_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("program");
        std::fs::copy("/bin/sh", &program).expect("copy");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("mode");
        assert_eq!(why(&program), None, "set to whoever calls it anyway");
        if std::os::unix::fs::chown(&program, Some(65534), Some(65534)).is_ok() {
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("mode");
            assert_eq!(why(&program), Some(Unreachable::Setuid));
        }
    }

    /// The least file with the headers given: (type, bytes of the part).
    fn made(class: u8, machine: u8, parts: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0u8; 64 + 56 * parts.len()];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, LITTLE]);
        file[18] = machine;
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(parts.len()).expect("few");
        for (i, (kind, bytes)) in parts.iter().enumerate() {
            let at = 64 + 56 * i;
            let offset = file.len() as u64;
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            file.extend_from_slice(bytes);
        }
        file
    }

    #[test]
    fn made_programs() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("program");
        let own = u8::try_from(MACHINE).expect("small");
        let glibc: (u32, &[u8]) = (3, b"/lib64/ld-linux-x86-64.so.2\0");
        let go: (u32, &[u8]) = (4, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
        let gnu: (u32, &[u8]) = (4, b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd");
        for (file, expected) in [
            (made(2, own, &[glibc, gnu]), None),
            (made(2, own, &[gnu]), Some(Unreachable::Static)),
            (made(2, own, &[glibc, gnu, go]), Some(Unreachable::Go)),
            (made(2, own, &[go]), Some(Unreachable::Go)),
            (made(2, own, &[(3, b"/lib/ld-musl-x86_64.so.1\0")]), Some(Unreachable::Musl)),
            (made(2, 250, &[glibc]), Some(Unreachable::OtherMachine)),
            (made(1, 3, &[glibc]), Some(Unreachable::OtherClass)),
            (b"\x7fELF".to_vec(), None),
            (b"just text".to_vec(), None),
            (Vec::new(), None),
        ] {
            std::fs::write(&path, &file).expect("write");
            assert_eq!(why(&path), expected);
        }
    }

    #[test]
    fn cut_and_scrambled_programs_do_no_harm() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("program");
        let whole =
            made(2, u8::try_from(MACHINE).expect("small"), &[(4, b"\xff\xff\xff\xff\xff\xff\xff\xff\x04\0\0\0X"), (3, b"x")]);
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("write");
            let _ = look(&path);
        }
        for at in 4..64 {
            let mut file = whole.clone();
            file[at] = 0xff;
            std::fs::write(&path, &file).expect("write");
            let _ = look(&path);
        }
    }
}
