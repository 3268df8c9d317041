//! nginx with one worker; wrk asks for a page of 1 KiB again and again on some connections.

use super::{App, Load, Stage, value};
use anyhow::Result;
use ginnel_bench::child::Values;
use ginnel_demo::programs::nginx::Nginx as Demo;
use ginnel_demo::programs::{Program, words};
use ginnel_demo::tools::Tool;

/// nginx and wrk.
pub struct Nginx;

impl App for Nginx {
    fn server_tool(&self) -> Tool {
        Demo.server_tool()
    }

    fn client_tool(&self) -> Option<Tool> {
        Some(Demo.client_tool())
    }

    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>> {
        Demo.server(program, &load.listen())
    }

    fn client(&self, program: &str, load: &Load, _: Stage) -> Result<Vec<String>> {
        let url = format!("http://{}:{}/page.html", load.address, load.port);
        Ok(words([
            &program,
            &"-t1",
            &"-d",
            &format!("{}s", load.seconds),
            &"-c",
            &load.cell.x,
            &url,
        ]))
    }

    fn read(&self, printed: &str, _: &Load) -> Result<Values> {
        Ok(value(Demo.read(printed)?))
    }
}
