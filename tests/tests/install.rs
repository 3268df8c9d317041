//! `make install` and `make uninstall`.

use ginnel_tests::{build, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `make WHAT`, of what the tests run.
pub fn make(what: &str, root: &Path, prefix: &str) {
    make_from(build::release_dir(), what, root, prefix);
}

/// The same of what lies in `from`.
pub fn make_from(from: &Path, what: &str, root: &Path, prefix: &str) {
    let from = format!("FROM={}", from.display());
    let root = format!("DESTDIR={}", root.display());
    let source = build::tests_dir().parent().expect("it lies in the source tree");
    let output = Command::new("make")
        .args(["-s", what, &from, &root, &format!("PREFIX={prefix}")])
        .current_dir(source)
        .output();
    let output = output.expect("make runs");
    assert!(output.status.success(), "make {what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("readable").flatten();
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.path())).collect()
}

/// Is all there that is installed? (A tree that was built for a part of the tests lacks the rest.)
pub fn is_built(what: &str) -> bool {
    let missing =
        ["ginnel", "ginneld", "ginnel-prover", "ginnel-broker", "ginnel-bench", "ginnel-go-loader"]
            .into_iter()
            .find(|name| !build::release_dir().join(name).exists());
    if let Some(name) = missing {
        skip(what, &format!("{name} is not built (make product)"));
    }
    missing.is_none()
}

/// Files that `make install` puts below its place, of each kind.
const INSTALLED: [&str; 20] = [
    "bin/ginneld",
    "bin/ginnel-bench",
    "lib/ginnel/ginnel-go-loader",
    "share/man/man1/ginnel-run.1",
    "share/man/man8/ginneld.8",
    "bin/ginnel-prover",
    "share/man/man8/ginnel-prover.8",
    "lib/systemd/system/ginnel-prover.service",
    "bin/ginnel-broker",
    "share/man/man8/ginnel-broker.8",
    "lib/systemd/system/ginnel-broker.service",
    "share/bash-completion/completions/ginnel",
    "share/zsh/site-functions/_ginnel",
    "share/fish/vendor_completions.d/ginnel.fish",
    "lib/sysusers.d/ginnel.conf",
    "lib/libginnel.so",
    "lib/libginnel.so.0",
    "lib/libginnel_cache_client.so.0",
    "include/ginnel.h",
    "include/ginnel-cache.h",
];

#[test]
fn what_make_install_installs_works_where_it_lies_and_goes_again() {
    if !is_built("make install") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    make("install", root, "/opt/ginnel");
    let place = root.join("opt/ginnel");
    for file in INSTALLED {
        assert!(place.join(file).is_file(), "{file} is missing");
    }
    // Each dynamic linker finds its own library: glibc's by these links.
    for folder in ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"] {
        assert!(
            place.join("lib/ginnel").join(folder).join("libginnel_shim.so").is_file(),
            "{folder}"
        );
    }
    let musl = place.join("lib/ginnel/$LIB/libginnel_shim.so");
    assert_eq!(musl.is_file(), build::shim_of_either().is_file());
    let unit =
        std::fs::read_to_string(place.join("lib/systemd/system/ginneld.service")).expect("there");
    assert!(unit.contains("ExecStart=/opt/ginnel/bin/ginneld\n"), "{unit}");

    let flags = std::fs::read_to_string(place.join("lib/pkgconfig/ginnel.pc")).expect("there");
    assert!(flags.contains("prefix=/opt/ginnel\nlibdir=/opt/ginnel/lib\n"), "{flags}");

    // The command finds its library without being told.
    let own = root.join("own");
    let mut run = Command::new(place.join("bin/ginnel"));
    run.env_clear().env("GINNEL_DIR", &own).args([
        "run",
        "--",
        "/bin/sh",
        "-c",
        "echo \"$LD_PRELOAD\"",
    ]);
    let said = String::from_utf8_lossy(&run.output().expect("it starts").stdout).into_owned();
    assert!(said.contains("ginnel/lib/ginnel/libginnel_shim.so"), "{said}");

    // A second time, over what is there; then it is taken away, but for what was changed.
    let configuration = root.join("etc/ginnel/ginneld.toml");
    std::fs::write(&configuration, "[segment.mine]\n").expect("written");
    make("install", root, "/opt/ginnel");
    std::fs::write(place.join("lib/libginnel.so.0.0.9"), "an earlier version's").expect("written");
    make("uninstall", root, "/opt/ginnel");
    assert!(files(&place).is_empty(), "nothing of it stays: {:?}", files(&place));
    assert_eq!(std::fs::read_to_string(&configuration).expect("kept"), "[segment.mine]\n");
    std::fs::remove_file(&configuration).expect("ours");
    make("install", root, "/opt/ginnel");
    make("uninstall", root, "/opt/ginnel");
    assert!(
        !configuration.exists() && files(&place).is_empty(),
        "an unchanged configuration goes too"
    );
}
