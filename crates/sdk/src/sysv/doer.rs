//! Who does an operation, as others know it: for what is undone when it ends.
//!
//! A party ends with an exec, and what a process has to undo does not (semop(2)): whoever finds a
//! dead party looks whether its process goes on, by its number, the time at which it began, and the
//! namespace in which it has that number. Who is in another namespace, or machine, cannot, and
//! takes it for gone.

use ginnel_region::sys;
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;

/// A process: as a party, and as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doer {
    pub party: u64,
    pub pid: u32,
    /// Clock ticks after boot at which it began, and the inode of its pid namespace.
    pub process: [u64; 2],
}

impl Doer {
    /// This process.
    pub fn own(party: u64) -> Self {
        let pid = sys::pid();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
        Self { party, pid, process: [began(pid).unwrap_or(0), namespace] }
    }

    /// Does this process go on, as far as `own` can tell?
    pub fn goes_on(&self, own: &Self) -> bool {
        let [begin, namespace] = self.process;
        begin != 0
            && namespace != 0
            && namespace == own.process[1]
            && began(self.pid) == Some(begin)
    }
}

/// When a process began (`proc_pid_stat(5)`, field 22); `None` where there is none, or it has
/// ended.
fn began(pid: u32) -> Option<u64> {
    let path = CString::new(format!("/proc/{pid}/stat")).ok()?;
    let text = sys::read_file(&path);
    // Its name, in brackets, may have any byte.
    let rest = text.get(text.iter().rposition(|&byte| byte == b')')? + 1..)?;
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(began)
}
