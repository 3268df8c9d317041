//! Names of segments: a plain name lies in the user's directory, anything with a slash is a path.

use ginnel_node::processes::is_process_table;
use ginnel_tcp::ledger::is_ledger;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A checked name or path of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentName(String);

impl SegmentName {
    /// The segment's file.
    pub fn path(&self, directory: &Path) -> PathBuf {
        if self.is_path() { PathBuf::from(&self.0) } else { directory.join(&self.0) }
    }

    /// Is it a path?
    pub fn is_path(&self) -> bool {
        self.0.contains('/')
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SegmentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.rsplit('/').next().unwrap_or(text);
        if !text.contains('/')
            && !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        {
            return Err(
                "a name is made of letters, digits, '.', '_' and '-'; a path contains a slash"
                    .into(),
            );
        }
        match name {
            "" => Err("it names no file".into()),
            ledger if is_ledger(ledger) => {
                Err(format!("'{ledger}' is the name of a list of sockets; choose another name"))
            }
            table if is_process_table(table) => {
                Err(format!("'{table}' is the name of a list of processes; choose another name"))
            }
            _ if name.starts_with('.') => Err("a name does not begin with '.'".into()),
            _ if is_by_product(name) => {
                Err("names that end in '.wake' or '.new' belong to other segments; choose another"
                    .into())
            }
            _ if name.len() > 200 => Err("a name has at most 200 characters".into()),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

/// Is this what a segment has beside it (its wake-ups, or the draft of a new one)?
pub fn is_by_product(name: &str) -> bool {
    name.ends_with(".wake") || name.ends_with(".new")
}

/// Is this a file that a segment's members make in its directory of wake-ups
/// (`ginnel_node::waiter`, `ginnel_tcp::attach`, `ginnel_fabric`)?
pub fn is_wake_file(name: &str) -> bool {
    let rest = |kind: char| name.strip_prefix(kind).filter(|rest| !rest.is_empty());
    rest('w').is_some_and(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || rest('m').is_some_and(|member| member.bytes().all(|byte| byte.is_ascii_digit()))
        || ["parties", "endpoints"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["default", "a", "A.b_c-9", "./x", "/dev/shm/with space/seg"] {
            assert!(good.parse::<SegmentName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            ".hidden",
            "a b",
            "ü",
            "sockets",
            "sockets-9",
            "processes-1",
            "x.wake",
            "x.new",
            "/dev/shm/",
            "..",
            "/x/.y",
            "/x/sockets",
        ] {
            assert!(bad.parse::<SegmentName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn wake_files_are_told_from_others() {
        assert!(is_wake_file("w0123456789abcdef") && is_wake_file("m0") && is_wake_file("m65535"));
        assert!(is_wake_file("parties") && is_wake_file("endpoints"));
        assert!(
            !["w", "m", "m1x", "w0123", "notes", "w0123456789abcdeg"]
                .iter()
                .any(|name| is_wake_file(name))
        );
    }

    #[test]
    fn plain_names_lie_in_the_directory() {
        let path =
            |name: &str| name.parse::<SegmentName>().expect("a good name").path(Path::new("/d"));
        assert_eq!(path("a"), Path::new("/d/a"));
        assert_eq!(path("./a"), Path::new("./a"));
    }
}
