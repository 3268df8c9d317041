//! The tests of Go's `net`, with cgo. Nearly all of its connections end before they would move.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, Reader, Suite, fetch};

/// One part.
///
/// # Errors
/// When there is no Go, or it does not build its tests.
pub fn prepare(base: &Path) -> Result<Suite> {
    let program = base.join("built/net.test");
    fetch::once(&base.join("built"), || {
        fetch::said(
            fetch::command("go", &["test", "-c", "-o", "net.test", "net"], &base.join("built"))
                .env("GOCACHE", base.join("cache")),
        )?;
        Ok(())
    })?;
    let root = fetch::said(&mut fetch::command("go", &["env", "GOROOT"], base))?;
    let version = fetch::said(&mut fetch::command("go", &["env", "GOVERSION"], base))?;
    let part = Part {
        name: "net".to_owned(),
        // Short: without the tests that ask the Internet.
        command: [&program.to_string_lossy(), "-test.v", "-test.short"].map(str::to_owned).to_vec(),
        dir: Some(Path::new(root.trim()).join("src/net")),
        limit: Duration::from_secs(300),
        reader: Reader::Go,
        least: 0,
    };
    Ok(Suite { version: version.trim().to_owned(), remarks: Vec::new(), parts: vec![part] })
}
