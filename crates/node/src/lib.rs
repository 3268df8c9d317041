//! One process's presence in one segment.

pub mod bits;
pub mod budget;
pub mod cgroup;
pub mod dead;
pub mod home;
pub mod join;
pub mod joined;
pub mod node;
pub mod place;
pub mod processes;
mod rights;
pub mod settings;
pub mod table;
pub mod waiter;

pub use node::Node;
