//! A switch that the test turns itself, with a guest at each of two ports, and other hosts, which
//! the test is: they take nothing but what it takes.

use super::long::Long;
use super::{frame, mac};
use ginnel_switch::config::{Config, FabricConfig, HostConfig, PortConfig};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::hosts::handshake::Keys;
use ginnel_switch::hosts::link::{Link, Lost, Wire};
use ginnel_switch::hosts::message::{HEAD, Message, Seals, put};
use ginnel_switch::hosts::pair::{End, pair};
use ginnel_switch::hosts::{Host, Hosts};
use ginnel_switch::loan::Loan;
use ginnel_switch::reload::Source;
use ginnel_switch::ring::Region;
use ginnel_switch::server::Server;
use ginnel_switch::wire::{HEADER, MESSAGE};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(20);

/// What makes a wire of one end.
pub type MakeWire = fn(End) -> Box<dyn Wire>;

/// A wire that is nothing else.
pub fn plain(end: End) -> Box<dyn Wire> {
    Box::new(end)
}

/// A wire that cannot send any more once this is set, as of a connection whose end nobody has heard
/// of yet.
pub static BROKEN: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Breaks(End);

/// Makes one.
pub fn breaks(end: End) -> Box<dyn Wire> {
    Box::new(Breaks(end))
}

impl Wire for Breaks {
    fn take(&mut self) -> Option<u32> {
        self.0.take()
    }

    fn untake(&mut self, index: u32) {
        self.0.untake(index);
    }

    fn buffer(&mut self, index: u32) -> &mut [u8] {
        self.0.buffer(index)
    }

    fn sending(&self) -> usize {
        self.0.sending()
    }

    fn send(&mut self, index: u32, len: usize) -> Result<bool, Lost> {
        self.0.send(index, len)
    }

    fn pieces(&self) -> usize {
        self.0.pieces()
    }

    fn takes(&self, region: &Arc<Region>) -> bool {
        self.0.takes(region)
    }

    fn send_with(&mut self, index: u32, len: usize, loan: Loan) -> Result<Option<Loan>, Lost> {
        match BROKEN.load(Ordering::Relaxed) {
            true => Err(Lost("it cannot send".into())),
            false => self.0.send_with(index, len, loan),
        }
    }

    fn oldest(&self) -> Option<u64> {
        self.0.oldest()
    }

    fn look(&mut self) -> Result<(), Lost> {
        self.0.look()
    }

    fn receive(&mut self) -> Result<Option<(u32, usize)>, Lost> {
        self.0.receive()
    }

    fn has_more(&self) -> bool {
        self.0.has_more()
    }

    fn give_back(&mut self, index: u32) -> Result<(), Lost> {
        self.0.give_back(index)
    }

    fn may_sleep(&mut self) -> bool {
        self.0.may_sleep()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.0.bell()
    }

    fn id(&self) -> usize {
        self.0.id()
    }
}

/// Another host.
pub struct Other {
    pub end: End,
    seals: Seals,
}

impl Other {
    fn alive(&mut self) {
        let mut message = vec![0; MESSAGE];
        let len = self.seals.alive(&mut message, &[0]);
        assert!(self.end.write(&message[..len]));
    }

    /// It sends a frame.
    pub fn say(&mut self, frame: &[u8]) {
        let mut message = vec![0; MESSAGE];
        put(&mut message, HEAD, 0, HEADER + frame.len()).expect("room")[HEADER..]
            .copy_from_slice(frame);
        message.truncate(HEAD + 8 + HEADER + frame.len());
        self.seals.frames(&mut message, 1);
        assert!(self.end.write(&message));
    }

    /// It sends a frame as often as a message holds it. Returns how often that is.
    pub fn say_often(&mut self, frame: &[u8]) -> usize {
        let (mut message, len) = (vec![0; MESSAGE], HEADER + frame.len());
        let count = (MESSAGE - HEAD) / (8 + len);
        for n in 0..count {
            let place = put(&mut message, HEAD + n * (8 + len), 0, len).expect("room");
            place[HEADER..].copy_from_slice(frame);
        }
        message.truncate(HEAD + count * (8 + len));
        self.seals.frames(&mut message, count as u32);
        assert!(self.end.write(&message));
        count
    }

    /// It takes the next message: its frames.
    pub fn take_one(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut bytes = self.end.read()?;
        match self.seals.open(&mut bytes).expect("good") {
            Message::Frames(frames) => {
                Some(frames.map(|(_, front)| front[HEADER..].to_vec()).collect())
            }
            Message::Alive(_) => Some(Vec::new()),
        }
    }

    /// It takes all that has come.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.take_one()).flatten().collect()
    }
}

/// All of it.
pub struct World {
    pub server: Server,
    pub directory: tempfile::TempDir,
    pub others: Vec<Other>,
    told: Instant,
    pub a: FrontEnd,
    pub b: FrontEnd,
    /// What goes from where it lies, by the first guest.
    pub long: Long,
    asks: UnixStream,
}

impl World {
    /// With one other host, behind which is the address 9.
    pub fn new(options: Options) -> Self {
        Self::with(options, false)
    }

    /// The same, with a secret.
    pub fn with(options: Options, secret: bool) -> Self {
        Self::of(options, secret, &[plain])
    }

