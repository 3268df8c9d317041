//! The `ginnel` command: starts programs with their sockets accelerated, and shows what is carried
//! how.
//!
//! | module | part |
//! |---|---|
//! | [`args`] | every command and flag, once: help, manual page and completions come from it |
//! | [`run`], [`elf`], [`exec`] | `ginnel run`: what the program is, and becoming it |
//! | [`survey`], [`report`], [`address`] | what a ledger and its segments say, as values |
//! | [`status`], [`top`], [`table`] | the same for people |
//! | [`doctor`] | `ginnel doctor` |
//! | [`detach`] | `ginnel detach`, `ginnel attach` |
//! | [`segment`], [`name`] | `ginnel segment` |
//! | [`objects`] | `ginnel ls`, `ginnel rm` |
//! | [`cp`] | `ginnel cp`, over the crate `ginnel-cp` |
//! | [`served`] | segments of `ginneld` that programs of the host may use |
//! | [`service`] | `ginnel service`: services of systemd
//! | [`container`] | `ginnel container`: what a container is given
//! | [`vm`] | `ginnel vm` |
//! | [`mpi`] | `ginnel mpirun`, `ginnel mpi env` |
//! | [`bench`] | `ginnel bench`: becoming ginnel-bench |
//!
//! The Rust runtime's start is left out: it would ignore SIGPIPE and open closed standard
//! descriptors, and `ginnel run` would hand both on to the program.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code, reason = "the tests have their own main"))]
#![deny(unsafe_code)]

mod address;
mod args;
mod bench;
mod container;
mod cp;
mod detach;
mod doctor;
mod exec;
mod generate;
mod mpi;
mod name;
mod objects;
mod policy;
mod report;
mod run;
mod segment;
mod served;
mod service;
mod size;
mod status;
mod survey;
mod table;
mod top;
mod vm;

use args::{Cli, Command};
use clap::Parser;
#[cfg(not(test))]
use std::ffi::OsStr;
use std::ffi::OsString;
#[cfg(not(test))]
use std::os::unix::ffi::OsStrExt;

/// Something went wrong; it was said on standard error.
const FAILED: i32 = 1;

/// What the C library starts. It hands over the arguments: glibc tells Rust's library of them
/// before, musl does not.
#[cfg(not(test))]
#[expect(
    unsafe_code,
    reason = "the name by which the C library calls it; no other definition of it is linked"
)]
#[unsafe(no_mangle)]
extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    let arguments = (0..usize::try_from(argc).unwrap_or(0)).map(|at| {
        // SAFETY: the C library hands over so many pointers to strings, which stay (C11,
        // 5.1.2.2.1).
        let argument = unsafe { std::ffi::CStr::from_ptr(*argv.add(at)) };
        OsStr::from_bytes(argument.to_bytes()).to_owned()
    });
    start(arguments)
}

fn start(arguments: impl Iterator<Item = OsString>) -> i32 {
    // Root's commands look at all users' files, which their owners may cut short meanwhile.
    ginnel_region::cut::survive();
    let mut wrong = false;
    let done = match Cli::parse_from(arguments).command {
        Command::Run(args) => return run::run(&args),
        Command::Cp(args) => return cp::cp(&args),
        Command::Mpirun(args) => return mpi::mpirun(&args),
        Command::Mpi(args) => match args.command {
            args::mpi::MpiCommand::Env(args) => mpi::env(&args),
        },
        Command::Bench(args) => bench::bench(&args),
        Command::Status(args) => status::status(&args),
        Command::Doctor(args) => doctor::doctor(&args).map(|well| wrong = !well),
        Command::Top(args) => top::top(&args),
        Command::Detach(args) => detach::detach(&args),
        Command::Attach(args) => detach::attach(&args),
        Command::Segment(args) => segment::segment(&args.command),
        Command::Ls(args) => objects::list(&args),
        Command::Rm(args) => objects::remove(&args),
        Command::Service(args) => service::service(&args.command),
        Command::Container(args) => container::container(&args.command),
        Command::Vm(args) => vm::vm(&args.command),
        Command::Generate(args) => generate::generate(&args),
    };
    match done {
        Ok(()) if wrong => FAILED,
        Ok(()) => 0,
        Err(error) => {
            eprintln!("ginnel: {error:#}");
            FAILED
        }
    }
}
