//! A cache in one machine, read by a program in Python in another, out of the segment.

use crate::common::{Lab, PATIENCE, wait};
use ginnel_guest::machine::{self, Guest};
use std::path::Path;
use std::process::Command;

const LIBRARY: &str = "/usr/lib/libginnel_cache_client.so.0";

/// Prints the interpreter, then every file that it loads for the module.
const FILES: &str = "import sys, ginnel_cache, socket, time
print(sys.executable)
print('\\n'.join({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)}))";

/// As docs/cache.md has it: the machine's first program of its user.
const READER: &str = r#"
import ginnel_cache, sys, time
cache = ginnel_cache.Client("10.77.0.1:11211")
cache.set("greeting", b"hello")
assert cache.is_neighbour, cache.why
for at in range(200):
    cache.set("key-%d" % at, b"%d" % at * 100)
assert all(cache.get("key-%d" % at) == b"%d" % at * 100 for at in range(200))
direct, asked = cache.counts
assert (direct, asked) == (200, 0), (direct, asked)
open("/tmp/ready", "w").close()
until = time.time() + 60
while time.time() < until:
    try:
        assert cache.get("greeting") == b"hello"
    except ginnel_cache.Error:
        print("ended")
        break
"#;

/// Puts the host's Python into a machine, as far as the module needs it.
fn install_python(guest: &Guest) {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cache-capi/python");
    let client = ginnel_guest::built("libginnel_cache_client.so").expect("the release build");
    // Debian's: others may have a library of their own that a machine has no room for.
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", FILES]).env("PYTHONPATH", &module).env("PYTHONDONTWRITEBYTECODE", "1");
    let said = python.env("GINNEL_CACHE_LIBRARY", &client).output().expect("python3");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = String::from_utf8(said.stdout).expect("paths");
    let mut files: Vec<String> = said.lines().map(str::to_owned).collect();
    for file in files.clone() {
        let libraries = Command::new("ldd").arg(&file).output().expect("ldd");
        let libraries = String::from_utf8_lossy(&libraries.stdout).into_owned();
        let paths = libraries
            .lines()
            .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
        files.extend(paths.map(str::to_owned));
    }
    files.sort();
    files.dedup();
    let place = |file: &str| {
        if file.ends_with("ginnel_cache.py") {
            "/root/ginnel_cache.py".to_owned()
        } else {
            file.to_owned()
        }
    };
    let parents = files
        .iter()
        .filter_map(|file| Path::new(file).parent())
        .map(|path| path.display().to_string());
    guest.sh(&format!("mkdir -p {}", parents.collect::<Vec<_>>().join(" ")));
    // The C library, for one, is there, and runs: it is not to be written over.
    let there = guest.sh(&format!("for f in {}; do [ ! -e $f ] || echo $f; done", files.join(" ")));
    for file in files.iter().filter(|file| there.lines().all(|line| line != *file)) {
        let content = std::fs::read(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        guest.put(&place(file), 0o755, &content).expect("written");
    }
    guest.put(LIBRARY, 0o755, &std::fs::read(client).expect("built")).expect("written");
    guest
        .put(
            "/root/python",
            0o755,
            format!("#!/bin/sh\nexec {} \"$@\"\n", said.lines().next().expect("a path")).as_bytes(),
        )
        .expect("written");
    guest.put("/root/reader.py", 0o644, READER.as_bytes()).expect("written");
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_program_in_python_reads_a_cache_of_another_machine() {
    let _alone = machine::alone();
    let cache = ginnel_guest::built("ginnel-cache").expect("the release build");
    let lab = Lab::boot(2, true, &[cache.to_str().expect("UTF-8"), "nc"]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    install_python(two);
    let serve = "ginnel-cache -u root -l 0.0.0.0 -m 8 --segment & echo $! >pid; wait $!";
    let server = one.start(serve, PATIENCE * 3).expect("started");
    two.sh("for i in $(seq 100); do nc -z 10.77.0.1 11211 && exit 0; sleep 0.1; done; exit 1");
    let read = format!(
        "cd /root; GINNEL_CACHE_LIBRARY={LIBRARY} ./python reader.py; s=$?; : >/tmp/ready; exit $s"
    );
    let reader = two.start(&read, PATIENCE * 2).expect("started");
    wait("a reader that has read, or ended", || {
        (two.run("[ -e /tmp/ready ]", PATIENCE).ok()?.status == 0).then_some(())
    });
    one.sh("kill -9 $(cat pid)");
    let said = reader.finish().expect("ended");
    assert_eq!((said.out.trim(), said.status), ("ended", 0), "{}", said.err);
    drop(server);
    lab.assert_healthy();
}
