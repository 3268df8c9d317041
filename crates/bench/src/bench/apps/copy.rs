//! A file that curl copies from nginx, compared byte for byte. Both files lie in memory, where
//! there is a file system in memory.

use super::{App, Load, Stage, value};
use anyhow::{Context, Result, ensure};
use ginnel_bench::child::Values;
use ginnel_demo::programs::nginx::Nginx as Demo;
use ginnel_demo::programs::{Program, excerpt, words};
use ginnel_demo::tools::Tool;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fs;

/// nginx and curl.
pub struct Copy;

impl App for Copy {
    fn server_tool(&self) -> Tool {
        Demo.server_tool()
    }

    fn client_tool(&self) -> Option<Tool> {
        Some(Tool { names: &["curl"], package: "curl" })
    }

    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>> {
        let command = Demo.server(program, &load.listen())?;
        let mut bytes = vec![0; load.cell.x];
        SmallRng::seed_from_u64(load.cell.x as u64).fill_bytes(&mut bytes);
        fs::write(load.dir.join("pages/file"), bytes).context("writing the file to be copied")?;
        Ok(command)
    }

    fn client(&self, program: &str, load: &Load, _: Stage) -> Result<Vec<String>> {
        let (url, copy) =
            (format!("http://{}:{}/file", load.address, load.port), load.dir.join("copy"));
        Ok(words([
            &program,
            &"-sSf",
            &"--noproxy",
            &"*",
            &"-w",
            &"%{speed_download}\\n",
            &"-o",
            &copy.display(),
            &url,
        ]))
    }

    fn read(&self, printed: &str, load: &Load) -> Result<Values> {
        let rate =
            printed.trim().parse().with_context(|| format!("no speed: {}", excerpt(printed)))?;
        let same = fs::read(load.dir.join("copy"))? == fs::read(load.dir.join("pages/file"))?;
        ensure!(same, "the copy is not what was copied");
        Ok(value(rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Pattern, Transport};
    use crate::plan::Cell;

    #[test]
    fn a_spoilt_copy_is_no_figure() {
        let dir = std::env::temp_dir().join(format!("ginnel-bench-copy-{}", std::process::id()));
        fs::create_dir_all(dir.join("pages")).unwrap();
        let cell = Cell { pattern: Pattern::Copy, x: 4, transport: Transport::Tcp };
        let load =
            Load { cell, address: std::net::Ipv4Addr::LOCALHOST, port: 1, dir: &dir, seconds: 1 };
        fs::write(dir.join("pages/file"), "abcd").unwrap();
        fs::write(dir.join("copy"), "abcd").unwrap();
        assert_eq!(Copy.read("1234.5\n", &load).unwrap()["value"], 1234.5);
        fs::write(dir.join("copy"), "abcx").unwrap();
        assert!(
            Copy.read("1234.5\n", &load).unwrap_err().to_string().contains("not what was copied")
        );
        fs::remove_dir_all(dir).unwrap();
    }
}
