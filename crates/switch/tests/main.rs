//! The switch by vhost-user: front ends of the tests' own, and whatever they do.

mod command;
mod common;
mod hostile;
mod hostile_hosts;
mod hosts;
mod in_place;
mod in_place_attack;
mod in_place_reload;
mod kernel;
mod messages;
mod reload;
mod reload_attack;
mod reload_load;
mod switching;
mod systemd;
mod taken_away;
mod tap;
mod turns;
mod two_hosts;
mod vsock;
mod vsock_attack;
