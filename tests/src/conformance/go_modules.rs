//! Own tests of servers in Go that hold connections, from Go's module proxy: each package's both
//! static and position-independent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::go_built::{self, Project};
use super::{Part, Reader, Suite};

/// Each with the least share of its bytes that goes through rings: what ends after an exchange or
/// two, or speaks over unix sockets and pipes, is not carried.
const PROJECTS: [(Project, u8); 3] = [
    (
        Project {
            name: "nats-tests",
            modules: &["github.com/nats-io/nats-server/v2@v2.15.2"],
            programs: &[],
            tests: &[("nats", "github.com/nats-io/nats-server/v2/test")],
        },
        50,
    ),
    (
        Project {
            name: "etcd-tests",
            modules: &["go.etcd.io/etcd/server/v3@v3.6.8"],
            programs: &[],
            tests: &[
                ("rafthttp", "go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"),
                ("tcpproxy", "go.etcd.io/etcd/server/v3/proxy/tcpproxy"),
                ("transport", "go.etcd.io/etcd/client/pkg/v3/transport"),
            ],
        },
        0,
    ),
    (
        Project {
            name: "grpc-tests",
            modules: &["google.golang.org/grpc@v1.85.0"],
            programs: &[],
            tests: &[("transport", "google.golang.org/grpc/internal/transport")],
        },
        0,
    ),
];

/// A part for each package and way.
///
/// # Errors
/// When none of them can be built.
pub fn prepare(base: &Path) -> Result<Suite> {
    let (mut parts, mut remarks) = (Vec::new(), Vec::new());
    for (project, least) in &PROJECTS {
        match parts_of(project, *least, base) {
            Ok(more) => parts.extend(more),
            Err(error) => remarks.push(format!("Not built: {} ({error:#}).", project.name)),
        }
    }
    ensure!(!parts.is_empty(), "{}", remarks.join("\n"));
    let versions = PROJECTS
        .iter()
        .flat_map(|(project, _)| project.modules)
        .map(|module| module.rsplit('/').next().unwrap_or(module));
    Ok(Suite { version: versions.collect::<Vec<_>>().join(", "), remarks, parts })
}

fn parts_of(project: &Project, least: u8, base: &Path) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for built in go_built::build(project, base)? {
        for (name, package) in project.tests {
            let program = built.folder.join(name).to_string_lossy().into_owned();
            let project = go_built::source(project, base, package)?;
            parts.push(Part {
                name: format!("{name}, {}", built.kind),
                command: [&program, "-test.v", "-test.short", "-test.timeout=8m"]
                    .map(str::to_owned)
                    .to_vec(),
                dir: Some(project),
                limit: Duration::from_secs(600),
                reader: Reader::Go,
                least,
            });
        }
    }
    Ok(parts)
}
