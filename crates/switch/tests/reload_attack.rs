//! Another configuration that is wrong, or cannot be had: nothing is changed by it.

use crate::common::fabric::Net;
use crate::common::{Lab, PATIENCE, talk};
use crate::vsock::{Guest, connect};
use ginnel_switch::front_end::Options;
use ginnel_switch::reload::Outcome;
use ginnel_switch::vsock::packet::{HOST, Op};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What was said of it, if nothing was changed.
#[track_caller]
fn refused(outcome: &Outcome) -> &str {
    assert_eq!((outcome.added.len(), outcome.removed.len(), outcome.changed.len()), (0, 0, 0));
    outcome.error.as_deref().expect("it is wrong")
}

#[track_caller]
fn taken(outcome: &Outcome) {
    assert_eq!(outcome.error, None, "{outcome:?}");
}

/// `ginnel-switch` as a process, which ends with this.
struct Process(Child);

impl Process {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = fs::File::create(log).expect("a log");
        let child = command.env_remove("JOURNAL_STREAM").stdin(Stdio::null()).stderr(log).spawn();
        Self(child.expect("it starts"))
    }

    fn hang_up(&self) {
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("told");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the log says this.
#[track_caller]
fn says(log: &Path, what: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.contains(what) {
            return;
        }
        assert!(Instant::now() < until, "it does not say {what}: {said}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let done = rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0);
    done.expect("a pipe");
}

#[test]
fn a_file_that_is_none_keeps_nobody_waiting_and_changes_nothing() {
    const NOW: &str = "[port.a]\n[port.b]\n";
    let lab = Lab::new(NOW);
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    let file = lab.directory.path().join("switch.toml");
    let makes: [fn(&Path); 7] = [
        fifo,
        |file| fs::create_dir(file).expect("made"),
        |file| symlink("nowhere", file).expect("made"),
        |file| symlink(file, file).expect("made"),
        |file| symlink("/dev/zero", file).expect("made"),
        |file| fs::File::create(file).and_then(|file| file.set_len(1 << 40)).expect("made"),
        |file| fs::write(file, b"[port.\xff]").expect("made"),
    ];
    for make in makes {
        fs::remove_file(&file).or_else(|_| fs::remove_dir(&file)).expect("removed");
        make(&file);
        let outcome: Outcome = serde_json::from_str(&lab.ask("reload")).expect("an outcome");
        assert!(refused(&outcome).contains("switch.toml: cannot be read: "), "{outcome:?}");
        talk((&mut a, 1), (&mut b, 2));
    }
    fs::remove_file(&file).expect("removed");
    // As deep as no configuration is.
    let deep = format!("x = {}{}\n{NOW}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&lab.reload(&deep)).contains("switch.toml:3"));
    taken(&lab.reload(NOW));
    assert_eq!(lab.port("a").connections, 1);
}

#[test]
fn a_socket_that_is_refused_leaves_nothing_behind() {
    let lab = Lab::new("[port.a]\n");
    let place = lab.directory.path();
    let new = place.join("new/deep");
    // The second is wrong, so the first is taken back, and the directories with it.
    let text = format!(
        "[port.a]\n[port.b]\nsocket = \"{new}/b.sock\"\n[vsock.c]\ncid = 3\nhost = \"/proc/no/c\"\n",
        new = new.display()
    );
    assert!(refused(&lab.reload(&text)).contains("/proc/no/c"));
    assert!(!place.join("new").exists(), "{:?}", fs::read_dir(place.join("new")));
    // What was there before stays.
    fs::create_dir(place.join("new")).expect("made");
    refused(&lab.reload(&text));
    assert!(place.join("new").exists() && !new.exists());
    let text = text.replace("/proc/no/c", &place.join("c").display().to_string());
    taken(&lab.reload(&text));
    assert!(new.join("b.sock").exists());
}

#[test]
fn a_socket_that_cannot_be_given_to_its_group_is_taken_away_again() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("log");
    let write = |text: &str| {
        let text = format!("run_dir = {:?}\nmetrics = \"off\"\n{text}", place.path());
        fs::write(place.path().join("s.toml"), text).expect("written");
    };
    write("[port.a]\n");
    // Where there is but one group, no file can be given to another.
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_ginnel-switch"), "--config"]);
    let switch = Process::start(command.arg(place.path().join("s.toml")), &log);
    let began = Instant::now();
    while !place.path().join("a.sock").exists() {
        if fs::read_to_string(&log).unwrap_or_default().contains("unshare") {
            return eprintln!("skipped: needs user namespaces");
        }
        assert!(began.elapsed() < PATIENCE);
    }
    says(&log, "event=started");
    write("group = \"12345\"\n[port.a]\n[port.b]\n");
    switch.hang_up();
    says(&log, "b.sock: cannot listen: Invalid argument");
    assert!(!place.path().join("b.sock").exists());
}

#[test]
fn who_may_connect_is_changed_for_all_sockets_or_for_none() {
    let lab = Lab::new("[port.a]\n[port.b]\n");
    let [mut a, mut b] = ["a", "b"].map(|name| lab.guest(name, Options::default()));
    let shown = |name: &str| {
        let meta = lab.socket(name).symlink_metadata().expect("a socket");
        (meta.mode() & 0o7777, meta.gid())
    };
    let own = rustix::process::getegid().as_raw();
    assert_eq!([shown("a"), shown("b")], [(0o660, own); 2]);
    if rustix::process::geteuid().is_root() {
        // And back again: who was in the other group may connect no more.
        taken(&lab.reload("group = \"12345\"\nmode = \"0620\"\n[port.a]\n[port.b]\n"));
        assert_eq!([shown("a"), shown("b")], [(0o620, 12345); 2]);
        taken(&lab.reload("mode = \"0620\"\n[port.a]\n[port.b]\n"));
        assert_eq!([shown("a"), shown("b")], [(0o620, own); 2]);
    } else {
        eprintln!("skipped in part: needs root");
        taken(&lab.reload("mode = \"0620\"\n[port.a]\n[port.b]\n"));
    }
    // Something else is where the second was.
    let other = lab.directory.path().join("other");
    fs::write(&other, "").expect("written");
    let before = other.metadata().expect("a file").mode();
    fs::rename(lab.socket("b"), lab.directory.path().join("b.old")).expect("renamed");
    symlink(&other, lab.socket("b")).expect("a link");
    let outcome = lab.reload("mode = \"0666\"\n[port.a]\n[port.b]\n");
    assert!(refused(&outcome).contains("b.sock: mode and group: "), "{outcome:?}");
    assert_eq!(shown("a"), (0o620, own), "as it was");
    assert_eq!(other.metadata().expect("a file").mode(), before);
    talk((&mut a, 1), (&mut b, 2));
    // A port whose path is something else's by now leaves that alone, too.
    taken(&lab.reload("mode = \"0620\"\n[port.a]\n"));
    assert!(lab.socket("b").is_symlink() && other.exists());
    assert!(lab.reload("group = \"4294967295\"\n[port.a]\n").error.is_some());
}

#[test]
fn machines_exchange_the_places_where_programs_of_the_host_connect() {
    let lab = Lab::new("[port.p]\n");
    let place = lab.directory.path().display().to_string();
    let text = |a: &str, b: &str| {
        let one = |name: &str, cid: u32, door: &str| {
            format!("[vsock.{name}]\ncid = {cid}\nhost = \"{place}/{door}\"\n")
        };
        format!("[port.p]\n{}{}", one("a", 3, a), one("b", 4, b))
    };
    taken(&lab.reload(&text("one", "two")));
    let [mut a, mut b] = [Guest::new(&lab, "a", 3), Guest::new(&lab, "b", 4)];
    connect(&mut a, &mut b);
    for (round, [to_a, to_b]) in [(1, ["two", "one"]), (2, ["one", "two"]), (3, ["one", "three"])] {
        taken(&lab.reload(&text(to_a, to_b)));
        for (guest, door) in [(&mut a, to_a), (&mut b, to_b)] {
            let mut program = UnixStream::connect(format!("{place}/{door}")).expect("connected");
            program.write_all(b"CONNECT 22\n").expect("said");
            let (request, _) = guest.take(PATIENCE).expect("a request");
            assert_eq!((request.from.cid, request.op), (HOST, Op::Request as u16), "{round}");
            drop(program);
            let (reset, _) = guest.take(PATIENCE).expect("its end");
            assert_eq!(reset.op, Op::Rst as u16);
        }
        b.send(b.header(80, (3, 1000), Op::Rw), b"on");
        assert_eq!(a.data((4, 80), 1000, 2), b"on");
    }
    // One that is gone leaves its place to the other.
    let text = format!("[port.p]\n[vsock.b]\ncid = 4\nhost = \"{place}/one\"\n");
    taken(&lab.reload(&text));
    b.hears((3, 1000), 80, Op::Rst);
    let mut program = UnixStream::connect(format!("{place}/one")).expect("connected");
    program.write_all(b"CONNECT 23\n").expect("said");
    assert_eq!(b.take(PATIENCE).expect("a request").0.to.port, 23);
}

#[test]
fn hosts_are_kept_for_those_that_cannot_be() {
    let Some(net) = Net::new() else { return };
    let labs = net.hosts(&["[port.a]\n"; 2], None);
    let [mut one, mut two] = [0, 1].map(|n: usize| labs[n].guest("a", Options::default()));
    talk((&mut one, 1), (&mut two, 2));
    let text = format!("[port.a]\n[port.b]\n{}", net.text(1, 2, None));
    let own = net.address(1);
    let listener = std::net::TcpListener::bind((own, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    for listen in ["192.0.2.77".to_owned(), format!("{own}:{port}")] {
        let wrong = text.replace(&format!("listen = \"{own}\""), &format!("listen = \"{listen}\""));
        let outcome = labs[0].reload(&wrong);
        let said = refused(&outcome);
        assert!(said.contains(&format!("fabric.listen: {listen}")), "{said}");
        assert!(!labs[0].socket("b").exists());
        talk((&mut one, 1), (&mut two, 2));
    }
    assert_eq!(labs[0].host("h2").connections, 1);
}

#[test]
fn a_signal_before_the_file_is_read_ends_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let (file, log) = (place.path().join("s.toml"), place.path().join("log"));
    // The switch waits for its file.
    fifo(&file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ginnel-switch"));
    let mut switch = Process::start(command.arg("--config").arg(&file), &log);
    let until = Instant::now() + PATIENCE;
    let mut pipe = loop {
        // Nobody reads yet: this fails at once.
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = fs::File::options();
        match options.write(true).custom_flags(libc::O_NONBLOCK).open(&file) {
            Ok(pipe) => break pipe,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    switch.hang_up();
    let text = format!("run_dir = {:?}\nmetrics = \"off\"\n[port.a]\n", place.path());
    let _ = pipe.write_all(text.as_bytes());
    drop(pipe);
    says(&log, "event=started");
    says(&log, "event=reload why=");
    says(&log, "it is no regular file");
    assert!(switch.0.try_wait().expect("asked").is_none());
}
