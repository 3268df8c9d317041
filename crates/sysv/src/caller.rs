//! Who calls: what the kernel would look at.

use ginnel::sysv::Caller;

/// `CAP_IPC_LOCK` (capabilities(7)).
pub(crate) const IPC_LOCK: u32 = 14;

/// What a call of process `pid`, this one, is held against.
pub(crate) fn of(pid: u32) -> Caller {
    // SAFETY: no arguments, and none fails.
    let (uid, gid) = (|| unsafe { libc::geteuid() }, || unsafe { libc::getegid() });
    Caller { pid, uid, gid, in_group, is_capable }
}

fn in_group(gid: u32) -> bool {
    let mut groups = vec![0; 1024];
    loop {
        let room = i32::try_from(groups.len()).unwrap_or(i32::MAX);
        // SAFETY: room for so many.
        let count = unsafe { libc::getgroups(room, groups.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => return groups.iter().take(count).any(|&group| group == gid),
            // More than there is room for (getgroups(2)).
            Err(_) if groups.len() < 65536 => groups.resize(65536, 0),
            Err(_) => return false,
        }
    }
}

pub(crate) fn is_capable(capability: u32) -> bool {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`: two words of each kind.
    const VERSION: u32 = 0x2008_0522;
    let (mut header, mut sets) = (Header { version: VERSION, pid: 0 }, [[0u32; 3]; 2]);
    // SAFETY: both are as the kernel has them; effective, permitted and inheritable ones, twice.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    done == 0 && sets[0][0] >> capability & 1 == 1
}
