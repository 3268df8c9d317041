//! Redis's own tests: clients in Tcl that hold their connections while a server answers thousands
//! of requests, replicas that follow it, and its own benchmark.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Part, Reader, Suite, fetch};

/// Its files of tests in which clients, replicas or subscribers hold connections. Left out are
/// those of clusters, modules, TLS, of what a server does by itself, and four that take minutes of
/// waiting.
const UNITS: [&str; 29] = [
    "unit/auth",
    "unit/bitops",
    "unit/dump",
    "unit/expire",
    "unit/geo",
    "unit/info",
    "unit/introspection",
    "unit/keyspace",
    "unit/limits",
    "unit/multi",
    "unit/networking",
    "unit/obuf-limits",
    "unit/other",
    "unit/pendingquerybuf",
    "unit/protocol",
    "unit/pubsub",
    "unit/querybuf",
    "unit/quit",
    "unit/scan",
    "unit/scripting",
    "unit/sort",
    "unit/tracking",
    "unit/type/hash",
    "unit/type/list",
    "unit/type/set",
    "unit/type/string",
    "unit/type/zset",
    "unit/wait",
    "integration/redis-benchmark",
];

/// Each unit a part.
///
/// # Errors
/// When the source cannot be fetched, or the server is not installed.
pub fn prepare(base: &Path) -> Result<Suite> {
    let source = fetch::debian_source("redis", base, |dir| {
        // Its tests look for the programs where they are built.
        for (name, program) in [
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-cli"),
            ("redis-benchmark", "redis-benchmark"),
            ("redis-check-aof", "redis-check-aof"),
            ("redis-check-rdb", "redis-check-rdb"),
        ] {
            let program = Path::new("/usr/bin").join(program);
            let at = dir.join("src").join(name);
            symlink(&program, &at).with_context(|| at.display().to_string())?;
        }
        Ok(())
    })?;
    let parts = UNITS.iter().map(|unit| Part {
        name: (*unit).to_owned(),
        // Without colours.
        command: [
            "env",
            "TERM=dumb",
            "tclsh",
            "tests/test_helper.tcl",
            "--clients",
            "1",
            "--single",
            unit,
        ]
        .map(str::to_owned)
        .to_vec(),
        dir: Some(source.dir.clone()),
        limit: Duration::from_secs(900),
        reader: Reader::Redis,
        least: 0,
    });
    let remarks =
        ["Chosen: the files of tests in which clients, replicas or subscribers hold connections."
            .to_owned()];
    Ok(Suite {
        version: format!("{} (Debian)", source.version),
        remarks: remarks.into(),
        parts: parts.collect(),
        ..Suite::default()
    })
}
