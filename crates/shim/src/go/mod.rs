//! Programs written in Go, which make their system calls themselves, without the C library.
//!
//! Nearly all of them go through one short function of Go's runtime (`Syscall6`). Before the
//! program starts its code is replaced by a jump to [`stub`], which switches to a stack of C's and
//! sends the call through the library's routing by number, as a C program's `syscall()`. Programs
//! with cgo need no more than that, and two more functions: for a new process, and for the
//! process's end. In programs without cgo threads are Go's own, and have Go's FS register. There
//! the functions for threads and signals are replaced too, so that every thread is one of the C
//! library's that runs Go's code.
//!
//! Rule: never worse. All is looked at before the first byte is changed ([`find`]), and where
//! anything is not as it must be the program is left alone: its connections stay on TCP.
//!
//! | file | what |
//! |---|---|
//! | `image`, `find`, `known` | is it Go; where its functions are; their code in each release |
//! | `patch`, `stub`, `gate`, `context`, `registers` | replacing them, by what, and what a thread needs for that |
//! | `calls`, `exe` | a call that has come through |
//! | `threads`, `signals` | threads of Go's own, and their handlers |
//! | `load` | programs without a dynamic linker |
//!
//! The same is done by AppScope (static programs, with a C library of its own) and by mirrord
//! (system calls of Go through `asmcgocall`).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic would end the program"
)]

mod calls;
mod context;
mod exe;
mod find;
mod gate;
mod image;
mod known;
mod load;
mod patch;
mod registers;
mod signals;
mod stub;
mod threads;

use crate::runtime;
use find::Found;
use ginnel_region::sys;
use image::Image;
use known::Kind;
use patch::Jump;

/// By the constructor: looks at the program, and reaches it if it is Go's.
pub fn start() {
    let Some(image) = Image::of_process() else { return };
    if runtime::attachment().is_none() {
        return;
    }
    let named = image.has_go_note();
    // SAFETY: takes a number only.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let reached = match sys::openat(libc::AT_FDCWD, c"/proc/self/exe", libc::O_RDONLY, 0) {
        Ok(fd) => {
            let is_go = named || ginnel_preload::has_go_section(fd);
            let reached = if is_go { take_over(&image, fd, entry) } else { Ok(()) };
            sys::close(fd);
            reached
        }
        Err(_) if named => Err("its file cannot be read"),
        Err(_) => Ok(()),
    };
    if let Err(why) = reached {
        leave_alone(why);
    }
}

/// The program is left alone. What it has inherited is brought to TCP: it would not know of rings.
fn leave_alone(why: &str) {
    if let Some(attachment) = runtime::attachment() {
        runtime::say(
            attachment.settings.verbose,
            &format!("a program in Go: {why}; it stays on TCP"),
        );
        crate::ops::process::unseen();
    }
}

/// Replaces the functions of the program in the open file `fd`, mapped as `image` says.
///
/// # Errors
/// Why it is left alone: nothing has changed.
fn take_over(image: &Image, fd: i32, entry: usize) -> Result<(), &'static str> {
    if ginnel_preload::is_go_off() {
        return Err("GINNEL_GO is 0");
    }
    if cfg!(target_env = "musl") {
        return Err("it uses musl");
    }
    if runtime::attachment().is_none_or(|attachment| attachment.settings.policy.denies_everything())
    {
        return Err("the policy denies it");
    }
    // SAFETY: takes a number only.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Err("it has more rights than its user");
    }
    let found = find::find(image, fd, entry)?;
    if found.cgo && !image.is_dynamic() {
        return Err("it has a C library of its own");
    }
    let first = if found.cgo { None } else { Some(own_threads(&found, image)?) };
    if found.cgo && !context::watch_threads() {
        return Err("there is no key for its threads");
    }
    calls::choose(!found.cgo);
    crate::linger::start();
    let mut jumps = found.sites.iter().map(|site| Jump {
        from: site.at,
        room: site.len,
        to: replacement(site, found.cgo),
    });
    // SAFETY: no thread runs but this one, which is not in the program's code; each function's code
    // is one that the replacement stands for, and what that needs is ready.
    unsafe { patch::patch(&mut jumps.by_ref().collect::<Vec<_>>())? };
    if let Some(first) = first {
        // SAFETY: `own_threads` has looked whether that may be done; Go and the C library use no
        // GS.
        unsafe { registers::set_gs(first.addr()) };
    }
    Ok(())
}

/// Makes ready what a program needs whose threads are Go's own.
fn own_threads(found: &Found, image: &Image) -> Result<*mut context::Context, &'static str> {
    if !registers::may_be_set() {
        return Err("this kernel or processor does not let programs set FS");
    }
    let child = found
        .sites
        .iter()
        .find_map(|site| Some(site.at + site.body.places_in_clone()?.1))
        .ok_or("it makes no threads")?;
    threads::prepare(child, found.tls);
    threads::settle_signals();
    signals::start(image.code());
    context::of_first_thread().ok_or("there is no memory")
}

/// What takes the place of a function.
fn replacement(site: &find::Site, cgo: bool) -> usize {
    macro_rules! either {
        ($name:ident) => {
            if cgo {
                stub::of_c_threads::$name as *const ()
            } else {
                stub::of_own_threads::$name as *const ()
            }
        };
    }
    let function = match site.body.kind {
        Kind::Syscall => either!(syscall),
        Kind::Vfork if site.body.result == 0x28 => either!(vfork_of_3),
        Kind::Vfork if site.body.result == 0x20 => either!(vfork_of_2),
        Kind::Vfork => either!(vfork_of_1),
        Kind::Exit => either!(exit),
        Kind::EpollControl => either!(epoll_control),
        Kind::EpollWait => either!(epoll_wait),
        Kind::Clone => stub::clone as *const (),
        Kind::ExitThread => stub::exit_thread as *const (),
        Kind::SignalAction => stub::signal_action as *const (),
        Kind::ThreadLocals => stub::thread_locals as *const (),
    };
    function.addr()
}
