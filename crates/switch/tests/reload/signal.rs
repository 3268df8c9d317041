//! By a signal, and in a process of its own.

use crate::common::PATIENCE;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_signal_has_the_file_read_again() {
    let place = tempfile::tempdir().expect("a directory");
    let write = |ports: &str| {
        let text = format!("run_dir = {:?}\nmetrics = \"off\"\n{ports}", place.path());
        std::fs::write(place.path().join("s.toml"), text).expect("written");
    };
    write("mode = \"0600\"\n[port.a]\n");
    let log = place.path().join("log");
    let switch = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"))
        .args(["--config", "s.toml"])
        .current_dir(place.path())
        .env_remove("JOURNAL_STREAM")
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("it starts");
    struct Ends(std::process::Child);
    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let mut switch = Ends(switch);
    let said = || std::fs::read_to_string(&log).expect("a log");
    let until = |what: &str| {
        let until = Instant::now() + PATIENCE;
        while !said().contains(what) {
            assert!(Instant::now() < until, "{}", said());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    until("event=started");
    let pid = rustix::process::Pid::from_raw(switch.0.id() as i32).expect("a process");
    let hup = || rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("told");
    write("[port.a]\n[port.b]\n");
    hup();
    until("event=reload added=1 removed=0 changed=1");
    let mode = |name: &str| {
        let meta = place.path().join(name).metadata().expect("a socket");
        assert!(meta.file_type().is_socket());
        meta.permissions().mode() & 0o777
    };
    assert_eq!([mode("a.sock"), mode("b.sock")], [0o660; 2]);
    write("[port.a]\n[port.b]\nkey = -1\n");
    hup();
    until("level=error event=reload why=");
    // The command says the same, and that it did not go.
    let ask = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
        let output = command.args(["reload", "--control"]).arg(place.path().join("control.sock"));
        let output = output.output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, why) = ask();
    assert!(code == Some(1) && why.contains("s.toml:5"), "{why}");
    write("[port.b]\n[port.c]\n");
    assert_eq!(ask(), (Some(0), "added: c\nremoved: a\n".into(), String::new()));
    assert_eq!(ask(), (Some(0), String::new(), String::new()));
    assert!(switch.0.try_wait().expect("asked").is_none());
}
