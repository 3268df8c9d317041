//! The device of a virtual machine, from the PCI bus up to what programs may do with it.

use super::{Finding, State, allowed, line_of};
use ginnel_region::device::{self, INTERFACE, PciDevice, Source};
use ginnel_region::{Error, Segment};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const CHECK: &str = "device";
/// What the driver's module is called.
const DRIVER: &str = "ginnel";
/// Loads that take longer than this go to the memory, nanoseconds. Those that do not take a few,
/// under emulation too.
const UNCACHED_NS: u64 = 60;
const ADD: &str =
    "add one on the host: `ginnel vm args --segment NAME --slot N` prints QEMU's options";

/// What there is of devices. `wanted`: the machine is to have one.
pub fn checks(wanted: bool) -> Vec<Finding> {
    let devices = device::pci_devices();
    let loaded = Path::new("/sys/module").join(DRIVER).is_dir();
    if devices.is_empty() {
        // Whoever has the driver loaded means to have a device.
        return vec![if wanted || loaded {
            Finding::wrong(CHECK, "this machine has no ivshmem device (1af4:1110)", ADD)
        } else {
            Finding::none(
                CHECK,
                "no ivshmem device: needed only in a virtual machine that shares memory with others",
            )
        }];
    }
    let mut all: Vec<Finding> = devices.iter().map(|device| bus(device, loaded)).collect();
    let driven = device::driver_devices();
    let bound = devices.iter().any(|device| device.driver.as_deref() == Some(DRIVER));
    if bound && driven.is_empty() {
        all.push(Finding::wrong(
            CHECK,
            "the driver has taken a device, and there is no /dev/ginnel0",
            "see `dmesg`",
        ));
    }
    for path in driven {
        all.extend(node(&path));
    }
    all
}

fn slot(device: &PciDevice) -> String {
    device.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A device as the PCI bus shows it: has it memory, and a driver?
fn bus(device: &PciDevice, loaded: bool) -> Finding {
    let (at, size) = (slot(device), device.size);
    if size == 0 {
        let advice = "give the root port room: pref64-reserve=, as `ginnel vm args` does";
        return Finding::wrong(CHECK, format!("{at}: its memory has no address"), advice);
    }
    let found = format!("{at}, {}", crate::size::human(size));
    match device.driver.as_deref() {
        Some(DRIVER) => Finding::ok(CHECK, format!("{found}, driver {DRIVER}")),
        Some(other) => Finding::wrong(
            CHECK,
            format!("{found}: driver {other} has it"),
            format!(
                "unbind it: echo {at} >/sys/bus/pci/drivers/{other}/unbind; then modprobe {DRIVER}"
            ),
        ),
        None if loaded => Finding::wrong(
            CHECK,
            format!("{found}: driver {DRIVER} is loaded and left it alone"),
            "`dmesg` says why: another device's, or refused by the host",
        ),
        None => Finding::wrong(
            CHECK,
            format!("{found}: no driver: mapped uncached, for root only, and without doorbells"),
            format!("modprobe {DRIVER}; driver/README.md says how it is installed"),
        ),
    }
}

/// Nanoseconds that a load of a segment's first word takes which was loaded just before. How memory
/// is mapped no kernel tells a program; but an uncached load goes to the memory each time, which
/// takes a hundred nanoseconds and more, and a cached one does not.
fn load_ns(segment: &Segment) -> u64 {
    const LOADS: u32 = 1000;
    let batch = |_| {
        let began = Instant::now();
        for _ in 0..LOADS {
            black_box(segment.word(0).load(Relaxed));
        }
        u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64::from(LOADS)
    };
    // The quickest of many: whatever else the machine does only makes one slower.
    (0..50).map(batch).min().unwrap_or(0)
}

/// The segment of a device, or why it cannot be opened.
fn opened(path: &Path) -> Result<Segment, Finding> {
    let shown = path.display();
    Segment::open(path).map_err(|error| match error {
        Error::Driver { .. } => Finding::error(CHECK, &shown.to_string(), &error.to_string()),
        Error::Version { theirs, ours } => Finding::wrong(
            CHECK,
            format!(
                "{shown}: the host's segment has layout version {theirs}, this Ginnel speaks {ours}"
            ),
            "install the same release here and on the host",
        ),
        error => Finding::wrong(
            CHECK,
            format!("{shown}: {error}"),
            "see `dmesg`, and ginneld's log on the host",
        ),
    })
}

/// A driver of another version, whose interface is the same.
fn other_driver() -> Option<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    let version = line_of(Path::new("/sys/module").join(DRIVER).join("version"));
    (!version.is_empty() && version != own).then(|| {
        let found =
            format!("driver {version}, ginnel {own}: their interface is the same ({INTERFACE})");
        Finding::none(CHECK, found)
    })
}

/// What programs get: `/dev/ginnelN`.
fn node(path: &Path) -> Vec<Finding> {
    let shown = path.display();
    if !path.exists() {
        return vec![Finding::wrong(
            CHECK,
            format!("{shown} is not there, though the driver has it"),
            "mount devtmpfs, or start udev",
        )];
    }
    if !allowed(path, libc::R_OK | libc::W_OK) {
        let advice = "install driver/60-ginnel.rules and add the user to group ginnel";
        return vec![Finding::wrong(
            CHECK,
            format!("{shown} may not be opened by this user"),
            advice,
        )];
    }
    let segment = match opened(path) {
        Ok(segment) => segment,
        Err(finding) => return vec![finding],
    };
    let mut all = Vec::new();
    let Source::Device { peer, vectors } = segment.source() else { return all };
    if vectors == 0 {
        let advice = "give QEMU ivshmem-doorbell with vectors, as `ginnel vm args` does";
        all.push(Finding::wrong(
            CHECK,
            format!("{shown}: no doorbells: sleepers are woken over TCP"),
            advice,
        ));
    }
    if !segment.kept_by_daemon() {
        all.push(Finding::wrong(
            CHECK,
            format!("{shown}: no ginneld made this segment"),
            "let ginneld serve it on the host",
        ));
    } else if !segment.presence(peer).attached {
        let found = format!("{shown}: the host does not count this machine among those attached");
        all.push(Finding::wrong(
            CHECK,
            found,
            "start ginneld on the host, or unplug the device and plug it in again",
        ));
    }
    let ns = load_ns(&segment);
    if ns > UNCACHED_NS {
        let advice = "use the ginnel.ko of this release, which maps it write-back";
        all.push(Finding::wrong(
            CHECK,
            format!("{shown}: mapped uncached: a load takes {ns} ns"),
            advice,
        ));
    }
    all.extend(other_driver());
    if all.iter().all(|finding| finding.state != State::Wrong) {
        all.push(Finding::ok(CHECK, format!("{shown}, peer {peer}, {vectors} doorbells, cached")));
    }
    all
}
