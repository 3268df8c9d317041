//! Random commands to Debian's memcached and to this server: every answer is the same.
//!
//! What may differ, and why, is said by support/answers.rs and by what the generator leaves out:
//!
//! | left out | because |
//! |---|---|
//! | short lives of items | the two clocks tick at different moments: tests of expiry are apart |
//! | base64 that is none | memcached passes over bytes that do not belong there |
//! | a multiple get with a key that is too long | memcached then drops the answers before it, too |
//! | whether a key came in base64, once its item was changed | memcached then forgets it |
//! | unknown binary commands with a key | memcached then passes over the next command's head |
//! | a number that is changed in the batch that reads it | memcached then keeps no blanks behind it |
//! | ma with T | memcached gives a number that became longer its old time |
//! | numbers of 2^63 and more | memcached looks for a minus sign behind the value, in other memory |
//! | `flush_all` with `-C` | memcached then also takes what is stored within the same second |
//! | `stats`, `version` | they tell of different programs |
//! | a line that gets too long while its end is under way | both close, or answer, by who runs when |

use crate::answers::is_same;
use crate::commands::{self, BINARY_CAS, CAS, packet};
use crate::random::Random;
use crate::script::{of_file, replace, to_file};
use crate::servers::{Peer, Server};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// What a script is made of, and where a batch of it ends.
#[derive(Clone, Copy)]
struct Protocol {
    command: fn(&mut Random) -> Vec<u8>,
    /// Sent after each batch.
    question: fn() -> Vec<u8>,
    /// The last of its answers.
    answer: fn() -> Vec<u8>,
    /// Finds unique numbers in answers.
    cas: fn(&[u8]) -> Vec<u64>,
    /// Puts one into a command.
    fill: fn(&[u8], u64) -> Vec<u8>,
}

const TEXT: Protocol = Protocol {
    command: commands::text,
    // Enough that a value which is too short ends.
    question: || [vec![b'x'; 64], b"\r\nmn\r\n".to_vec()].concat(),
    answer: || b"ERROR\r\nMN\r\n".to_vec(),
    cas: cas_of_text,
    fill: |command, cas| replace(command, CAS.as_bytes(), cas.to_string().as_bytes()),
};

const BINARY: Protocol = Protocol {
    command: commands::binary,
    question: || packet(0x0a, &[], &[], &[], 0xfeed_beef, 0),
    answer: || {
        let mut answer = packet(0x0a, &[], &[], &[], 0xfeed_beef, 0);
        answer[0] = 0x81;
        answer
    },
    cas: |said| said.get(16..24).map(be_64).into_iter().filter(|&cas| cas != 0).collect(),
    fill: |command, cas| replace(command, &BINARY_CAS.to_be_bytes(), &cas.to_be_bytes()),
};

fn be_64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Finds unique numbers that were told.
fn cas_of_text(said: &[u8]) -> Vec<u64> {
    let lines = said.split(|&byte| byte == b'\n');
    let told = lines.filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut words = line.split(|&byte| byte == b' ');
        let number = match words.next() {
            Some(b"VALUE") => words.nth(3),
            Some(b"HD" | b"VA") => words.find_map(|word| word.strip_prefix(b"c")),
            _ => None,
        };
        std::str::from_utf8(number?).ok()?.parse().ok()
    });
    told.collect()
}

/// What is done to the commands that this server is sent: a fault of its, as clients see it.
type Fault = fn(Vec<u8>) -> Vec<u8>;

fn no_fault(command: Vec<u8>) -> Vec<u8> {
    command
}

/// What both servers are asked, and how.
#[derive(Clone, Copy)]
struct Setting {
    protocol: Protocol,
    /// Arguments of both.
    args: &'static [&'static str],
    /// Whether what is sent comes in pieces, cut anywhere.
    in_pieces: bool,
    fault: Fault,
}

impl Setting {
    const fn of(protocol: Protocol) -> Self {
        Self { protocol, args: &[], in_pieces: false, fault: no_fault }
    }

    /// Whether `flush_all` is left out: refused, or so that it also takes what is stored within its
    /// second.
    fn is_unflushed(&self) -> bool {
        self.args.contains(&"-F") || self.args.contains(&"-C")
    }
}

/// Both servers, and what they said.
struct Both {
    theirs: Server,
    ours: Server,
    peers: [Peer; 2],
    setting: Setting,
    cas: u64,
    random: Random,
}

impl Both {
    fn new(setting: Setting) -> Self {
        // Its maintainer holds items for a moment, and whether it does shows in blanks after
        // numbers.
        let still = "no_lru_maintainer,no_lru_crawler";
        let theirs = Server::memcached(&[&["-m", "64", "-o", still], setting.args].concat());
        let ours = Server::ours(&[&["-m", "64"], setting.args].concat());
        let peers = [theirs.connect(), ours.connect()];
        Self { theirs, ours, peers, setting, cas: 1, random: Random::new(1) }
    }

