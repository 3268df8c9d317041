//! A real QEMU without a guest: stopped before its first instruction (`-S`), driven from outside
//! over QMP, and over qtest, by which the test does what a guest's processor would do: reads and
//! writes ports and memory, and so the device's registers.
//!
//! Source: QEMU, `docs/interop/qmp-spec`, `docs/devel/qtest`, `docs/specs/ivshmem-spec`.

mod host;

use super::{PATIENCE, dies_with_us, wait};
use ginnel_region::TABLE;
pub use host::Host;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the test puts the device's BARs: 256 bytes of registers, the MSI-X table, the memory.
const REGISTERS: u64 = 0xe000_0000;
const MSIX: u64 = 0xe010_0000;
/// Where the memory begins in the guest's address space.
pub const MEMORY: u64 = 0xe800_0000;
/// Where in the guest's RAM an interrupt leaves its message: 4 bytes for each vector.
const INTERRUPTS: u64 = 0x1_0000;
const MESSAGE: u32 = 0x900d_0000;

/// Is the program installed? Says so where it is not, for the test that is then skipped.
pub fn is_installed() -> bool {
    let found = Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        super::skip("qemu-system-x86_64 is not installed (scripts/install-deps.sh test)");
    }
    found
}

/// A running QEMU.
pub struct Qemu {
    child: Child,
    qmp: BufReader<UnixStream>,
    qtest: BufReader<UnixStream>,
    events: Vec<Value>,
    errors: std::path::PathBuf,
}

impl Qemu {
    /// Starts one with an ivshmem device, `shm`, joined at `socket`, on PCI slot 5 of machine `pc`.
    pub fn joined(directory: &Path, socket: &Path) -> Self {
        Self::start(directory, &device(socket))
    }

    /// Starts one with these further options; returns when its devices are made.
    pub fn start(directory: &Path, options: &[String]) -> Self {
        Self::begin(directory, "pc", options).finish()
    }

