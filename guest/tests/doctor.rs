//! `ginnel doctor` in a virtual machine: each thing that can be wrong with the device, made wrong.
//! On a host: `crates/cli/tests/doctor.rs`.

use crate::common::{Lab, PATIENCE};
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{self, Guest, Spec};
use std::path::Path;
use std::process::Command;

/// `ginnel doctor`'s lines, and whether it found all well.
fn doctor(guest: &Guest, wrapper: &str) -> (Vec<String>, bool) {
    let said =
        guest.run(&format!("{wrapper} ginnel doctor --vm 2>&1"), PATIENCE).expect("an answer");
    assert!(said.status < 2, "{}: {}", said.status, said.out);
    (said.out.lines().map(str::to_owned).collect(), said.status == 0)
}

/// Exactly one line about the device is wrong, and it has these words. Gives it.
fn wrong(guest: &Guest, wrapper: &str, words: &[&str]) -> String {
    only_wrong(guest, wrapper, "device", words)
}

fn only_wrong(guest: &Guest, wrapper: &str, check: &str, words: &[&str]) -> String {
    let (lines, well) = doctor(guest, wrapper);
    let wrong: Vec<&String> =
        lines.iter().filter(|line| line.starts_with(&format!("WRONG {check}"))).collect();
    assert!(
        !well && wrong.len() == 1 && words.iter().all(|word| wrong[0].contains(word)),
        "{words:?} in {lines:#?}"
    );
    wrong[0].clone()
}