    fn reconnect(&mut self) {
        self.peers = [self.theirs.connect(), self.ours.connect()];
    }

    /// Begins with empty servers.
    fn clear(&mut self) {
        if self.setting.is_unflushed() {
            *self = Self::new(self.setting);
            return;
        }
        self.reconnect();
        for peer in &mut self.peers {
            assert_eq!(peer.ask(b"flush_all\r\n", b"\r\n"), b"OK\r\n");
        }
        self.reconnect();
        self.cas = 1;
    }

    /// Sends a batch to both; what they said if that is not the same.
    fn compare(&mut self, batch: &[Vec<u8>]) -> Option<[Vec<u8>; 2]> {
        let Protocol { question, answer, cas, fill, .. } = self.setting.protocol;
        let plain: Vec<Vec<u8>> = batch.iter().map(|command| fill(command, self.cas)).collect();
        let faulty: Vec<Vec<u8>> = plain.iter().cloned().map(self.setting.fault).collect();
        for (peer, commands) in self.peers.iter_mut().zip([plain, faulty]) {
            let whole = [commands.concat(), question()].concat();
            if self.setting.in_pieces {
                send_in_pieces(peer, &whole, &mut self.random);
            } else {
                let _ = peer.0.write_all(&whole);
            }
        }
        let [theirs, ours] = &mut self.peers;
        let said = [theirs.read_to(&answer()), ours.read_to(&answer())];
        self.cas = cas(&said[0]).last().copied().unwrap_or(self.cas);
        if said[0].ends_with(b"<closed>") {
            self.reconnect();
        }
        (!is_same(&said[0], &said[1])).then_some(said)
    }

    /// Runs a script, batch by batch; the first that is answered differently.
    fn run(&mut self, script: &[Vec<Vec<u8>>]) -> Option<(usize, [Vec<u8>; 2])> {
        self.clear();
        script.iter().enumerate().find_map(|(at, batch)| Some((at, self.compare(batch)?)))
    }
}

/// Bytes of a line at which both servers close where its end has not come yet. Whether it has come
/// by then is a matter of who runs when, unless nobody sees so many without it.
const LONGEST: usize = 2048;

/// Sends pieces, each of which mostly comes by itself. What is left of a line that is about to be
/// too long comes at once.
fn send_in_pieces(peer: &mut Peer, whole: &[u8], random: &mut Random) {
    let (mut sent, mut line) = (0, 0);
    while sent < whole.len() {
        let mut end = (sent + 1 + random.below(60)).min(whole.len());
        let ends = |text: &[u8]| text.iter().rposition(|&byte| byte == b'\n');
        line = ends(&whole[sent..end]).map_or(line, |at| sent + at + 1);
        if end - line >= LONGEST - 60 {
            let rest = whole[end..].iter().position(|&byte| byte == b'\n');
            end = rest.map_or(whole.len(), |at| end + at + 1);
            line = end;
        }
        let _ = peer.0.write_all(&whole[sent..end]);
        std::thread::sleep(Duration::from_micros(60));
        sent = end;
    }
}

/// Takes away what a difference does not need. Servers are new for each try: what an earlier one
/// left may be what differs.
fn minimise(setting: Setting, mut script: Vec<Vec<Vec<u8>>>) -> Vec<Vec<Vec<u8>>> {
    for batch in (0..script.len()).rev() {
        for at in (0..script[batch].len()).rev() {
            let mut less = script.clone();
            less[batch].remove(at);
            if Both::new(setting).run(&less).is_some() {
                script = less;
            }
        }
    }
    script.retain(|batch| !batch.is_empty());
    script
}

fn script(setting: Setting, seed: u64) -> Vec<Vec<Vec<u8>>> {
    let mut random = Random::new(seed);
    let mut script = Vec::new();
    for _ in 0..8 {
        let mut batch: Vec<Vec<u8>> = Vec::new();
        for _ in 0..1 + random.below(10) {
            let command = (setting.protocol.command)(&mut random);
            if setting.args.contains(&"-C") && commands::flushes(&command) {
                continue;
            }
            if commands::changes_number(&command) {
                script.push(std::mem::take(&mut batch));
            }
            batch.push(command);
        }
        script.push(batch);
    }
    script.retain(|batch| !batch.is_empty());
    script
}

pub fn shown(text: &[u8]) -> String {
    short(&text.escape_ascii().to_string())
}

fn short(text: &str) -> String {
    if text.len() > 600 { format!("{} …", &text[..600]) } else { text.to_owned() }
}

