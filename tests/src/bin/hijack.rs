//! A stranger who has a segment, and nothing else, takes the place of the other end of each
//! connection of its members that goes to a port: as far as they let it.
//!
//! `hijack SEGMENT PORT SECONDS`. It has neither a socket of the connection nor the packets nor a
//! member's ledger. It claims entries of the rendezvous table and offers channels (the maker), or
//! takes an entry away and publishes its mirror image, so that the member makes the channel (the
//! taker). In each channel it first shows no proof, then a wrong one, and at every moment goes on
//! as the agreement wants it: echo, mirrored counts, `agreed`, `received`, its own upgrade, and
//! answers of its own. It prints what came of it, as one line of JSON, after each step.

use ginnel_node::join;
use ginnel_node::waiter;
use ginnel_node::wake::directory::wake_directory;
use ginnel_region::{Owner, PAGE, Segment, Use, sys};
use ginnel_ring::park::Want;
use ginnel_tcp::layout::{Channel, Direction, MAGIC, NO_EOF, Record};
use ginnel_tcp::ledger::Tuple;
use ginnel_tcp::proof::{Claim, exchange};
use ginnel_tcp::rendezvous::{self, Entry, Found, state};
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// As which member it signs; nobody has locked that number.
const MEMBER: u16 = 77;
/// Its nonce, the same in each attempt: what a member showed for it once is to be shown again.
const NONCE: u64 = 0x1234_5678_9abc_def1;
/// Pages of a ring.
const RING: u32 = 8;
/// So long it shows no proof in a channel, and pretends the rest.
const WITHOUT_PROOF: Duration = Duration::from_millis(200);
/// So long a member may take to come: one for which nobody came at first looks rarely.
const COMES_IN: Duration = Duration::from_secs(5);
/// So long an attempt with a wrong proof takes at most.
const PATIENCE: Duration = Duration::from_millis(1500);
/// What it answers, as long as what the test's server answers.
const FORGED: &[u8; 19] = b"forged forged forge";

/// A proof that is none.
#[derive(Debug, Clone, Copy)]
enum Guess {
    /// An exchange that is right but for the secret, which is guessed.
    Random,
    /// What the member has just shown itself.
    Copied,
    /// What a member showed in an earlier attempt.
    Replayed,
    /// A share of no order: with it the key would be the same for every secret.
    Empty,
}

const GUESSES: [Guess; 4] = [Guess::Random, Guess::Copied, Guess::Replayed, Guess::Empty];

/// What a member showed: its share, and its tag once that was there.
type Shown = ([u8; exchange::SHARE], u64);

/// What came of it.
#[derive(Debug, Default)]
struct Loot {
    attempts: u64,
    /// Channels that a member took up.
    met: u64,
    /// Those in which it showed a proof …
    proofs: u64,
    /// … and counts …
    counts: u64,
    /// … and agreed.
    agreed: u64,
    /// Bytes that were meant for the real other end.
    stolen: u64,
    /// Bytes that a member took for the real other end's.
    forged: u64,
}

impl Loot {
    fn tell(&self) {
        let Self { attempts, met, proofs, counts, agreed, stolen, forged } = self;
        println!(
            "{{\"attempts\":{attempts},\"met\":{met},\"proofs\":{proofs},\"counts\":{counts},\
             \"agreed\":{agreed},\"stolen\":{stolen},\"forged\":{forged}}}"
        );
    }
}

