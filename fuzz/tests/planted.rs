//! Do the targets of `ginnel-switch` find a fault? Each of some is planted in a copy of the
//! sources, and its target is run on that, from nothing. How long each takes is printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Seconds that a target gets without a fault, and at most with one: it ends once it has found it.
const WITHOUT: &str = "4";
const WITH: &str = "60";
/// Says which fault a copy has.
const WHICH: &str = "GINNEL_PLANTED";

/// A fault: what it is, the target that is to find it, where it is planted, the expression that
/// stands there (with what stands around it, where it is between `<<` and `>>`), and what is put in
/// its place.
struct Fault {
    what: &'static str,
    target: &'static str,
    file: &'static str,
    stands: &'static str,
    put: &'static str,
}

const FAULTS: [Fault; 14] = [
    Fault {
        what: "a head of a chain is not compared with the queue's size",
        target: "switch-ring",
        file: "ring/split.rs",
        stands: "head <= self.mask",
        put: "true",
    },
    Fault {
        what: "a queue may lie beyond the end of its guest's memory",
        target: "switch-ring",
        file: "ring/memory.rs",
        stands: "offset.checked_add(len).is_some_and(|end| end <= self.size)",
        put: "len > 0 && offset <= self.size",
    },
    Fault {
        what: "a buffer is as long as the guest says, not as its memory",
        target: "switch-ring",
        file: "ring/memory.rs",
        stands: "len.min(region.size - offset)",
        put: "return Some(unsafe { Slice::new(region.mapping.start().add(offset as usize), \
              len as usize, guest) })",
    },
    Fault {
        what: "a table of descriptors has one more than it is long",
        target: "switch-ring",
        file: "ring/descriptor.rs",
        stands: "index >= count",
        put: "index > count",
    },
    Fault {
        what: "the guest is not told of the first entry that it waits for",
        target: "switch-ring",
        file: "ring/events.rs",
        stands: "self.done.wrapping_sub(event).wrapping_sub(1) < self.done.wrapping_sub(was)",
        put: "self.done.wrapping_sub(event) < self.done.wrapping_sub(was)",
    },
    Fault {
        what: "of what was written only the first page is logged",
        target: "switch-ring",
        file: "ring/log.rs",
        stands: "gpa.saturating_add(len - 1) / PAGE",
        put: "gpa / PAGE",
    },
    Fault {
        what: "pages beyond the log's end are logged",
        target: "switch-ring",
        file: "ring/log.rs",
        stands: "end.min((self.bytes * 8).saturating_sub(1))",
        put: "end",
    },
    Fault {
        what: "an index is read a second time after it was checked",
        target: "switch-race",
        file: "ring/split.rs",
        stands: "{ <<Ok(head)>> }",
        put: "Ok(u16::from_le(unsafe { self.available.u16(offset) }.load(Ordering::Relaxed)))",
    },
    Fault {
        what: "a front end may name a queue that is not there",
        target: "switch-messages",
        file: "vhost/device.rs",
        stands: "self.queues.get_mut(index as usize).ok_or(Refusal::Queue(index))",
        put: "Ok(&mut self.queues[index as usize])",
    },
    Fault {
        what: "a host's frame may be shorter than its own addresses, and longer than any",
        target: "switch-opened",
        file: "hosts/message.rs",
        stands: "!(ETHERNET..=LONGEST).contains(&len)",
        put: "false",
    },
    Fault {
        what: "the same, as the whole switch sees it",
        target: "switch-hosts",
        file: "hosts/message.rs",
        stands: "!(ETHERNET..=LONGEST).contains(&len)",
        put: "false",
    },
    Fault {
        what: "a machine may send more than the other has room for",
        target: "switch-vsock",
        file: "vsock/hub.rs",
        stands: "!good || len > credit",
        put: "!good",
    },
    Fault {
        what: "a machine may have taken more than it was given",
        target: "switch-vsock",
        file: "vsock/connection.rs",
        stands: "given.wrapping_sub(fwd_cnt) > u32::MAX / 2",
        put: "false",
    },
    Fault {
        what: "an address that is a port's by configuration may be another's",
        target: "switch-table",
        file: "fdb.rs",
        stands: "if <<!self.may_have(port, home)>> => return Learned::Taken",
        put: "false",
    },
];

