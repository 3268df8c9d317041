//! What help and errors look like. `TRYCMD=overwrite cargo test -p ginnel-cli` takes the present
//! words over.

#[test]
fn words() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(directory.path(), own).expect("it is ours");
    trycmd::TestCases::new()
        .register_bin("ginnel", std::path::Path::new(crate::ginnel()))
        .env("GINNEL_DIR", directory.path().to_string_lossy())
        .env("GINNEL_SHIM", "/no/shim.so")
        .insert_var("[DIR]", directory.path().to_string_lossy().into_owned())
        .expect("a variable")
        .case("tests/cmd/*.trycmd");
}
