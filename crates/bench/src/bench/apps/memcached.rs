//! memcached with one thread under a load as YCSB's workload B is one: [`crate::work`]'s records.

use super::{App, Load, Stage};
use anyhow::{Context, Result};
use ginnel_bench::child::{Values, parse};
use ginnel_demo::programs::memcached::Memcached as Demo;
use ginnel_demo::programs::{Program, excerpt, words};
use ginnel_demo::tools::Tool;

/// memcached, and a workload of this program.
pub struct Memcached;

impl App for Memcached {
    fn server_tool(&self) -> Tool {
        Demo.server_tool()
    }

    fn client_tool(&self) -> Option<Tool> {
        None
    }

    fn server(&self, program: &str, load: &Load) -> Result<Vec<String>> {
        Demo.server(program, &load.listen())
    }

    fn client(&self, program: &str, load: &Load, stage: Stage) -> Result<Vec<String>> {
        let mut task = load.cell.task(
            false,
            format!("tcp:{}:{}", load.address, load.port),
            load.seconds.into(),
            None,
        );
        if matches!(stage, Stage::First) {
            task.rate = 0;
        }
        Ok(words([&program, &"work", &serde_json::to_string(&task)?]))
    }

    fn read(&self, printed: &str, _: &Load) -> Result<Values> {
        let mut values: Values = printed.lines().flat_map(parse).collect();
        // The first load has stored records, and measured nothing.
        let figure = values.get("p50_ns").or_else(|| values.get("count"));
        let figure = *figure.with_context(|| format!("no result: {}", excerpt(printed)))?;
        values.insert("value".into(), figure);
        Ok(values)
    }

    fn has_first(&self) -> bool {
        true
    }
}
