//! Own tests of servers in Go that hold connections, from Go's module proxy: each package's both
//! static and position-independent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::go_built::{self, Project};
use super::{Part, Reader, Suite};

/// The tests of a project.
struct Tested {
    project: Project,
    /// The least share of its bytes, of a hundred, that goes through rings: what ends after an
    /// exchange or two, or speaks over unix sockets and pipes, is not carried.
    least: u8,
    /// The tests that are not run, by a pattern of their names, and why.
    left_out: Option<(&'static str, &'static str)>,
    /// How many minutes a run of a package's tests may take on a busy machine.
    minutes: u64,
}

const PROJECTS: [Tested; 3] = [
    Tested {
        project: Project {
            name: "nats-tests",
            modules: &["github.com/nats-io/nats-server/v2@v2.15.3"],
            programs: &[],
            tests: &[("nats", "github.com/nats-io/nats-server/v2/test")],
            tags: "",
        },
        least: 50,
        left_out: Some((
            "OCSP",
            "Not run: NATS's tests of certificates that are revoked (OCSP), which sleep for \
             seconds at a time and move few bytes.",
        )),
        minutes: 45,
    },
    Tested {
        project: Project {
            name: "etcd-tests",
            modules: &["go.etcd.io/etcd/server/v3@v3.7.3"],
            programs: &[],
            tests: &[
                ("etcd-rafthttp", "go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"),
                ("etcd-tcpproxy", "go.etcd.io/etcd/server/v3/proxy/tcpproxy"),
                ("etcd-transport", "go.etcd.io/etcd/client/pkg/v3/transport"),
            ],
            tags: "",
        },
        least: 0,
        left_out: None,
        minutes: 15,
    },
    Tested {
        project: Project {
            name: "grpc-tests",
            modules: &["google.golang.org/grpc@v1.85.0"],
            programs: &[],
            tests: &[("grpc-transport", "google.golang.org/grpc/internal/transport")],
            tags: "",
        },
        least: 0,
        left_out: None,
        minutes: 15,
    },
];

/// A part for each package and way.
///
/// # Errors
/// When none of them can be built.
pub fn prepare(base: &Path) -> Result<Suite> {
    let (mut parts, mut remarks, mut not_built) = (Vec::new(), Vec::new(), Vec::new());
    for tested in &PROJECTS {
        match parts_of(tested, base) {
            Ok(more) => {
                parts.extend(more);
                remarks.extend(tested.left_out.map(|(_, why)| why.to_owned()));
            }
            Err(error) => not_built.push(format!("{} ({error:#})", tested.project.name)),
        }
    }
    ensure!(!parts.is_empty(), "{}", not_built.join("\n"));
    remarks.push(
        "Some of NATS's tests go by the clock: TestPingSuppresion wants a ping within 30 ms of its \
         time, TestNoRaceRouteSendSubs no write that takes two seconds, of more than a \
         [ring](limits.md#every-program) holds and less than TCP's buffers do. On a busy machine \
         they fail at times."
            .to_owned(),
    );
    let versions = PROJECTS
        .iter()
        .flat_map(|tested| tested.project.modules)
        .map(|module| module.rsplit('/').next().unwrap_or(module));
    let version = versions.collect::<Vec<_>>().join(", ");
    Ok(Suite { version, remarks, not_built, parts })
}

fn parts_of(tested: &Tested, base: &Path) -> Result<Vec<Part>> {
    let (project, mut parts) = (&tested.project, Vec::new());
    for built in go_built::build(project, base)? {
        for (name, package) in project.tests {
            let program = built.folder.join(name).to_string_lossy().into_owned();
            // Before the limit of the part: Go then tells what hangs.
            let timeout = format!("-test.timeout={}m", tested.minutes - 1);
            let words = [&program, "-test.v", "-test.short", &timeout];
            let skip = tested.left_out.map(|(pattern, _)| format!("-test.skip={pattern}"));
            parts.push(Part {
                name: format!("{name}, {}", built.kind),
                command: words.map(str::to_owned).into_iter().chain(skip).collect(),
                dir: Some(go_built::source(project, base, package)?),
                limit: Duration::from_secs(60 * tested.minutes),
                reader: Reader::Go,
                least: tested.least,
            });
        }
    }
    Ok(parts)
}
