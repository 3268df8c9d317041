//! Files copied from a host to a machine, back, and from machine to machine: by `ginnel cp`, nc
//! (small files as a tar), rsync and scp, and by what shares a host's directory: 9p and virtiofs.
//! Under emulation ways are compared, and nothing else.

use crate::record::{OWN, Sample};
use anyhow::{Context, Result, ensure};
use ginnel_guest::bridge::Bridge;
use ginnel_guest::child::Killed;
use ginnel_guest::daemon::Daemon;
use ginnel_guest::kernel::Kernel;
use ginnel_guest::machine::{Guest, Spec, acceleration};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(900);
const RSYNC: &str = "uid = 0\ngid = 0\nuse chroot = no\n[x]\npath = /data\nread only = no\n";
const SSHD: &str = "HostKey /root/host\nAuthorizedKeysFile /root/key.pub\nStrictModes no\n\
    UsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534:sshd:/run/sshd:/bin/sh\n\
    nobody:x:65534:65534:nobody:/:/bin/sh\n";
/// What is copied lies here in a machine; the first one's address follows.
const DATA: &str = "/data";
const ONE: &str = "10.78.0.1";
/// Sums of all files of a folder, so that two ends can be compared.
const SUMS: &str = "find . -type f | sort | xargs -n 200 md5sum | md5sum";
/// Where Debian has the daemon of virtiofs.
const VIRTIOFSD: [&str; 2] = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

/// What is copied.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// MiB of the large file.
    pub mib: u32,
    /// How many files of 4 KiB.
    pub files: u32,
}

/// One end of a copy.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Host,
    One,
    Two,
}

const ROUTES: [(&str, End, End); 3] = [
    ("host to machine", End::Host, End::One),
    ("machine to host", End::One, End::Host),
    ("machine to machine", End::One, End::Two),
];

struct Lab {
    guests: Vec<Guest>,
    bridge: Bridge,
    daemon: Daemon,
    virtiofs: Option<Killed>,
    directory: tempfile::TempDir,
    ssh: bool,
}

/// Makes what is copied, in `src` where the script runs.
fn make(sizes: Sizes) -> String {
    let Sizes { mib, files } = sizes;
    format!(
        "mkdir -p src/many out && head -c {mib}M /dev/urandom >src/big && cd src/many && i=0; \
         while [ $i -lt {files} ]; do head -c 4096 /dev/urandom >f$i; i=$((i+1)); done"
    )
}

/// Starts virtiofsd, if it is there, for a directory: QEMU's options for its device.
fn share(directory: &Path, what: &Path, memory: u32) -> Result<Option<(Killed, Vec<String>)>> {
    let Some(program) = VIRTIOFSD.iter().find(|path| Path::new(path).exists()) else {
        return Ok(None);
    };
    let socket = directory.join("virtiofs");
    let mut command = Command::new(program);
    command.arg(format!("--socket-path={}", socket.display()));
    command.args(["-o", &format!("source={}", what.display())]).stdin(Stdio::null());
    let log = std::fs::File::create(directory.join("virtiofsd.log"))?;
    command.stderr(log);
    let child = Killed::spawn(command).context("virtiofsd")?;
    let options = [
        "-object".to_owned(),
        format!("memory-backend-memfd,id=ram,size={memory}M,share=on"),
        "-numa".to_owned(),
        "node,memdev=ram".to_owned(),
        "-chardev".to_owned(),
        format!("socket,id=virtiofs,path={}", socket.display()),
        "-device".to_owned(),
        "vhost-user-fs-pci,chardev=virtiofs,tag=virtiofs".to_owned(),
    ];
    Ok(Some((child, options.to_vec())))
}

fn spec(slot: u16, memory: u32, ssh: bool, options: Vec<String>, virtiofs: bool) -> Spec {
    let mut programs = vec!["nc", "tar", "rsync"];
    if ssh {
        programs.extend(["ssh", "scp", "sshd"]);
    }
    let mut modules = Vec::new();
    if slot == 1 {
        modules.extend(["9p", "9pnet_virtio"]);
        modules.extend(virtiofs.then_some("virtiofs"));
    }
    let own = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
    let name = format!("copies{slot}");
    let (programs, modules) = (own(programs), own(modules));
    Spec { programs, modules, options, memory, driver: true, ..Spec::new(&name) }
}

