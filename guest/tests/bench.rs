//! `ginnel bench` between two guests: Ginnel and virtio-net side by side, the report taken out of
//! the guest that measured.
//!
//! With `GINNEL_RECORD=DIRECTORY` everything is measured, which takes half an hour under software
//! emulation, and what came out is left there (scripts/record-bench.sh).

use crate::common::{Lab, PATIENCE};
use ginnel_guest::child::Killed;
use ginnel_guest::machine;
use std::time::Duration;

/// Has the host tell the second guest what it spends for both.
fn tell_host_cpu(lab: &Lab) -> Killed {
    let daemon = lab.daemon.pid().expect("it runs");
    let processes = lab.guests.iter().map(|guest| guest.pid()).chain([daemon]);
    let mut command =
        std::process::Command::new(ginnel_guest::built("ginnel-bench").expect("built"));
    command.arg("host").arg(lab.host_cpu_socket(1)).args(processes.map(|pid| pid.to_string()));
    Killed::spawn(command).expect("it starts")
}

#[test]
#[ignore = "test-all: boots guests of its own"]
fn two_guests_are_measured_against_each_other() {
    let _alone = machine::alone();
    let program = ginnel_guest::built("ginnel-bench").expect("built");
    let lab = Lab::boot(2, true, &[program.to_str().expect("UTF-8")]);
    let (one, two) = (&lab.guests[0], &lab.guests[1]);
    let record = std::env::var_os("GINNEL_RECORD").map(std::path::PathBuf::from);
    let limit = PATIENCE + Duration::from_secs(if record.is_some() { 7200 } else { 120 });
    let _serving = one.start("exec ginnel bench serve", limit).expect("started");
    two.sh("for i in $(seq 100); do nc -w 1 10.77.0.1 7411 </dev/null && exit 0; sleep 0.1; done; exit 1");
    let options = match record {
        Some(_) => "--full --rounds 5 --name guests --out run",
        None => {
            "--pattern latency,stream,many,connect --sizes 64,64K --rounds 1 --seconds 0.5 --name guests --out run"
        }
    };
    let _host = tell_host_cpu(&lab);
    let port = two.sh("cd /sys/class/virtio-ports; for p in *; do [ $(cat $p/name) != ginnel.host-cpu ] || echo /dev/$p; done");
    let commit = std::env::var("GINNEL_COMMIT").unwrap_or_default();
    let bench = format!(
        "GINNEL_COMMIT={commit} ginnel bench --connect 10.77.0.1 --host-cpu {} {options}",
        port.trim()
    );
    let measured = two.run(&bench, limit).expect("it ends");
    let said = measured.good().expect("well");
    let samples = two.sh("cat run/samples.csv");
    if let Some(directory) = record {
        std::fs::create_dir_all(&directory).expect("made");
        for file in ["run.json", "samples.csv"] {
            std::fs::write(directory.join(file), two.sh(&format!("cat run/{file}")))
                .expect("written");
        }
        lab.assert_healthy();
        return;
    }
    let column = |name: &str| {
        samples
            .lines()
            .next()
            .and_then(|head| head.split(',').position(|column| column == name))
            .expect("a column")
    };
    let (transport, share, error) = (column("transport"), column("ring_share"), column("error"));
    let fields: Vec<Vec<&str>> =
        samples.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert!(
        fields.len() >= 16 && fields.iter().all(|line| line[error].is_empty()),
        "{said}\n{samples}"
    );
    let of_ginnel =
        fields.iter().filter(|line| line[transport] == "ginnel" && line[1] == "latency");
    let carried: Vec<f64> = of_ginnel.filter_map(|line| line[share].parse().ok()).collect();
    assert!(carried.len() == 2 && carried.iter().all(|share| *share > 0.9), "{said}\n{samples}");
    // Both machines, emulated or not, take at least what the two ends in them do; CPU time of a
    // fraction of the sample's second is told in ticks of 10 ms.
    let host = column("host_cpu");
    let streams: Vec<f64> = fields
        .iter()
        .filter(|line| line[1] == "stream")
        .filter_map(|line| line[host].parse().ok())
        .collect();
    assert!(streams.len() == 4 && streams.iter().all(|share| *share > 0.3), "{said}\n{samples}");
    assert!(two.sh("cat run/report.html").contains("Transports compared on guests"));
    lab.assert_healthy();
}
