//! Two hosts, as two network namespaces with a wire between them: programs of each reach the other
//! by a tap device and its switch.

use crate::common::PATIENCE;
use crate::common::fabric::secret;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn run(line: &str) -> Result<String, String> {
    let output = Command::new("timeout").arg("60").args(line.split(' ')).output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(said(&output.stdout)),
        false => Err(format!("{line}: {}{}", said(&output.stdout), said(&output.stderr))),
    }
}

/// Two namespaces `NAME-1` and `NAME-2`, and a switch in each.
struct World {
    name: String,
    place: tempfile::TempDir,
    switches: [Option<Child>; 2],
    /// Of iperf3.
    server: Option<Child>,
}

impl World {
    /// None where that cannot be had.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root()
            || !Path::new("/dev/net/tun").exists()
            || Command::new("busybox").output().is_err()
            || crate::common::fabric::Net::new().is_none()
        {
            eprintln!("skipped: needs root, /dev/net/tun, busybox and libfabric1");
            return None;
        }
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gsw{}-{own}", std::process::id());
        let place = tempfile::tempdir().expect("a directory");
        let world = Self { name, place, switches: [None, None], server: None };
        let made = run(&format!("ip netns add {}", world.space(1)))
            .and_then(|_| run(&format!("ip netns add {}", world.space(2))));
        if let Err(why) = made {
            eprintln!("skipped: {why}");
            return None;
        }
        let (one, two) = (world.space(1), world.space(2));
        run(&format!("ip -n {one} link add wire type veth peer name wire netns {two}"))
            .expect("a wire");
        for n in 1..=2 {
            let space = world.space(n);
            // What a real network of jumbo frames has.
            for line in [
                format!("ip -n {space} link set lo up"),
                format!("ip -n {space} link set wire mtu 9000 up"),
                format!("ip -n {space} addr add 192.0.2.{n}/24 dev wire"),
            ] {
                run(&line).expect("set up");
            }
        }
        Some(world)
    }

    fn space(&self, n: usize) -> String {
        format!("{}-{n}", self.name)
    }

    fn run_dir(&self, n: usize) -> PathBuf {
        self.place.path().join(format!("host{n}"))
    }

    /// Starts a switch, with a tap device that has an address.
    fn start(&mut self, n: usize, secret: Option<&Path>) {
        let (space, run_dir) = (self.space(n), self.run_dir(n));
        std::fs::create_dir_all(&run_dir).expect("made");
        let secret = secret.map(|file| format!("secret = {file:?}\n")).unwrap_or_default();
        let text = format!(
            "run_dir = {run_dir:?}\nmetrics = \"off\"\n[port.tap]\ntap = \"frames\"\nmacs = 8\n\
             [fabric]\nlisten = \"192.0.2.{n}\"\n{secret}\
             [fabric.hosts]\nh1 = \"192.0.2.1\"\nh2 = \"192.0.2.2\"\n"
        );
        let file = run_dir.join("switch.toml");
        std::fs::write(&file, text).expect("written");
        let log = std::fs::File::options().create(true).append(true).open(run_dir.join("log"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &space, env!("CARGO_BIN_EXE_ginnel-switch"), "--config"]);
        command.arg(file).stderr(log.expect("made")).stdout(Stdio::null());
        self.switches[n - 1] = Some(command.spawn().expect("it runs"));
        let began = Instant::now();
        while run(&format!("ip -n {space} link set frames mtu 9000 up")).is_err() {
            assert!(began.elapsed() < PATIENCE, "{}", self.log(n));
            std::thread::sleep(Duration::from_millis(20));
        }
        // The same each time, as a machine would have it.
        run(&format!("ip -n {space} link set frames address 52:54:00:00:00:0{n}")).expect("set");
        run(&format!("ip -n {space} addr add 198.51.100.{n}/24 dev frames")).expect("set");
    }

    fn log(&self, n: usize) -> String {
        std::fs::read_to_string(self.run_dir(n).join("log")).unwrap_or_default()
    }

    fn kill(&mut self, n: usize) {
        if let Some(mut switch) = self.switches[n - 1].take() {
            // `ip netns exec` has become the switch.
            switch.kill().expect("killed");
            switch.wait().expect("ended");
        }
    }

    fn status(&self, n: usize) -> serde_json::Value {
        let control = self.run_dir(n).join("control.sock").display().to_string();
        let switch = env!("CARGO_BIN_EXE_ginnel-switch");
        let said = run(&format!("{switch} status --json --control {control}"));
        said.ok().and_then(|said| serde_json::from_str(&said).ok()).unwrap_or_default()
    }

    /// What a switch says of the other host.
    fn host(&self, n: usize) -> serde_json::Value {
        self.status(n)["hosts"][0].clone()
    }

    fn until(&self, n: usize, state: &str) -> serde_json::Value {
        let began = Instant::now();
        loop {
            let host = self.host(n);
            if host["state"] == state {
                return host;
            }
            assert!(began.elapsed() < PATIENCE, "{host}\n{}", self.log(n));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn inside(&self, n: usize, line: &str) -> Result<String, String> {
        run(&format!("ip netns exec {} {line}", self.space(n)))
    }

    fn ping(&self, more: &str) -> Result<String, String> {
        self.inside(1, &format!("busybox ping {more} 198.51.100.2"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let all = self.switches.iter_mut().chain([&mut self.server]);
        for child in all.flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for n in 1..=2 {
            let _ = run(&format!("ip netns del {}", self.space(n)));
        }
    }
}

fn sum(report: &str) -> f64 {
    let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
    let end = &report["end"];
    let bits = end["sum_received"]["bits_per_second"].as_f64();
    bits.or_else(|| end["sum"]["bits_per_second"].as_f64()).unwrap_or_default()
}

#[test]
fn programs_of_two_hosts_talk_and_a_switch_that_is_killed_is_back_at_once() {
    let Some(mut world) = World::new() else { return };
    let file = secret(world.place.path(), "0123456789abcdef");
    for n in 1..=2 {
        world.start(n, Some(&file));
    }
    for n in 1..=2 {
        world.until(n, "up");
    }
    // Frames of 9000 bytes in one piece.
    for more in ["-c 3 -W 2", "-c 3 -W 2 -s 8972"] {
        let said = world.ping(more).expect("it answers");
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
    if Command::new("iperf3").arg("-v").output().is_ok() {
        let space = world.space(2);
        let mut server = Command::new("ip");
        server.args(["netns", "exec", &space, "iperf3", "-s"]).stdout(Stdio::null());
        world.server = Some(server.spawn().expect("it runs"));
        std::thread::sleep(Duration::from_millis(300));
        for (kind, at_least) in [("", 1e7), ("-R ", 1e7), ("-u -b 50M -l 1400 ", 1e7)] {
            let line = format!("iperf3 -J -t 1 {kind}-c 198.51.100.2");
            let before = world.host(1);
            let report = world.inside(1, &line).expect("it runs");
            assert!(sum(&report) > at_least, "{kind}: {report}");
            let host = world.host(1);
            let more = |name: &str| {
                let number = |host: &serde_json::Value| host[name].as_f64().unwrap_or_default();
                number(&host) - number(&before)
            };
            // Large segments go through whole: frames are longer than the MTU.
            let mean = more("received_bytes") / more("received_frames").max(1.0);
            assert!(!kind.is_empty() || mean > 10_000.0, "{mean}: {host}");
        }
    }
    for (dies, lives) in [(2, 1), (1, 2)] {
        let began = Instant::now();
        world.kill(dies);
        world.until(lives, "down");
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        assert!(world.ping("-c 1 -W 1").is_err(), "nobody is there");
        world.start(dies, Some(&file));
        world.until(lives, "up");
        world.until(dies, "up");
        world.ping("-c 2 -W 5").expect("it answers");
    }
}

#[test]
fn a_host_that_is_cut_off_without_a_word_is_forgotten_and_found_again() {
    let Some(mut world) = World::new() else { return };
    for n in 1..=2 {
        world.start(n, None);
    }
    for n in 1..=2 {
        world.until(n, "up");
    }
    world.ping("-c 2 -W 5").expect("it answers");
    let (space, began) = (world.space(2), Instant::now());
    run(&format!("ip -n {space} link set wire down")).expect("cut");
    for n in 1..=2 {
        let host = world.until(n, "down");
        let why = host["trouble"].as_str().unwrap_or_default();
        assert!(!why.is_empty(), "{host}");
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    run(&format!("ip -n {space} link set wire up")).expect("mended");
    for n in 1..=2 {
        world.until(n, "up");
    }
    world.ping("-c 2 -W 5").expect("it answers");
}

#[test]
fn without_libfabric_ports_work_and_status_says_what_is_missing() {
    let library = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
        .map(|place| format!("{place}/libfabric.so.1"))
        .into_iter()
        .find(|path| Path::new(path).exists());
    let place = tempfile::tempdir().expect("a directory");
    let run_dir = place.path();
    let text = format!(
        "run_dir = {run_dir:?}\nmetrics = \"off\"\n[port.a]\n[port.b]\n\
         [fabric]\nlisten = \"127.0.0.1\"\n[fabric.hosts]\nb = \"127.0.0.2\"\n"
    );
    std::fs::write(run_dir.join("switch.toml"), text).expect("written");
    let mut command = Command::new("unshare");
    // As if it were not installed: what is there is no library.
    let hide = library.map(|path| format!("mount --bind /dev/null {path} && ")).unwrap_or_default();
    let line = format!("{hide}exec \"$@\"");
    command.args(["-m", "sh", "-c", &line, "sh", env!("CARGO_BIN_EXE_ginnel-switch"), "--config"]);
    let log = std::fs::File::create(run_dir.join("log")).expect("made");
    let mut switch = command.arg(run_dir.join("switch.toml")).stderr(log).spawn().expect("it runs");
    let (began, control) = (Instant::now(), run_dir.join("control.sock"));
    let status = loop {
        let log = std::fs::read_to_string(run_dir.join("log")).unwrap_or_default();
        if switch.try_wait().expect("asked").is_some() {
            eprintln!("skipped: {log}");
            return;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
        let said = command.args(["status", "--control"]).arg(&control).output().expect("it runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if said.contains("libfabric") {
            break said;
        }
        assert!(began.elapsed() < PATIENCE, "{said}{log}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.contains("host b (down): libfabric is missing"), "{status}");
    use ginnel_switch::front_end::{FrontEnd, Options};
    let [mut a, mut b] = ["a", "b"].map(|name| {
        let socket = run_dir.join(format!("{name}.sock"));
        FrontEnd::connect(&socket, Options::default()).expect("connected")
    });
    crate::common::talk((&mut a, 1), (&mut b, 2));
    switch.kill().expect("killed");
    switch.wait().expect("ended");
}
