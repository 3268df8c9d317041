//! The command: what it answers, traces and refuses; tap devices.

use crate::common::{Lab, PATIENCE, frame, mac, next, talk};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::{control, trace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(lab: &Lab, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
    command.args(arguments).arg("--control").arg(lab.directory.path().join("control.sock"));
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_says_what_it_does() {
    let lab = Lab::new("[port.a]\nkey = 5\n[port.b]\nkey = 5\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let said = |arguments: &[&str]| {
        let output = run(&lab, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        text(&output.stdout)
    };
    assert!(said(&["status"]).contains("2 ports, 2 of them up; 2 addresses"));
    let ports = said(&["ports"]);
    assert!(
        ports.lines().next().is_some_and(|head| head.starts_with("port  key  state")),
        "{ports}"
    );
    assert_eq!(ports.lines().count(), 3);
    assert!(said(&["fdb"]).contains("52:54:00:00:00:02  b"));
    let json: serde_json::Value = serde_json::from_str(&said(&["status", "--json"])).expect("JSON");
    assert_eq!((&json["format"], &json["ports"][0]["key"]), (&1.into(), &5.into()));
    let output = run(&lab, &["trace", "c"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(1), "ginnel-switch: there is no port c\n".into())
    );
}

#[test]
fn top_shows_what_goes_on_until_nobody_reads_it() {
    let lab = Lab::new("[port.a]\n[port.b]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let mut top = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
    top.args(["top", "--control"]).arg(lab.directory.path().join("control.sock"));
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    let mut lines = BufReader::new(top.stdout.take().expect("its output")).lines();
    let sent = loop {
        // Those that are sent before it has looked the first time are in no rate.
        a.send(1, &frame(mac(2), mac(1), 50, 1));
        while b.receive(0).is_some() {}
        let line = lines.next().expect("it goes on").expect("a line");
        let row: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        if let [port, state, sent, _, _, _, _] = row.as_slice()
            && (port.as_str(), state.as_str()) == ("a", "up")
            && sent != "0"
        {
            break sent.clone();
        }
    };
    assert!(sent.parse::<u64>().is_ok(), "{sent}");
    drop(lines);
    assert!(!top.wait().expect("it ends").success());
}

#[test]
fn machines_have_names() {
    let lab = Lab::new(
        "[port.a]\naddress = [\"10.0.0.1\", \"fd00::1\", \"10.1.0.0/24\"]\n[port.b]\n\
         [port.c]\nkey = 7\naddress = \"10.0.0.3\"\n",
    );
    let said = |arguments: &[&str]| text(&run(&lab, arguments).stdout);
    let own = "10.0.0.1\ta\nfd00::1\ta\n";
    assert_eq!(said(&["hosts"]), format!("{own}10.0.0.3\tc\n"));
    assert_eq!(said(&["hosts", "--key", "0"]), own);
    assert_eq!(said(&["hosts", "--key", "1"]), "");
}

#[test]
fn frames_can_be_looked_at() {
    let lab = Lab::new("[port.a]\n[port.b]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let control = lab.directory.path().join("control.sock");
    let mut stream = control::ask(&control, "trace b").expect("asked");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.read_exact(&mut [0; 3]).expect("it begins");
    let long = frame(mac(2), mac(1), 4000, 1);
    for _ in 0..3 {
        assert!(a.send(1, &long));
        assert!(next(&mut b).is_some());
    }
    let mut file = Vec::new();
    let (written, missed) =
        trace::write_pcapng(&mut stream, &mut file, "b", Some(3)).expect("read");
    assert_eq!((written, missed), (3, 0));
    assert!(file.windows(long.len()).filter(|part| *part == long).count() == 3, "whole");
    // One that does not read holds up nobody, and is forgotten when it goes.
    let deaf = control::ask(&control, "trace b").expect("asked");
    for n in 0..2000u32 {
        assert!(a.send(1, &long), "{n}");
        assert!(next(&mut b).is_some(), "{n}");
    }
    drop((deaf, stream));
    talk((&mut a, 1), (&mut b, 2));
}

#[test]
fn what_cannot_be_is_said_in_words() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).display().to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new("timeout")
            .args(["20", env!("CARGO_BIN_EXE_ginnel-switch")])
            .args(arguments)
            .output()
            .expect("it runs");
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run(&[]);
    assert!(code == Some(2) && said.contains("give --port NAME:SOCKET"), "{said}");
    let (code, said) = run(&["--config", &path("none")]);
    assert!(code == Some(2) && said.contains("cannot be read"), "{said}");
    let (code, said) = run(&["--port", "a"]);
    assert!(code == Some(2) && said.contains("NAME:SOCKET"), "{said}");
    let two = format!("a:{}", path("a"));
    let (code, said) = run(&["--port", &two, "--port", &two]);
    assert!(code == Some(2) && said.contains("one name"), "{said}");
    let vsock = |cid: u8| format!("--vsock=a:{cid}:{}", path("a"));
    let (code, said) = run(&[&vsock(3), &vsock(4)]);
    assert!(code == Some(2) && said.contains("two machines have one name"), "{said}");
    std::fs::write(path("file"), "").expect("written");
    let taken = format!("a:{}", path("file"));
    let (code, said) = run(&["--run-dir", &path("run"), "--port", &taken]);
    assert!(code == Some(1) && said.contains("no socket"), "{said}");
    let (code, said) = run(&["status", "--control", &path("nobody")]);
    assert!(code == Some(1) && said.contains("start ginnel-switch"), "{said}");
    // A switch that lives keeps its sockets.
    let lab = Lab::new("[port.a]\n");
    let same = format!("b:{}", lab.socket("a").display());
    let (code, said) = run(&["--run-dir", &path("run"), "--port", &same]);
    assert!(code == Some(1) && said.contains("another switch"), "{said}");
}

#[test]
fn a_trace_that_cannot_be_written_is_no_success() {
    let lab = Lab::new("[port.a]\n[port.b]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    // Room for the head of the file and a few frames, and then the disk is full.
    let disk = lab.directory.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=8k", "none"]).arg(&disk);
    if !mount.status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: needs root");
    }
    let file = std::fs::File::create(disk.join("trace")).expect("a file");
    let mut trace = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
    trace.args(["trace", "b", "--control"]).arg(lab.directory.path().join("control.sock"));
    let mut trace = trace.stdout(file).stderr(Stdio::piped()).spawn().expect("it runs");
    let until = Instant::now() + PATIENCE;
    let code = loop {
        assert!(a.send(1, &frame(mac(2), mac(1), 1000, 1)) && next(&mut b).is_some());
        match trace.try_wait().expect("waited for") {
            Some(status) => break status.code(),
            None if Instant::now() > until => break None,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut said = String::new();
    let _ = trace.kill();
    trace.stderr.take().expect("its words").read_to_string(&mut said).expect("text");
    let unmounted = Command::new("umount").arg("-l").arg(&disk).status();
    assert!(code == Some(1) && said.contains("No space left"), "{code:?}: {said}");
    assert!(unmounted.is_ok_and(|status| status.success()));
}

#[test]
fn who_asks_a_switch_that_is_stopped_or_ends_is_told_so() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("control.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let asked = |command: &str| {
        let mut asks = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
        asks.args([command, "--control"]).arg(&path);
        asks.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs")
    };
    // One that takes nobody in, as a process that is stopped.
    let waits = asked("ports");
    for command in ["status", "fdb", "top", "reload", "hosts"] {
        let asks = asked(command);
        loop {
            let (mut stream, _) = listener.accept().expect("somebody");
            let mut line = String::new();
            BufReader::new(&mut stream).read_line(&mut line).expect("a question");
            let half = if command == "fdb" { "[{\"ke" } else { "" };
            stream.write_all(half.as_bytes()).expect("half an answer");
            // The first was `ports`, whose stream is kept open.
            if asks.id() == peer(&stream) {
                break;
            }
            std::mem::forget(stream);
        }
        let output = asks.wait_with_output().expect("it ends");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("has ended"), "{command}: {said}");
    }
    let output = waits.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("says nothing"), "{said}");
}

/// The process at the other end.
fn peer(stream: &UnixStream) -> u32 {
    let credentials = rustix::net::sockopt::socket_peercred(stream).expect("a process");
    credentials.pid.as_raw_nonzero().get().unsigned_abs()
}

/// What the page at this address answers whoever asks by that name.
fn get_from(url: &str, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn prometheus_reads_what_is_counted() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("switch.toml");
    let config = format!("run_dir = {:?}\nmetrics = \"127.0.0.1:0\"\n[port.a]\n", place.path());
    std::fs::write(&file, config).expect("written");
    let log = place.path().join("log");
    let mut switch = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"))
        .arg("--config")
        .arg(&file)
        .env_remove("JOURNAL_STREAM")
        .stderr(std::fs::File::create(&log).expect("made"))
        .spawn()
        .expect("it runs");
    let began = Instant::now();
    let url = loop {
        let said = std::fs::read_to_string(&log).expect("a log");
        if said.contains("event=started") {
            let at = said.find("url=http://").expect("a URL");
            break said[at + 11..].split('/').next().expect("an address").to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let get = |path: &str| get_from(&url, &url, path);
    let said = get("/metrics");
    for line in [
        "ginnel_switch_sent_frames_total{port=\"a\",key=\"0\"} 0",
        "ginnel_switch_port_up{port=\"a\"} 0",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let page = get("/");
    assert!(page.contains("text/html") && page.contains("<td>a<td>0<td>waiting"), "{page}");
    assert!(get("/other").starts_with("HTTP/1.1 404"));
    // A page of another site, whose name leads here, reads nothing.
    assert!(get_from(&url, "evil.example", "/metrics").starts_with("HTTP/1.1 421"));
    // Whoever does not read, or does not ask, keeps nobody else waiting.
    let deaf: Vec<_> = (0..40)
        .map(|n| {
            let mut stream = TcpStream::connect(&url).expect("connected");
            let limit = Some(Duration::from_secs(1));
            stream.set_write_timeout(limit).expect("set");
            for _ in 0..if n % 2 == 0 { 20_000 } else { 0 } {
                if stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").is_err() {
                    break;
                }
            }
            stream
        })
        .collect();
    assert_eq!(get("/metrics").lines().next(), Some("HTTP/1.1 200 OK"));
    drop(deaf);
    // SIGTERM ends it, and is no failure.
    let pid = rustix::process::Pid::from_child(&switch);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
    assert!(switch.wait().expect("ended").success());
}

#[test]
fn who_finds_no_descriptor_waits_and_keeps_nobody_from_anything() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let config = format!("run_dir = {:?}\nmetrics = \"off\"\n[port.a]\n[port.b]\n", place.path());
    std::fs::write(path("switch.toml"), config).expect("written");
    let mut switch = Command::new("sh")
        .args(["-c", "ulimit -n 32; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_ginnel-switch")])
        .arg("--config")
        .arg(path("switch.toml"))
        .stderr(std::fs::File::create(path("log")).expect("made"))
        .spawn()
        .expect("it runs");
    let log = || std::fs::read_to_string(path("log")).expect("a log");
    let began = Instant::now();
    while !log().contains("event=started") {
        assert!(began.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let connect = |name: &str| FrontEnd::connect(&path(name), Options::default());
    let [mut a, mut b] = ["a.sock", "b.sock"].map(|name| connect(name).expect("connected"));
    let others: Vec<_> = (0..32).map(|_| UnixStream::connect(path("control.sock"))).collect();
    while !log().contains("event=accept") {
        assert!(began.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(500));
    talk((&mut a, 1), (&mut b, 2));
    let tries = log().matches("event=accept").count();
    assert!(tries < 20, "{tries} in half a second");
    // There are descriptors again: whoever waited is let in.
    drop(others);
    let mut answer = String::new();
    let asked = control::ask(&path("control.sock"), "status").expect("asked");
    asked.set_read_timeout(Some(PATIENCE)).expect("set");
    { &asked }.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains("\"ports\""), "{answer}");
    switch.kill().expect("told");
    switch.wait().expect("ended");
}