/// A channel that it shares with a member.
struct Grip<'a> {
    segment: &'a Segment,
    channel: Channel<'a>,
    /// Its own side.
    mine: u8,
    /// How far it has read the member's ring, and written its own.
    read: u64,
    written: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, port, seconds] = arguments.as_slice() else {
        eprintln!("usage: hijack SEGMENT PORT SECONDS");
        std::process::exit(2);
    };
    let segment = join::look(Path::new(path)).expect("a segment");
    let port: u16 = port.parse().expect("a port");
    let until = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds"));
    let (mut loot, mut shown) = (Loot::default(), Vec::new());
    while Instant::now() < until {
        let maker = loot.attempts.is_multiple_of(2);
        let guess = GUESSES[(loot.attempts / 2 % 4) as usize];
        let Some(entry) = victim(&segment, port) else {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        let tuple = entry.tuple();
        let grip = if maker { offer(&segment, entry) } else { publish(&segment, entry) };
        loot.attempts += 1;
        let Some(grip) = grip else { continue };
        if grip.was_taken_up() {
            loot.met += 1;
            grip.press((guess, &tuple), until, &mut shown, &mut loot);
        }
        loot.tell();
    }
}

/// The entry of a member whose connection goes to the port.
fn victim(segment: &Segment, port: u16) -> Option<Entry<'_>> {
    let wanted = |entry: &Entry<'_>| {
        let tuple = entry.tuple();
        entry.state() == state::PUBLISHED && tuple.remote_port == port && entry.nonce() != NONCE
    };
    rendezvous::entries(segment).find(wanted)
}

/// Makes a channel, and offers it to the publisher of `entry`.
fn offer<'a>(segment: &'a Segment, entry: Entry<'a>) -> Option<Grip<'a>> {
    if !entry.step(state::PUBLISHED, state::CLAIMED) {
        return None;
    }
    let head = segment.claim_head(Owner::new(MEMBER, Use::Channel)).expect("room");
    segment.clear(head.page());
    let tagged = Owner { member: MEMBER, kind: Use::Ring, tag: Some(head.page()) };
    let rings = segment.claim(2 * RING, tagged).expect("room");
    let channel = Channel::at(segment, head.page());
    for side in [0u8, 1] {
        let (direction, size) = (channel.direction(side), u64::from(RING) * PAGE);
        direction.set_ring(0, 0, rings.offset() + u64::from(side) * size, size);
        direction.eof().store(NO_EOF, Relaxed);
        direction.want_data().store(Want::Token.word(), Relaxed);
    }
    channel.nonce(0).store(NONCE, Relaxed);
    channel.nonce(1).store(entry.nonce(), Relaxed);
    let grip = Grip::new(segment, channel, 0);
    channel.magic().store(MAGIC, SeqCst);
    segment.settle(head).expect("still its own");
    entry.set_offer(head.page(), entry.nonce());
    Some(grip)
}

