//! Another `[fabric]` while frames are sent from where they lie to a host that takes nothing: all
//! connections end, and every chain comes back to its guest, once.

use crate::common::fabric::{Net, secret};
use crate::common::long::Long;
use crate::common::{PATIENCE, frame, mac, talk};
use crate::hostile_hosts::{Bystanders, PORTS, Peer};
use crate::in_place::load;
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::hosts::libfabric::Fabric;
use ginnel_switch::hosts::link::ALIVE;
use ginnel_switch::vhost::message::Request;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A chain that is not back by then is being sent.
const STUCK: Duration = Duration::from_millis(300);

/// What is in the configuration afterwards, by the way it was before.
type After = fn(&Net, &Path) -> String;

/// A switch with two guests, and a host that takes nothing.
struct Scene {
    all: Bystanders,
    fabric: Arc<Fabric>,
    peer: Peer,
    long: Long,
}

/// The one chain that a guest sent by which it talked has come back.
fn is_back(guest: &mut FrontEnd) {
    let until = Instant::now() + PATIENCE;
    while guest.used(1).is_none() {
        assert!(Instant::now() < until, "it does not come back");
    }
}

impl Scene {
    fn new(net: &Net) -> Self {
        let mut all = Bystanders::new(net, None);
        let fabric = all.fabric();
        let peer = Self::join(&mut all, &fabric);
        is_back(&mut all.a);
        Self { all, fabric, peer, long: Long::new() }
    }

    /// The other host comes, and the address 7 is behind it.
    fn join(all: &mut Bystanders, fabric: &Arc<Fabric>) -> Peer {
        let began = Instant::now();
        let mut peer = loop {
            assert!(began.elapsed() < PATIENCE, "it does not come");
            // A fabric that is just being let go may have answered it, which a host hears, and then
            // calls again.
            let mut peer = all.host(fabric);
            let since = Instant::now();
            let mut is_up = peer.alive(&[0]);
            while is_up && all.lab.host("h1").keys != [0] {
                is_up = since.elapsed() < STUCK;
            }
            if is_up {
                break peer;
            }
        };
        let hello = frame(mac(1), mac(7), 50, 1);
        let message = peer.frames(&[(0, hello.clone())]);
        assert!(peer.send(&message));
        let until = Instant::now() + PATIENCE;
        while all.a.receive(0).as_ref() != Some(&hello) {
            assert!(Instant::now() < until, "it does not come");
        }
        peer
    }

    /// Sends to the host, which never looks what has come, until something is stuck.
    fn fill(&mut self) {
        let (until, mut told) = (Instant::now() + PATIENCE, Instant::now());
        for n in 0.. {
            if told.elapsed() > ALIVE {
                // It lives. (A busy machine may have it look slow, and then it is sent copies.)
                told = Instant::now();
                self.peer.alive_unheard(&[0]);
            }
            assert!(Instant::now() < until, "the host takes everything");
            let sent = frame(mac(7), mac(1), 60_000, n as u8);
            assert!(self.long.send(&mut self.all.a, &sent, 2));
            let began = Instant::now();
            while self.long.done(&mut self.all.a) == 0 {
                if began.elapsed() > STUCK {
                    return;
                }
                std::thread::yield_now();
            }
        }
    }

    fn all_come_back(&mut self) {
        let until = Instant::now() + PATIENCE;
        while !self.long.is_free() {
            assert!(Instant::now() < until, "chains do not come back");
            self.long.done(&mut self.all.a);
            std::thread::yield_now();
        }
    }
}

