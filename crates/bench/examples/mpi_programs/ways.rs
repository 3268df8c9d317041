//! The ways that two ranks can take, and how a job is started by each.

use crate::programs::{Figure, Program, figures};
use anyhow::{Context, Result};
use ginnel_bench::child::Process;
use ginnel_bench::ginnel::Ginnel;
use ginnel_bench::mpi::needed;
use ginnel_bench::network::Network;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A way that ranks take.
#[derive(Clone, Copy)]
pub struct Way {
    /// Its name in tables.
    pub name: &'static str,
    /// What `ginnel mpirun --over` is told; nothing: Open MPI's own launcher is run.
    over: Option<&'static str>,
    /// Without a job key.
    is_unsealed: bool,
    /// Both ranks on one system, rather than in two network namespaces.
    is_inside: bool,
    /// More for Open MPI.
    settings: &'static [&'static str],
}

const PLAIN: Way =
    Way { name: "", over: None, is_unsealed: false, is_inside: false, settings: &[] };

/// osc/ucx would find ways of UCX's own.
const NOT_UCX: &[&str] = &["--mca", "osc", "^ucx"];

/// All ways, in the order in which a round takes them; the first is the mark.
pub const WAYS: [Way; 6] = [
    Way {
        name: "vader",
        is_inside: true,
        settings: &[
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "vader,self",
            "--mca",
            "osc",
            "^ucx",
            "--mca",
            "btl_vader_single_copy_mechanism",
            "none",
        ],
        ..PLAIN
    },
    Way {
        name: "fabric",
        over: Some("fabric"),
        settings: &[
            "--mca",
            "btl",
            "ofi,self",
            "--mca",
            "osc",
            "rdma",
            "--mca",
            "osc_rdma_btls",
            "ofi",
            "--mca",
            "btl_ofi_provider_include",
            "ginnel",
        ],
        ..PLAIN
    },
    Way { name: "ucx", over: Some("ucx"), ..PLAIN },
    Way { name: "unsealed", over: Some("ucx"), is_unsealed: true, ..PLAIN },
    Way { name: "carried", over: Some("tcp"), settings: NOT_UCX, ..PLAIN },
    Way {
        name: "tcp",
        settings: &["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "osc", "^ucx"],
        ..PLAIN
    },
];

/// Where jobs run.
pub struct Stand<'a> {
    network: Network,
    ginnel: Ginnel,
    command: String,
    agent: String,
    folder: &'a Path,
}

/// A launcher's remote shell: the "host" is a network namespace, which is also its own host name.
const AGENT: &str = "#!/bin/sh\nhost=$1; shift\nexec ip netns exec \"$host\" unshare --uts sh -c \
                     \"hostname $host && exec \\\"\\$@\\\"\" sh sh -c \"$*\"\n";

impl<'a> Stand<'a> {
    /// Makes the namespaces; what it writes goes into the folder.
    pub fn build(folder: &'a Path) -> Result<Self> {
        needed("mpirun.openmpi", "openmpi-bin")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        let ginnel = Ginnel::apart(&target.join("release"), "mpi")?;
        let command = ginnel.folder().context("a folder")?.join("ginnel");
        let agent = folder.join("agent");
        std::fs::write(&agent, AGENT)?;
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755))?;
        let (command, agent) = (text(&command)?, text(&agent)?);
        Ok(Self { network: Network::build()?, ginnel, command, agent, folder })
    }

    /// Runs a program with two ranks, and gives what it measured; `is_timed`: its calls of MPI.
    pub fn run(&self, way: Way, program: &Program, is_timed: bool) -> Result<Vec<Figure>> {
        let what = format!("{} by {}", program.name, way.name);
        let place = self.folder.join("run");
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place)?;
        for (name, input) in program.input {
            std::fs::write(place.join(name), input)?;
        }
        let said = self.folder.join("said");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" >\"$0\""]).arg(&said).args(self.launch(way)?);
        command.current_dir(&place).envs(self.ginnel.environment());
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        if way.is_unsealed {
            command.env("GINNEL_JOB_KEY", "");
        }
        command.args(way.settings).args(&program.command(is_timed)?);
        let errors = self.folder.join("errors");
        let job = Process::start(&what, command, &errors, Instant::now() + PATIENCE)?;
        job.output().with_context(|| excerpt(&said) + &excerpt(&errors))?;
        figures(program, &String::from_utf8_lossy(&std::fs::read(&said)?), is_timed)
            .with_context(|| what)
    }

    /// The launcher, in the first namespace or on this system, up to its options.
    fn launch(&self, way: Way) -> Result<Vec<String>> {
        if way.is_inside {
            return Ok(words(&["mpirun.openmpi", "--bind-to", "none", "-np", "2"]));
        }
        let enter = self.network.enter(true);
        let (first, second) = (enter[3], self.network.enter(false)[3]);
        let named = format!("hostname {first} && exec \"$@\"");
        let mut line = words(&enter);
        line.extend(words(&["unshare", "--uts", "sh", "-c", &named, "sh"]));
        match way.over {
            Some(over) => line.extend(words(&[
                &self.command,
                "mpirun",
                "--over",
                over,
                "--launcher",
                "mpirun.openmpi",
            ])),
            None => line.push("mpirun.openmpi".into()),
        }
        if way.over == Some("tcp") {
            line.extend(words(&["-x", "GINNEL_DIR"]));
        }
        let hosts = format!("{first}:1,{second}:1");
        let network = format!("{}/24", Network::SERVER);
        for (name, value) in [
            ("plm_rsh_agent", self.agent.as_str()),
            ("plm_rsh_no_tree_spawn", "1"),
            ("oob_tcp_if_include", network.as_str()),
            ("btl_tcp_if_include", network.as_str()),
        ] {
            line.extend(words(&["--mca", name, value]));
        }
        line.extend(words(&["--bind-to", "none", "-host", &hosts, "-np", "2"]));
        Ok(line)
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path that is not UTF-8")?.to_owned())
}

/// The last lines that a program said.
fn excerpt(said: &Path) -> String {
    let text = std::fs::read(said).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(12).collect();
    lines.into_iter().rev().map(|line| format!("\n{line}")).collect()
}
