//! Two network namespaces joined by veth pairs and a bridge: the shape of two machines on a
//! software bridge. The bridge has a third namespace, so that nothing of the host's network is
//! touched.

use crate::cleanup;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Two namespaces that reach each other; removed by [`cleanup::all`].
pub struct Network {
    server: String,
    client: String,
}

impl Network {
    /// The server's IPv4 address.
    pub const SERVER: &'static str = "10.213.77.1";

    /// Builds it. Needs root.
    pub fn build() -> Result<Self> {
        remove_stale();
        let name = |part| format!("gnlbench-{}-{part}", std::process::id());
        let (server, client, bridge) = (name("s"), name("c"), name("b"));
        for namespace in [&server, &client, &bridge] {
            cleanup::later(["ip", "netns", "del", namespace]);
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        ip(&format!("-n {bridge} link add br0 type bridge"))?;
        ip(&format!("-n {bridge} link set br0 up"))?;
        for (namespace, port, address) in
            [(&server, "p0", Self::SERVER), (&client, "p1", "10.213.77.2")]
        {
            ip(&format!("-n {bridge} link add {port} type veth peer name eth0 netns {namespace}"))?;
            ip(&format!("-n {bridge} link set {port} master br0 up"))?;
            ip(&format!("-n {namespace} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {namespace} link set eth0 up"))?;
        }
        Ok(Self { server, client })
    }

    /// The start of a command line that runs in the server's or the client's namespace.
    pub fn enter(&self, server: bool) -> [&str; 4] {
        ["ip", "netns", "exec", if server { &self.server } else { &self.client }]
    }
}

fn ip(arguments: &str) -> Result<()> {
    let output =
        Command::new("ip").args(arguments.split(' ')).output().context("running ip (iproute2)")?;
    ensure!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Removes what a bench that was killed outright left behind: its process id is in the name.
fn remove_stale() {
    let Ok(output) = Command::new("ip").args(["netns", "list"]).output() else {
        return;
    };
    for name in
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.split(' ').next())
    {
        let owner = name.strip_prefix("gnlbench-").and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !std::path::Path::new("/proc").join(pid).exists()) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
