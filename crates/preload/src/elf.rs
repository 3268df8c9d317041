//! What an ELF file says of how it is started (elf(5)).

use crate::file::File;
use crate::{HEADER, Name, Unreachable, c_library};
use std::ffi::CStr;

const CLASS_64: u64 = 2;
const LITTLE: u64 = 1;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
/// The kernel takes no more than 64 KiB of program headers.
const HEADERS_MAX: u64 = (64 << 10) / HEADER;
/// Longest part of a program's file that is read for its notes.
const NOTE_MAX: u64 = 64 << 10;

/// `e_machine` of this program; 0: not known.
pub(super) const MACHINE: u64 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    0
};

/// Why an ELF file does not have this library, if that can be seen in it. `linker` is its path, if
/// it is a dynamic linker.
pub(super) fn look(
    file: &mut File,
    linker: Option<&CStr>,
    library: Option<&CStr>,
) -> Option<Unreachable> {
    const CUT: Option<Unreachable> = Some(Unreachable::Unknown);
    let (Some(class), Some(data), Some(machine)) =
        (file.number(4, 1), file.number(5, 1), file.number(18, 2))
    else {
        return CUT;
    };
    if data != LITTLE || MACHINE != 0 && machine != MACHINE {
        // 32-bit x86 runs on a 64-bit kernel: its word size is what the user knows it by.
        return Some(if class == CLASS_64 {
            Unreachable::OtherMachine
        } else {
            Unreachable::OtherClass
        });
    }
    if class != CLASS_64 {
        return Some(Unreachable::OtherClass);
    }
    let (Some(table), Some(size), Some(count)) =
        (file.number(32, 8), file.number(54, 2), file.number(56, 2))
    else {
        return CUT;
    };
    if size != HEADER {
        // No kernel takes it.
        return CUT;
    }
    let (mut interpreter, mut go) = (None, false);
    for index in 0..count.min(HEADERS_MAX) {
        let header = table.checked_add(index * HEADER)?;
        let (Some(kind), Some(offset), Some(len)) =
            (file.number(header, 4), file.number(header + 8, 8), file.number(header + 32, 8))
        else {
            return CUT;
        };
        match kind {
            PT_NOTE if !go => go = has_go_note(file, offset, len.min(NOTE_MAX)),
            PT_INTERP if interpreter.is_none() => interpreter = Some((offset, len)),
            _ => {}
        }
    }
    let mut name: Name = [0; 256];
    // A linker's flag leaves the note out (`-buildid=`).
    let go = go || has_go_section(file);
    let linker = match interpreter {
        Some((offset, len)) => Some(interpreter_name(file, offset, len, &mut name)),
        None => linker,
    };
    match linker {
        Some(linker) => match c_library::of_linker(linker, library) {
            Some(Unreachable::Musl | Unreachable::MuslAlone) if go => Some(Unreachable::MuslGo),
            why => why.or(go.then_some(Unreachable::Go)),
        },
        None => Some(if go { Unreachable::StaticGo } else { Unreachable::Static }),
    }
}

/// The dynamic linker that is named there.
fn interpreter_name<'a>(file: &mut File, offset: u64, len: u64, room: &'a mut Name) -> &'a CStr {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(room.len() - 1);
    if let (Some(name), Some(room)) = (file.bytes(offset, len), room.get_mut(..len)) {
        room.copy_from_slice(name);
    }
    CStr::from_bytes_until_nul(room).unwrap_or_default()
}

/// Is there the section in which Go's linker says what a program was built of?
pub(super) fn has_go_section(file: &mut File) -> bool {
    const NAME: &[u8] = b".go.buildinfo\0";
    const SIZE: u64 = 64;
    /// Of a table that is longer no more is read.
    const MOST: u64 = 1024;
    let (Some(table), Some(SIZE), Some(count), Some(of_names)) =
        (file.number(40, 8), file.number(58, 2), file.number(60, 2), file.number(62, 2))
    else {
        return false;
    };
    let place = |index: u64| table.saturating_add(index * SIZE);
    let Some(names) = file.number(place(of_names).saturating_add(24), 8) else { return false };
    // The names lie elsewhere: each of the two has its own part of the file at hand.
    let mut strings = File::new(file.fd);
    (0..count.min(MOST)).any(|index| {
        file.number(place(index), 4)
            .is_some_and(|name| strings.holds(names.saturating_add(name), NAME))
    })
}

/// Do the `len` bytes of notes at `offset` hold Go's build id (name "Go", type 4)?
fn has_go_note(file: &mut File, offset: u64, len: u64) -> bool {
    let end = offset.saturating_add(len);
    let mut at = offset;
    while at < end
        && let (Some(name), Some(value), Some(kind)) =
            (file.number(at, 4), file.number(at + 4, 4), file.number(at + 8, 4))
    {
        if kind == 4 && file.holds(at + 12, b"Go\0") {
            return true;
        }
        // Two 32-bit numbers and a little.
        at = at.saturating_add(12 + name.next_multiple_of(4) + value.next_multiple_of(4));
    }
    false
}