impl Lab {
    fn boot(sizes: Sizes) -> Result<(Self, String)> {
        let kernel = Kernel::fetch_full()?;
        let directory = tempfile::tempdir()?;
        let host = directory.path().join("data");
        std::fs::create_dir_all(host.join("out"))?;
        // Both of what is copied, twice, and a machine's own.
        let memory = (256 + 2 * (sizes.mib + sizes.files / 128)).next_multiple_of(128);
        let segment = "[segment.t]\nsize = \"64M\"\nvectors = 3\n";
        let daemon = Daemon::start(directory.path(), segment, true)?;
        let bridge = Bridge::new(2)?;
        let ssh = ["ssh", "scp", "sshd", "ssh-keygen"]
            .iter()
            .all(|program| ginnel_guest::initramfs::find(program).is_some());
        let shared = share(directory.path(), &host, memory)?;
        let mut specs = Vec::new();
        for slot in [1, 2] {
            let mut options = daemon.vm_args("t", slot)?;
            options.extend(bridge.options(usize::from(slot) - 1));
            if slot == 1 {
                let path = host.display();
                let nine = format!("local,path={path},mount_tag=nine,security_model=none");
                options.extend(["-virtfs".to_owned(), nine]);
                options.extend(shared.iter().flat_map(|(_, options)| options.clone()));
            }
            specs.push(spec(slot, memory, ssh, options, shared.is_some()));
        }
        let guests = Guest::boot_all(&kernel, directory.path(), &specs)?;
        let how = format!(
            "between machines of {memory} MiB and their host, kernel {} under {}",
            kernel.release(),
            acceleration(&kernel)
        );
        let virtiofs = shared.map(|(child, _)| child);
        let lab = Self { guests, bridge, daemon, virtiofs, directory, ssh };
        lab.run(End::Host, "ip addr add 10.78.0.254/24 dev bridge")?;
        for (slot, guest) in (1..).zip(&lab.guests) {
            let script = format!(
                "ip link set eth0 up && ip addr add 10.78.0.{slot}/24 dev eth0 && \
                 mkdir -p {DATA}/out"
            );
            guest.run(&script, PATIENCE)?.good()?;
        }
        Ok((lab, how))
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Runs a script at an end, in its data's directory.
    fn run(&self, end: End, script: &str) -> Result<String> {
        let data = if end == End::Host { self.path("data") } else { DATA.into() };
        let script = format!("cd {data} || exit 1\n{script}");
        match end {
            End::Host => {
                let mut command = self.bridge.command(&script);
                command.env("GINNEL_SEGMENT", self.daemon.host_socket("t"));
                command.env("GINNEL_DIR", self.path("g"));
                let path = std::env::current_exe()?;
                let own = path.parent().context("no folder")?.display().to_string();
                let others = std::env::var("PATH").unwrap_or_default();
                command.env("PATH", format!("{own}:{others}"));
                let said = command.stdin(Stdio::null()).output()?;
                let words = String::from_utf8_lossy(&said.stderr);
                ensure!(said.status.success(), "{script}: {words}");
                Ok(String::from_utf8_lossy(&said.stdout).into_owned())
            }
            End::One | End::Two => {
                self.guests[usize::from(end == End::Two)].run(&script, PATIENCE)?.good()
            }
        }
    }

    /// Servers in the first machine, for as long as it runs.
    fn serve(&self) -> Result<()> {
        let one = &self.guests[0];
        one.put("/root/rsyncd.conf", 0o644, RSYNC.as_bytes())?;
        let serve = "ginnel cp serve --root /data --name one --writable >/tmp/cp.log 2>&1 &";
        self.run(End::One, serve)?;
        self.run(End::One, "rsync --daemon --config /root/rsyncd.conf")?;
        let nine = "mkdir -p /nine && \
            mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 nine /nine";
        self.run(End::One, nine)?;
        if self.virtiofs.is_some() {
            let virtiofs = "mkdir -p /virtiofs && mount -t virtiofs virtiofs /virtiofs";
            self.run(End::One, virtiofs)?;
        }
        if self.ssh {
            self.serve_ssh()?;
        }
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    }

    fn serve_ssh(&self) -> Result<()> {
        let keys = "for key in host key; do ssh-keygen -q -t ed25519 -N '' -f ../$key; done";
        self.run(End::Host, keys)?;
        let key = |name: &str| std::fs::read(self.path(name));
        for (at, guest) in self.guests.iter().enumerate() {
            guest.put("/etc/passwd", 0o644, PASSWD.as_bytes())?;
            guest.put("/root/key", 0o600, &key("key")?)?;
            if at == 0 {
                guest.put("/root/host", 0o600, &key("host")?)?;
                guest.put("/root/key.pub", 0o600, &key("key.pub")?)?;
                guest.put("/root/sshd_config", 0o600, SSHD.as_bytes())?;
            }
        }
        self.run(End::One, "mkdir -p /run/sshd && /usr/bin/sshd -f /root/sshd_config").map(drop)
    }

    /// Both halves of a copy over one connection, whose end in the first machine listens.
    fn by_nc(&self, from: End, to: End, what: &str, port: u16) -> Result<()> {
        let (give, take) = match what {
            "many" => ("tar -C src -cf - many".to_owned(), "tar -C out -xf -".to_owned()),
            _ => (format!("cat src/{what}"), format!("cat >out/{what}")),
        };
        let listens = format!(
            "for i in $(seq 200); do grep -q ':{port:04X} ' /proc/net/tcp && exit 0; \
             sleep 0.05; done; exit 1"
        );
        std::thread::scope(|scope| {
            let server = scope.spawn(|| match from {
                End::One => self.run(from, &format!("{give} | nc -l -N {port} >/dev/null")),
                _ => self.run(to, &format!("nc -l -N {port} </dev/null | {take}")),
            });
            self.run(End::One, &listens)?;
            match from {
                End::One => self.run(to, &format!("nc -d {ONE} {port} | {take}"))?,
                _ => self.run(from, &format!("{give} | nc -N {ONE} {port} >/dev/null"))?,
            };
            let done = server.join();
            done.map_err(|_| anyhow::anyhow!("a thread panicked"))?.map(drop)
        })
    }

    /// The ways that a route has.
    fn ways(&self, to: End) -> Vec<&'static str> {
        let mut ways = vec![OWN, "nc", "rsync"];
        ways.extend(self.ssh.then_some("scp"));
        if to != End::Two {
            ways.push("9p");
            ways.extend(self.virtiofs.is_some().then_some("virtiofs"));
        }
        ways
    }

