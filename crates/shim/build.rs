//! Links the library with the unwinder of `libgcc_eh.a`, or with Rust's own, instead of that of
//! `libgcc_s.so.1`.
//!
//! Rust's standard library refers to the unwinder, and rustc names `libgcc_s` behind it, as a
//! library that is needed only if a symbol is still missing by then. So the archive is named before
//! it. The preloaded library must not need more than the C library: an image without
//! `libgcc_s.so.1` could start no program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        // GNU ld takes from an archive only what is asked for by then, and the standard library
        // comes later: so this symbol is asked for here. The object that has it has the others too.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined=_Unwind_Resume");
        // There is no shared library of this name, and rustc would look for a "static" one itself.
        println!("cargo::rustc-link-lib=dylib=gcc_eh");
    }
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") {
        // The one that Rust brings for programs of musl's: libgcc's would ask the C library for
        // what glibc alone has. By its path, for its folder has a C library, too. What rustc names
        // is empty.
        let variable = |name| std::env::var_os(name).expect("cargo says");
        let said = std::process::Command::new(variable("RUSTC"))
            .args(["--print", "target-libdir", "--target"])
            .arg(variable("TARGET"))
            .output();
        let folder = String::from_utf8(said.expect("rustc runs").stdout).expect("a path");
        let out = std::path::PathBuf::from(variable("OUT_DIR"));
        std::fs::write(out.join("libgcc_s.a"), "!<arch>\n")
            .expect("the target folder can be written");
        println!("cargo::rustc-link-search=native={}", out.display());
        println!("cargo::rustc-cdylib-link-arg={}/self-contained/libunwind.a", folder.trim());
    }
}
