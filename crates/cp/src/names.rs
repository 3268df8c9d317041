//! Paths and names that a peer sends, and how they are shown.

use std::borrow::Cow;

/// Bytes of a path, as Linux bounds it (PATH_MAX, without the zero).
pub const MOST_PATH: usize = 4095;
/// Bytes of one name in it.
pub const MOST_NAME: usize = 255;

/// Is this the path of something below a base? Names between slashes, none of them empty, `.` or
/// `..`; the empty path is the base itself.
///
/// # Errors
/// What is wrong with it.
pub fn check(path: &[u8]) -> Result<(), &'static str> {
    if path.is_empty() {
        return Ok(());
    }
    if path.len() > MOST_PATH {
        return Err("a path is too long");
    }
    path.split(|&byte| byte == b'/').try_for_each(check_name)
}

/// Is this one name?
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("a path has an empty name"),
        b"." | b".." => Err("a path has a name that leads elsewhere"),
        _ if name.len() > MOST_NAME => Err("a name is too long"),
        _ if name.iter().any(|&byte| byte == 0 || byte == b'/') => Err("a name holds a zero byte"),
        _ => Ok(()),
    }
}

/// How the name of an unfinished file ends.
pub const PARTIAL: &[u8] = b".ginnel-partial";

/// Is this the name of an unfinished file?
#[must_use]
pub fn is_partial(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(PARTIAL)
}

/// The directory and the name of a path.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The path of a name in a directory.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// A path for people: what could play with a terminal is escaped.
#[must_use]
pub fn shown(path: &[u8]) -> String {
    clean(&String::from_utf8_lossy(path))
}

/// A peer's words for people, likewise.
#[must_use]
pub fn clean(text: &str) -> String {
    let plain = |letter: char| -> Cow<'static, str> {
        if letter.is_control() {
            letter.escape_default().to_string().into()
        } else {
            letter.to_string().into()
        }
    };
    text.chars().map(plain).collect()
}

/// A number for a name that nobody is to guess.
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    let whole = rustix::rand::getrandom(&mut bytes, flags).is_ok_and(|read| read == bytes.len());
    if whole { u64::from_ne_bytes(bytes) } else { u64::from(std::process::id()) << 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for good in ["", "a", "a/b", ".a", "...", "a/..b", "a\nb", "-"] {
            assert_eq!(check(good.as_bytes()), Ok(()), "{good:?}");
        }
        for bad in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0b"] {
            assert!(check(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(check(&[b'x'; 256]).is_err() && check(&[b'x'; 255]).is_ok());
        assert!(check(&b"x/".repeat(3000)).is_err());
        assert!(check_name(b"a/b").is_err());
    }

    #[test]
    fn what_is_shown_cannot_play_with_a_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("ü".as_bytes()), "ü");
    }

    #[test]
    fn a_path_is_taken_apart_and_put_together() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"c"), (&b""[..], &b"c"[..]));
        assert_eq!((join(b"", b"c"), join(b"a/b", b"c")), (b"c".to_vec(), b"a/b/c".to_vec()));
    }
}
