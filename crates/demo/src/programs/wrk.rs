//! The load of servers over HTTP: wrk asks for one thing again and again, mostly a page of 1 KiB.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{Load, rate_after, words};
use crate::tools::Tool;

/// wrk.
pub const TOOL: Tool = Tool { names: &["wrk"], package: "wrk" };

/// Where the page is.
pub const PAGE: &str = "page.html";

/// Writes the page into a folder.
pub fn write_page(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(folder.join(PAGE), page()))
        .context("cannot write the page")
}

/// The arguments of a load that asks for this path.
pub fn client(load: &Load, path: &str) -> Vec<String> {
    let mut command = words([&"-t1", &"-d", &format!("{}s", load.seconds)]);
    command.extend(load.setting.words());
    command.push(format!("http://{}:{}/{path}", load.address, load.port));
    command
}

/// Requests a second, in what wrk printed.
pub fn read(printed: &str) -> Result<f64> {
    if let Some(line) =
        printed.lines().find(|line| line.contains("Socket errors:") || line.contains("Non-2xx"))
    {
        bail!("wrk saw errors: {}", line.trim());
    }
    rate_after(printed, "Requests/sec:", "wrk")
}

fn page() -> String {
    "0123456789abcde\n".repeat(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "Running 1s test @ http://10.77.1.1:4000/page.html\n  1 threads and 16 connections\n\
        \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   149.09us   71.76us   2.70ms   94.10%\n\
        \x20   Req/Sec   108.33k     4.38k  113.99k    81.82%\n  118482 requests in 1.10s, 142.23MB read\n\
        Requests/sec: 107725.41\nTransfer/sec:    129.32MB\n";

    #[test]
    fn the_rate_is_read() {
        assert_eq!(read(PRINTED).unwrap(), 107_725.41);
    }

    #[test]
    fn errors_are_not_overlooked() {
        let bad = PRINTED.replace(
            "Requests/sec",
            "  Socket errors: connect 0, read 12, write 0, timeout 0\nRequests/sec",
        );
        assert!(read(&bad).unwrap_err().to_string().contains("read 12"));
        assert!(read("unable to connect to 10.77.1.1:4000 Connection refused").is_err());
        assert!(read("Requests/sec:      0.00").is_err());
    }

    #[test]
    fn the_page_is_one_kibibyte() {
        assert_eq!(page().len(), 1024);
    }
}