/// Runs seeds until the time is over; says the first that is answered differently.
fn hunt(setting: Setting, seeds: std::ops::Range<u64>, time: Duration) -> Option<String> {
    let mut both = Both::new(setting);
    let until = Instant::now() + time;
    for seed in seeds {
        if Instant::now() > until {
            return None;
        }
        let script = script(setting, seed);
        if let Some(first) = both.run(&script) {
            let small = minimise(setting, script.clone());
            let (script, (at, [theirs, ours])) = match Both::new(setting).run(&small) {
                Some(found) => (small, found),
                None => (script, first),
            };
            return Some(format!(
                "{:?}, seed {seed}, batch {at} of\n{}\nmemcached said\n{}\nginnel-cache said\n{}",
                setting.args,
                to_file(&script).lines().map(short).collect::<Vec<_>>().join("\n"),
                shown(&theirs),
                shown(&ours)
            ));
        }
    }
    None
}

fn none_differs(setting: Setting, seeds: std::ops::Range<u64>, time: Duration) {
    let found = hunt(setting, seeds, time);
    assert!(found.is_none(), "{}", found.unwrap_or_default());
}

#[test]
fn text_commands_are_answered_alike() {
    none_differs(Setting::of(TEXT), 0..400, Duration::from_secs(20));
}

#[test]
fn binary_commands_are_answered_alike() {
    none_differs(Setting::of(BINARY), 0..400, Duration::from_secs(20));
}

#[test]
#[ignore = "test-all: minutes of it, from a seed of the day"]
fn commands_are_answered_alike_for_minutes() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let first = now.as_secs() / 86_400 * 1_000_000;
    none_differs(Setting::of(TEXT), first..u64::MAX, Duration::from_secs(120));
    none_differs(Setting::of(BINARY), first..u64::MAX, Duration::from_secs(60));
    for setting in settings() {
        none_differs(setting, first..u64::MAX, Duration::from_secs(20));
    }
}

/// The options that change answers, for both protocols; and pieces.
fn settings() -> Vec<Setting> {
    let options: [&[&str]; 4] =
        [&["-C"], &["-M"], &["-F"], &["-I", "2k", "-o", "slab_chunk_max=1024"]];
    let mut settings = Vec::new();
    for protocol in [TEXT, BINARY] {
        let plain = Setting::of(protocol);
        settings.push(Setting { in_pieces: true, ..plain });
        settings.extend(options.map(|args| Setting { args, ..plain }));
    }
    settings
}

#[test]
fn under_each_option_and_in_pieces_commands_are_answered_alike() {
    for setting in settings() {
        none_differs(setting, 1000..u64::MAX, Duration::from_secs(2));
    }
}

/// What once was answered differently.
#[test]
fn kept_scripts_are_answered_alike() {
    let mut count = 0;
    for entry in std::fs::read_dir("tests/kept").expect("scripts") {
        let path = entry.expect("a script").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let script = of_file(&text);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let protocol = if name.starts_with("binary") { BINARY } else { TEXT };
        let mut setting = Setting::of(protocol);
        if text.lines().any(|line| line == "# with -C") {
            setting.args = &["-C"];
        }
        let mut both = Both::new(setting);
        if let Some((at, [theirs, ours])) = both.run(&script) {
            panic!("{name}, batch {at}:\n{}\n{}", shown(&theirs), shown(&ours));
        }
        count += 1;
    }
    assert!(count > 0, "no script was kept");
}

/// Faults that a server could have, each found within some hundred seeds.
#[test]
fn faults_are_found() {
    let faults: [(&str, Fault); 6] = [
        ("prepend appends", |command| replace(&command, b"prepend ", b"append ")),
        ("noreply is answered", |command| replace(&command, b" noreply\r\n", b"\r\n")),
        ("decr counts up", |command| replace(&command, b"decr ", b"incr ")),
        ("ms I is ms", |command| match command.starts_with(b"ms ") {
            true => replace(&command, b" I", b""),
            false => command,
        }),
        ("flags have 16 bits", |command| replace(&command, b" 4294967295 ", b" 65535 ")),
        ("touch does nothing", |command| match command.starts_with(b"touch ") {
            true => replace(&command, b" -1", b" 0"),
            false => command,
        }),
    ];
    for (name, fault) in faults {
        let setting = Setting { fault, ..Setting::of(TEXT) };
        let found = hunt(setting, 0..2000, Duration::from_secs(60));
        assert!(found.is_some(), "{name}: no answer differed");
    }
}

#[test]
fn large_values_are_answered_alike() {
    let mut both = Both::new(Setting::of(TEXT));
    both.clear();
    // Around the limit of an item, and far beyond; what follows is still understood.
    for len in [1 << 19, (1 << 20) - 61, (1 << 20) - 60, (1 << 20) - 59, 1 << 20, 3 << 20] {
        let set = [format!("set big 0 0 {len}\r\n").as_bytes(), &vec![b'b'; len], b"\r\n"].concat();
        for batch in [set, b"mg big s\r\n".to_vec(), b"get big\r\n".to_vec()] {
            let differs = both.compare(&[batch]);
            assert!(
                differs.is_none(),
                "{len}: {:?}",
                differs.map(|said| said.map(|one| shown(&one)))
            );
        }
    }
}
