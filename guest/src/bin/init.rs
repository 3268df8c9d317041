//! A guest's first process, and the agent in it: mounts what programs expect, loads the modules,
//! and runs the commands that come over a virtio port (`ginnel_guest::agent` is the other end).

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Output of a command beyond this is cut off.
const MOST: u64 = 8 << 20;

fn main() {
    if std::process::id() != 1 {
        eprintln!("ginnel-guest-init is the first process of a test guest, and nothing else");
        std::process::exit(2);
    }
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
    ] {
        mount(kind, place);
    }
    for place in ["/dev/shm", "/dev/pts"] {
        let _ = fs::create_dir_all(place);
    }
    mount("tmpfs", "/dev/shm");
    mount("devpts", "/dev/pts");
    mount("debugfs", "/sys/kernel/debug");
    load_modules();
    allow_descriptors();
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => serve(),
        _ => reap(),
    }
}

fn mount(kind: &str, place: &str) {
    let name = |text: &str| std::ffi::CString::new(text).unwrap_or_default();
    let (kind, place) = (name(kind), name(place));
    // SAFETY: terminated strings; no data.
    let done =
        unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if done != 0 {
        println!("ginnel-guest: mount {place:?}: {}", std::io::Error::last_os_error());
    }
}

/// As many as a server has by its unit's LimitNOFILE: the kernel's own limit is 4096.
fn allow_descriptors() {
    let limit = libc::rlimit { rlim_cur: 1024, rlim_max: 65536 };
    // SAFETY: `limit` is readable.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        println!("ginnel-guest: RLIMIT_NOFILE: {}", std::io::Error::last_os_error());
    }
}

fn load_modules() {
    let mut files: Vec<_> = fs::read_dir("/modules")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    for file in files {
        let opened = File::open(&file).expect("a module can be read");
        // SAFETY: the parameters are a terminated string; the kernel reads the file itself.
        let done =
            unsafe { libc::syscall(libc::SYS_finit_module, opened.as_raw_fd(), c"".as_ptr(), 0) };
        if done != 0 {
            println!("ginnel-guest: {}: {}", file.display(), std::io::Error::last_os_error());
        }
    }
}

/// A process whose parent has ended comes here to be waited for: until then it would look alive.
fn reap() -> ! {
    loop {
        // SAFETY: no status is asked for.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } < 0 {
            sleep(Duration::from_millis(20));
        }
    }
}

type Port = Arc<Mutex<File>>;

fn serve() -> ! {
    let name = loop {
        let ports = fs::read_dir("/dev").into_iter().flatten().flatten();
        // The first port; another one of the machine is for its programs.
        let is_first = |path: &std::path::PathBuf| {
            path.to_string_lossy().contains("/vport") && path.to_string_lossy().ends_with("p1")
        };
        let found = ports.map(|entry| entry.path()).find(is_first);
        if let Some(found) = found {
            break found;
        }
        sleep(Duration::from_millis(10));
    };
    let port =
        OpenOptions::new().read(true).write(true).open(&name).expect("the agent's port opens");
    let mut input = BufReader::new(port.try_clone().expect("a descriptor"));
    let port: Port = Arc::new(Mutex::new(port));
    println!("ginnel-guest: ready");
    say(&port, b"ready\n");
    loop {
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(1..) => request(&port, line.trim_end(), &mut input),
            // Nobody is connected at the other side.
            _ => sleep(Duration::from_millis(20)),
        }
    }
}

fn say(port: &Port, bytes: &[u8]) {
    let mut port = port.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = port.write_all(bytes) {
        println!("ginnel-guest: port: {error}");
    }
}

/// `run ID MILLISECONDS BYTES` and a script, or `put ID MODE BYTES PATH` and a file.
fn request(port: &Port, line: &str, input: &mut impl Read) {
    let mut words = line.splitn(5, ' ');
    let (verb, id) = (words.next().unwrap_or(""), words.next().unwrap_or("0").to_owned());
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let (first, bytes) = (number(), number());
    let mut body = Vec::new();
    if input.take(bytes).read_to_end(&mut body).is_err() {
        return;
    }
    let port = Arc::clone(port);
    match verb {
        "run" => drop(std::thread::spawn(move || {
            let (status, out, err) = run(&id, &body, Duration::from_millis(first));
            answer(&port, &id, status, &out, &err);
        })),
        "put" => {
            let path = words.next().unwrap_or("/nowhere");
            let mode = u32::try_from(first).unwrap_or(0o600);
            let done = fs::write(path, &body)
                .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)));
            match done {
                Ok(()) => answer(&port, &id, 0, b"", b""),
                Err(error) => answer(&port, &id, 1, b"", error.to_string().as_bytes()),
            }
        }
        _ => println!("ginnel-guest: what is {line:?}?"),
    }
}

fn answer(port: &Port, id: &str, status: i32, out: &[u8], err: &[u8]) {
    let mut text = format!("done {id} {status} {} {}\n", out.len(), err.len()).into_bytes();
    text.extend(out);
    text.extend(err);
    say(port, &text);
}

/// Runs a script; past its time limit its whole process group is killed and the status is 124. What
/// it leaves running in the background, and whatever that writes, is not waited for: the output
/// goes through files.
fn run(id: &str, script: &[u8], limit: Duration) -> (i32, Vec<u8>, Vec<u8>) {
    let names = [format!("/tmp/.{id}.out"), format!("/tmp/.{id}.err")];
    let stream =
        |name: &String| File::create(name).map(Stdio::from).unwrap_or_else(|_| Stdio::null());
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(String::from_utf8_lossy(script).into_owned());
    command
        .env("PATH", "/usr/bin:/usr/sbin:/bin:/sbin")
        .env("HOME", "/root")
        .current_dir("/root")
        .process_group(0);
    let mut child = match command
        .stdin(Stdio::null())
        .stdout(stream(&names[0]))
        .stderr(stream(&names[1]))
        .spawn()
    {
        Ok(child) => child,
        Err(error) => return (126, Vec::new(), error.to_string().into_bytes()),
    };
    let (group, ended) = (child.id(), Arc::new(AtomicBool::new(false)));
    let watched = Arc::clone(&ended);
    let watch = std::thread::spawn(move || {
        let until = Instant::now() + limit;
        while !watched.load(Ordering::Relaxed) {
            if Instant::now() >= until {
                // SAFETY: touches no memory; the group's leader has not been waited for, so the
                // number is still its own.
                unsafe {
                    libc::kill(
                        -libc::pid_t::try_from(group).unwrap_or(libc::pid_t::MAX),
                        libc::SIGKILL,
                    )
                };
                return true;
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        false
    });
    let status = child.wait();
    ended.store(true, Ordering::Relaxed);
    watch.thread().unpark();
    let late = watch.join().unwrap_or(false);
    let code = status.map_or(127, |status| {
        status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(127)
    });
    let read = |name: &String| {
        let mut bytes = Vec::new();
        let _ = File::open(name).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
        let _ = fs::remove_file(name);
        bytes
    };
    (if late { 124 } else { code }, read(&names[0]), read(&names[1]))
}
