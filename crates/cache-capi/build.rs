//! Gives the shared library the name by which programs load it. Its number changes with what they
//! may rely on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libginnel_cache_client.so.0");
}
