//! The tests of Go's standard library that live by connections, processes, signals and threads:
//! with cgo and static, and with connections that move at once and after an exchange. Nearly all of
//! their connections end before they would move: what they show is that nothing else changes.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, Reader, Suite, fetch};

/// The packages, and which of their tests are not run.
const PACKAGES: [(&str, Option<&str>); 5] = [
    ("net", None),
    ("net/http", Some("^TestLinuxSendfile$")),
    ("os/exec", None),
    ("os/signal", None),
    ("runtime", None),
];

/// How tests are built: name, value of `CGO_ENABLED`.
const KINDS: [(&str, &str); 2] = [("with cgo", "1"), ("static", "0")];

/// Values of `GINNEL_AFTER`.
const AFTER: [&str; 2] = ["0", "1"];

/// A part for each package, way to build it and value of `GINNEL_AFTER`.
///
/// # Errors
/// When there is no Go, or it does not build its tests.
pub fn prepare(base: &Path) -> Result<Suite> {
    let built = base.join("built");
    fetch::once(&built, || {
        for (package, _) in PACKAGES {
            for (kind, cgo) in KINDS {
                let program = built.join(file(package, kind));
                fetch::said(
                    fetch::command("go", &["test", "-c", "-o"], &built)
                        .arg(program)
                        .arg(package)
                        .env("CGO_ENABLED", cgo),
                )?;
            }
        }
        Ok(())
    })?;
    let root = fetch::said(&mut fetch::command("go", &["env", "GOROOT"], base))?;
    let version = fetch::said(&mut fetch::command("go", &["env", "GOVERSION"], base))?;
    let source = Path::new(root.trim()).join("src");
    let mut parts = Vec::new();
    for (package, skip) in PACKAGES {
        for (kind, _) in KINDS {
            for after in AFTER {
                let program = built.join(file(package, kind)).to_string_lossy().into_owned();
                parts.push(Part {
                    name: format!("{package}, {kind}, GINNEL_AFTER={after}"),
                    command: command(&program, version.trim(), after, skip),
                    dir: Some(source.join(package)),
                    limit: Duration::from_secs(600),
                    reader: Reader::Go,
                    least: 0,
                });
            }
        }
    }
    let remarks = vec![
        "Short, without the tests that ask the Internet; of runtime's without those that have Go \
         compile a program."
            .to_owned(),
        "Not run: net/http's TestLinuxSendfile, which looks for sendfile in what strace says: a \
         ring has carried that call."
            .to_owned(),
    ];
    Ok(Suite { version: version.trim().to_owned(), remarks, parts, ..Suite::default() })
}

fn file(package: &str, kind: &str) -> String {
    format!("{}-{}.test", package.replace('/', "-"), kind.replace(' ', "-"))
}

/// A shell says what is tested and becomes it.
fn command(program: &str, version: &str, after: &str, skip: Option<&str>) -> Vec<String> {
    let line = format!("echo '# version: {version}'; exec \"$@\"");
    // With GO_GCFLAGS Go's tests build no programs: who runs them has no cache.
    let settings = [format!("GINNEL_AFTER={after}"), "GO_GCFLAGS=none".to_owned()];
    // Before the limit of the part: Go then tells what hangs.
    let words = [program, "-test.v", "-test.short", "-test.timeout=9m"].map(str::to_owned);
    ["sh", "-c", &line, "sh", "env"]
        .map(str::to_owned)
        .into_iter()
        .chain(settings)
        .chain(words)
        .chain(skip.map(|pattern| format!("-test.skip={pattern}")))
        .collect()
}
