//! What the host's processors do for frames that come at a fixed rate from one guest to another, as
//! the papers on para-virtual Ethernet plot it: `ginnel-switch`, which sleeps between frames, and a
//! bridge of the host's kernel with a tap for each guest. The guests' own work is not counted: for
//! the switch that is all but its process, for the bridge all but write(2) to the one tap and
//! reading from the other, which QEMU does for a guest. What QEMU does besides, between taps and
//! virtqueues, is not there, so the bridge has less to do here than it would have. But at no frames
//! at all: what the bridge's column has then is the reader's own, which looks 50 times a second.
//!
//! ```sh
//! cargo build --release -p ginnel-switch --bins --example rates
//! target/release/examples/rates [ROUNDS]       # root, for the bridge
//! ```

use anyhow::{Context, Result, ensure};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::tap::Tap;
use ginnel_switch::wire::HEADER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{ClockId, UnshareFlags};
use std::fs::read_to_string;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Entries of each queue, as long as a tap's own.
const SIZE: u16 = 1024;
/// How long each figure is measured.
const EACH: Duration = Duration::from_secs(2);
/// Frames are sent in bursts, so often at most.
const BURSTS: u32 = 5000;
/// Frames a second; the last is more than can go.
const RATES: [u32; 6] = [0, 1000, 10_000, 100_000, 1_000_000, MOST];
const MOST: u32 = u32::MAX;
const LENGTHS: [usize; 2] = [64, 1500];

/// What came of one run.
#[derive(Debug, Clone, Copy)]
struct Figure {
    /// Frames that arrived, a second.
    rate: f64,
    /// Of those that were sent.
    share: f64,
    /// Processors that the host had busy.
    busy: f64,
}

/// A guest that sends, and what the host has to do for that.
trait Sends: Send {
    /// Sends so many frames; returns how many went.
    fn send(&mut self, count: u32) -> u32;
}

/// A guest that receives.
trait Receives: Send {
    /// Sleeps until something is there, for a few milliseconds at most, and takes it. How many
    /// frames?
    fn take(&mut self) -> u64;
}

fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; HEADER];
    frame.extend([2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame.resize(HEADER + len, 7);
    frame
}

/// The time that this thread has had a processor.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Until something can be read there, or a few milliseconds have passed.
fn sleep_on(fd: impl AsFd) {
    let limit = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
}

/// Sends at a rate, from processor 0, until the end. How many frames went, and the thread's time at
/// that.
fn sends(guest: &mut dyn Sends, rate: u32, end: &AtomicBool) -> (u64, Duration) {
    pin(0);
    let (began, mut sent, mut took) = (Instant::now(), 0u64, Duration::ZERO);
    while !end.load(Ordering::Relaxed) {
        let due = began.elapsed().as_secs_f64() * f64::from(rate);
        // Who is late makes up for it, a queue's length at a time.
        let burst = (due as u64).saturating_sub(sent).min(SIZE.into());
        let before = own_time();
        let went = guest.send(burst as u32);
        took += own_time() - before;
        sent += u64::from(went);
        if rate != MOST {
            std::thread::sleep(Duration::from_secs(1) / rate.clamp(50, BURSTS));
        } else if went == 0 {
            std::thread::yield_now();
        }
    }
    (sent, took)
}

/// Runs both guests for a while; the host's time is what `host` says it had, given that of whoever
/// sends and whoever receives.
fn run(
    guests: (&mut dyn Sends, &mut dyn Receives),
    rate: u32,
    mut host: impl FnMut(Duration, Duration) -> Result<Duration>,
) -> Result<Figure> {
    let end = AtomicBool::new(false);
    let (from, to) = guests;
    let before = host(Duration::ZERO, Duration::ZERO)?;
    let began = Instant::now();
    let ((sent, sending), (got, receiving)) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| sends(from, rate, &end));
        let receiver = scope.spawn(|| {
            pin(0);
            let (mut got, before) = (0, own_time());
            while !end.load(Ordering::Relaxed) {
                got += to.take();
            }
            (got, own_time() - before)
        });
        std::thread::sleep(EACH);
        end.store(true, Ordering::Relaxed);
        let ended = "a guest panicked";
        anyhow::Ok((sender.join().ok().context(ended)?, receiver.join().ok().context(ended)?))
    })?;
    let took = began.elapsed().as_secs_f64();
    Ok(Figure {
        rate: got as f64 / took,
        share: got as f64 / sent.max(1) as f64,
        busy: (host(sending, receiving)? - before).as_secs_f64() / took,
    })
}

