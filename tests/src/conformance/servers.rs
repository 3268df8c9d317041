//! Real servers with their own clients, under load for two minutes each (`LOAD_SECONDS`), their
//! results checked: the scripts in `tests/servers`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::go_built::{self, Project};
use super::{Part, Reader, Suite, fetch};
use crate::build;

/// What the scripts of these names run, built for them: they find it in `GO_PROGRAMS`. Nearly all
/// of their bytes are of connections that stay, so nine of ten bytes are to go through rings.
const IN_GO: [Project; 5] = [
    Project {
        name: "caddy",
        modules: &["github.com/caddyserver/caddy/v2@v2.11.9"],
        programs: &[("caddy", "github.com/caddyserver/caddy/v2/cmd/caddy")],
        tests: &[],
        tags: "",
    },
    Project {
        name: "coredns",
        modules: &["github.com/coredns/coredns@v1.15.0"],
        programs: &[("coredns", "github.com/coredns/coredns")],
        tests: &[],
        tags: "",
    },
    Project {
        name: "etcd",
        // The module with the benchmark is published for few releases: this is the last of them.
        modules: &[
            "go.etcd.io/etcd/v3@v3.6.8",
            "go.etcd.io/etcd/server/v3@v3.6.8",
            "go.etcd.io/etcd/etcdctl/v3@v3.6.8",
        ],
        programs: &[
            ("etcd", "go.etcd.io/etcd/server/v3"),
            ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
            ("etcd-benchmark", "go.etcd.io/etcd/v3/tools/benchmark"),
        ],
        tests: &[],
        tags: "",
    },
    Project {
        name: "grpc",
        modules: &["google.golang.org/grpc@v1.85.0"],
        programs: &[
            ("grpc-server", "google.golang.org/grpc/benchmark/server"),
            ("grpc-client", "google.golang.org/grpc/benchmark/client"),
        ],
        tests: &[],
        tags: "",
    },
    Project {
        name: "nats",
        modules: &[
            "github.com/nats-io/nats-server/v2@v2.15.3",
            "github.com/nats-io/nats.go@v1.55.0",
        ],
        programs: &[
            ("nats-server", "github.com/nats-io/nats-server/v2"),
            ("nats-bench", "github.com/nats-io/nats.go/examples/nats-bench"),
        ],
        tests: &[],
        tags: "",
    },
];

/// Of a hundred bytes of a server in Go at least so many go through rings.
const LEAST: u8 = 90;

/// Each script a part. What is not installed is skipped by its script.
///
/// # Errors
/// When the scripts cannot be read.
pub fn prepare(base: &Path) -> Result<Suite> {
    // Where every user may read them, wherever the source lies.
    let folder = base.join("scripts");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let from = build::tests_dir().join("servers");
    fetch::said(&mut fetch::command(
        "cp",
        &["-r", &from.to_string_lossy(), &folder.to_string_lossy()],
        base,
    ))?;
    let mut scripts: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    scripts.sort_by_key(std::fs::DirEntry::file_name);
    let (mut parts, mut not_built) = (Vec::new(), Vec::new());
    for path in scripts.into_iter().map(|entry| entry.path()) {
        let Some(name) =
            path.file_stem().and_then(|name| name.to_str()).filter(|name| *name != "lib")
        else {
            continue;
        };
        let script = path.to_string_lossy().into_owned();
        let Some(project) = IN_GO.iter().find(|project| project.name == name) else {
            parts.push(part(name.to_owned(), vec!["sh".to_owned(), script], 0));
            continue;
        };
        match go_built::build(project, base) {
            Ok(all) => parts.extend(all.into_iter().map(|built| {
                let programs = format!("GO_PROGRAMS={}", built.folder.display());
                let module = format!("GO_MODULE={}", project.modules[0]);
                part(
                    format!("{name}, {}", built.kind),
                    ["env", &programs, &module, "sh", &script].map(str::to_owned).to_vec(),
                    LEAST,
                )
            })),
            Err(error) => not_built.push(format!("{name} ({error:#})")),
        }
    }
    let seconds = std::env::var("LOAD_SECONDS").unwrap_or_else(|_| "120".to_owned());
    let version = format!("below; {seconds} s of load each");
    Ok(Suite { version, not_built, parts, ..Suite::default() })
}

fn part(name: String, command: Vec<String>, least: u8) -> Part {
    Part { name, command, dir: None, limit: Duration::from_secs(900), reader: Reader::Tap, least }
}

/// Only the servers in Go, under load for so many seconds.
///
/// # Errors
/// As [`prepare`].
pub fn in_go(base: &Path, seconds: u32) -> Result<Suite> {
    let mut suite = prepare(base)?;
    suite.parts.retain(|part| part.least > 0);
    suite
        .parts
        .iter_mut()
        .for_each(|part| part.command.insert(1, format!("LOAD_SECONDS={seconds}")));
    Ok(suite)
}
