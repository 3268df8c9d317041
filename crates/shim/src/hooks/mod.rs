//! The C entry points.
