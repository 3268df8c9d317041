//! Processes that give up root: what they had of root's is gone, and they are carried as what they
//! have become.

use ginnel_tests::{Stand, build, is_root, json, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// In a mount namespace of its own, with an empty `/dev/shm`: nginx as root with workers of
/// www-data, a client of each of the two users.
///
///     sh -c SCRIPT sh PLACE GINNEL PORT
const SCRIPT: &str = r#"
place=$1 ginnel=$2 port=$3
mount -t tmpfs -o mode=1777 none /dev/shm || exit 90
unset GINNEL_DIR GINNEL_SEGMENT; export GINNEL_AFTER=0
drop="setpriv --reuid=33 --regid=33 --clear-groups"
"$ginnel" run --verbose -- nginx -e stderr -p "$place" -c "$place/conf" 2>"$place/nginx.err" &
nginx=$!
for i in $(seq 200); do ss -ltn | grep -q ":$port " && break; sleep 0.1; done
echo >"$place/go"
GINNEL_REPORT=$place/out/report.web $drop "$ginnel" run -- python3 "$place/client.py" $port "$place/go" >"$place/out/web" 2>&1 & web=$!
for i in $(seq 200); do grep -q done "$place/out/web" && break; sleep 0.1; done
$drop "$ginnel" status --json >"$place/out/status.web"
GINNEL_REPORT=$place/out/report.root "$ginnel" run -- python3 "$place/client.py" $port >"$place/out/root" 2>&1
for worker in $(cat /proc/$nginx/task/*/children); do
    echo $worker >>"$place/out/workers"
    grep -E 'ginnel-|sockets-' /proc/$worker/maps >>"$place/out/maps"
    ls -l /proc/$worker/fd >>"$place/out/fds"
done
rm "$place/go"
wait $web; echo "web $?" >"$place/out/ends"
kill -QUIT $nginx; wait $nginx; echo "nginx $?" >>"$place/out/ends"
stat -c '%u %a %n' /dev/shm/ginnel-0 /dev/shm/ginnel-33 /dev/shm/ginnel-*/sockets-* >"$place/out/modes"
"#;

/// Asks for one page again and again, and says when it has; with a file, it goes on until that is
/// gone.
const CLIENT: &str = "import os, socket, sys, time
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
s.settimeout(20)
def page():
    s.sendall(b'GET /page HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    said = b''
    while b'\\r\\n\\r\\n' not in said:
        said += s.recv(4096)
    head, body = said.split(b'\\r\\n\\r\\n', 1)
    while len(body) < 5000:
        body += s.recv(4096)
    assert body == b'x' * 5000, body[:100]
for i in range(300):
    page()
    if i % 5 == 0: time.sleep(0.002)
print('done', flush=True)
until = time.time() + 30
while len(sys.argv) > 2 and os.path.exists(sys.argv[2]) and time.time() < until:
    page()
    time.sleep(0.05)
";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// The real nginx: a master of root's, workers of www-data.
#[allow(clippy::too_many_lines, reason = "some of them are nginx's configuration")]
#[test]
fn nginxs_workers_are_carried_as_their_own_user() {
    if !is_root() || !Path::new("/usr/sbin/nginx").exists() {
        return skip("nginxs_workers_are_carried_as_their_own_user", "needs root and nginx");
    }
    let place = tempfile::tempdir().expect("a directory");
    let (dir, d) = (place.path(), place.path().display());
    mode(dir, 0o755);
    for name in ["ginnel", "libginnel_shim.so"] {
        let from = if name == "ginnel" { build::ginnel() } else { build::shim() };
        build::copy_program(&from, &dir.join(name));
    }
    fs::create_dir(dir.join("pages"))
        .and_then(|()| fs::create_dir(dir.join("out")))
        .expect("own directory");
    mode(&dir.join("out"), 0o777);
    fs::write(dir.join("pages/page"), vec![b'x'; 5000])
        .and_then(|()| fs::write(dir.join("client.py"), CLIENT))
        .expect("written");
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("loopback")
        .port();
    let conf = format!(
        "daemon off; user www-data; worker_processes 2; pid {d}/pid; error_log {d}/log; events {{}}
         http {{ access_log off; client_body_temp_path {d}/a; proxy_temp_path {d}/b; fastcgi_temp_path {d}/c; uwsgi_temp_path {d}/d; scgi_temp_path {d}/e;
         keepalive_requests 100000; server {{ listen 127.0.0.1:{port}; root {d}/pages; }} }}"
    );
    fs::write(dir.join("conf"), conf).expect("written");
    let stand = Stand::plain("nginx-users").limit(Duration::from_secs(110));
    let mut run = Command::new("unshare");
    run.args(["-m", "sh", "-c", SCRIPT, "sh"])
        .arg(dir)
        .arg(dir.join("ginnel"))
        .arg(port.to_string());
    let done = stand.run(&mut run);
    assert!(done.success(), "{done}");
    let read = |name: &str| fs::read_to_string(dir.join("out").join(name)).unwrap_or_default();
    let all = ["web", "root", "ends", "workers", "maps", "fds", "modes"]
        .map(|name| format!("{name}: {}", read(name)))
        .join("\n");
    assert!(
        read("web").trim() == "done"
            && read("root").trim() == "done"
            && read("ends") == "web 0\nnginx 0\n",
        "{all}"
    );
    assert!(read("workers").lines().count() >= 2, "{all}");
    // In root's memory no more, with nothing of it open; in that of www-data.
    let (maps, fds) = (read("maps"), read("fds"));
    assert!(!maps.contains("ginnel-0/") && !fds.contains("ginnel-0/"), "{all}");
    assert!(
        maps.contains("/dev/shm/ginnel-33/sockets-") && maps.contains("/dev/shm/ginnel-33/default"),
        "{all}"
    );
    // Carried to a peer there, and to none of another user's.
    assert!(read("status.web").contains("\"in_carrier\": \"ring\""), "{}", read("status.web"));
    assert!(json::sum(&read("report.web"), "ring_in") > 500_000, "{}", read("report.web"));
    assert_eq!(json::sum(&read("report.root"), "ring_in"), 0, "{}", read("report.root"));
    assert!(json::sum(&read("report.root"), "tcp_in") > 500_000, "{}", read("report.root"));
    for line in read("modes").lines() {
        let user = if line.contains("ginnel-33") { "33 " } else { "0 " };
        assert!(
            line.starts_with(user) && (line.contains(" 700 ") || line.contains(" 600 ")),
            "{line}"
        );
    }
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    assert!(!log.contains("exited on signal"), "{log}");
}

/// Root's process becomes www-data in some way, in a mount namespace with an empty `/dev/shm`.
/// Prints whose ledgers it has mapped then.
const BECOMES: &str = r#"
mount -t tmpfs -o mode=1777 none /dev/shm || exit 90
unset GINNEL_DIR GINNEL_SEGMENT; export GINNEL_AFTER=0
exec "$1" run -- python3 -c "$2"
"#;

/// A connection to itself is carried first; the ways follow. `handler`: a signal's handler gives
/// root up in the midst of changes of groups.
const WAYS: &str = "import ctypes, os, signal, socket, threading
l = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(l.getsockname())
k, _ = l.accept()
def talk():
    for _ in range(30):
        c.sendall(b'x' * 10); k.recv(100); k.sendall(b'y'); c.recv(100)
talk()
libc = ctypes.CDLL(None)
def by_thread():
    t = threading.Thread(target=lambda: libc.syscall(117, -1, 33, -1))
    t.start(); t.join()
def in_a_handler():
    signal.signal(signal.SIGALRM, lambda *_: os.setresuid(33, 33, 33))
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    while os.geteuid() == 0:
        try: os.setgroups([]); os.setgroups([33])
        except PermissionError: pass
WAY()
talk()
own = [line.split()[-1] for line in open('/proc/self/maps') if '/dev/shm/ginnel-' in line]
print(sorted({path.split('/')[3] for path in own}))
";

/// Who works for another user for a while, and can be root again, is not given into his hands; who
/// is the other for good has nothing of root's, also where a change comes in the midst of another.
#[test]
fn only_who_is_another_user_for_good_joins_as_that() {
    if !is_root() {
        return skip("only_who_is_another_user_for_good_joins_as_that", "needs root");
    }
    let place = tempfile::tempdir().expect("a directory");
    mode(place.path(), 0o755);
    for (from, name) in [(build::ginnel(), "ginnel"), (build::shim(), "libginnel_shim.so")] {
        build::copy_program(&from, &place.path().join(name));
    }
    for (way, expected) in [
        ("os.seteuid(33)", "[]"),
        ("os.setresuid(33, 33, 0)", "[]"),
        ("by_thread()", "[]"),
        ("os.setresuid(33, 33, 33)", "['ginnel-33']"),
        ("in_a_handler()", "['ginnel-33']"),
        ("os.setresuid(0, 0, 0)", "['ginnel-0']"),
    ] {
        let stand = Stand::plain("becomes").limit(Duration::from_secs(30));
        let call = way
            .strip_suffix("()")
            .map_or_else(|| format!("(lambda: {way})()"), |name| format!("{name}()"));
        let program = WAYS.replace("WAY()", &call);
        let mut run = Command::new("unshare");
        run.args(["-m", "sh", "-c", BECOMES, "sh"]).arg(place.path().join("ginnel")).arg(program);
        let done = stand.run(&mut run);
        assert!(done.success(), "{way}: {done}");
        assert_eq!(done.stdout.trim(), expected, "{way}: {done}");
    }
}

/// Root's process forks a worker, which becomes www-data, in a mount namespace with an empty
/// `/dev/shm`. Prints what the worker has mapped of root's, and what `ginnel status` says of root's
/// process.
const FORKS: &str = "import os, mmap, subprocess, sys, time
path = '/dev/shm/ginnel-0/processes-1'
def full():
    # As many processes as the table holds, of the same library: entries of process 1 stand for them.
    with open(path, 'r+b') as f:
        m = mmap.mmap(f.fileno(), 0)
        for at in range(8192, 8192 + 4096 * 128, 128):
            if m[at:at + 4] == bytes(4): m[at:at + 4] = (1).to_bytes(4, sys.byteorder)
WAY
worker = os.fork()
if worker == 0:
    os.setgroups([]); os.setresgid(33, 33, 33); os.setresuid(33, 33, 33)
    kept = [line.split()[-1] for line in open('/proc/self/maps') if '/dev/shm/ginnel-0' in line]
    for fd in os.listdir('/proc/self/fd'):
        try: link = os.readlink('/proc/self/fd/' + fd)
        except OSError: continue
        if '/dev/shm/ginnel-0' in link: kept.append(link)
    print(kept, flush=True)
    os._exit(0)
os.waitpid(worker, 0)
print(subprocess.run([sys.argv[1], 'status', '--json'], capture_output=True, text=True).stdout)
";

/// Where root's process could not join its segment, or the process table has no room for a child,
/// nothing of root's stays mapped or open: nobody would give it back when the child becomes another
/// user.
#[test]
fn who_is_not_carried_keeps_nothing_either() {
    if !is_root() {
        return skip("who_is_not_carried_keeps_nothing_either", "needs root");
    }
    let place = tempfile::tempdir().expect("a directory");
    mode(place.path(), 0o755);
    let script = BECOMES
        .replace("run -- python3 -c \"$2\"", "run ${3:+--segment $3} -- python3 -c \"$2\" $1");
    fs::write(place.path().join("none"), "none").expect("written");
    for (from, name) in [(build::ginnel(), "ginnel"), (build::shim(), "libginnel_shim.so")] {
        build::copy_program(&from, &place.path().join(name));
    }
    let none = place.path().join("none");
    for (way, segment, word) in [("", none.to_str(), "\"no_segment\""), ("full()", None, "")] {
        let stand = Stand::plain("not-carried").limit(Duration::from_secs(30));
        let mut run = Command::new("unshare");
        run.args(["-m", "sh", "-c", &script, "sh"]).arg(place.path().join("ginnel"));
        let done = stand.run(run.arg(FORKS.replace("WAY", way)).args(segment));
        assert!(done.success(), "{way}: {done}");
        let (kept, status) = done.stdout.split_once('\n').unwrap_or_default();
        assert_eq!(kept, "[]", "{way}: {done}");
        assert!(status.contains(word) && status.contains("python3"), "{way}: {done}");
    }
}

/// The attack itself: a worker that gave up root looks for root's ledger and segment, and moves the
/// ring of the root process to other memory of that.
#[test]
fn a_worker_writes_nowhere_in_its_parents_memory() {
    if !is_root() {
        return skip("a_worker_writes_nowhere_in_its_parents_memory", "needs root");
    }
    let stand = Stand::shimmed("gives-up-root", &[("GINNEL_SIZE", "67108864")])
        .limit(Duration::from_secs(60));
    for way in ["changed", "kept"] {
        let done = stand.run(stand.command(build::program("worker_attacks")).arg(way));
        assert!(done.success(), "{way}: {done}");
        assert!(done.stdout.contains("untouched"), "{way}: {done}");
        // Without the change of the user it is one user's ledger, which it may write: the numbers
        // are bounded all the same.
        assert_eq!(done.stdout.contains("no map"), way == "changed", "{way}: {done}");
    }
    assert!(stand.report().ring_bytes() > 0, "no byte went through a ring");
}

/// A directory, or a ledger, that is another's or open to others: the program runs on TCP, and says
/// why where it is asked to.
#[test]
fn what_others_may_write_is_not_used() {
    let cases: [(&str, u32, &str); 3] = [
        ("directory", 0o750, "chmod 700"),
        ("directory", 0o707, "chmod 700"),
        ("ledger", 0o660, "mode 600"),
    ];
    for (what, bits, word) in cases {
        let stand = Stand::shimmed("open-to-others", &[("GINNEL_VERBOSE", "1")])
            .limit(Duration::from_secs(60));
        let first = stand.run(&mut stand.command(build::program("half_close")));
        assert!(first.success() && stand.report().ring_bytes() > 0, "{first}");
        let path = match what {
            "directory" => stand.dir().to_owned(),
            _ => stand.dir().join("sockets-9"),
        };
        mode(&path, bits);
        let before = stand.report().ring_bytes();
        let done = stand.run(&mut stand.command(build::program("half_close")));
        assert!(done.success() && done.stderr.contains(word), "{what} {bits:o}: {done}");
        assert_eq!(stand.report().ring_bytes(), before, "{what} {bits:o}");
        let mut run = Command::new(build::ginnel());
        let said = run
            .args(["run", "--", "true"])
            .env("GINNEL_DIR", stand.dir())
            .output()
            .expect("ginnel runs");
        let said_so = String::from_utf8_lossy(&said.stderr).contains("chmod 700");
        assert!(
            said.status.success() && said_so == (what == "directory"),
            "{what} {bits:o}: {said:?}"
        );
        mode(stand.dir(), 0o700);
    }
}

/// Without root a limit on processes holds: after it the library could not start its thread any
/// more, without which it carries nothing. So it starts the thread before.
#[test]
fn who_lets_itself_no_more_threads_is_carried() {
    let place = Stand::plain("no-more");
    mode(place.dir(), 0o755);
    let (program, shim) =
        (place.dir().join("limits_processes"), place.dir().join("libginnel_shim.so"));
    build::copy_program(&build::program("limits_processes"), &program);
    build::copy_program(&build::shim(), &shim);
    let settings = [("LD_PRELOAD", shim.to_str().expect("UTF-8"))];
    let stand = Stand::shimmed("no-more-threads", &settings).limit(Duration::from_secs(40));
    let command = |stand: &Stand| {
        if !is_root() {
            return stand.command(&program);
        }
        chown(stand.dir(), Some(65534), Some(65534)).expect("root may");
        stand.command_behind(
            &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
            &program,
        )
    };
    let done = stand.run(&mut command(&stand));
    assert!(done.success(), "{done}");
    assert!(done.stdout.contains("Resource temporarily unavailable"), "{done}");
    assert!(stand.report().ring_bytes() > 500_000, "{:?}", stand.report());
}