/// Takes the member's entry away and publishes the other end's: the member, which begins anew,
/// finds it, makes a channel and offers it.
fn publish<'a>(segment: &'a Segment, entry: Entry<'a>) -> Option<Grip<'a>> {
    let Tuple { label, local, local_port, remote, remote_port } = entry.tuple();
    // The member's own: it finds that the publisher is there.
    let owner = entry.owner();
    // Not free at once, or the other would come to stand in its place, and not be noticed.
    if !entry.step(state::PUBLISHED, state::WRITING) {
        return None;
    }
    let mirrored = Tuple {
        label,
        local: remote,
        local_port: remote_port,
        remote: local,
        remote_port: local_port,
    };
    let met = rendezvous::meet(segment, &mirrored, NONCE, owner);
    entry.free();
    let Found::Published(own) = met else { return None };
    let until = Instant::now() + COMES_IN;
    while own.state() != state::OFFERED {
        if Instant::now() > until {
            let _ = own.step(state::PUBLISHED, state::FREE);
            return None;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let grip = Grip::new(segment, Channel::at(segment, own.offer().0), 1);
    own.free();
    Some(grip)
}

impl<'a> Grip<'a> {
    fn new(segment: &'a Segment, channel: Channel<'a>, mine: u8) -> Self {
        channel.owner(mine).store(u64::from(MEMBER) << 32 | 5, Relaxed);
        channel.generation(mine).store(1, Relaxed);
        Self { segment, channel, mine, read: 0, written: 0 }
    }

    /// Has the member come into the channel? Does its own part of the greeting.
    fn was_taken_up(&self) -> bool {
        let (channel, theirs) = (self.channel, 1 - self.mine);
        let until = Instant::now() + COMES_IN;
        while Instant::now() < until {
            channel.echo(self.mine).store(channel.nonce(theirs).load(Relaxed), SeqCst);
            if channel.echo(theirs).load(Relaxed) == NONCE {
                return true;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        false
    }

    /// Everything that the agreement wants, and the guess in place of a proof; until the member
    /// leaves, or, where it believes, until the time is over.
    fn press(
        mut self,
        lie: (Guess, &Tuple),
        until: Instant,
        shown: &mut Vec<Shown>,
        loot: &mut Loot,
    ) {
        let (channel, mine, theirs) = (self.channel, self.mine, 1 - self.mine);
        let (earlier, mut began) = (shown.len(), Instant::now());
        let (mut counted, mut agreed) = (false, false);
        let gone = || {
            channel.was_left(theirs)
                || channel.has_ended(theirs)
                || channel.released().load(SeqCst) & 1 << theirs != 0
        };
        while Instant::now() < until && !gone() && (agreed || began.elapsed() < PATIENCE) {
            if let Some(share) = channel.share(theirs).filter(|_| shown.len() == earlier) {
                shown.push((share, 0));
                loot.proofs += 1;
            }
            if shown.len() > earlier
                && began.elapsed() > WITHOUT_PROOF
                && channel.proof(mine).load(Relaxed) == 0
            {
                self.prove_wrongly(lie, &shown[..earlier]);
                began = Instant::now();
                let tag = channel.proof(theirs).load(Relaxed);
                shown.iter_mut().skip(earlier).for_each(|shown| shown.1 = tag);
            }
            if self.mirror_counts() && !counted {
                (counted, loot.counts) = (true, loot.counts + 1);
            }
            channel.agreed(mine).store(1, SeqCst);
            if channel.agreed(theirs).load(Relaxed) == 1 && !agreed {
                (agreed, loot.agreed) = (true, loot.agreed + 1);
            }
            // "I have received all that you sent over TCP."
            let direction = channel.direction(theirs);
            direction.received().store(direction.sent().load(Relaxed), SeqCst);
            self.steal(loot);
            std::thread::sleep(Duration::from_micros(100));
        }
        self.count_forged(loot);
    }

    /// Shows a share, waits for the member's tag, and shows one.
    fn prove_wrongly(&self, (guess, victim): (Guess, &Tuple), earlier: &[Shown]) {
        let (channel, mine, theirs) = (self.channel, self.mine, 1 - self.mine);
        let Some(share) = channel.share(theirs) else { return };
        let nonces = [0, 1].map(|side| channel.nonce(side).load(Relaxed));
        let Tuple { label, local, local_port, remote, remote_port } = *victim;
        let tuple = Tuple {
            label,
            local: remote,
            local_port: remote_port,
            remote: local,
            remote_port: local_port,
        };
        let claim = Claim { side: mine, connected: false, nonces, tuple };
        let begun = exchange::begin(sys::random_u64() | 1, &claim);
        let (own, tag) = match guess {
            Guess::Random => {
                (begun.share, exchange::finish(&begun, &share, &claim).map_or(1, |tags| tags.own))
            }
            Guess::Copied => (share, 0),
            Guess::Replayed => earlier.last().copied().unwrap_or((begun.share, 1)),
            Guess::Empty => ([0; exchange::SHARE], 1),
        };
        channel.set_share(mine, &own);
        let until = Instant::now() + WITHOUT_PROOF;
        while channel.proof(theirs).load(SeqCst) == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        let tag = if tag == 0 { channel.proof(theirs).load(SeqCst) } else { tag };
        channel.proof(mine).store(tag.max(1), SeqCst);
    }

    /// Shows the member's counts the other way round. False: it has shown none.
    fn mirror_counts(&self) -> bool {
        let (channel, mine, theirs) = (self.channel, self.mine, 1 - self.mine);
        let sequence = channel.snapshot_sequence(theirs).load(SeqCst);
        let sent = channel.snapshot_sent(theirs).load(Relaxed);
        let arrived = channel.snapshot_arrived(theirs).load(Relaxed);
        let scales = channel.snapshot_scales(theirs).load(Relaxed);
        if sequence == 0
            || sequence & 1 == 1
            || channel.snapshot_sequence(theirs).load(SeqCst) != sequence
        {
            return sequence != 0;
        }
        let own = channel.snapshot_sequence(mine);
        let before = own.load(Relaxed) & !1;
        own.store(before + 1, SeqCst);
        channel.snapshot_sent(mine).store(arrived, SeqCst);
        channel.snapshot_arrived(mine).store(sent, SeqCst);
        channel.snapshot_scales(mine).store((scales & 0xff) << 8 | scales >> 8 & 0xff, SeqCst);
        own.store(before + 2, SeqCst);
        true
    }

    /// Reads what the member put into its ring, and answers in the real other end's place.
    fn steal(&mut self, loot: &mut Loot) {
        let direction = self.channel.direction(1 - self.mine);
        let (epoch, tail) = (direction.epoch().load(SeqCst), direction.tail().load(SeqCst));
        if epoch & 1 == 0 || tail == self.read {
            return;
        }
        direction.ack().store(epoch, SeqCst);
        let (offset, size) = place(direction);
        let stolen: Vec<u8> =
            (self.read..tail).map(|at| self.byte(offset + at % size).0).take(64).collect();
        eprintln!("stolen: {}", String::from_utf8_lossy(&stolen));
        loot.stolen += tail - self.read;
        self.read = tail;
        direction.head().store(tail, SeqCst);
        self.answer();
        loot.tell();
    }

    /// Moves its own direction into the ring, if it is not there, and answers.
    fn answer(&mut self) {
        let direction = self.channel.direction(self.mine);
        let (offset, size) = place(direction);
        for (at, byte) in (self.written..).zip(FORGED) {
            let (before, word) = self.byte(offset + at % size);
            let shift = (offset + at % size) % 8 * 8;
            word.fetch_xor(u64::from(before ^ byte) << shift, SeqCst);
        }
        self.written += FORGED.len() as u64;
        if direction.epoch().load(SeqCst) == 0 {
            // The member waits for an answer: nothing is under way to it.
            let tcp = direction.received().load(SeqCst);
            direction.set_switch(Record { epoch: 1, tcp, ring: 0 });
            direction.gate().store(1, SeqCst);
            direction.epoch().store(1, SeqCst);
        }
        direction.tail().store(self.written, SeqCst);
        if let Want::Waiter { page, .. } = Want::of(direction.want_data().swap(0, SeqCst)) {
            let directory = wake_directory(Path::new("/"), self.segment.path());
            waiter::call(&directory, self.segment, page);
        }
    }

    /// What of its answers the member has taken.
    fn count_forged(&self, loot: &mut Loot) {
        loot.forged += self.channel.direction(self.mine).head().load(SeqCst);
    }

    /// A byte of the segment, and the word that it lies in.
    fn byte(&self, offset: u64) -> (u8, &'a std::sync::atomic::AtomicU64) {
        let word = self.segment.word(offset / 8 * 8);
        (word.load(SeqCst).to_le_bytes()[(offset % 8) as usize], word)
    }
}

/// Where a direction's ring lies: offset and size.
fn place(direction: Direction<'_>) -> (u64, u64) {
    let (_, offset, size) = direction.ring(direction.grown().load(SeqCst));
    let value = |word: ginnel_region::Untrusted<u64>| word.checked(|_| true).expect("any will do");
    (value(offset), value(size).max(1))
}
