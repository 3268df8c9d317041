//! Random programs, each run plainly and under the shim, every answer compared.
//!
//! A seed becomes a [`Script`] of system calls ([`generate`]), which the C program
//! `tests/differential/interpret.c` executes, in one process and thread or several. It is run
//! plainly and under the shim ([`run`]) and compared step by step ([`compare`]), but for what the
//! kernel leaves open ([`rules`]) and for known limits ([`limits`]). What differs is repeated ([`judge`]) and made small
//! ([`minimise`]). Small scripts of failures are kept in `tests/differential/kept`.
//!
//! ```no_run
//! use ginnel_tests::differential::{Judge, MODES, Script, Verdict};
//! let mut judge = Judge::new(MODES[0]);
//! assert!(matches!(judge.judge(&Script::of_seed(7)), Verdict::Same));
//! ```

mod apart;
mod asked;
mod compare;
mod generate;
mod judge;
pub mod limits;
mod minimise;
pub mod random;
pub mod rules;
mod run;
mod script;
mod search;

pub use compare::Difference;
pub use judge::{Judge, Verdict, judge_runs, repeats};
pub use minimise::minimise;
pub use run::{Carried, MODES, Mode, Said};
pub use script::Script;
pub use search::{Search, Summary, judge_file, kept, search};
