//! Programs in C and C++ against the built libginnel.so, as a user compiles them.

mod programs;
mod python;
