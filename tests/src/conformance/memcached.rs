//! memcached's own tests: Perl programs that start the server and talk to it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{Part, Reader, Suite, fetch};

/// How many tests these make depends on how the dice or the moments fall.
const BY_CHANCE: [&str; 2] = ["t/binary-extstore.t", "t/maxconns.t"];

/// Each file in t/ a part.
///
/// # Errors
/// When it cannot be fetched or built.
pub fn prepare(base: &Path) -> Result<Suite> {
    // Its tests speak TCP only where there are no Unix sockets.
    let source = fetch::debian_source("memcached", base, |dir| {
        fetch::said(&mut fetch::command("./configure", &["--disable-unix-socket"], dir))?;
        fetch::said(&mut fetch::command(
            "make",
            &["-j2", "all", "sizes", "testapp", "timedrun"],
            dir,
        ))?;
        Ok(())
    })?;
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(source.dir.join("t"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".t") {
            names.push(format!("t/{name}"));
        }
    }
    names.sort();
    let parts = names.into_iter().map(|name| Part {
        command: vec!["perl".to_owned(), name.clone()],
        reader: if BY_CHANCE.contains(&name.as_str()) { Reader::TapByName } else { Reader::Tap },
        least: 0,
        name,
        dir: Some(source.dir.clone()),
        limit: Duration::from_secs(300),
    });
    Ok(Suite {
        version: format!("{} (Debian)", source.version),
        remarks: vec![
            "Built without Unix sockets, which its tests would use where they can.".to_owned(),
        ],
        parts: parts.collect(),
        ..Suite::default()
    })
}
