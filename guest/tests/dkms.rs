//! The driver as its README installs it: built by Debian's DKMS for the guest's kernel, loaded by
//! udev when the device is seen, and given to a group.

use crate::common::{PATIENCE, SEGMENT, wait};
use ginnel_guest::daemon::Daemon;
use ginnel_guest::initramfs::find;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use ginnel_guest::package;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../driver");

fn copy_into(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("there").flatten().filter(|entry| entry.path().is_file())
    {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// A host of our own as far as DKMS looks: sources, kernels and its own tree are folders of the
/// test, in a mount namespace of each command.
struct Host {
    directory: PathBuf,
}

impl Host {
    fn new(directory: &Path, kernel: &Kernel) -> Self {
        let (sources, modules) =
            (directory.join("src"), directory.join("modules").join(kernel.release()));
        copy_into(Path::new(DRIVER), &sources.join("ginnel-0.1.0"));
        copy_into(&kernel.modules_folder(), &modules);
        let headers = format!("linux-headers-{}", kernel.release());
        symlink(kernel.headers(), sources.join(&headers)).expect("linked");
        symlink(kernel.modules_folder().join("kernel"), modules.join("kernel")).expect("linked");
        symlink(Path::new("/usr/src").join(headers), modules.join("build")).expect("linked");
        fs::create_dir(directory.join("dkms")).expect("made");
        Self { directory: directory.into() }
    }

    /// Runs a command there; gives what it said.
    fn run(&self, command: &str) -> String {
        let mounts = "mkdir -p /lib/modules /var/lib/dkms
            mount --bind src /usr/src; mount --bind modules /lib/modules; mount --bind dkms /var/lib/dkms; cd /";
        let mut shell = Command::new("unshare");
        shell
            .args(["--mount", "sh", "-ec", &format!("{mounts}\n{command}")])
            .current_dir(&self.directory);
        let output = shell
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .output()
            .expect("unshare");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let log = || {
            fs::read_to_string(self.directory.join("dkms/ginnel/0.1.0/build/make.log"))
                .unwrap_or_default()
        };
        assert!(output.status.success(), "{command}: {}: {said}{}", output.status, log());
        said
    }
}

/// udev, and the folder of its own rules: of the host where it is installed there, else unpacked
/// from its package.
fn udev() -> (PathBuf, PathBuf) {
    let root = if find("udevadm").is_some() {
        "/".into()
    } else {
        package::unpacked("udev").expect("udev")
    };
    let first = |places: [&str; 2]| {
        places.map(|place| root.join(place)).into_iter().find(|path| path.exists()).expect("there")
    };
    (first(["bin/udevadm", "usr/bin/udevadm"]), first(["lib/udev/rules.d", "usr/lib/udev/rules.d"]))
}

fn assert_given_to_the_group(guest: &Guest) {
    wait("the device", || {
        guest.run("test -e /dev/ginnel0", PATIENCE).is_ok_and(|said| said.status == 0).then_some(())
    });
    guest.sh("udevadm settle");
    assert_eq!(guest.sh("stat -c '%a %U %G' /dev/ginnel0").trim(), "660 root ginnel");
    let open = |groups: &str| {
        let user =
            format!("setpriv --reuid=1000 --regid=1000 {groups} sh -c 'exec 3<>/dev/ginnel0'");
        guest.run(&user, PATIENCE).expect("an answer").status == 0
    };
    assert!(
        open("--groups=901") && !open("--clear-groups"),
        "whoever is in the group, and nobody else"
    );
}

#[allow(clippy::too_many_lines, reason = "one story, from the package to the plugged device")]
#[test]
#[ignore = "test-all: boots guests of its own"]
fn dkms_builds_the_driver_and_udev_loads_it_and_gives_the_device_to_the_group() {
    // SAFETY: touches no memory.
    if unsafe { libc::geteuid() } != 0 || find("dkms").is_none() {
        eprintln!("SKIPPED: DKMS takes root, and the package dkms");
        return;
    }
    let _alone = machine::alone();
    let kernel = Kernel::fetch().expect("a kernel");
    let directory = tempfile::tempdir().expect("a directory");
    let (host, release) = (Host::new(directory.path(), &kernel), kernel.release());
    for step in ["add", "build", "install"] {
        host.run(&format!("dkms {step} -m ginnel -v 0.1.0 -k {release}"));
    }
    let status = host.run("dkms status");
    assert!(status.contains(&format!("ginnel/0.1.0, {release}, x86_64: installed")), "{status}");

    let (udevadm, rules) = udev();
    let daemon = Daemon::start(directory.path(), SEGMENT, true).expect("ginneld");
    let options = daemon.vm_args("t", 1).expect("options");
    let mut spec = Spec {
        programs: vec!["setpriv".into(), udevadm.display().to_string()],
        options,
        ..Spec::new("dkms")
    };
    let mut file =
        |from: &Path, to: String| spec.files.push((to, 0o644, fs::read(from).expect("read")));
    let installed = directory.path().join("modules").join(release);
    // Compressed where the kernel's own are.
    let module = fs::read_dir(installed.join("updates/dkms"))
        .expect("there")
        .flatten()
        .next()
        .expect("a module")
        .path();
    file(
        &module,
        format!(
            "/lib/modules/{release}/updates/dkms/{}",
            module.file_name().expect("a name").to_string_lossy()
        ),
    );
    for entry in
        fs::read_dir(&installed).expect("there").flatten().filter(|entry| entry.path().is_file())
    {
        file(
            &entry.path(),
            format!("/lib/modules/{release}/{}", entry.file_name().to_string_lossy()),
        );
    }
    file(&rules.join("80-drivers.rules"), "/usr/lib/udev/rules.d/80-drivers.rules".into());
    file(&Path::new(DRIVER).join("60-ginnel.rules"), "/etc/udev/rules.d/60-ginnel.rules".into());
    let mut guest = Guest::boot(&kernel, directory.path(), &spec).expect("it boots");
    assert_eq!(
        guest.run("test -e /dev/ginnel0", PATIENCE).expect("an answer").status,
        1,
        "nobody has loaded the driver yet"
    );

    // As a system does when it starts: udev is told of every device that is there.
    guest.sh("echo ginnel:x:901: >>/etc/group; ln -s udevadm /usr/bin/systemd-udevd; chmod 755 / /dev; systemd-udevd --daemon");
    guest.sh("udevadm trigger --action=add; udevadm settle");
    assert_given_to_the_group(&guest);
    let said = guest.run("ginnel doctor --vm", PATIENCE).expect("an answer");
    assert_eq!(said.status, 0, "{}", said.out);

    // And one that is plugged in later.
    guest.unplug("ginnel-t-device").expect("unplugged");
    assert_eq!(guest.run("test -e /dev/ginnel0", PATIENCE).expect("an answer").status, 1);
    guest.plug(&spec.options).expect("plugged in");
    assert_given_to_the_group(&guest);
    guest.assert_healthy();

    host.run("dkms remove ginnel/0.1.0 --all");
    assert!(!module.exists() && host.run("dkms status").is_empty());
}
