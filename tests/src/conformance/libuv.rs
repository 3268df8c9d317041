//! libuv's own tests, each in a process of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, Reader, Suite, fetch};

/// One part.
///
/// # Errors
/// When it cannot be fetched or built.
pub fn prepare(base: &Path) -> Result<Suite> {
    let source = fetch::debian_source("libuv1", base, |dir| {
        fetch::said(&mut fetch::command(
            "cmake",
            &["-S", ".", "-B", "built", "-DBUILD_TESTING=ON"],
            dir,
        ))?;
        fetch::said(&mut fetch::command("cmake", &["--build", "built", "-j2"], dir))?;
        Ok(())
    })?;
    let part = Part {
        name: "uv_run_tests".to_owned(),
        command: vec![source.dir.join("built/uv_run_tests").to_string_lossy().into_owned()],
        dir: Some(source.dir),
        limit: Duration::from_secs(900),
        reader: Reader::Tap,
        least: 0,
    };
    Ok(Suite {
        version: format!("{} (Debian)", source.version),
        remarks: Vec::new(),
        parts: vec![part],
        ..Suite::default()
    })
}
