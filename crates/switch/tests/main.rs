//! The switch by vhost-user: front ends of the tests' own, and whatever they do.

mod command;
mod common;
mod hostile;
mod switching;
mod vsock;
