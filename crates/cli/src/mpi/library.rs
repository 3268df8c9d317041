//! The MPI libraries that are known: which one a launcher belongs to, and how it is told what its
//! ranks are to have.

use super::{KEY, Setting};
use crate::args::mpi::Over;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// An MPI library, by its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    OpenMpi,
    Mpich,
}

impl Library {
    /// Which library's launcher this is, by what it says of its version.
    pub(super) fn of(launcher: &Path) -> Result<Self> {
        let name = launcher.display();
        let said = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
        let said = said.with_context(|| format!("asking {name} for its version"))?;
        let text = String::from_utf8_lossy(&said.stdout);
        Self::by_version(&text).with_context(|| {
            format!(
                "{name} is neither Open MPI's nor MPICH's (Hydra): it says {:?}",
                text.lines().next()
            )
        })
    }

    pub(super) fn by_version(text: &str) -> Option<Self> {
        let says = |word: &str| text.contains(word);
        if says("Open MPI") || says("OpenRTE") {
            Some(Self::OpenMpi)
        } else {
            says("HYDRA").then_some(Self::Mpich)
        }
    }

    /// What chooses the transport.
    pub(super) fn transport(self, over: Over) -> Result<Vec<Setting>> {
        match (self, over) {
            (Self::OpenMpi, Over::Tcp) => {
                Ok(owned(&[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "tcp,self")]))
            }
            (Self::Mpich, Over::Tcp) => Ok(ucx_over_tcp()),
            // osc/rdma of Open MPI 4.1.4 crashes in MPI_Compare_and_swap, whatever is below it.
            (Self::OpenMpi, Over::Fabric) => Ok(owned(&[
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", "ginnel"),
                // It keeps the completions that it has read in one array for each thread, and reads
                // the next ones into the same array where it has to send again within a completion:
                // those not looked at yet are lost, and others done twice. So one at a time.
                ("OMPI_MCA_mtl_ofi_progress_event_cnt", "1"),
                ("OMPI_MCA_osc", "^rdma"),
                // Where the user takes btl/ofi for one-sided calls: it would take libfabric's own
                // tcp between network namespaces, which has no atomics, and abort.
                ("OMPI_MCA_btl_ofi_provider_include", "ginnel"),
            ])),
            (Self::OpenMpi, Over::Ucx) => Ok(owned(&[
                ("OMPI_MCA_pml", "ucx"),
                // Windows of MPI_Win_allocate_shared osc/ucx refuses: these are Open MPI's own
                // shared memory. All others are to be osc/ucx's, which would come second.
                ("OMPI_MCA_osc", "ucx,sm"),
                ("OMPI_MCA_osc_ucx_priority", "200"),
                // It would take UCX for certain cards only.
                ("OMPI_MCA_opal_common_ucx_tls", "any"),
                ("OMPI_MCA_opal_common_ucx_devices", "any"),
            ])),
            (Self::Mpich, Over::Ucx) => Ok(Vec::new()),
            (Self::Mpich, Over::Fabric) => bail!(
                "Debian's MPICH has UCX and no libfabric: use --over ucx or tcp, or an MPICH that was built with ch4:ofi \
                 and the settings of ginnel mpi env --for libfabric --over fabric"
            ),
        }
    }

    /// The launcher's arguments that hand variables to every rank, on every host.
    pub(super) fn hand_on(self, settings: &[Setting]) -> Vec<OsString> {
        let one = |(name, value): &Setting| match self {
            // Everybody may read a command line.
            Self::OpenMpi if *name == KEY => vec!["-x".into(), name.into()],
            Self::Mpich if *name == KEY => Vec::new(),
            Self::OpenMpi => {
                let mut both = OsString::from(name);
                both.push("=");
                both.push(value);
                vec!["-x".into(), both]
            }
            Self::Mpich => vec!["-genv".into(), name.into(), value.clone()],
        };
        settings.iter().flat_map(one).collect()
    }
}

pub(super) fn owned(settings: &[(&'static str, &str)]) -> Vec<Setting> {
    settings.iter().map(|(name, value)| (*name, value.into())).collect()
}

/// UCX by sockets alone: it would take its own shared memory within one container otherwise.
pub(super) fn ucx_over_tcp() -> Vec<Setting> {
    owned(&[("UCX_TLS", "tcp,self")])
}
