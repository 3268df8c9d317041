//! Whether a program can have the preloaded library, from its file: ELF header, program headers and
//! notes (elf(5)), the `#!` line of scripts (execve(2)), permission bits and file capabilities.
//!
//! Takes no memory from an allocator: it is asked in children of `vfork`, too. A file that changes
//! meanwhile gives a wrong answer and does no harm.

mod c_library;
mod elf;
mod file;

use file::File;
use ginnel_region::sys;
use std::ffi::CStr;
use std::fmt;

/// Why a program cannot have the library, or need not be thought to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// No dynamic linker is named in it.
    Static,
    /// Written in Go, which makes its system calls itself: the library reaches most such programs
    /// all the same, once it is loaded.
    Go,
    /// Likewise, and no dynamic linker is named in it: what [`LOADER`] loads.
    StaticGo,
    /// 32-bit where this is 64-bit, say.
    OtherClass,
    /// For another processor.
    OtherMachine,
    /// Linked with musl, which cannot load a library made for glibc: the one for musl, beside it,
    /// reaches such programs.
    Musl,
    /// Linked with musl, and there is no library for it.
    MuslAlone,
    /// Written in Go, and linked with musl.
    MuslGo,
    /// Linked with another C library, or with one that cannot be found.
    OtherLibrary,
    /// Linked with a glibc that lacks versions which the preloaded library needs.
    OlderGlibc,
    /// The preloaded library is not there by the name that it has: in another root directory, say.
    NoSuchFile,
    /// Set-user-id or set-group-id.
    Setuid,
    /// Has file capabilities.
    Capabilities,
    /// May not be read, or is neither an ELF file nor a script: nothing is known of it.
    Unknown,
}

/// How the library is to be named to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preload {
    /// As it is.
    Kept,
    /// An absolute path by [`LIB`], other names as they are.
    Either,
    /// An absolute path with [`TOKEN`] before it, other names as they are.
    Token,
    /// An absolute path with [`TOKEN`] before it, and by no other name.
    TokenOnly,
    /// Not at all.
    Gone,
}

/// What turns the library's absolute path into one that only glibc's dynamic linker follows, which
/// puts its own folder below the root for the token (ld.so(8), "Dynamic string tokens"), however
/// deep that lies. For musl's there is no such file, and it passes over preloads that are not
/// there, where it refuses to start a program because of one that needs glibc.
pub const TOKEN: &str = "/$LIB/../../../../../../../..";

/// The folder, beside the library for glibc, of the one for musl, which has the same name.
/// `FOLDER/$LIB/NAME` is a path that each dynamic linker follows to its own: musl's takes it as it
/// stands, and glibc's puts `lib64`, say, for the token, where there is a link to the library for
/// glibc (`packaging/files`).
pub const LIB: &str = "$LIB";

/// The folder and the file name of the library for glibc, of whichever form its absolute path is.
#[must_use]
pub fn parts(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = name.strip_prefix(TOKEN.as_bytes()).unwrap_or(name);
    let (folder, file) = path.split_at(path.iter().rposition(|byte| *byte == b'/')?);
    let above = folder.strip_suffix(LIB.as_bytes()).and_then(|folder| folder.strip_suffix(b"/"));
    (path.starts_with(b"/")).then_some((above.unwrap_or(folder), file.get(1..)?))
}

/// Does the library for musl lie beside `library`, the one for glibc?
#[must_use]
pub fn has_musl(library: &CStr) -> bool {
    let mut path = [0; 1024];
    let mut used = 0;
    let Some((folder, file)) = parts(library.to_bytes()) else { return false };
    for part in [folder, b"/", LIB.as_bytes(), b"/", file, b"\0"] {
        let Some(place) = path.get_mut(used..used + part.len()) else { return false };
        place.copy_from_slice(part);
        used += part.len();
    }
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
    sys::openat(libc::AT_FDCWD, path, libc::O_PATH, 0).map(sys::close).is_ok()
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "is statically linked",
            Self::Go => "is written in Go, which passes the C library by",
            Self::StaticGo => "is written in Go and statically linked (GINNEL_GO=1 has it reached)",
            Self::OtherClass => "is a program of another word size than ginnel",
            Self::OtherMachine => "is a program for another processor",
            Self::Musl => "uses musl, for which ginnel has a library of its own",
            Self::MuslAlone => "uses another C library (musl), and ginnel's library for that is not there",
            Self::MuslGo => "is written in Go, and uses another C library (musl)",
            Self::OtherLibrary => "uses another C library than glibc, or one that is not found",
            Self::OlderGlibc => "uses an older glibc than ginnel's library was built for (make portable builds one for 2.17)",
            Self::NoSuchFile => "does not find ginnel's library where it runs",
            Self::Setuid => "is set-user-id or set-group-id",
            Self::Capabilities => "has file capabilities",
            Self::Unknown => "cannot be looked at",
        })
    }
}

/// What executes programs in Go without a dynamic linker: it lies beside the library.
pub const LOADER: &str = "ginnel-go-loader";

/// By which variable it is told which program.
pub const BY_LOADER: &CStr = c"GINNEL_GO_PROGRAM";