/// Keeps this thread on one processor, if there is that one.
fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    // Without it the figure is only less steady.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// The switch, in a process on processor 1, and its two guests.
struct Switch {
    process: Child,
    _place: tempfile::TempDir,
    from: Guest,
    to: Guest,
}

struct Guest {
    card: FrontEnd,
    free: Vec<u16>,
}

impl Switch {
    fn start() -> Result<Self> {
        let place = tempfile::tempdir()?;
        let at = |name: &str| place.path().join(name);
        let port = |name: &str| format!("--port={name}:{}", at(name).display());
        let program = std::env::current_exe()?;
        let program = program.ancestors().nth(2).context("no directory")?.join("ginnel-switch");
        let process = Command::new("taskset")
            .args(["-c", "1"])
            .arg(program)
            .args([port("a"), port("b")])
            .arg("--run-dir")
            .arg(place.path())
            .spawn()?;
        let until = Instant::now() + Duration::from_secs(20);
        while !at("a").exists() || !at("b").exists() {
            ensure!(Instant::now() < until, "the switch does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let guest = |name| -> Result<Guest> {
            let options = Options { size: SIZE, ..Options::default() };
            Ok(Guest { card: FrontEnd::connect(&at(name), options)?, free: Vec::new() })
        };
        let (from, mut to) = (guest("a")?, guest("b")?);
        // It is learned.
        to.prepare(&frame(9, 2, 64));
        to.send(1);
        Ok(Self { process, _place: place, from, to })
    }

    fn measure(&mut self, len: usize, rate: u32) -> Result<Figure> {
        self.from.prepare(&frame(2, 1, len));
        while self.to.take() > 0 {}
        let tasks = format!("/proc/{}/task", self.process.id());
        let host = |_, _| {
            let mut all = 0;
            for task in std::fs::read_dir(&tasks)? {
                let words = read_to_string(task?.path().join("schedstat"))?;
                all += words.split(' ').next().context("no time")?.parse::<u64>()?;
            }
            Ok(Duration::from_nanos(all))
        };
        run((&mut self.from, &mut self.to), rate, host)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Guest {
    /// Has this frame in each buffer of its queue. Nothing is under way.
    fn prepare(&mut self, frame: &[u8]) {
        std::thread::sleep(Duration::from_millis(50));
        while self.card.used(1).is_some() {}
        for index in 0..SIZE {
            let at = self.card.queues[1].base + (64 << 10) + 2048 * u64::from(index);
            self.card.write(at, frame);
            self.card.describe(1, index, at, frame.len() as u32, 0, 0);
        }
        self.free = (0..SIZE).collect();
    }
}

impl Sends for Guest {
    fn send(&mut self, count: u32) -> u32 {
        while let Some((head, _)) = self.card.used(1) {
            self.free.push(head);
        }
        let count = self.free.len().min(count as usize);
        for head in self.free.split_off(self.free.len() - count) {
            self.card.offer(1, head);
        }
        count as u32
    }
}

impl Receives for Guest {
    fn take(&mut self) -> u64 {
        let mut taken = 0;
        let mut take = |card: &mut FrontEnd| {
            while let Some((head, _)) = card.used(0) {
                card.offer(0, head);
                taken += 1;
            }
        };
        self.card.arm(0);
        take(&mut self.card);
        if taken == 0 {
            sleep_on(&self.card.queues[0].call);
            let _ = rustix::io::read(&self.card.queues[0].call, &mut [0u8; 8]);
        }
        taken
    }
}

/// Two taps on a bridge, in a network namespace that is this thread's, and gone with the thread.
struct Bridge {
    from: (Tap, Vec<u8>),
    to: Tap,
}

impl Bridge {
    fn make() -> Result<Self> {
        // Nothing but what is sent here goes by the bridge.
        let quiet = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        #[expect(deprecated, reason = "the thread's own, and no memory is unshared")]
        rustix::thread::unshare(UnshareFlags::NEWNET)?;
        std::fs::write(quiet, "1")?;
        let taps = (Tap::open("a")?, Tap::open("b")?);
        for line in [
            "link add bridge type bridge",
            "link set bridge up",
            "link set dev a master bridge up",
            "link set dev b master bridge up",
        ] {
            let status = Command::new("ip").args(line.split(' ')).status()?;
            ensure!(status.success(), "ip {line}");
        }
        std::thread::sleep(Duration::from_millis(200));
        ensure!(taps.1.write(&frame(9, 2, 64)), "the tap is down");
        Ok(Self { from: (taps.0, Vec::new()), to: taps.1 })
    }

    fn measure(&mut self, len: usize, rate: u32) -> Result<Figure> {
        while self.from.0.read(&mut [0; 2048])?.is_some() {}
        while self.to.read(&mut [0; 2048])?.is_some() {}
        self.from.1 = frame(2, 1, len);
        run((&mut self.from, &mut self.to), rate, |sending, receiving| Ok(sending + receiving))
    }
}

impl Sends for (Tap, Vec<u8>) {
    fn send(&mut self, count: u32) -> u32 {
        let (tap, frame) = self;
        (0..count).take_while(|_| tap.write(frame)).count() as u32
    }
}

impl Receives for Tap {
    fn take(&mut self) -> u64 {
        let (mut into, mut taken) = ([0; 2048], 0);
        while let Ok(Some(_)) = self.read(&mut into) {
            taken += 1;
        }
        if taken == 0 {
            sleep_on(&self);
        }
        taken
    }
}

/// The median of this part of each.
fn median(all: &[Figure], part: impl Fn(&Figure) -> f64) -> f64 {
    let mut parts: Vec<f64> = all.iter().map(part).collect();
    parts.sort_by(f64::total_cmp);
    parts.get(parts.len() / 2).copied().unwrap_or(f64::NAN)
}

fn show(name: &str, all: &[Figure]) -> String {
    let rate = median(all, |it| it.rate);
    let (share, busy) = (100.0 * median(all, |it| it.share), 100.0 * median(all, |it| it.busy));
    let each = if rate > 0.0 { format!("{:6.2}", busy / rate * 1e4) } else { "     –".into() };
    format!("  {name}: {rate:9.0} arrive ({share:3.0} %) {busy:6.2} % {each} s")
}

fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    ensure!(rounds > 0, "no rounds");
    let mut switch = Switch::start()?;
    let mut bridge = Bridge::make().inspect_err(|why| eprintln!("bridge: not measured: {why}"));
    println!(
        "frames a second that are sent, that arrive; of one processor of the host's; its seconds for \
         a million frames"
    );
    for len in LENGTHS {
        for rate in RATES {
            let (mut by_switch, mut by_bridge) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                by_switch.push(switch.measure(len, rate)?);
                if let Ok(bridge) = &mut bridge {
                    by_bridge.push(bridge.measure(len, rate)?);
                }
            }
            let rate = if rate == MOST { "all that go".into() } else { rate.to_string() };
            let bridge = if bridge.is_ok() { show("bridge", &by_bridge) } else { String::new() };
            println!("{len:5} bytes {rate:>11}{}{bridge}", show("switch", &by_switch));
        }
    }
    Ok(())
}
