//! Tap devices of the host's network as ports.

use crate::common::{ALL, Lab, PATIENCE, frame, mac};
use ginnel_switch::front_end::{FrontEnd, Options};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A switch with a tap device, which the host has an address at, and a guest.
struct Uplink {
    lab: Lab,
    guest: FrontEnd,
    device: String,
    /// The first three numbers of the network's addresses: the host has .1 of it, the guest .2.
    network: [u8; 3],
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {arguments}");
}

impl Uplink {
    /// `None` where there can be none. The device goes away with the switch.
    fn new(rate: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("skipped: needs root and /dev/net/tun");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // A name that no other test has.
        let device = format!("gsw{}x{n}", std::process::id() % 100_000);
        let lab = Lab::new(&Self::ports(&device, rate));
        let mut guest = lab.guest("a", Options { size: 1024, ..Options::default() });
        // It is down.
        assert!(guest.send(1, &frame(ALL, mac(1), 50, 1)));
        lab.until("up", |port| port.missed.get("tap_full") == Some(&1));
        let up = Self { lab, guest, device, network: [198, 18, 77 + n as u8] };
        up.bring_up();
        Some(up)
    }

    fn ports(device: &str, rate: &str) -> String {
        format!("[port.up]\ntap = \"{device}\"\n{rate}\n[port.a]\n")
    }

    fn bring_up(&self) {
        let (device, [a, b, c]) = (&self.device, self.network);
        ip(&format!("link set {device} up"));
        ip(&format!("addr add {a}.{b}.{c}.1/30 dev {device}"));
    }

    /// Who has the host's address? The host's kernel says that it does.
    fn answers(&mut self) {
        let [a, b, c] = self.network;
        let request = [8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        let mut request = [&[0xff; 6][..], &mac(1), &request, &mac(1)].concat();
        request.extend([a, b, c, 2, 0, 0, 0, 0, 0, 0, a, b, c, 1]);
        request.resize(60, 0);
        let began = Instant::now();
        let answer = 'answered: loop {
            assert!(began.elapsed() < PATIENCE, "no answer");
            assert!(self.guest.send(1, &request));
            while let Some(frame) = self.guest.wait(0, Duration::from_millis(200)) {
                if frame[12..14] == [8, 6] && frame[20..22] == [0, 2] {
                    break 'answered frame;
                }
            }
        };
        assert_eq!(answer[28..32], [a, b, c, 1]);
    }

    /// Sends the guest so many datagrams of so many bytes, and waits until it has all of them. Once
    /// they are sent the device has another rate, if there is one.
    fn datagrams(&mut self, count: u32, len: usize, mut then: Option<&str>) {
        let [a, b, c] = self.network;
        let (device, [x, y, z, u, v, w]) = (&self.device, mac(1));
        let at = format!("{x:02x}:{y:02x}:{z:02x}:{u:02x}:{v:02x}:{w:02x}");
        ip(&format!("neigh replace {a}.{b}.{c}.2 lladdr {at} dev {device}"));
        let socket = UdpSocket::bind((Ipv4Addr::new(a, b, c, 1), 0)).expect("bound");
        let (began, mut sent, mut got) = (Instant::now(), 0, 0);
        while got < count {
            assert!(began.elapsed() < PATIENCE, "{got} of {count}");
            // No more than can wait in the device's queue (500), or the guest's.
            if sent < count && sent < got + 450 {
                socket
                    .send_to(&vec![sent as u8; len], (Ipv4Addr::new(a, b, c, 2), 7))
                    .expect("sent");
                sent += 1;
            } else if let Some(rate) = then.take() {
                self.lab.reload(&Self::ports(&self.device, rate));
            }
            while let Some(frame) = self.guest.receive(0) {
                if frame[12..14] == [8, 0] && frame.len() == 42 + len {
                    assert_eq!(frame[42], got as u8, "in order");
                    got += 1;
                }
            }
        }
    }
}

#[test]
fn a_tap_device_is_a_port() {
    let Some(mut up) = Uplink::new("") else { return };
    up.answers();
    assert!(up.lab.port("up").sent_frames > 0);
    assert_eq!(up.lab.addresses().len(), 2);
    up.datagrams(300, 1000, None);
}

#[test]
fn its_rate_is_kept_until_it_has_another() {
    // 8 Mb/s are 1 MB/s, and 128 KiB of them at once.
    let Some(mut up) = Uplink::new("rate = \"8M\"") else { return };
    up.answers();
    let began = Instant::now();
    up.datagrams(400, 1000, None);
    // 400 KB, less those that were saved up.
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(up.lab.port("up").dropped.len(), 0);
    // At 64 Kb/s the third of these leaves a debt of 6 s, which the fourth would wait for.
    ip(&format!("link set {} mtu 65000", up.device));
    let began = Instant::now();
    for _ in 0..5 {
        up.lab.reload(&Uplink::ports(&up.device, "rate = \"64K\""));
        up.datagrams(4, 60_000, Some(""));
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn one_that_is_deleted_is_made_again_and_costs_nothing_meanwhile() {
    let Some(mut up) = Uplink::new("") else { return };
    up.answers();
    let before = up.lab.cpu();
    ip(&format!("link delete {}", up.device));
    up.lab.until("up", |port| port.trouble.is_some());
    up.lab.until("up", |port| port.trouble.is_none());
    let used = up.lab.cpu() - before;
    assert!(used < Duration::from_millis(300), "{used:?} of a second");
    up.bring_up();
    up.answers();
}
