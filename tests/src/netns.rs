//! Two network namespaces with a veth pair between them: two containers, as the kernel sees them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two namespaces, removed when dropped. The first has address 10.77.0.1, the second 10.77.0.2.
pub struct Pair {
    names: [String; 2],
}

/// Their addresses.
pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Pair {
    /// Creates them; `None`, after saying why, where this user may not.
    #[must_use]
    pub fn new(what: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !crate::is_root() {
            crate::skip(what, "network namespaces need root");
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("ginnel-test-{}-{n}{side}", std::process::id());
        let pair = Self { names: [name('a'), name('b')] };
        let [a, b] = &pair.names;
        let steps: [&[&str]; 9] = [
            &["netns", "add", a],
            &["netns", "add", b],
            &["-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b],
            &["-n", a, "addr", "add", "10.77.0.1/24", "dev", "eth0"],
            &["-n", b, "addr", "add", "10.77.0.2/24", "dev", "eth0"],
            &["-n", a, "link", "set", "eth0", "up"],
            &["-n", b, "link", "set", "eth0", "up"],
            &["-n", a, "link", "set", "lo", "up"],
            &["-n", b, "link", "set", "lo", "up"],
        ];
        for step in steps {
            if let Err(why) = ip(step) {
                crate::skip(what, &format!("ip {}: {why}", step.join(" ")));
                return None;
            }
        }
        Some(pair)
    }

    /// The name of one of the two.
    #[must_use]
    pub fn name(&self, side: usize) -> &str {
        &self.names[side]
    }

    /// What to put before a program to run it in one of the two.
    #[must_use]
    pub fn enter(&self, side: usize) -> [&str; 4] {
        ["ip", "netns", "exec", &self.names[side]]
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    match Command::new("ip").args(args).output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        Err(e) => Err(e.to_string()),
    }
}
