//! The kernel's own way past TCP, beside which Ginnel is measured where that is asked for: a
//! sockmap, in which `crates/bench/programs/sockmap.c` enters the connections of a cgroup.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;

use crate::child::{Child, End};
use crate::interrupt;
use crate::workdir::WorkDir;

/// How long making the cgroup, and taking it back, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cgroup whose connections are in a sockmap. It is taken back when this is dropped.
#[derive(Debug)]
pub struct Held {
    holder: Child,
    /// What stands before a program that is to run in it, and before what leads into a namespace:
    /// there the cgroups are not to be seen.
    pub enter: Vec<String>,
}

impl Held {
    /// Makes it, by the compiled `program`.
    pub fn new(program: &str, workdir: &WorkDir) -> Result<Self> {
        let holder = Child::spawn("sockmap", &[program, "hold"].map(String::from), &[], workdir)?;
        let told = || {
            holder.check_alive()?;
            Ok(holder
                .printed()?
                .lines()
                .find_map(|line| line.strip_prefix("cgroup ").map(str::to_owned)))
        };
        let cgroup = interrupt::poll(PATIENCE, told)
            .and_then(|cgroup| cgroup.with_context(|| format!("nothing within {PATIENCE:?}: {}", holder.last_words())))
            .context("no sockmap: it needs root, Linux 5.14, cgroup v2, CONFIG_CGROUP_BPF and CONFIG_BPF_STREAM_PARSER")?;
        Ok(Self { holder, enter: [program, "in", &cgroup].map(String::from).into() })
    }

    /// Fails where it is gone: what runs in it would be plain TCP.
    pub fn check(&self) -> Result<()> {
        self.holder.check_alive()
    }

    /// Takes it back, and returns which part of its connections' bytes went past TCP, 0 to 1.
    pub fn end(self) -> Result<f64> {
        self.holder.signal(Signal::TERM)?;
        match self.holder.wait(PATIENCE)? {
            End::Done(printed) => share(&printed),
            End::Failed(words) => Err(anyhow!("the sockmap's program failed: {words}")),
            End::Late => bail!("the sockmap's program did not end within {PATIENCE:?}"),
        }
    }
}

/// The part that was handed on. What the kernel's TCP counted it carried, whatever the program that
/// hands on believes.
fn share(printed: &str) -> Result<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("result "))
        .context("the sockmap's program told no counts")?;
    let count = |key: &str| {
        let value = line.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        value
            .and_then(|value| value.parse::<f64>().ok())
            .with_context(|| format!("no {key} in {line:?}"))
    };
    let (past, tcp) = (
        count("redirected")?,
        count("passed")?.max(count("tcp_received")?).max(count("tcp_acked")?),
    );
    Ok(if past > 0.0 { past / (past + tcp) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tcp_counted_it_carried() {
        let told = |counts: &str| share(&format!("cgroup /c\nresult {counts}\nend\n")).ok();
        assert_eq!(told("redirected=300 passed=0 tcp_received=100 tcp_acked=50"), Some(0.75));
        assert_eq!(told("redirected=0 passed=0 tcp_received=0 tcp_acked=0"), Some(0.0));
        assert_eq!(told("redirected=300 passed=x"), None);
    }
}