    /// With a host for each of these, which makes its wire: behind the first is the address 9,
    /// behind the next 19 …
    pub fn of(options: Options, secret: bool, wires: &[MakeWire]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = |name: &str| PortConfig::new(name, directory.path().join(name), 0);
        let config = Config::new(directory.path().into(), vec![port("a"), port("b")]);
        let mut server = Server::new(&config).expect("a switch");
        let address = |n: u8| SocketAddr::from(([127, 0, 0, n], 1));
        let names = (2..).take(wires.len());
        let hosts = names.map(|n| HostConfig::at(&format!("h{n}"), address(n))).collect();
        let mut fabric = FabricConfig::new(address(1), hosts).expect("hosts");
        fabric.in_place = Some(256);
        let (mut links, mut others) = (Vec::new(), Vec::new());
        for wire in wires {
            let [here, end] = pair().expect("a pair");
            let [ours, theirs] = [1, 2].map(|n| secret.then_some([n; 32]));
            links.push(Link::new(wire(here), Keys { ours, theirs }, true, Instant::now()));
            others.push(Other { end, seals: Seals::new(Keys { ours: theirs, theirs: ours }) });
        }
        server.join(Hosts::without_calls(&fabric, &config.ports), links);
        let (asks, other) = UnixStream::pair().expect("a pair");
        let file = directory.path().join("switch.toml");
        server.reload_from(Source { file, busy: false }, other).expect("it can be read again");
        let sockets = ["a", "b"].map(|name| directory.path().join(name));
        let guests = std::thread::spawn(move || {
            let connect = |(socket, options): (&std::path::PathBuf, _)| {
                FrontEnd::connect(socket, options).expect("connected")
            };
            [(&sockets[0], options), (&sockets[1], Options::default())].map(connect)
        });
        while !guests.is_finished() {
            server.look(Some(Duration::from_millis(1))).expect("it goes on");
            server.turn();
        }
        let [a, b] = guests.join().expect("connected");
        let (told, long) = (Instant::now(), Long::new());
        let mut world = Self { server, directory, others, told, a, b, long, asks };
        for n in 0..world.others.len() {
            world.others[n].alive();
            // Who is behind the other host is known.
            let hello = frame(mac(1), mac(9 + 10 * n as u8), 50, 1);
            world.others[n].say(&hello);
            world.until(|world| world.a.receive(0).is_some_and(|got| got == hello));
        }
        world.undisturbed();
        world.others.iter_mut().for_each(|other| drop(other.take()));
        world
    }

    /// The first other host takes what has come: frames.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.others[0].take()
    }

    /// One turn.
    pub fn turn(&mut self) {
        self.server.turn();
        self.server.look(Some(Duration::ZERO)).expect("it goes on");
        if self.told.elapsed() > Duration::from_secs(1) {
            self.told = Instant::now();
            self.others.iter_mut().for_each(Other::alive);
        }
    }

    /// As many as whatever has begun takes.
    pub fn turns(&mut self) {
        for _ in 0..200 {
            self.turn();
        }
    }

    /// Turns until something is so.
    #[track_caller]
    pub fn until(&mut self, mut good: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !good(self) {
            assert!(Instant::now() < until, "it does not come to be so");
            self.turn();
        }
    }

    /// The first guest sends a long frame, in so many pieces. None: nothing is free.
    pub fn send(&mut self, len: usize, pieces: usize, seed: u8) -> Option<Vec<u8>> {
        let sent = frame(mac(9), mac(1), len, seed);
        self.long.send(&mut self.a, &sent, pieces).then_some(sent)
    }

    /// The first guest sends two long frames to the other host, and a short one to its neighbour
    /// behind them. Returns the long ones.
    pub fn send_three(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for n in 0..2 {
            sent.extend(self.send(50_000, 2, n));
            self.turns();
        }
        assert!(self.long.send(&mut self.a, &frame(mac(2), mac(1), 100, 3), 1));
        self.turns();
        sent
    }

    /// The first other host, as the switch has it.
    pub fn host(&self) -> &Host {
        &self.server.switch().hosts.all[0]
    }

    /// Frames that the first other host was sent from where they lie.
    pub fn in_place(&self) -> u64 {
        self.host().counters.in_place
    }

    /// Turns until the first other host is lent something again. (This test may have been slow.)
    pub fn until_lent_again(&mut self) {
        self.until(|world| world.host().link.as_ref().is_some_and(|link| link.slow.is_none()));
    }

    /// The two guests still reach each other.
    pub fn undisturbed(&mut self) {
        let hello = frame(mac(1), mac(2), 50, 9);
        assert!(self.b.send(1, &hello));
        self.until(|world| world.a.receive(0).is_some_and(|got| got == hello));
    }

    /// Has the switch read another configuration, with these ports, and turns until it has it.
    pub fn reload(&mut self, ports: &[&str]) {
        let place = self.directory.path();
        let port = |name: &&str| format!("[port.{name}]\nsocket = {:?}\n", place.join(name));
        let ports: String = ports.iter().map(port).collect();
        let text = format!("run_dir = {place:?}\nmetrics = \"off\"\n{ports}");
        std::fs::write(place.join("switch.toml"), text).expect("written");
        let count = ports.matches("[port.").count();
        self.asks.write_all(b"x").expect("asked");
        self.until(|world| world.server.switch().config.ports.len() == count);
    }

    /// Somebody connects to the first port, in a thread.
    pub fn connect(&self, options: Options) -> JoinHandle<std::io::Result<FrontEnd>> {
        let socket = self.directory.path().join("a");
        std::thread::spawn(move || FrontEnd::connect(&socket, options))
    }

    /// The first port's front end is killed.
    pub fn kill(&mut self) {
        let (nowhere, _) = UnixStream::pair().expect("a pair");
        self.a = FrontEnd::prepare(nowhere, Options::default()).expect("memory");
        self.long = Long::new();
    }
}
