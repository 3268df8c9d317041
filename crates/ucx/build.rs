//! As for the shim, the unwinder comes from `libgcc_eh.a`: no library is loaded with this one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined=_Unwind_Resume");
        println!("cargo::rustc-link-lib=dylib=gcc_eh");
    }
}
