//! iceoryx2's API over a segment, between real processes. Each test is a process of its own, with a
//! directory of its own, and with roles that are further processes (the SDK's stage);
//! docs/tests.md says what each proves.

extern crate iceoryx2_bb_loggers;

mod c;
mod deaths;
#[path = "between/deaths.rs"]
mod deaths_between;
mod errors;
mod forks;
mod limits;
mod loans;
mod patterns;
mod python;
mod random;
mod read_only;
#[path = "between/scenes/mod.rs"]
mod scenes;
mod scripts;
#[path = "../../sdk/tests/stage.rs"]
#[allow(dead_code, reason = "the SDK's tests use more of it")]
mod stage;
mod users;
