//! What goes between two hosts on this machine: two switches that talk by libfabric over TCP on
//! loopback, each with one guest, in a thread each on a processor of its own. Every thread is guest
//! and switch in turn, so that there are no more of them than processors. Prints frames a second
//! with many on their way, with the processor time that each costs its two hosts, and microseconds
//! one way with one in flight. `make bench-switch` puts them beside the latency of libfabric
//! itself.
//!
//! ```sh
//! cargo run --release -p ginnel-switch --example hosts [secret]
//! ```

use anyhow::{Context, Result, ensure};
use ginnel_switch::config::{Config, FabricConfig, HostConfig, PortConfig, Provider};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::hosts::libfabric::{Connection, Event, Fabric};
use ginnel_switch::hosts::link::{Lost, Wire};
use ginnel_switch::secret::Secret;
use ginnel_switch::server::Server;
use ginnel_switch::wire::HEADER;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Entries of each queue, and frames that are made ready at once.
const SIZE: u16 = 1024;
/// Turns before everything else is looked at, as in the switch's own loop.
const TURNS: u32 = 32;
/// How long each figure is measured.
const EACH: Duration = Duration::from_secs(3);

/// A host: its switch, and a guest there.
struct Host {
    server: Server,
    guest: FrontEnd,
    turns: u32,
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([127, 9, 7, n], 9192))
}

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mut frame = [&mac(to)[..], &mac(from), &[0x88, 0xb5]].concat();
    frame.resize(len, 7);
    frame
}

impl Host {
    fn new(n: u8, place: &Path, secret: bool) -> Result<Self> {
        let place = place.join(n.to_string());
        std::fs::create_dir_all(&place)?;
        let socket = place.join("guest");
        let mut config = Config::new(place, vec![PortConfig::new("guest", socket.clone(), 0)]);
        let other = HostConfig::at("other", address(3 - n));
        let mut fabric = FabricConfig::new(address(n), vec![other]).map_err(anyhow::Error::msg)?;
        fabric.secret = secret.then(|| Secret::new(b"of this measurement"));
        (config.fabric, config.busy) = (Some(fabric), true);
        let mut server = Server::new(&config)?;
        let options = Options { size: SIZE, ..Options::default() };
        let guest = std::thread::spawn(move || FrontEnd::connect(&socket, options));
        while !guest.is_finished() {
            server.look(Some(Duration::from_millis(1)))?;
            server.turn();
        }
        let guest = guest.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        Ok(Self { server, guest, turns: 0 })
    }

    fn turn(&mut self) -> Result<()> {
        self.server.turn();
        self.turns += 1;
        if self.turns.is_multiple_of(TURNS) {
            self.server.look(Some(Duration::ZERO))?;
        }
        Ok(())
    }

    fn other(&self) -> Option<&ginnel_switch::hosts::Host> {
        self.server.switch().hosts.all.first()
    }

    /// Until both have found each other, and both guests are known.
    fn meet(&mut self, to: u8, from: u8) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(20);
        let hello = frame(to, from, 60);
        let (mut said, mut heard) = (0, false);
        while !heard || said < 3 {
            ensure!(Instant::now() < until, "the hosts do not find each other");
            self.turn()?;
            if self.other().is_some_and(|other| other.has(0)) {
                said += u32::from(self.guest.send(1, &hello));
                std::thread::sleep(Duration::from_millis(20));
            }
            while self.guest.receive_with(0).is_some() {
                heard = true;
            }
        }
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            self.turn()?;
            while self.guest.receive_with(0).is_some() {}
        }
        Ok(())
    }

    /// Frames that the other host was given.
    fn sent(&self) -> u64 {
        self.other().map_or(0, |other| other.counters.received_frames)
    }

    /// Takes what was received, without a look at it. How many frames?
    fn take(&mut self) -> u64 {
        let mut taken = 0;
        while let Some((head, _)) = self.guest.used(0) {
            self.guest.offer(0, head);
            taken += 1;
        }
        taken
    }
}

/// Processor time of this thread.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// What came of many frames: millions a second, nanoseconds of its sender, of its receiver.
type Many = [f64; 3];

