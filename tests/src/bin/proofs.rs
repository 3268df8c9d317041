//! Has the guest driver the secrets that a process with CAP_NET_ADMIN reads by itself? In a guest,
//! as root: `proofs DEVICE`. Prints "the same", or fails.

use ginnel_region::device;
use ginnel_tcp::ledger::Tuple;
use ginnel_tcp::proof::{Claim, Prover, repair};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;

fn address(of: SocketAddr) -> ([u8; 16], u16) {
    let octets = match of {
        SocketAddr::V4(of) => of.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(of) => of.ip().octets(),
    };
    (octets, of.port())
}

/// The driver's secret for one end, which is that of TCP_REPAIR's numbers.
fn secret(device: &Path, stream: &TcpStream, side: u8, connected: bool) -> u64 {
    let (local, local_port) = address(stream.local_addr().expect("bound"));
    let (remote, remote_port) = address(stream.peer_addr().expect("connected"));
    let tuple = Tuple { label: 0, local, local_port, remote, remote_port };
    let claim = Claim { side, connected, nonces: [0x0123_4567_89ab_cdef, 42], tuple };
    let by_driver = Prover::Driver(-1, device)
        .secret(stream.as_raw_fd(), false, &claim)
        .expect("the driver reads");
    let file = std::fs::File::open(device).expect("a device");
    let raw = device::secret(file.as_raw_fd(), stream.as_raw_fd(), side, connected, claim.nonces);
    assert_eq!(raw, Ok(by_driver), "it was the driver");
    let numbers = repair::numbers(stream.as_raw_fd(), connected).expect("TCP_REPAIR");
    assert_eq!(by_driver, claim.secret(numbers), "the driver reads what the process does");
    by_driver
}

fn main() {
    let device = std::env::args_os().nth(1).expect("usage: proofs DEVICE");
    let device = Path::new(&device);
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(host).expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut server, _) = listener.accept().expect("accepted");
        for round in 0..3 {
            let (one, two) = (secret(device, &client, 0, true), secret(device, &server, 1, false));
            assert_eq!(one, two, "{host}, round {round}");
            let mut bytes = [0; 1000];
            client.write_all(&bytes).and_then(|()| server.read_exact(&mut bytes)).expect("there");
            server
                .write_all(&bytes[..10])
                .and_then(|()| client.read_exact(&mut bytes[..10]))
                .expect("and back");
        }
    }
    println!("the same");
}
