//! What `make bench-cache` runs: this server beside Debian's memcached, on this machine.
//!
//! ```text
//! bench [get|load|hits|beside] [--rounds N] [--operations N] [--keys N] [--checked N]
//! ```
//!
//! `get`: one client, values of 1 KiB, every key there: read out of the memory, one and twenty at a
//! time, asked over loopback TCP, and asked of memcached, in turn within each round. `load`: eight
//! clients of a server of one thread. `hits`: how many gets of a zipfian trace find their item, at
//! equal memory. `beside`: eight readers of the memory and a writer, each value checked.

mod beside;

use ginnel_cache::client::Client;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Keys that are asked for, and bytes of their values.
const KEYS: usize = 10_000;
const VALUE: usize = 1024;

struct Server {
    child: Child,
    address: String,
    _home: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &str, args: &[&str]) -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
        // SAFETY: no other thread runs yet that could read the environment.
        unsafe { std::env::set_var("GINNEL_DIR", home.path()) };
        let port = free_port().to_string();
        let child = Command::new(program)
            .args(["-u", "root", "-l", "127.0.0.1", "-p", &port, "-U", "0"])
            .args(args)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let address = format!("127.0.0.1:{port}");
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < until, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, address, _home: home }
    }

    /// KiB that it has in memory, shared or not.
    fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}

/// Returns a port below those that the kernel gives to clients: a client that asks whether a server
/// listens yet can otherwise be given that very port, and be answered by itself.
fn free_port() -> u16 {
    let mut random =
        Random(u64::from(std::process::id()) ^ Instant::now().elapsed().as_nanos() as u64);
    static TRIED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    (0..TRIED.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).for_each(|_| _ = random.next());
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| 15_000 + (random.next() % 15_000) as u16).find(free).expect("a port")
}

fn key(at: usize) -> String {
    format!("key-{at:010}")
}

/// Random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// (least, median, most)
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

fn fill(client: &mut Client) {
    let value = vec![b'v'; VALUE];
    for at in 0..KEYS {
        assert!(client.set(key(at).as_bytes(), &value, 0, 0).expect("asked"), "not stored");
    }
}

/// Returns nanoseconds of a get, the median of batches.
fn time_gets(client: &mut Client, keys: &[String], batch: usize, batches: usize) -> f64 {
    let mut at = 0;
    let times = (0..batches).map(|_| {
        let begun = Instant::now();
        for _ in 0..batch {
            at = (at + 7919) % keys.len();
            let found = client.get(keys[at].as_bytes()).expect("read").expect("it is there");
            assert_eq!(found.value.len(), VALUE);
            std::hint::black_box(found.value);
        }
        begun.elapsed().as_nanos() as f64 / batch as f64
    });
    spread(times.collect()).1
}

/// The same for keys that are asked for together, so many at a time.
fn time_many(client: &mut Client, keys: &[String], together: usize, batches: usize) -> f64 {
    let mut at = 0;
    let times = (0..batches).map(|_| {
        let mut asked = Vec::with_capacity(together);
        for _ in 0..together {
            at = (at + 7919) % keys.len();
            asked.push(keys[at].as_bytes());
        }
        let begun = Instant::now();
        let found = client.mget(&asked).expect("read");
        let time = begun.elapsed().as_nanos() as f64 / together as f64;
        assert!(found.iter().flatten().count() == together, "they are there");
        time
    });
    spread(times.collect()).1
}

