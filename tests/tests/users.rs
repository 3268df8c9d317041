//! Two users share a segment that both may open: each has a list of sockets of his own, and each can wake the other's sleepers.

use ginnel_tests::{Stand, build, is_root, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

const NOBODY: u32 = 65534;
const SERVER: &str = "import os, socket, sys, time
l = socket.create_server(('127.0.0.1', 0))
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
c, _ = l.accept()
while d := c.recv(1000):
    time.sleep(0.003)
    c.sendall(d)";
const CLIENT: &str = "import socket, sys, time
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
c.settimeout(20)
for i in range(200):
    c.sendall(b'%06d' % i)
    assert c.recv(6) == b'%06d' % i
    time.sleep(0.002)
print('200 messages')";

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn of_one_segment_wake_each_other() {
    if !is_root() {
        return skip("two users", "needs root");
    }
    let place = Stand::plain("users");
    open_to_all(place.dir(), 0o755);
    let segment = place.dir().join("shared");
    let shown = segment.to_str().expect("UTF-8");
    let mut create = std::process::Command::new(build::ginnel());
    create.args(["segment", "create", shown, "--mode", "666", "--size", "64M"]);
    assert!(create.status().expect("ginnel").success());
    // Where the other user may read it.
    let shim = place.dir().join("libginnel_shim.so");
    build::copy_program(&build::shim(), &shim);
    let limit = Duration::from_secs(60);
    let root = Stand::shimmed("root", &[("GINNEL_SEGMENT", shown)]).limit(limit);
    let readable = shim.to_str().expect("UTF-8");
    let other = Stand::shimmed("nobody", &[("GINNEL_SEGMENT", shown), ("LD_PRELOAD", readable)]).limit(limit);
    chown(other.dir(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let port = place.dir().join("port");
    let mut server = root.command("/usr/bin/python3.11");
    let server = root.start(server.args(["-c", SERVER]).arg(&port));
    let until = std::time::Instant::now() + limit;
    while !port.exists() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut client = other.command_behind(&drop, "/usr/bin/python3.11");
    client.args(["-c", CLIENT]).arg(fs::read_to_string(&port).expect("it listens"));
    let done = other.run(&mut client);
    assert!(done.success(), "{done}");
    let served = server.finish();
    assert!(served.success(), "{served}");
    for (stand, who) in [(&root, "root"), (&other, "nobody")] {
        let report = stand.report();
        assert!(report.sum("ring_out") > 500 && report.sum("wakes_sent") > 50, "{who}: {report:?}");
    }
}
