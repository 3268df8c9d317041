//! The elements that docs/libvirt.md gives are valid by libvirt's own schema, and libvirt starts a
//! machine with them. Nothing is installed.

use crate::common::wait;
use ginnel_guest::child::Killed;
use ginnel_guest::package::{unpacked, with_needs};
use ginnel_guest::switch::VhostSwitch;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

/// `virt-xml-validate`, which knows its schemas by the place where they would be installed.
fn validate(directory: &Path, domain: &str) -> Output {
    let [schemas, script, tools, library] =
        ["libvirt0", "libvirt-clients", "libxml2-utils", "libxml2"]
            .map(|package| unpacked(package).expect("a package"));
    let text = std::fs::read_to_string(script.join("usr/bin/virt-xml-validate")).expect("a script");
    let place = format!("{}/usr/share/libvirt", schemas.display());
    let (program, file) = (directory.join("virt-xml-validate"), directory.join("domain.xml"));
    std::fs::write(&program, text.replace("/usr/share/libvirt", &place)).expect("written");
    std::fs::write(&file, domain).expect("written");
    let path = std::env::join_paths([tools.join("usr/bin"), "/usr/bin".into(), "/bin".into()])
        .expect("paths");
    let mut command = Command::new("sh");
    command.arg(program).arg(file).arg("domain").env("PATH", path);
    command
        .env("LD_LIBRARY_PATH", library.join("usr/lib/x86_64-linux-gnu"))
        .output()
        .expect("it runs")
}

/// The first example of the page that has this in it.
fn example<'a>(page: &'a str, with: &str) -> &'a str {
    let mut parts = page.split("```xml\n").skip(1).filter_map(|rest| rest.split("```").next());
    parts.find(|part| part.contains(with)).unwrap_or_else(|| panic!("no example has {with}"))
}

/// The page.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/libvirt.md");
    std::fs::read_to_string(page).expect("the page")
}

/// A machine with the page's elements for QEMU's command line, and these within and beside
/// `<devices>`.
fn domain(page: &str, beside: &str, devices: &str) -> String {
    let whole = example(page, "<qemu:commandline");
    let sockets = &whole[whole.find("<qemu:commandline").expect("there")
        ..whole.find("</domain>").expect("its end")];
    // Its firmware asks the network for a system, again and again.
    format!(
        "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>one</name>\
         <memory unit='MiB'>128</memory>{beside}<os><type arch='x86_64' machine='q35'>hvm</type>\
         <boot dev='network'/><bios rebootTimeout='0'/></os>\
         <devices>{devices}</devices>{sockets}</domain>"
    )
}

#[test]
#[ignore = "test-all: fetches packages"]
fn what_the_page_says_is_valid() {
    let page = page();
    let [memory, segment, port] =
        ["<memoryBacking", "<shmem", "type='vhostuser'"].map(|with| example(&page, with));
    let domain = domain(&page, memory, &format!("{segment}{port}"));
    let directory = tempfile::tempdir().expect("a directory");
    let done = validate(directory.path(), &domain);
    assert!(done.status.success(), "{done:?}\n{domain}");
    // It does refuse what is wrong.
    let wrong = domain.replace("vectors='4'", "vectors='many'");
    assert!(wrong != domain && !validate(directory.path(), &wrong).status.success());
}

/// As if libvirt were installed, in namespaces of its own: its daemon defines and starts the machine
/// of `$1/domain.xml`, and all of it ends with the shell.
const LIBVIRT: &str = r#"
set -e
mkdir -p "$1/over" "$2/etc" "$2/var" "$2/usr"
mount -t tmpfs tmpfs "$1/over"
for top in etc var; do
    mkdir "$1/over/$top" "$1/over/$top-work"
    mount -t overlay overlay -o "lowerdir=$2/$top:/$top" \
        -o "upperdir=$1/over/$top,workdir=$1/over/$top-work" "/$top"
done
mount -t overlay overlay -o "lowerdir=$2/usr:/usr" /usr
mount -t tmpfs tmpfs /run
# Without it the daemon has no machines, whoever they are to run as.
echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin' >>/etc/passwd
echo 'libvirt-qemu:x:64055:' >>/etc/group
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
cgroup_controllers = []
namespaces = []
remember_owner = 0
END
libvirtd &
until virsh -q list; do sleep 0.1; done
virsh define "$1/domain.xml"
virsh start one
wait
"#;

/// A stock daemon's machine reaches its port and its device for sockets by the page's elements, and
/// its port again when the switch was killed.
#[test]
#[ignore = "test-all: fetches packages"]
fn libvirt_starts_a_machine_at_the_switch() {
    // SAFETY: touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: libvirtd takes root");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let ports = "[port.vm1]\n[vsock.vm1]\ncid = 3\n";
    let mut switch = VhostSwitch::start(place, ports).expect("a switch");
    let page = page();
    let [memory, port] = ["<memoryBacking", "type='vhostuser'"].map(|with| example(&page, with));
    let own = format!("{}/switch/", place.display());
    let domain = domain(&page, memory, port).replace("/run/ginnel-switch/", &own);
    std::fs::write(place.join("domain.xml"), domain).expect("written");
    let log = File::create(place.join("libvirt.log")).expect("a log");
    let mut libvirt = Command::new("unshare");
    libvirt.args(["--mount", "--pid", "--net", "--mount-proc", "--fork", "--kill-child"]);
    libvirt.args(["sh", "-c", LIBVIRT, "sh"]).arg(place);
    libvirt.arg(with_needs("libvirt-daemon-system").expect("libvirt"));
    libvirt.stdout(log.try_clone().expect("a copy")).stderr(log);
    let _libvirt = Killed::spawn(libvirt).expect("it runs");
    let said = |switch: &VhostSwitch| {
        wait("frames of its firmware", || {
            let table = switch.ask("fdb").ok()?;
            table.contains("52:54:00:00:00:01").then_some(())
        });
    };
    said(&switch);
    let connected = |switch: &VhostSwitch| switch.log().matches("event=connected").count();
    wait("its card and its sockets", || (connected(&switch) >= 2).then_some(()));
    switch.kill_and_restart().expect("another switch");
    said(&switch);
}