fn get(ours: &str, rounds: usize, keys: usize) {
    let keys: Vec<String> = (0..keys.min(KEYS)).map(key).collect();
    let plain = Server::start(ours, &["--no-neighbours"]);
    let theirs = Server::start("memcached", &[]);
    let server = Server::start(ours, &[]);
    let mut direct = Client::connect(&server.address).expect("it listens");
    assert!(direct.is_neighbour(), "{}", direct.why());
    let mut asked = Client::connect(&plain.address).expect("it listens");
    let mut memcached = Client::connect(&theirs.address).expect("it listens");
    [&mut direct, &mut asked, &mut memcached].into_iter().for_each(fill);
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        // Batches that a processor mostly finishes before it is given to another program.
        times[0].push(time_gets(&mut direct, &keys, 20, 10_000));
        times[1].push(time_many(&mut direct, &keys, 20, 10_000));
        times[2].push(time_gets(&mut asked, &keys, 1, 3000));
        times[3].push(time_gets(&mut memcached, &keys, 1, 3000));
    }
    println!("## A get of 1 KiB that is there, one client, {} keys, {rounds} rounds\n", keys.len());
    println!("| way | ns, median of rounds | least | most | memcached takes |");
    println!("|---|---:|---:|---:|---:|");
    let names = [
        "out of the memory",
        "twenty at once, each",
        "ginnel-cache over loopback",
        "memcached over loopback",
    ];
    for (name, one) in names.iter().zip(&times) {
        let (least, median, most) = spread(one.clone());
        let ratios = one.iter().zip(&times[3]).map(|(one, theirs)| theirs / one).collect();
        let ratio = spread(ratios).1;
        println!("| {name} | {median:.0} | {least:.0} | {most:.0} | {ratio:.2} × |");
    }
    let counts = direct.counts();
    println!("\n{} reads out of the memory, {} asked.\n", counts.direct, counts.asked);
}