    fn copy(&self, way: &str, from: End, to: End, what: &str, port: u16) -> Result<()> {
        // The one that is not the first machine, where client programs run.
        let (client, there) = if from == End::One { (to, false) } else { (from, true) };
        let key = if client == End::Host { self.path("key") } else { "/root/key".into() };
        let scp = format!(
            "scp -q -r -p -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
             -o LogLevel=ERROR"
        );
        let (end, script) = match (way, there) {
            (OWN, true) => (client, format!("ginnel cp -rpt src/{what} one:out/")),
            (OWN, false) => (client, format!("ginnel cp -rpt one:src/{what} out/")),
            ("rsync", true) => (client, format!("rsync -rpt src/{what} rsync://{ONE}/x/out/")),
            ("rsync", false) => (client, format!("rsync -rpt rsync://{ONE}/x/src/{what} out/")),
            ("scp", true) => (client, format!("{scp} src/{what} root@{ONE}:{DATA}/out/")),
            ("scp", false) => (client, format!("{scp} root@{ONE}:{DATA}/src/{what} out/")),
            ("nc", _) => return self.by_nc(from, to, what, port),
            // The way's name is where it is mounted.
            (shared, true) => (End::One, format!("cp -r /{}/src/{what} {DATA}/out/", at(shared))),
            (shared, false) => {
                let mounted = at(shared);
                let script = format!("cp -r {DATA}/src/{what} /{mounted}/out/ && sync /{mounted}");
                (End::One, script)
            }
        };
        self.run(end, &script).map(drop)
    }

    /// Fails where what arrived is not what was sent.
    fn compare(&self, from: End, to: End, what: &str) -> Result<()> {
        let sums = |end: End, place: &str| match what {
            "many" => self.run(end, &format!("cd {place}/many && {SUMS}")),
            _ => self.run(end, &format!("cd {place} && md5sum {what}")),
        };
        ensure!(sums(from, "src")? == sums(to, "out")?, "{what} differs");
        Ok(())
    }
}

/// Where what a way shares is mounted.
fn at(way: &str) -> &str {
    if way == "9p" { "nine" } else { way }
}

/// Measures so many rounds; returns samples, and what they were measured on.
///
/// # Errors
/// What failed, and where.
pub fn run(rounds: u32, sizes: Sizes) -> Result<(Vec<Sample>, String)> {
    let (lab, how) = Lab::boot(sizes)?;
    for end in [End::Host, End::One] {
        lab.run(end, &make(sizes))?;
    }
    lab.serve()?;
    let (mut samples, mut port) = (Vec::new(), 7000);
    let large = (u64::from(sizes.mib) << 20, 1);
    for round in 1..=rounds {
        for (route, from, to) in ROUTES {
            for (what, (bytes, files)) in [("big", large), ("many", (4096, sizes.files.into()))] {
                for way in lab.ways(to) {
                    lab.run(to, "rm -rf out/*")?;
                    port += 1;
                    let begun = Instant::now();
                    let copied = lab.copy(way, from, to, what, port);
                    copied.with_context(|| format!("{what}, {way}, {route}"))?;
                    let microseconds = u64::try_from(begun.elapsed().as_micros())?;
                    lab.compare(from, to, what).with_context(|| format!("{way}, {route}"))?;
                    let (way, route) = (way.to_owned(), route.to_owned());
                    samples.push(Sample { bytes, files, way, route, round, microseconds });
                }
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    Ok((samples, how))
}
