//! libfabric loads providers that are called `lib…-fi.so`, and no crate's name has a hyphen: beside
//! the library that cargo makes lies a link to it. Also, as for the shim, the unwinder comes from
//! `libgcc_eh.a`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined=_Unwind_Resume");
        println!("cargo::rustc-link-lib=dylib=gcc_eh");
    }
    // OUT_DIR is PROFILE/build/CRATE/out.
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    if let Some(profile) = Path::new(&out).ancestors().nth(3) {
        let _ = std::os::unix::fs::symlink("libginnel_fi.so", profile.join("libginnel-fi.so"));
    }
}