/// The program that this process was started for, if it is the loader.
#[must_use]
pub fn loaded() -> Option<std::ffi::OsString> {
    // SAFETY: takes a number only.
    let file = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    // SAFETY: the path that the kernel has left at the top of the stack.
    let is_loader =
        !file.is_null() && file_name(unsafe { CStr::from_ptr(file) }) == LOADER.as_bytes();
    std::env::var_os(BY_LOADER.to_str().unwrap_or_default()).filter(|_| is_loader)
}

/// Can `loader` be executed in the place of `program`? It needs glibc's dynamic linker, which a
/// container may lack; the program must be one that the kernel would execute, for whoever executes
/// it is to hear if not; and must be there still when the loader looks for it, which descriptors
/// may not be.
#[must_use]
pub fn can_load(loader: &CStr, program: &CStr) -> bool {
    const LINKER: &CStr = c"/lib64/ld-linux-x86-64.so.2";
    let may_be_executed = |path: &CStr| {
        let flags = libc::AT_EACCESS as usize;
        let arguments =
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, libc::X_OK as usize, flags, 0, 0];
        // SAFETY: a terminated path.
        match unsafe { sys::raw(syscalls::Sysno::faccessat2, arguments) } {
            // Before Linux 5.8: by the real user.
            // SAFETY: as above.
            Err(libc::ENOSYS) => unsafe { sys::raw(syscalls::Sysno::faccessat, arguments) }.is_ok(),
            result => result.is_ok(),
        }
    };
    let stays = ![&b"/proc/"[..], b"/dev/fd/", b"/dev/std"]
        .iter()
        .any(|place| program.to_bytes().starts_with(place));
    cfg!(target_arch = "x86_64")
        && stays
        && [loader, LINKER, program].into_iter().all(may_be_executed)
}

/// Has the user switched programs in Go off?
#[must_use]
pub fn is_go_off() -> bool {
    std::env::var_os("GINNEL_GO").is_some_and(|value| value == "0")
}

/// Has the user asked for programs in Go without a dynamic linker, too? A debugger does not find
/// the file of one that was loaded: the kernel says that it is the loader.
#[must_use]
pub fn is_static_go_on() -> bool {
    std::env::var_os("GINNEL_GO").is_some_and(|value| value == "1")
}

/// How a program comes to have the library.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// By `LD_PRELOAD`.
    Preload,
    /// [`LOADER`] is executed in its place.
    Loader,
    /// Not at all.
    #[default]
    None,
}

/// The way for a program of which this was found. `loader`: it can be executed.
#[must_use]
pub fn way(why: Option<Unreachable>, loader: bool) -> Way {
    match why {
        None => Way::Preload,
        Some(Unreachable::Musl) => Way::Preload,
        Some(Unreachable::Go) if cfg!(target_arch = "x86_64") => Way::Preload,
        Some(Unreachable::StaticGo) if loader => Way::Loader,
        Some(_) => Way::None,
    }
}

/// What was found about a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// Why it stays on TCP, or is reached in another way than most.
    pub why: Unreachable,
    interpreter: Option<Name>,
    /// There is a library for musl, too.
    both: bool,
}

impl Finding {
    /// How the library is to be named: not at all to a program that would not start with it (an
    /// older glibc), or would say on standard error that it cannot have it (another kind of
    /// machine, no such file). Those that are known to hand down their environment, with nobody to
    /// see what they start with it, get what does for programs of either C library.
    #[must_use]
    pub fn preload(&self) -> Preload {
        match self.why {
            Unreachable::OtherClass
            | Unreachable::OtherMachine
            | Unreachable::OlderGlibc
            | Unreachable::NoSuchFile => Preload::Gone,
            Unreachable::MuslAlone | Unreachable::MuslGo | Unreachable::OtherLibrary => {
                Preload::TokenOnly
            }
            Unreachable::Musl => Preload::Either,
            Unreachable::Static
            | Unreachable::StaticGo
            | Unreachable::Setuid
            | Unreachable::Capabilities
                if self.both =>
            {
                Preload::Either
            }
            Unreachable::Static
            | Unreachable::Go
            | Unreachable::StaticGo
            | Unreachable::Setuid
            | Unreachable::Capabilities => Preload::Token,
            Unreachable::Unknown => Preload::Kept,
        }
    }

    /// The file that decided, where that is not the program itself but the interpreter of a script.
    #[must_use]
    pub fn interpreter(&self) -> Option<&CStr> {
        self.interpreter.as_ref().and_then(|name| CStr::from_bytes_until_nul(name).ok())
    }
}

/// The name of a script's interpreter: the kernel reads that much of the file (`BINPRM_BUF_SIZE`,
/// linux/binfmts.h), and the last byte stays zero.
type Name = [u8; 256];

/// Size of a program header of a 64-bit file.
const HEADER: u64 = 56;

/// Interpreters of interpreters that the kernel follows.
const DEPTH: usize = 4;

