//! One executable of the protocol's models: it is linked once. One of them:
//! `cargo test -p ginnel-tcp --test main switching_model::`.

mod meeting_model;
mod switching_model;
