//! A real server that keeps its memory in System V's: PostgreSQL with `shared_memory_type=sysv`.

use crate::support::{place, product, ran, text};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// PostgreSQL refuses root: who runs it instead.
const NOBODY: u32 = 65534;

const SCRIPT: &str = r#"
set -e
export PATH=$PATH:/usr/local/bin:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')
cd $1
initdb -D $1/data -A trust >init.log
../bin/ginnel run --sysv -- pg_ctl -D $1/data -w -t 60 -l log \
    -o "-c shared_memory_type=sysv -c shared_buffers=16MB -c fsync=off -c listen_addresses= -k $1" start
psql -h $1 -d postgres -At -c 'create table t as select generate_series(1, 100000) i' -c 'select sum(i) from t'
../bin/ginnel ls
pg_ctl -D $1/data -m fast stop
../bin/ginnel ls
"#;

#[test]
#[ignore = "test-all: PostgreSQL, for half a minute"]
fn postgres_has_its_memory_in_the_segment() {
    if !ginnel_tests::is_root()
        || Command::new("sh")
            .args(["-c", "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"])
            .output()
            .is_ok_and(|done| !done.status.success())
    {
        ginnel_tests::skip(
            "PostgreSQL with System V's memory",
            "it is not installed, or this is not root",
        );
        return;
    }
    let place = place();
    let open = |path: &Path| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("ours")
    };
    let (bin, own) = (place.path().join("bin"), place.path().join("own"));
    for path in [&bin, &own] {
        std::fs::create_dir(path).expect("made");
        open(path);
    }
    open(place.path());
    for file in ["ginnel", "libginnel_shim.so", "libginnel_sysv.so"] {
        std::fs::copy(product(file), bin.join(file)).expect("copied");
        open(&bin.join(file));
    }
    chown(&own, Some(NOBODY), Some(NOBODY)).expect("root may");
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", SCRIPT, "bash"])
        .arg(&own);
    command.env("HOME", &own).env("GINNEL_DIR", own.join("ginnel")).env_remove("GINNEL_SEGMENT");
    let done = ran(&mut command, 180);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}{}", text(&done.stderr));
    let (before, after) = said.split_once("server stopped").expect("it stopped");
    assert!(
        before.contains("5000050000")
            && before.contains("sysv.shm.")
            && before.contains("(postgres)"),
        "{said}"
    );
    assert!(after.contains("No object"), "{said}");
}