/// Looks whether the program at `path` can have the preloaded library, which its dynamic linker
/// will open as `library` (`None`: by a name that says not where it lies, so that what it needs is
/// not known). `None` if it can, or if there is no such program.
#[must_use]
pub fn look(path: &CStr, library: Option<&CStr>) -> Option<Finding> {
    follow(named(path, library), library)
}

/// The same of an open file.
#[must_use]
pub fn look_at(fd: i32, library: Option<&CStr>) -> Option<Finding> {
    follow(inspect(&mut File::new(fd), None, library), library)
}

/// Does the open file of a program say, beside its notes, that Go's linker made it?
#[must_use]
pub fn has_go_section(fd: i32) -> bool {
    elf::has_go_section(&mut File::new(fd))
}

#[expect(clippy::large_enum_variant, reason = "on the stack, and nothing may be allocated")]
enum Kind {
    Reachable,
    Unreachable(Unreachable),
    Script(Name),
}

fn follow(mut kind: Kind, library: Option<&CStr>) -> Option<Finding> {
    let mut interpreter = None;
    let found =
        |why, interpreter| Some(Finding { why, interpreter, both: library.is_some_and(has_musl) });
    for _ in 0..=DEPTH {
        match kind {
            Kind::Reachable => return None,
            // Most likely it uses what the system's programs use.
            Kind::Unreachable(Unreachable::Unknown) => {
                let why = c_library::of_system(library).unwrap_or(Unreachable::Unknown);
                return found(why, interpreter);
            }
            Kind::Unreachable(why) => return found(why, interpreter),
            Kind::Script(name) => {
                kind = CStr::from_bytes_until_nul(&name)
                    .map_or(Kind::Reachable, |name| named(name, library));
                interpreter = Some(name);
            }
        }
    }
    None
}

fn named(path: &CStr, library: Option<&CStr>) -> Kind {
    if file_name(path).starts_with(b"ld-musl") {
        return Kind::Unreachable(c_library::musl(library));
    }
    // Not to wait for the other end of a FIFO, which nobody executes.
    match sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK, 0) {
        Ok(fd) => {
            let kind =
                inspect(&mut File::new(fd), Some(path).filter(|path| is_linker(path)), library);
            sys::close(fd);
            kind
        }
        // It will not be executed.
        Err(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG) => Kind::Reachable,
        // It may be, all the same.
        Err(_) => Kind::Unreachable(Unreachable::Unknown),
    }
}

/// The dynamic linker itself can be called as a program, and names no other.
fn is_linker(path: &CStr) -> bool {
    c_library::is_glibcs_linker(file_name(path))
}

fn file_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// `linker` is the file's path, if it is a dynamic linker.
fn inspect(file: &mut File, linker: Option<&CStr>, library: Option<&CStr>) -> Kind {
    let Ok(status) = sys::fstat(file.fd) else { return Kind::Unreachable(Unreachable::Unknown) };
    if status.st_mode & libc::S_IFMT != libc::S_IFREG {
        // It cannot be executed.
        return Kind::Reachable;
    }
    if file.holds(0, b"#!") {
        // Set-user-id bits of scripts are not honoured.
        return script(file).map_or(Kind::Unreachable(Unreachable::Unknown), Kind::Script);
    }
    if !file.holds(0, b"\x7fELF") {
        return Kind::Unreachable(Unreachable::Unknown);
    }
    // Also where it is static: that is what can be said for sure.
    match elf::look(file, linker, library) {
        Some(reached @ (Unreachable::Go | Unreachable::StaticGo | Unreachable::Musl)) => {
            Kind::Unreachable(privileged(file.fd, &status).unwrap_or(reached))
        }
        Some(why) => Kind::Unreachable(why),
        None => privileged(file.fd, &status).map_or(Kind::Reachable, Kind::Unreachable),
    }
}

/// The interpreter that a script's first line names.
fn script(file: &mut File) -> Option<Name> {
    let mut name: Name = [0; 256];
    let mut used = 0;
    // The kernel, too, takes the end of the file, and of what it reads, for the end of the line.
    for at in 2..name.len() as u64 {
        let byte = file.number(at, 1).map_or(b'\n', |byte| u8::try_from(byte).unwrap_or(b'\n'));
        match byte {
            b' ' | b'\t' if used == 0 => {}
            b' ' | b'\t' | b'\n' | 0 => break,
            byte => {
                *name.get_mut(used)? = byte;
                used += 1;
            }
        }
    }
    (used > 0).then_some(name)
}

/// Would it run with more rights than this process, so that the dynamic linker ignores preloads
/// (ld.so(8), secure execution)?
fn privileged(fd: i32, status: &libc::stat) -> Option<Unreachable> {
    let (uid, gid) = sys::effective_ids();
    let set = |bit: u32, theirs: u32, own: u32| status.st_mode & bit != 0 && theirs != own;
    if set(libc::S_ISUID, status.st_uid, uid) || set(libc::S_ISGID, status.st_gid, gid) {
        return Some(Unreachable::Setuid);
    }
    (uid != 0 && sys::has_attribute(fd, c"security.capability"))
        .then_some(Unreachable::Capabilities)
}

#[cfg(test)]
mod tests;
