//! A static program in Go in containers, as most of what runs there is one. A shell starts it: what
//! the runtime starts itself is out of the library's reach ([docs/limits.md]).
//!
//! [docs/limits.md]: ../../../docs/limits.md#programs-in-go

use crate::containers::{host, redis, remove};
use crate::service::{assert_carried, share};
use ginnel_tests::go::{STATIC, program};
use ginnel_tests::host::Host;
use ginnel_tests::permit;

/// Neither root's rights nor anything to write on.
const NARROW: &str = "--device ginnel.dev/segment=user --user 1000 --cap-drop all --read-only \
    --security-opt no-new-privileges";

/// An echo server in one container and its client in another, by this podman command, each started
/// as `start` has it: what the client said, and its report.
fn exchange(host: &Host, run: &str, start: impl Fn(&str) -> String) -> String {
    let server = start("serve 0.0.0.0:7000");
    host.must(&format!("podman {run} -d --name s redis {server}"));
    let address = host.said("podman inspect -f '{{.NetworkSettings.IPAddress}}' s");
    let address = address.trim();
    host.must(&format!(
        "for i in $(seq 100); do (: </dev/tcp/{address}/7000) 2>/dev/null && exit; sleep 0.2; done; \
         podman logs s; exit 1"
    ));
    let client = start(&format!("ask {address}:7000 8 500"));
    let said =
        host.said(&format!("podman {run} --rm --env GINNEL_REPORT=/dev/shm/report redis {client}"));
    assert!(said.starts_with("OK\n"), "{said}");
    remove(host, "podman", "s");
    said
}

#[test]
#[ignore = "test-all: boots a host with podman"]
fn a_static_program_is_carried_between_containers() {
    let what = "Go in containers";
    let _permit = permit::cpu(1);
    let (Some(program), Some(image)) = (program(STATIC), redis(what)) else { return };
    image.copy(&program);
    let Some(host) = host(what, &[("redis", &image)]) else { return };
    host.must("ginnel container cdi g1 && ginnel container cdi user --user 1000");
    let file = program.display();
    let by_shell = |words: &str| {
        format!("/bin/sh -c '{file} {words}; /usr/bin/cat /dev/shm/report 2>/dev/null || :'")
    };
    for (runtime, options) in [("crun", "--device ginnel.dev/segment=g1"), ("runc", NARROW)] {
        let run = |go: &str| format!("--runtime {runtime} run {options} --env GINNEL_GO={go}");
        assert_carried(&exchange(&host, &run("1"), by_shell), 80);
        // Switched off, and where the runtime starts the program: all is well, over TCP.
        assert_eq!(share(&exchange(&host, &run("0"), by_shell)), 0);
        let alone = exchange(&host, &run("1"), |words| format!("{file} {words}"));
        assert_eq!(alone, "OK\n", "nobody reports");
    }
}