/// Sends as many frames as go, and counts those that arrive at the other host.
fn many(hosts: &mut [Host; 2], len: usize) -> Result<Many> {
    let (end, got) = (AtomicBool::new(false), AtomicU64::new(0));
    let [one, two] = hosts;
    // A guest that only says again that its buffers are there: it costs little.
    while one.guest.used(1).is_some() {}
    for index in 0..SIZE {
        let at = one.guest.queues[1].base + (64 << 10) + 2048 * u64::from(index);
        one.guest.write(at, &[&[0; HEADER][..], &frame(2, 1, len)].concat());
        one.guest.describe(1, index, at, (HEADER + len) as u32, 0, 0);
    }
    let mut free: Vec<u16> = (0..SIZE).collect();
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| -> Result<f64> {
            pin(0);
            let (mut took, mut sent, mut all) = (Duration::ZERO, one.sent(), 0);
            while !end.load(Ordering::Relaxed) {
                while let Some((head, _)) = one.guest.used(1) {
                    free.push(head);
                }
                let before = used();
                for _ in 0..64 {
                    let Some(head) = free.pop() else { break };
                    one.guest.offer(1, head);
                }
                one.turn()?;
                // What is refused costs next to nothing.
                let gone = one.sent();
                if gone > sent {
                    took += used() - before;
                }
                (all, sent) = (all + gone - sent, gone);
            }
            let each = took.as_nanos() as f64 / all as f64;
            // What is still there is sent.
            while free.len() < SIZE.into() {
                one.turn()?;
                while let Some((head, _)) = one.guest.used(1) {
                    free.push(head);
                }
            }
            Ok(each)
        });
        let takes = scope.spawn(|| taken(two, &end, &got));
        std::thread::sleep(Duration::from_millis(500));
        let (began, before) = (Instant::now(), got.load(Ordering::Relaxed));
        std::thread::sleep(EACH);
        let (count, took) = (got.load(Ordering::Relaxed) - before, began.elapsed());
        end.store(true, Ordering::Relaxed);
        let [sender, receiver] =
            [sends, takes].map(|thread| thread.join().map_err(|_| anyhow::anyhow!("panicked")));
        Ok([count as f64 / took.as_secs_f64() / 1e6, sender??, receiver??])
    })
}

/// Takes frames to the end, and counts them. Returns nanoseconds for each.
fn taken(host: &mut Host, end: &AtomicBool, got: &AtomicU64) -> Result<f64> {
    pin(1);
    let (mut took, mut all) = (Duration::ZERO, 0);
    while !end.load(Ordering::Relaxed) {
        let before = used();
        host.turn()?;
        let taken = host.take();
        if taken > 0 {
            took += used() - before;
        }
        got.fetch_add(taken, Ordering::Relaxed);
        all += taken;
    }
    Ok(took.as_nanos() as f64 / all as f64)
}

/// Sends one frame, and the next when it is answered: microseconds one way, the median.
fn one_in_flight(hosts: &mut [Host; 2], len: usize) -> Result<f64> {
    let end = AtomicBool::new(false);
    let [one, two] = hosts;
    let answer = frame(1, 2, len);
    let question = frame(2, 1, len);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| -> Result<()> {
            pin(1);
            while !end.load(Ordering::Relaxed) {
                two.turn()?;
                if two.take() > 0 {
                    ensure!(two.guest.send(1, &answer), "no room");
                }
            }
            Ok(())
        });
        pin(0);
        let (mut times, began) = (Vec::new(), Instant::now());
        let mut ask = || -> Result<()> {
            while began.elapsed() < EACH {
                let sent = Instant::now();
                ensure!(one.guest.send(1, &question), "no room");
                while one.take() == 0 {
                    one.turn()?;
                    ensure!(sent.elapsed() < Duration::from_secs(10), "a frame is lost");
                }
                times.push(sent.elapsed());
            }
            Ok(())
        };
        let asked = ask();
        end.store(true, Ordering::Relaxed);
        answers.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        asked?;
        times.sort_unstable();
        let median = times.get(times.len() / 2).context("none came back")?;
        Ok(median.as_secs_f64() * 1e6 / 2.0)
    })
}

/// A connection of libfabric's without a switch.
struct Bare {
    fabric: Arc<Fabric>,
    wire: Option<Connection>,
}

impl Bare {
    fn new(n: u8) -> Result<Self> {
        let fabric = Fabric::open(Provider::Tcp, SocketAddr::from(([127, 9, 8, n], 9192)));
        Ok(Self { fabric: Arc::new(fabric.map_err(anyhow::Error::msg)?), wire: None })
    }

