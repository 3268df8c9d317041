//! Real programs under test: the framework that starts, watches and ends them.
