//! `--exclude`: rsync's patterns.

use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Patterns, at most.
const MOST: usize = 1000;
/// Bytes of one, at most.
const LONGEST: usize = 1024;

struct Rule {
    glob: GlobMatcher,
    directories: bool,
}

/// What is left out.
#[derive(Default)]
pub struct Filter(Vec<Rule>);

impl Filter {
    /// From patterns: one with `/` in front begins at the top of what is copied; one with `/` in
    /// it is compared with the end of a path, any other with a name; with `/` at its end it is for
    /// directories. `*` stops at `/`, a name of its own `**` does not.
    ///
    /// # Errors
    /// Which pattern is wrong, and why.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        if patterns.len() > MOST {
            return Err(format!("--exclude: at most {MOST} patterns"));
        }
        patterns.iter().map(|pattern| rule(pattern)).collect::<Result<_, _>>().map(Self)
    }

    /// Is this to be left out?
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let fits = |rule: &Rule| (is_directory || !rule.directories) && rule.glob.is_match(path);
        self.0.iter().any(fits)
    }
}

fn rule(pattern: &str) -> Result<Rule, String> {
    let wrong = |why: &str| format!("--exclude {pattern:?}: {why}");
    if pattern.len() > LONGEST {
        return Err(wrong("it is too long"));
    }
    let directories = pattern.ends_with('/');
    let body = pattern.strip_suffix('/').unwrap_or(pattern);
    let glob = match body.strip_prefix('/') {
        Some(top) => top.to_owned(),
        None => format!("**/{body}"),
    };
    if glob.is_empty() || body.is_empty() {
        return Err(wrong("it names nothing"));
    }
    let built = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
    let glob = built.map_err(|error| wrong(&error.kind().to_string()))?.compile_matcher();
    Ok(Rule { glob, directories })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_rsyncs() {
        let out = |pattern: &str, path: &str, dir: bool| {
            let filter = Filter::new(&[pattern.to_owned()]).expect(pattern);
            filter.leaves_out(path.as_bytes(), dir)
        };
        assert!(
            out("*.o", "a/b/c.o", false) && out("*.o", "c.o", false) && !out("*.o", "c.oo", false)
        );
        assert!(out("/top", "top", false) && !out("/top", "a/top", false));
        assert!(
            out("a/b", "x/a/b", false) && out("a/b", "a/b", false) && !out("a/b", "xa/b", false)
        );
        assert!(out("cache/", "x/cache", true) && !out("cache/", "x/cache", false));
        assert!(!out("/a/*", "a/b/c", false) && out("/a/**", "a/b/c", false));
        assert!(out("[ab]?", "x/a1", false) && !out("[ab]?", "x/c1", false));
        assert!(Filter::new(&["[".into()]).is_err() && Filter::new(&["/".into()]).is_err());
        assert!(Filter::new(&vec!["x".into(); 1001]).is_err());
    }

    #[test]
    fn names_that_are_no_text_are_compared_too() {
        let filter = Filter::new(&["*.o".into()]).expect("a pattern");
        assert!(filter.leaves_out(b"a/\xff.o", false) && !filter.leaves_out(b"a/\xff", false));
    }
}