    /// Until the connection is there. Is it?
    fn meet(&mut self) -> Result<bool, String> {
        match self.fabric.event()? {
            Some(Event::Called { info, .. }) => {
                let wire = Connection::open(&self.fabric, &info)?;
                wire.answer(b"yes")?;
                self.wire = Some(wire);
                Ok(false)
            }
            Some(Event::Connected { .. }) => Ok(true),
            Some(Event::Ended { why, .. }) => Err(why),
            None => Ok(false),
        }
    }

    fn send(&mut self, len: usize) -> Result<()> {
        let wire = self.wire.as_mut().context("no connection")?;
        let index = wire.take().context("no buffer")?;
        ensure!(wire.send(index, len).map_err(|lost| anyhow::anyhow!("{lost}"))?, "no room");
        Ok(())
    }

    fn receive(&mut self, end: &AtomicBool) -> Result<()> {
        let wire = self.wire.as_mut().context("no connection")?;
        let lost = |lost: Lost| anyhow::anyhow!("{lost}");
        while !end.load(Ordering::Relaxed) {
            if let Some((index, _)) = wire.receive().map_err(lost)? {
                return wire.give_back(index).map_err(lost);
            }
        }
        Ok(())
    }
}

/// The same by libfabric alone, with messages of this length.
fn bare(len: usize) -> Result<f64> {
    let (mut one, mut two) = (Bare::new(1)?, Bare::new(2)?);
    let to = SocketAddr::from(([127, 9, 8, 2], 9192));
    let call = || -> Result<Connection, String> {
        let wire = Connection::open(&one.fabric, &one.fabric.info_for(to)?)?;
        wire.call(to, b"call")?;
        Ok(wire)
    };
    one.wire = Some(call().map_err(anyhow::Error::msg)?);
    let (mut here, mut there) = (false, false);
    while !here || !there {
        here |= one.meet().map_err(anyhow::Error::msg)?;
        there |= two.meet().map_err(anyhow::Error::msg)?;
    }
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| -> Result<()> {
            pin(1);
            while !end.load(Ordering::Relaxed) {
                two.receive(&end)?;
                two.send(len)?;
            }
            Ok(())
        });
        pin(0);
        let (mut times, began) = (Vec::new(), Instant::now());
        while began.elapsed() < EACH {
            let sent = Instant::now();
            one.send(len)?;
            one.receive(&end)?;
            times.push(sent.elapsed());
        }
        end.store(true, Ordering::Relaxed);
        answers.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        times.sort_unstable();
        let median = times.get(times.len() / 2).context("none came back")?;
        Ok(median.as_secs_f64() * 1e6 / 2.0)
    })
}

/// Keeps this thread on one processor, if there is that one.
fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    // Without it the figure is only less steady.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn main() -> Result<()> {
    let secret = std::env::args().any(|argument| argument == "secret");
    println!("libfabric alone, microseconds one way:");
    for len in [64, 1514] {
        println!("{len:6} bytes: {:8.2}", bare(len)?);
    }
    let directory = tempfile::tempdir()?;
    let mut hosts =
        [Host::new(1, directory.path(), secret)?, Host::new(2, directory.path(), secret)?];
    let [one, two] = &mut hosts;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| two.meet(1, 2));
        one.meet(2, 1)?;
        other.join().map_err(|_| anyhow::anyhow!("panicked"))?
    })?;
    let sealed = if secret { "sealed" } else { "open" };
    println!("one frame in flight, microseconds one way ({sealed}):");
    for len in [64, 1514] {
        println!("{len:6} bytes: {:8.2}", one_in_flight(&mut hosts, len)?);
    }
    println!(
        "in batches, millions of frames a second ({sealed}); nanoseconds of sender and receiver:"
    );
    for len in [64, 512, 1514] {
        let [rate, sender, receiver] = many(&mut hosts, len)?;
        println!("{len:6} bytes: {rate:8.3} {sender:8.0} {receiver:8.0}");
    }
    if std::env::args().any(|argument| argument == "verbose") {
        let counters = |host: &Host| host.other().map(|other| format!("{:?}", other.counters));
        println!("{:?}\n{:?}", counters(&hosts[0]), counters(&hosts[1]));
    }
    Ok(())
}