#[test]
fn every_chain_comes_back_when_the_fabric_becomes_another() {
    let afters: [After; 4] = [
        |net, _| net.lending(4096).text(2, 2, None),
        |net, secret| net.text(2, 2, Some(secret)),
        |_, _| String::new(),
        |net, _| net.text(3, 2, None),
    ];
    let place = tempfile::tempdir().expect("a directory");
    let file = secret(place.path(), "0123456789abcdef");
    for (n, after) in afters.into_iter().enumerate() {
        // While its queue is to be stopped, too: the answer waits for what is lent.
        for stops in [false, true] {
            let Some(net) = Net::new() else { return };
            let net = net.lending(256);
            let mut scene = Scene::new(&net);
            scene.fill();
            let lent = scene.all.lab.host("h1").in_place_frames;
            assert!(lent > 0);
            let ask = [1u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
            if stops {
                scene.all.a.tell(Request::GetVringBase, &ask, &[]).expect("told");
            }
            let text = format!("{PORTS}{}", after(&net, &file));
            if n == 0 {
                scene.all.lab.hang_up(&text);
                scene.all.lab.until_host("h1", |host| host.connections == 0);
            } else {
                let outcome = scene.all.lab.reload(&text);
                assert_eq!(outcome.error, None);
                assert_eq!(outcome.changed, ["fabric"]);
            }
            if stops {
                let answer = scene.all.a.answer().expect("an answer");
                let base = u16::from_le_bytes([answer[4], answer[5]]);
                assert_eq!(base, scene.all.a.queues[1].next, "it stands where all came back");
                scene.all.a.start(1, base).expect("told");
            }
            scene.all_come_back();
            let port = scene.all.lab.port("a");
            assert_eq!((port.connections, port.state.as_str()), (1, "up"), "{port:?}");
            talk((&mut scene.all.b, 2), (&mut scene.all.a, 1));
            is_back(&mut scene.all.a);
            if n == 0 {
                // The host comes again, and takes what it is sent.
                drop(scene.peer);
                scene.peer = Scene::join(&mut scene.all, &scene.fabric);
                let sent = frame(mac(7), mac(1), 60_000, 99);
                assert!(scene.long.send(&mut scene.all.a, &sent, 3));
                assert!(scene.peer.receive() == [sent]);
                scene.all_come_back();
            }
        }
    }
}

#[test]
fn a_port_goes_with_the_fabric_and_comes_back() {
    let Some(net) = Net::new() else { return };
    let net = net.lending(256);
    let mut scene = Scene::new(&net);
    scene.fill();
    let with = |ports: &str, in_place| format!("{ports}{}", net.lending(in_place).text(2, 2, None));
    assert_eq!(scene.all.lab.reload(&with("[port.b]\n", 4096)).error, None);
    assert_eq!(scene.all.lab.reload(&with(PORTS, 256)).error, None);
    scene.all.a = scene.all.lab.guest("a", Options::default());
    scene.all.undisturbed();
    drop(scene.peer);
    scene.peer = Scene::join(&mut scene.all, &scene.fabric);
    scene.long = Long::new();
    is_back(&mut scene.all.a);
    scene.fill();
}

#[test]
fn content_is_exact_while_the_fabric_changes_under_load() {
    let Some(net) = Net::new() else { return };
    let net = net.lending(2000);
    let labs = net.hosts(&["[port.a]\n"; 2], None);
    let know = || {
        for (n, lab) in labs.iter().enumerate() {
            lab.until_host(&format!("h{}", 2 - n), |host| !host.keys.is_empty());
        }
    };
    know();
    let [mut a, mut b] = [0, 1].map(|n: usize| labs[n].guest("a", Options::default()));
    talk((&mut a, 1), (&mut b, 2));
    let lent = AtomicU64::new(0);
    let taken = std::thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            for in_place in [3000, 4000, 2000] {
                // However long a busy machine takes for so many.
                let until = Instant::now() + PATIENCE;
                let mut some = 0;
                while some <= 80 && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(10));
                    some = labs[0].host("h2").in_place_frames;
                }
                lent.fetch_add(some, Ordering::Relaxed);
                let text = net.lending(in_place).text(1, 2, None);
                assert_eq!(labs[0].reload(&format!("[port.a]\n{text}")).error, None);
                know();
            }
        });
        load(&mut a, &mut b, |_| !reloads.is_finished())
    });
    let lent = lent.into_inner();
    assert!(taken > 200 && lent > 100, "{taken} arrived, {lent} were lent");
}
