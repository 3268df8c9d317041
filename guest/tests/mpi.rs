//! MPI between machines: libfabric's own program over the provider, Debian's MPICH over the UCX
//! transport, and Open MPI over both, through the machines' device. A process of the host takes
//! part by the daemon's socket.

use crate::common::{Lab, wait};
use ginnel_guest::agent::Pending;
use ginnel_guest::open_mpi::{AS_ROOT, IN_EACH, LISTENER};
use ginnel_guest::{built, machine};
use ginnel_region::Use;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A rank has a ring of 256 KiB for each other one, and windows lie there, too.
const SEGMENT: &str = "[segment.t]\nsize = \"128M\"\nslots = 4\nvectors = 3\n";
/// As long as a check of every message takes under emulation, on a busy machine.
const LONG: Duration = Duration::from_secs(300);

fn is_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|name| ginnel_guest::initramfs::find(name).is_none());
    if let Some(name) = missing {
        println!("skipped: {name} is not installed (scripts/install-deps.sh mpi)");
    }
    missing.is_none()
}

/// Two machines with these programs and libraries of the host.
fn machines(programs: &[&str], libraries: &[&str]) -> Lab {
    machines_by(programs, libraries, |all| Lab::in_segments(SEGMENT, &["t", "t"], true, all))
}

