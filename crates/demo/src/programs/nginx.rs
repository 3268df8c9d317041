//! nginx with one worker and Debian's own settings for files; wrk asks for a page of 1 KiB again
//! and again.

use std::fs;

use anyhow::{Context, Result, bail};

use super::{Listen, Load, Program, Setting, rate_after, words};
use crate::tools::{self, Tool};

/// nginx and wrk.
pub struct Nginx;

impl Program for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn unit(&self) -> &'static str {
        "requests/s"
    }

    fn server_tool(&self) -> Tool {
        Tool { names: &["nginx"], package: "nginx-light" }
    }

    fn client_tool(&self) -> Tool {
        Tool { names: &["wrk"], package: "wrk" }
    }

    fn settings(&self) -> &'static [Setting] {
        &[
            Setting { label: "1 connection", arguments: &["-c", "1"] },
            Setting { label: "16 connections", arguments: &["-c", "16"] },
            Setting { label: "64 connections", arguments: &["-c", "64"] },
        ]
    }

    fn further_settings(&self) -> &'static [Setting] {
        &[
            Setting { label: "2 connections", arguments: &["-c", "2"] },
            Setting { label: "8 connections", arguments: &["-c", "8"] },
            Setting { label: "256 connections", arguments: &["-c", "256"] },
            Setting { label: "1024 connections", arguments: &["-c", "1024"] },
        ]
    }

    fn settings_of_server_only(&self) -> &'static [Setting] {
        &[Setting {
            label: "64 connections, each for one request",
            arguments: &["-c", "64", "-H", "Connection: close"],
        }]
    }

    fn server(&self, program: &str, listen: &Listen) -> Result<Vec<String>> {
        let dir = listen.dir.display().to_string();
        let pages = listen.dir.join("pages");
        fs::create_dir_all(&pages)
            .and_then(|()| fs::write(pages.join("page.html"), page()))
            .context("cannot write the page")?;
        let conf = listen.dir.join("nginx.conf");
        fs::write(&conf, configuration(&dir, listen)).context("cannot write nginx.conf")?;
        let mut command = words([&program, &"-p", &dir, &"-c", &conf.display()]);
        // Before 1.19.5 there was no such option; without it nginx opens its log under /var/log
        // before it has read the configuration.
        if tools::output(5, &[program, "-h"]).is_ok_and(|help| help.contains("-e filename")) {
            command.extend(words([&"-e", &"error.log"]));
        }
        Ok(command)
    }

    fn client(&self, load: &Load) -> Result<Vec<String>> {
        let mut command = words([&"-t1", &"-d", &format!("{}s", load.seconds)]);
        command.extend(load.setting.words());
        command.push(format!("http://{}:{}/page.html", load.address, load.port));
        Ok(command)
    }

    fn read(&self, printed: &str) -> Result<f64> {
        if let Some(line) =
            printed.lines().find(|line| line.contains("Socket errors:") || line.contains("Non-2xx"))
        {
            bail!("wrk saw errors: {}", line.trim());
        }
        rate_after(printed, "Requests/sec:", "wrk")
    }
}

fn page() -> String {
    "0123456789abcde\n".repeat(64)
}

fn configuration(dir: &str, listen: &Listen) -> String {
    // The client's user: connections between two users stay on TCP.
    let user = if listen.root { "user root root;\n" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path \"{dir}/{kind}\";\n"))
        .concat();
    format!(
        "{user}daemon off;\n\
         worker_processes 1;\n\
         pid \"{dir}/nginx.pid\";\n\
         error_log \"{dir}/error.log\";\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         {temporary}\
         \x20   access_log off;\n\
         \x20   default_type text/html;\n\
         \x20   sendfile on;\n\
         \x20   tcp_nopush on;\n\
         \x20   server {{\n\
         \x20       listen {}:{};\n\
         \x20       root \"{dir}/pages\";\n\
         \x20   }}\n\
         }}\n",
        listen.address, listen.port
    )
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
        assert_eq!(Nginx.read(PRINTED).unwrap(), 107_725.41);
    }

    #[test]
    fn errors_are_not_overlooked() {
        let bad = PRINTED.replace(
            "Requests/sec",
            "  Socket errors: connect 0, read 12, write 0, timeout 0\nRequests/sec",
        );
        assert!(Nginx.read(&bad).unwrap_err().to_string().contains("read 12"));
        assert!(Nginx.read("unable to connect to 10.77.1.1:4000 Connection refused").is_err());
        assert!(Nginx.read("Requests/sec:      0.00").is_err());
    }

    #[test]
    fn the_page_is_one_kibibyte() {
        assert_eq!(page().len(), 1024);
    }
}