/// A copy of the workspace's sources, and the folder that it is built in.
struct Copy {
    sources: PathBuf,
    built: PathBuf,
}

impl Copy {
    fn new() -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| workspace.join("target"), PathBuf::from);
        let (sources, built) = (target.join("planted/sources"), target.join("planted/built"));
        // There may be none yet.
        let _ = fs::remove_dir_all(&sources);
        fs::create_dir_all(&sources).expect("made");
        for entry in fs::read_dir(&workspace).expect("read").flatten() {
            if ["target", ".git"].iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let mut copy = Command::new("cp");
            let status = copy.arg("-rp").args([&entry.path(), &sources]).status().expect("cp");
            assert!(status.success(), "{}", entry.path().display());
        }
        Self { sources, built }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.sources.join("crates/switch/src").join(name)
    }

    /// Plants a fault: the program has it where the environment says so.
    fn plant(&self, number: usize, fault: &Fault) {
        let stands = fault.stands.replace("<<", "").replace(">>", "");
        let (before, rest) = fault.stands.split_once("<<").unwrap_or(("", fault.stands));
        let (own, behind) = rest.split_once(">>").unwrap_or((rest, ""));
        let file = self.file(fault.file);
        let text = fs::read_to_string(&file).expect("read");
        assert_eq!(text.matches(&stands).count(), 1, "{}: {stands}", fault.file);
        let put = fault.put;
        let chosen = format!("(if crate::planted({number}) {{ {put} }} else {{ {own} }})");
        fs::write(&file, text.replace(&stands, &[before, &chosen, behind].concat()))
            .expect("written");
    }

    /// Plants all, and builds once.
    fn build(&self) {
        for (number, fault) in
            FAULTS.iter().enumerate().filter(|(number, _)| first(*number) == *number)
        {
            self.plant(number, fault);
        }
        let asks = format!(
            "\npub fn planted(number: usize) -> bool {{
                static IS: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
                let read = || std::env::var(\"{WHICH}\").ok()?.parse().ok();
                *IS.get_or_init(read) == Some(number)
            }}\n"
        );
        let file = self.file("lib.rs");
        let text = fs::read_to_string(&file).expect("read");
        fs::write(&file, text + &asks).expect("written");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--profile", "testing", "-p", "ginnel-fuzz", "--bin", "ginnel-fuzz"]);
        cargo.env("CARGO_TARGET_DIR", &self.built).env_remove("RUSTFLAGS");
        let done = cargo.current_dir(&self.sources).output().expect("cargo");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs a target, with a fault or without.
    fn run(&self, target: &str, fault: Option<usize>) -> Output {
        let mut program = Command::new(self.built.join("testing/ginnel-fuzz"));
        program.args([target, if fault.is_some() { WITH } else { WITHOUT }]);
        if let Some(number) = fault {
            program.env(WHICH, first(number).to_string());
        }
        program.output().expect("it starts")
    }
}

/// The number of the first fault that is planted as this one is.
fn first(number: usize) -> usize {
    let same = |one: &Fault| (one.file, one.stands) == (FAULTS[number].file, FAULTS[number].stands);
    FAULTS.iter().position(same).unwrap_or(number)
}

#[test]
#[ignore = "test-all: builds the switch once more"]
fn every_planted_fault_is_found() {
    let copy = Copy::new();
    copy.build();
    let mut missed = Vec::new();
    for (number, fault) in FAULTS.iter().enumerate() {
        let good = copy.run(fault.target, None);
        assert!(good.status.success(), "without a fault {} fails: {good:?}", fault.target);
        let began = std::time::Instant::now();
        let ran = copy.run(fault.target, Some(number));
        let said = String::from_utf8_lossy(&ran.stderr);
        let why = said.lines().find(|line| line.contains("panicked")).unwrap_or_default();
        let took = began.elapsed().as_secs_f64();
        println!("{}: {} ({}, {took:.2} s) {why}", fault.target, fault.what, ran.status);
        if ran.status.success() {
            missed.push(fault.what);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