/// Returns gets a second of eight clients, each with a connection and a question at a time.
fn load_once(address: &str, time: Duration) -> f64 {
    let total: u64 = std::thread::scope(|scope| {
        let clients = (0..8u64).map(|seed| {
            scope.spawn(move || {
                let mut client = Client::connect(address).expect("it listens");
                let (mut random, mut count) = (Random(seed), 0);
                let until = Instant::now() + time;
                while Instant::now() < until {
                    let at = random.next() as usize % KEYS;
                    client.get(key(at).as_bytes()).expect("read").expect("it is there");
                    count += 1;
                }
                count
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("it ends")).sum()
    });
    total as f64 / time.as_secs_f64()
}

fn load(ours: &str, rounds: usize) {
    let server = Server::start(ours, &["-t", "1", "--no-neighbours"]);
    let theirs = Server::start("memcached", &["-t", "1"]);
    for one in [&server, &theirs] {
        fill(&mut Client::connect(&one.address).expect("it listens"));
    }
    let time = Duration::from_millis(1000);
    let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for _ in 0..rounds {
        let pair = [load_once(&server.address, time), load_once(&theirs.address, time)];
        ratios.push(pair[0] / pair[1]);
        (0..2).for_each(|at| rates[at].push(pair[at]));
    }
    println!("## Gets of 1 KiB a second, server of one thread, eight clients, {rounds} rounds\n");
    println!("| server | median of rounds | least | most |");
    println!("|---|---:|---:|---:|");
    for (name, one) in ["ginnel-cache", "memcached"].iter().zip(rates) {
        let (least, median, most) = spread(one);
        println!("| {name} | {median:.0} | {least:.0} | {most:.0} |");
    }
    let (least, median, most) = spread(ratios);
    println!(
        "\nginnel-cache to memcached, within rounds: {median:.2} ({least:.2} to {most:.2}).\n"
    );
}

/// Which of `count` keys is asked for: that of rank k with a share of 1/k^skew.
struct Zipf {
    shares: Vec<f64>,
}

impl Zipf {
    fn new(count: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += 1.0 / (rank as f64).powf(skew);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self { shares }
    }

    fn pick(&self, random: &mut Random) -> usize {
        let at = random.unit();
        self.shares.partition_point(|&share| share < at)
    }
}

/// A trace: gets, and a set after each miss, as an application does.
struct Trace {
    name: &'static str,
    keys: usize,
    skew: f64,
    /// Least and largest value, bytes; which, a key's number decides.
    sizes: (usize, usize),
}

impl Trace {
    fn size(&self, key: usize) -> usize {
        let (least, most) = self.sizes;
        least + (Random(key as u64).next() % (most - least + 1) as u64) as usize
    }

    /// Returns the share of gets that hit in the second half of the operations.
    fn run(&self, address: &str, operations: usize) -> f64 {
        const BATCH: usize = 40;
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("an option");
        let mut answers = BufReader::with_capacity(256 << 10, stream.try_clone().expect("a copy"));
        let mut questions = stream;
        let (zipf, mut random) = (Zipf::new(self.keys, self.skew), Random(1));
        let (mut hits, mut counted) = (0, 0);
        for round in 0..operations / BATCH {
            let asked: Vec<usize> = (0..BATCH).map(|_| zipf.pick(&mut random)).collect();
            // A rank says nothing of a key's place: keys are strewn.
            let names: Vec<String> =
                asked.iter().map(|&at| key(at.wrapping_mul(7_368_787) % 100_000_007)).collect();
            questions.write_all(format!("get {}\r\n", names.join(" ")).as_bytes()).expect("taken");
            let there = read_keys(&mut answers);
            let mut sets = Vec::new();
            for (at, name) in asked.iter().zip(&names) {
                let hit = there.contains(name);
                if round * BATCH * 2 >= operations {
                    hits += usize::from(hit);
                    counted += 1;
                }
                if !hit {
                    let size = self.size(*at);
                    sets.extend(format!("set {name} 0 0 {size} noreply\r\n").bytes());
                    sets.resize(sets.len() + size, b'v');
                    sets.extend(b"\r\n");
                }
            }
            questions.write_all(&sets).expect("taken");
        }
        hits as f64 / counted as f64
    }
}

/// Returns the keys that were there.
fn read_keys(answers: &mut impl BufRead) -> std::collections::HashSet<String> {
    let mut there = std::collections::HashSet::new();
    let mut line = String::new();
    loop {
        line.clear();
        answers.read_line(&mut line).expect("an answer");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["VALUE", name, _, len] => {
                there.insert(name.to_owned());
                let len: u64 = len.parse().expect("a number");
                let copied = std::io::copy(&mut answers.take(len + 2), &mut std::io::sink());
                assert_eq!(copied.expect("a value"), len + 2);
            }
            _ => return there,
        }
    }
}

fn hits(ours: &str, operations: usize) {
    let traces = [
        Trace { name: "zipf 0.99, 1 KiB", keys: 400_000, skew: 0.99, sizes: (VALUE, VALUE) },
        Trace { name: "zipf 0.8, 1 KiB", keys: 400_000, skew: 0.8, sizes: (VALUE, VALUE) },
        Trace { name: "zipf 0.99, 50 to 4000 B", keys: 400_000, skew: 0.99, sizes: (50, 4000) },
        Trace { name: "zipf 0.99, 100 B", keys: 2_000_000, skew: 0.99, sizes: (100, 100) },
    ];
    println!("## Share of gets that hit, {operations} gets, the second half counted\n");
    println!("memcached has `-m 64` and its table of keys besides; ginnel-cache 64 MiB in all,");
    println!("`-m 58 --index-size 6m`, rounded down to a power of two for the index.\n");
    println!("| trace | ginnel-cache | memcached | points | resident MiB |");
    println!("|---|---:|---:|---:|---:|");
    for trace in traces {
        let server = Server::start(ours, &["-m", "58", "--index-size", "6m"]);
        let theirs = Server::start("memcached", &["-m", "64"]);
        let pair = [&server, &theirs].map(|one| trace.run(&one.address, operations) * 100.0);
        println!(
            "| {} | {:.2} % | {:.2} % | {:+.2} | {} and {} |",
            trace.name,
            pair[0],
            pair[1],
            pair[0] - pair[1],
            server.resident() >> 10,
            theirs.resident() >> 10
        );
    }
    println!();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, usual: usize| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(usual)
    };
    let (rounds, operations) = (option("--rounds", 9), option("--operations", 2_000_000));
    let all = !args.iter().any(|arg| ["get", "load", "hits", "beside"].contains(&arg.as_str()));
    let wants = |name: &str| all || args.iter().any(|arg| arg == name);
    let ours = std::env::current_exe().expect("this program");
    let ours = ours.ancestors().nth(2).expect("the target folder").join("ginnel-cache");
    let ours = ours.to_str().expect("a path in UTF-8");
    if wants("get") {
        get(ours, rounds, option("--keys", KEYS));
    }
    if wants("load") {
        load(ours, rounds);
    }
    if wants("hits") {
        hits(ours, operations);
    }
    if wants("beside") {
        beside::run(ours, rounds, option("--checked", 0) as u64);
    }
}