    /// Starts one and does not wait: its server may not be there yet.
    pub fn begin(directory: &Path, machine: &str, options: &[String]) -> Starting {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = |kind: &str| directory.join(format!("{kind}.{n}"));
        let errors = path("qemu");
        let socket = |kind: &str| format!("unix:{},server=on,wait=off", path(kind).display());
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
                "-machine",
                machine,
                "-accel",
                "tcg",
                "-S",
                "-m",
                "32",
                "-nodefaults",
                "-display",
                "none",
                "-no-user-config",
            ])
            .args(["-qtest-log", "none", "-qtest", &socket("qtest"), "-qmp", &socket("qmp")])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&errors).expect("a file"));
        let child = dies_with_us(&mut command).spawn().expect("QEMU starts");
        Starting { child: Some(child), qmp: path("qmp"), qtest: path("qtest"), errors }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said on standard error.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    /// Does it still run and serve?
    pub fn assert_alive(&mut self) {
        let status = self.qmp(json!({"execute": "query-status"}));
        assert_eq!(status["status"], "prelaunch", "{}", self.said());
    }

    /// A QMP command that must succeed: what it returns.
    pub fn qmp(&mut self, command: Value) -> Value {
        match self.try_qmp(&command) {
            Ok(value) => value,
            Err(error) => panic!("{command}: {error}"),
        }
    }

    /// A QMP command: what it returns, or the error's words.
    pub fn try_qmp(&mut self, command: &Value) -> Result<Value, String> {
        writeln!(self.qmp.get_mut(), "{command}").expect("QMP is there");
        loop {
            let mut answer = self.line();
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
            if answer.get("error").is_some() {
                return Err(answer["error"]["desc"].to_string());
            }
            self.events.push(answer);
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        match self.qmp.read_line(&mut line) {
            Ok(1..) => serde_json::from_str(&line).expect("QMP speaks JSON"),
            got => panic!("QEMU does not answer ({got:?}); it said: {}", self.said()),
        }
    }

    /// Waits for a QMP event.
    pub fn wait_event(&mut self, name: &str) {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["event"] == name) {
                self.events.remove(at);
                return;
            }
            let event = self.line();
            self.events.push(event);
        }
    }

    /// The ivshmem device as QMP's query-pci shows it.
    pub fn device(&mut self) -> Option<Value> {
        let buses = self.qmp(json!({"execute": "query-pci"}));
        let devices = |bus: &Value| bus["devices"].as_array().cloned().unwrap_or_default();
        let mut all: Vec<Value> =
            buses.as_array().expect("buses").iter().flat_map(devices).collect();
        let behind: Vec<Value> =
            all.iter().flat_map(|device| devices(&device["pci_bridge"])).collect();
        all.extend(behind);
        all.into_iter()
            .find(|device| device["id"]["vendor"] == 0x1af4 && device["id"]["device"] == 0x1110)
    }

    /// The device's memory, its BAR 2, as query-pci shows it.
    pub fn memory_region(&mut self) -> Option<Value> {
        self.device()?["regions"].as_array()?.iter().find(|region| region["bar"] == 2).cloned()
    }

    /// Bytes of the device's memory.
    pub fn memory_size(&mut self) -> Option<u64> {
        self.memory_region()?["size"].as_u64()
    }

    /// Adds a chardev that is connected to `socket`.
    pub fn add_chardev(&mut self, socket: &Path) {
        let backend = json!({"type": "socket", "data": {"addr": {"type": "unix", "data": {"path": socket}}, "server": false}});
        self.qmp(json!({"execute": "chardev-add", "arguments": {"id": "c", "backend": backend}}));
    }

    /// Adds the device to the chardev, as a hot-plug.
    pub fn add_device(&mut self) {
        let device = json!({"driver": "ivshmem-doorbell", "id": "shm", "chardev": "c", "vectors": 2, "addr": "5"});
        self.qmp(json!({"execute": "device_add", "arguments": device}));
    }

    /// Takes the device and its chardev out. The guest's part, to let go of slot 5, is done by its
    /// ACPI register (piix4: port 0xae08).
    pub fn remove_device(&mut self) {
        self.qmp(json!({"execute": "device_del", "arguments": {"id": "shm"}}));
        self.ask(&format!("outl 0xae08 {:#x}", 1 << 5));
        self.wait_event("DEVICE_DELETED");
        self.qmp(json!({"execute": "chardev-remove", "arguments": {"id": "c"}}));
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.qtest.get_mut(), "{command}").expect("qtest is there");
        let mut line = String::new();
        match self.qtest.read_line(&mut line) {
            Ok(1..) if line.starts_with("OK") => line[2..].trim().to_owned(),
            got => panic!("{command}: {got:?} {line:?}; QEMU said: {}", self.said()),
        }
    }

    fn number(&mut self, command: &str) -> u32 {
        let text = self.ask(command);
        let number = u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
        u32::try_from(number).expect("32 bits")
    }

    /// 4 bytes of the guest's memory.
    pub fn read(&mut self, address: u64) -> u32 {
        self.number(&format!("readl {address:#x}"))
    }

    pub fn write(&mut self, address: u64, value: u32) {
        self.ask(&format!("writel {address:#x} {value:#x}"));
    }

    /// 8 bytes of the segment, as the guest sees it.
    pub fn word(&mut self, offset: u64) -> u64 {
        u64::from(self.read(MEMORY + offset)) | u64::from(self.read(MEMORY + offset + 4)) << 32
    }

    fn config(&mut self, offset: u32) -> u32 {
        self.ask(&format!("outl 0xcf8 {:#x}", 0x8000_0000u32 | 5 << 11 | offset));
        self.number("inl 0xcfc")
    }

    fn set_config(&mut self, offset: u32, value: u32) {
        self.ask(&format!("outl 0xcf8 {:#x}", 0x8000_0000u32 | 5 << 11 | offset));
        self.ask(&format!("outl 0xcfc {value:#x}"));
    }

    /// What firmware and driver do: gives the BARs addresses, and lets each interrupt leave a
    /// message in RAM.
    pub fn set_up_device(&mut self) {
        assert_eq!(self.config(0), 0x1110_1af4, "ivshmem on slot 5");
        for (bar, address) in [(0x10, REGISTERS), (0x14, MSIX), (0x18, MEMORY), (0x1c, 0)] {
            self.set_config(bar, u32::try_from(address).expect("below 4 GiB"));
        }
        // Memory space and bus master.
        let command = self.config(4);
        self.set_config(4, command | 6);
        for vector in 0..2 {
            let entry = MSIX + u64::from(vector) * 16;
            self.write(entry, u32::try_from(INTERRUPTS).expect("low") + vector * 4);
            self.write(entry + 4, 0);
            self.write(entry + 8, MESSAGE | vector);
            self.write(entry + 12, 0);
        }
        let mut capability = self.config(0x34) & 0xff;
        while self.config(capability) & 0xff != 0x11 {
            capability = self.config(capability) >> 8 & 0xff;
            assert_ne!(capability, 0, "an MSI-X capability");
        }
        let control = self.config(capability);
        self.set_config(capability, control | 1 << 31);
    }

    /// The id that the device's register gives.
    pub fn position(&mut self) -> u32 {
        self.read(REGISTERS + 8)
    }

    /// Rings a peer by the device's doorbell register.
    pub fn ring(&mut self, peer: u16, vector: u16) {
        self.write(REGISTERS + 12, u32::from(peer) << 16 | u32::from(vector));
    }

    /// Did an interrupt come? Takes it.
    pub fn interrupted(&mut self, vector: u32) -> bool {
        let address = INTERRUPTS + u64::from(vector) * 4;
        let came = self.read(address) == MESSAGE | vector;
        if came {
            self.write(address, 0);
        }
        came
    }

    /// Waits for an interrupt.
    pub fn wait_interrupt(&mut self, vector: u32) {
        wait(&format!("interrupt {vector}"), || self.interrupted(vector).then_some(()));
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A QEMU that has been started and may not have come far.
pub struct Starting {
    child: Option<Child>,
    qmp: std::path::PathBuf,
    qtest: std::path::PathBuf,
    errors: std::path::PathBuf,
}

impl Starting {
    /// Has it made its devices? Its greeting comes earlier, from a thread of its own; only then
    /// does it answer.
    pub fn is_ready(&mut self) -> bool {
        let Ok(mut stream) = UnixStream::connect(&self.qmp) else { return false };
        stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("set");
        let _ = writeln!(stream, "{}", json!({"execute": "qmp_capabilities"}));
        BufReader::new(stream).lines().map_while(Result::ok).any(|line| line.contains("return"))
    }

    /// Waits until it is ready.
    pub fn finish(mut self) -> Qemu {
        let child = self.child.as_mut().expect("started");
        let errors = &self.errors;
        let mut connect = |path: &Path| {
            wait(&format!("{}", path.display()), || {
                if child.try_wait().expect("our child").is_some() {
                    panic!("QEMU ended: {}", std::fs::read_to_string(errors).unwrap_or_default());
                }
                UnixStream::connect(path).ok()
            })
        };
        let (qmp, qtest) = (connect(&self.qmp), connect(&self.qtest));
        for stream in [&qmp, &qtest] {
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
        }
        let child = self.child.take().expect("started");
        let mut qemu = Qemu {
            child,
            qmp: BufReader::new(qmp),
            qtest: BufReader::new(qtest),
            events: vec![],
            errors: self.errors.clone(),
        };
        assert!(qemu.line().get("QMP").is_some(), "QMP's greeting");
        qemu.qmp(json!({"execute": "qmp_capabilities"}));
        qemu
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The options for an ivshmem device with two vectors.
pub fn device(socket: &Path) -> Vec<String> {
    let chardev = format!("socket,id=c,path={}", socket.display());
    ["-chardev", &chardev, "-device", "ivshmem-doorbell,id=shm,chardev=c,vectors=2,addr=5"]
        .map(str::to_owned)
        .to_vec()
}

/// What the table in the segment says of a peer: attached, and how often joined.
pub fn presence(qemu: &mut Qemu, peer: u64) -> (bool, u64) {
    let word = qemu.word(TABLE + 8 * (1 + peer));
    (word & 1 == 1, word >> 1)
}

pub fn drain(qemu: &mut Qemu) {
    for vector in 0..2 {
        qemu.interrupted(vector);
    }
}
