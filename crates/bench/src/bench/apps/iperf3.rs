//! iperf3 with some streams at once, sending as fast as it can in its usual blocks of 128 KiB.

use super::{App, Load, Stage, value};
use anyhow::Result;
use ginnel_bench::child::Values;
use ginnel_demo::programs::iperf3::Iperf3 as Demo;
use ginnel_demo::programs::{Program, words};
use ginnel_demo::tools::Tool;

/// iperf3 and itself.
pub struct Iperf3;

impl App for Iperf3 {
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
        Ok(words([
            &program,
            &"-c",
            &load.address,
            &"-p",
            &load.port,
            &"-t",
            &load.seconds,
            &"-J",
            &"-P",
            &load.cell.x,
        ]))
    }

    fn read(&self, printed: &str, _: &Load) -> Result<Values> {
        Ok(value(1e9 / 8.0 * Demo.read(printed)?))
    }
}
