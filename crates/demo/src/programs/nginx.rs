//! nginx with one worker and Debian's own settings for files; wrk asks for a page of 1 KiB again
//! and again.

use std::fs;

use anyhow::{Context, Result};

use super::{Listen, Load, Program, Setting, words, wrk};
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
        wrk::TOOL
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
        wrk::write_page(&listen.dir.join("pages"))?;
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
        Ok(wrk::client(load, wrk::PAGE))
    }

    fn read(&self, printed: &str) -> Result<f64> {
        wrk::read(printed)
    }
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
