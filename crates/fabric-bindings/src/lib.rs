//! libfabric's structures, tables of functions and numbers, as the headers of 1.17 have them
//! (Debian 12's): for the provider, which fills the tables, and for `ginnel-switch`, which calls
//! through them.
//!
//! libfabric's own functions are inline in its headers and call through those tables. The few that
//! its library exports are looked up by name by whoever needs them, so nothing here is linked.
//! `scripts/fabric-bindings.sh` writes `bindings.rs` anew.

#[allow(
    missing_docs,
    non_camel_case_types,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "written by bindgen"
)]
mod bindings;

pub use bindings::*;