/// The same, booted so.
fn machines_by(programs: &[&str], libraries: &[&str], boot: impl Fn(&[&str]) -> Lab) -> Lab {
    let paths: Vec<String> = libraries
        .iter()
        .map(|name| built(name).expect("the release build").display().to_string())
        .collect();
    let all: Vec<&str> = programs.iter().copied().chain(paths.iter().map(String::as_str)).collect();
    let lab = boot(&all);
    for (guest, name) in
        lab.guests.iter().flat_map(|guest| libraries.iter().map(move |it| (guest, it)))
    {
        guest.sh(&format!("mv /usr/bin/{name} /usr/lib/ginnel/"));
    }
    lab
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn libfabric_joins_two_machines() {
    let _alone = machine::alone();
    if !is_installed(&["fi_pingpong"]) {
        return;
    }
    let lab = machines(&["fi_pingpong"], &["libginnel-fi.so"]);
    let [one, two] = &lab.guests[..] else { unreachable!("two were booted") };
    let run = |segment: &str, folder: &str, to: &str| {
        format!(
            "export GINNEL_FABRIC={segment} FI_PROVIDER_PATH={folder}
             exec fi_pingpong -p ginnel -e rdm -I 20 -S all -c {to}"
        )
    };
    let in_guest = |to| run("/dev/ginnel0", "/usr/lib/ginnel", to);
    let server = || one.start(&in_guest(""), LONG).expect("started");
    let listening = || one.sh("until netstat -tln | grep -q :47592; do sleep 0.1; done");
    let running = server();
    listening();
    let client = two.start(&in_guest("10.77.0.1"), LONG).expect("started");
    let said = [client, running].map(|end| end.finish().expect("ended"));
    for end in &said {
        assert!(end.status == 0 && end.out.contains("1m"), "{said:#?}");
    }
    assert_eq!(groups(&lab), 0, "it is all given back");

    // A process of the host, by the daemon's socket.
    if let Some(host) = lab.host() {
        let socket = lab.daemon.host_socket("t").display().to_string();
        let library = built("libginnel-fi.so").expect("the release build");
        let folder = library.parent().expect("a folder").display().to_string();
        let running = server();
        listening();
        let said = host.start(&run(&socket, &folder, "10.77.0.1")).expect("started").finish(LONG);
        let said = said.expect("well");
        assert!(said.contains("1m"), "{said}");
        running.finish().expect("ended").good().expect("well");
        assert_eq!(groups(&lab), 0, "it is all given back");
    }
    lab.assert_healthy();
}

/// Groups of pages that endpoints have in the segment, as the host sees it.
fn groups(lab: &Lab) -> usize {
    let segment = ginnel_node::join::look(&lab.daemon.host_socket("t")).expect("ginneld's");
    let heads = segment.heads_within_reach().filter(|head| head.owner().kind == Use::Endpoint);
    let groups = heads.count();
    segment.close();
    groups
}

/// A job of MPICH's with a rank in each machine. The launcher says how its proxies are to be
/// started: there is no remote shell in the machines.
struct Job {
    launcher: Pending,
    proxies: [Pending; 2],
}

impl Job {
    fn start(lab: &Lab, what: &str) -> Self {
        let [one, two] = &lab.guests[..] else { unreachable!("two were booted") };
        let run = format!(
            "export GINNEL_FABRIC=/dev/ginnel0
             exec ginnel mpirun --over ucx --launcher mpirun.mpich -launcher manual -iface eth0 \
             -hosts 10.77.0.1,10.77.0.2 -n 2 /usr/bin/mpi {what} >said 2>&1"
        );
        one.sh("rm -f said");
        let launcher = one.start(&run, LONG).expect("started");
        let proxies = wait("the launcher's word", || {
            let said = one.sh("cat said 2>/dev/null || true");
            let proxies = said.lines().filter_map(|line| line.strip_prefix("HYDRA_LAUNCH: "));
            <[String; 2]>::try_from(proxies.map(str::to_owned).collect::<Vec<_>>()).ok()
        });
        let mut guests = [one, two].into_iter();
        let proxies = proxies.map(|proxy| {
            let guest = guests.next().expect("one for each");
            guest.start(&format!("exec {proxy}"), LONG).expect("started")
        });
        Self { launcher, proxies }
    }

    /// What the launcher and the ranks said, and whether the launcher was content.
    fn finish(self, lab: &Lab) -> (String, bool) {
        let ended = self.launcher.finish().expect("ended");
        let proxies = self.proxies.map(Pending::finish);
        let said = lab.guests[0].sh("cat said");
        (format!("{said}{proxies:?}"), ended.status == 0)
    }
}

/// A program of the tests between ranks, compiled for an MPI library: its path.
fn compiled(directory: &Path, compiler: &str, name: &str) -> String {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs");
    let to = directory.join(name);
    // The library's headers do not compile without warnings.
    let mut compiler = Command::new(compiler);
    compiler.args(["-D_GNU_SOURCE", "-O1", "-g", "-I"]).arg(programs.join("include"));
    compiler.arg("-o").arg(&to).arg(programs.join(name).join(format!("{name}.c")));
    assert!(compiler.status().expect("a compiler").success(), "{name} does not compile");
    to.into_os_string().into_string().expect("UTF-8")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn mpich_joins_two_machines_and_outlives_a_rank_and_a_machine() {
    let _alone = machine::alone();
    if !is_installed(&["mpirun.mpich", "mpicc.mpich", "hydra_pmi_proxy"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = compiled(directory.path(), "mpicc.mpich", "mpi");
    let mut lab = machines(&["mpirun.mpich", "hydra_pmi_proxy", &program], &["libuct_ginnel.so"]);
    for what in ["check", "oneside"] {
        let (said, content) = Job::start(&lab, what).finish(&lab);
        assert!(content && said.contains("all well"), "{what}: {said}");
        assert_eq!(groups(&lab), 0, "{what}: it is all given back");
    }

    // A rank that is killed ends its job, and nothing of it stays.
    let ready = |lab: &Lab| {
        wait("all ranks", || lab.guests[0].sh("cat said").contains("ready ").then_some(()));
    };
    let job = Job::start(&lab, "wait");
    ready(&lab);
    assert!(groups(&lab) >= 4, "two endpoints, and a ring each way");
    lab.guests[1].sh("killall -9 mpi");
    let (said, content) = job.finish(&lab);
    assert!(!content, "{said}");
    let clean =
        "GINNEL_FABRIC=/dev/ginnel0 ginnel mpirun --over ucx --launcher mpirun.mpich -n 1 true";
    lab.guests[1].sh(clean);
    assert_eq!(groups(&lab), 0, "of a rank that was killed");

    // A machine that dies takes its ranks' memory with it.
    let job = Job::start(&lab, "wait");
    ready(&lab);
    lab.guests[1].kill();
    lab.guests[0].sh("killall -9 mpirun.mpich hydra_pmi_proxy mpi; true");
    let _ended = job.launcher.finish();
    wait("what a dead machine had", || {
        lab.guests[0].sh(clean);
        (groups(&lab) == 0).then_some(())
    });
    lab.guests[0].assert_healthy();
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn open_mpi_joins_two_machines_by_every_way() {
    let _alone = machine::alone();
    if !is_installed(&["mpirun.openmpi", "orted", "mpicc.openmpi", "ompi_info"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = compiled(directory.path(), "mpicc.openmpi", "mpi");
    let lab = machines_by(&[&program], &["libuct_ginnel.so", "libginnel-fi.so"], |all| {
        Lab::with_open_mpi(SEGMENT, all)
    });
    let _listener = lab.guests[1].start(LISTENER, LONG * 10).expect("started");
    for (over, what, more) in [
        ("ucx", "check", ""),
        ("ucx", "oneside", ""),
        ("fabric", "check", ""),
        ("fabric", "oneside", "--mca osc pt2pt"),
        ("tcp", "oneside", "--mca osc pt2pt"),
    ] {
        let run = format!(
            "{AS_ROOT} GINNEL_FABRIC=/dev/ginnel0
             exec ginnel mpirun --over {over} --launcher mpirun.openmpi {IN_EACH} {more} \
             /usr/bin/mpi {what}"
        );
        let done = lab.guests[0].start(&run, LONG).expect("started").finish().expect("ended");
        assert!(done.status == 0 && done.out.contains("all well"), "{over} {what}: {done:#?}");
        assert_eq!(groups(&lab), 0, "{over} {what}: it is all given back");
    }
    lab.assert_healthy();
}

/// What Open MPI loads for a job of one rank, without its launcher.
const PARTS: [&str; 20] = [
    "allocator_basic",
    "allocator_bucket",
    "bml_r2",
    "btl_self",
    "coll_basic",
    "coll_libnbc",
    "coll_self",
    "coll_tuned",
    "errmgr_default_app",
    "ess_singleton",
    "osc_ucx",
    "patcher_overwrite",
    "pmix_isolated",
    "pml_ucx",
    "reachable_weighted",
    "schizo_ompi",
    "schizo_orte",
    "shmem_mmap",
    "shmem_posix",
    "state_app",
];

/// The device's memory has no second map in a process, so the locks of a window stay on the heap.
/// Linux 6.1 had taken the place for such a map before it refused one, and the first look at a lock
/// crashed.
#[test]
#[ignore = "test-all: boots a guest of its own"]
fn windows_of_open_mpi_lie_in_a_machines_device() {
    let _alone = machine::alone();
    if !is_installed(&["mpicc.openmpi", "ompi_info"]) {
        return;
    }
    let folder = Command::new("ompi_info").args(["--path", "pkglibdir", "--parsable"]).output();
    let folder = String::from_utf8(folder.expect("ompi_info").stdout).expect("UTF-8");
    let folder = folder.trim().rsplit(':').next().expect("a folder");
    let directory = tempfile::tempdir().expect("a directory");
    let program = compiled(directory.path(), "mpicc.openmpi", "mpi_windows");
    let library = built("libuct_ginnel.so").expect("the release build");
    let mut all = vec![program, library.display().to_string()];
    all.extend(PARTS.map(|name| format!("{folder}/mca_{name}.so")));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let lab = Lab::in_segments(SEGMENT, &["t"], true, &all);
    let run = "export GINNEL_FABRIC=/dev/ginnel0 LD_PRELOAD=/usr/bin/libuct_ginnel.so
         export UCX_TLS=ginnel,self UCX_ALLOC_PRIO=md:ginnel,thp,mmap,heap
         export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
         export OMPI_MCA_mca_base_component_path=/usr/bin OMPI_MCA_ess_singleton_isolated=1
         export OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx OMPI_MCA_opal_common_ucx_tls=any
         export OMPI_MCA_opal_common_ucx_devices=any
         exec mpi_windows 1 12";
    let done = lab.guests[0].start(run, LONG).expect("started").finish().expect("ended");
    assert!(done.status == 0 && done.out.contains("all well"), "{done:#?}");
    assert_eq!(groups(&lab), 0, "it is all given back");
    lab.assert_healthy();
}