/// `ginnel.ko` of other sources: (file, text, text in its place).
fn other_driver(
    kernel: &Kernel,
    directory: &Path,
    name: &str,
    (file, from, to): (&str, &str, &str),
) -> Vec<u8> {
    let sources = directory.join(format!("driver-{name}"));
    std::fs::create_dir(&sources).expect("made");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../driver"))
        .expect("there")
        .flatten()
    {
        std::fs::copy(entry.path(), sources.join(entry.file_name())).expect("copied");
    }
    let text = std::fs::read_to_string(sources.join(file)).expect("read");
    assert_eq!(text.matches(from).count(), 1, "{from:?} in {file}");
    std::fs::write(sources.join(file), text.replace(from, to)).expect("written");
    let mut make = Command::new("make");
    make.arg("-C").arg(kernel.headers()).arg(format!("M={}", sources.display())).arg("modules");
    let said = make.output().expect("make");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    std::fs::read(sources.join("ginnel.ko")).expect("built")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn what_is_wrong_with_a_device_is_said() {
    let _alone = machine::alone();
    let mut lab = Lab::boot(1, true, &["setpriv"]);
    let options = lab.daemon.vm_args("t", 1).expect("options");
    let guest = &mut lab.guests[0];
    let (lines, well) = doctor(guest, "");
    assert!(well, "{lines:#?}");
    for words in [
        "64.0 MiB, driver ginnel",
        "/dev/ginnel0, peer 1, 3 doorbells, cached",
        "ok    segment     /dev/ginnel0",
    ] {
        assert!(lines.iter().any(|line| line.contains(words)), "{words:?} in {lines:#?}");
    }

    guest.sh("chmod 755 /root /root/* ; true");
    let other = "setpriv --reuid=1000 --regid=1000 --clear-groups env GINNEL_DIR=/tmp/other";
    wrong(guest, other, &["/dev/ginnel0 may not be opened by this user", "60-ginnel.rules"]);
    guest.sh("rm /dev/ginnel0");
    wrong(guest, "", &["/dev/ginnel0 is not there"]);
    guest.sh("rmmod ginnel");
    wrong(
        guest,
        "",
        &["no driver: mapped uncached, for root only, and without doorbells", "modprobe ginnel"],
    );
    guest.sh("insmod /root/ginnel.ko; until test -e /dev/ginnel0; do sleep 0.1; done");
    guest.unplug("ginnel-t-device").expect("unplugged");
    wrong(guest, "", &["no ivshmem device", "ginnel vm args"]);
    guest.plug(&options).expect("plugged in");
    guest.sh("until test -e /dev/ginnel0; do sleep 0.1; done");
    assert!(doctor(guest, "").1, "{:#?}", doctor(guest, "").0);

    // Connections within the machine have their segment in /dev/shm.
    guest.sh("mkdir -p /dev/shm; mount -t tmpfs -o size=4M shm /dev/shm");
    let said = only_wrong(
        guest,
        "",
        "room",
        &["4.0 MiB free for /dev/shm/ginnel-0", "mount -o remount,size=1G /dev/shm"],
    );
    let advice =
        said.split(['(', ';', ')']).find(|text| text.starts_with("mount")).expect("a command");
    guest.sh(advice);
    let (lines, well) = doctor(guest, "");
    assert!(
        well && lines
            .iter()
            .any(|line| line.starts_with("ok    room") && line.contains("1.0 GiB free")),
        "{lines:#?}"
    );
    guest.assert_healthy();
}

/// A device without interrupts, whose memory no ginneld made; under other drivers; and one whose
/// segment is of another version.
#[allow(clippy::too_many_lines, reason = "one guest goes through it all: booting costs most")]
#[test]
#[ignore = "test-all: boots guests of its own"]
fn a_device_that_is_not_ginnelds() {
    let _alone = machine::alone();
    let directory = tempfile::tempdir().expect("a directory");
    let kernel = Kernel::fetch().expect("a kernel");
    let file = |name: &str| directory.path().join(name);
    let create = |name: &str| {
        let mut command = Command::new(ginnel_guest::built("ginnel").expect("built"));
        let said = command
            .args(["segment", "create", file(name).to_str().expect("UTF-8"), "--size", "16M"])
            .output()
            .expect("ginnel");
        assert!(said.status.success(), "{said:?}");
    };
    create("old");
    create("plain");
    let device = |name: &str| {
        let memory = format!(
            "memory-backend-file,id={name},share=on,size=16M,mem-path={}",
            file(name).display()
        );
        ["-object".to_owned(), memory, "-device".to_owned(), format!("ivshmem-plain,memdev={name}")]
    };
    let mut spec = Spec { driver: true, ..Spec::new("plain") };
    spec.options.extend(device("plain"));
    for name in ["uio", "uio_pci_generic"] {
        let module = kernel.modules_folder().join(format!("kernel/drivers/uio/{name}.ko"));
        spec.files.push((
            format!("/root/{name}.ko"),
            0o644,
            std::fs::read(module).expect("a module"),
        ));
    }
    let release = ("ginnel.c", "MODULE_VERSION(\"0.1.0\")", "MODULE_VERSION(\"9.8.7\")");
    let interface = ("ginnel.h", "#define GINNEL_VERSION 1", "#define GINNEL_VERSION 7");
    for (name, change) in [("release", release), ("interface", interface)] {
        spec.files.push((
            format!("/root/{name}.ko"),
            0o644,
            other_driver(&kernel, directory.path(), name, change),
        ));
    }
    let guest = Guest::boot(&kernel, directory.path(), &spec).expect("it boots");
    let (lines, well) = doctor(&guest, "");
    let has = |words: &str| {
        lines.iter().any(|line| line.starts_with("WRONG device") && line.contains(words))
    };
    assert!(
        !well
            && has("no doorbells: sleepers are woken over TCP")
            && has("no ginneld made this segment"),
        "{lines:#?}"
    );

    // Another driver has it: what is said to do about it helps.
    guest.sh("rmmod ginnel; insmod /root/uio.ko; insmod /root/uio_pci_generic.ko; echo 1af4 1110 >/sys/bus/pci/drivers/uio_pci_generic/new_id");
    let said = wrong(&guest, "", &["driver uio_pci_generic has it", "then modprobe ginnel"]);
    let advice = said
        .split("unbind it: ")
        .nth(1)
        .and_then(|text| text.split("; then").next())
        .expect("a command");
    guest.sh(advice);
    wrong(&guest, "", &["no driver: mapped uncached"]);

    // A driver of another release: that matters only where its interface is another one.
    guest.sh("insmod /root/release.ko");
    let (lines, _) = doctor(&guest, "");
    assert!(
        lines.iter().any(
            |line| line.starts_with("-     device") && line.contains("driver 9.8.7, ginnel 0.")
        ),
        "{lines:#?}"
    );
    guest.sh("rmmod ginnel; insmod /root/interface.ko");
    wrong(
        &guest,
        "",
        &["speaks version 7 of its interface, this Ginnel 1", "install both from one release"],
    );
    guest.assert_healthy();
    drop(guest);

    let old = std::fs::File::options().write(true).open(file("old")).expect("there");
    std::os::unix::fs::FileExt::write_all_at(&old, &99u32.to_le_bytes(), 8).expect("written");
    let mut spec = Spec { driver: true, ..Spec::new("old") };
    spec.options.extend(device("old"));
    let guest = Guest::boot(&kernel, directory.path(), &spec).expect("it boots");
    wrong(
        &guest,
        "",
        &["the host's segment has layout version 99, this Ginnel speaks 3", "same release"],
    );
    guest.assert_healthy();
}
