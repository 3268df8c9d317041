//! The library that `ginnel run --sysv` preloads: System V shared memory and semaphores
//! (sysvipc(7)) of unmodified programs live in Ginnel's segment, and so have the same meaning in
//! other containers and virtual machines that have it.
//!
//! | file | what |
//! |---|---|
//! | `hooks.rs` | the C entry points: `shmget`, `shmat`, `shmdt`, `shmctl`, `semget`, `semop`, `semtimedop`, `semctl` |
//! | `memory.rs`, `semaphores.rs` | what each call means, over [`ginnel::sysv`] |
//! | `process.rs`, `fork.rs` | what this process has of the segment; fork |
//! | `map.rs` | where a segment is attached |
//! | `caller.rs` | who calls |
//! | `jumps.rs` | handlers of signals that leave a call by `siglongjmp` |
//! | `user.rs` | the program's memory, as its arguments name it |
//! | `kernel.rs`, `next.rs` | the kernel's own calls, for what cannot be carried; the C library's functions |
//!
//! The process joins the segment at its first call. Where it cannot, all of its calls go to the
//! kernel, and it says so once on standard error. While a call is in the midst of a change, signals
//! of its thread wait.

mod caller;
mod fork;
mod hooks;
mod jumps;
mod kernel;
mod map;
mod memory;
mod next;
mod process;
mod semaphores;
mod user;
