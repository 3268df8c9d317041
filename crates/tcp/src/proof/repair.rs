//! The sequence numbers of a socket, read by a process with CAP_NET_ADMIN in its network
//! namespace: TCP_REPAIR (`net/ipv4/tcp.c`, made for checkpoints) lets them be read.
//!
//! While a socket is under repair, the kernel answers its sends and receives with errors, and
//! sends no FIN for a close. So the caller keeps everybody else from using it: it holds both
//! locks of the socket, and no call is inside the kernel. What comes in meanwhile is handled as
//! ever. What was unsent may be counted as sent without going out; the retransmission brings it.
//! Leaving the repair clears SO_REUSEADDR, without which a server that starts anew cannot bind
//! its port while the connection lives: it is put back.

use super::{Numbers, Unproven};
use crate::kernel;
use ginnel_region::sys;
use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};

/// Values of TCP_REPAIR and TCP_REPAIR_QUEUE (`linux/tcp.h`).
const ON: c_int = 1;
/// Off, without a window probe, which the other end's kernel would answer.
const OFF: c_int = -1;
const NO_QUEUE: c_int = 0;
const RECEIVE_QUEUE: c_int = 1;
const SEND_QUEUE: c_int = 2;

/// How often the numbers are read before they are given up for now: bytes came in between.
const TRIES: usize = 16;

/// The sequence numbers of the first byte each way. `connected`: this end called connect, and
/// its kernel counts the SYN among the acknowledged bytes.
///
/// # Errors
/// [`Unproven::Never`] where this process may not read them.
pub fn numbers(fd: c_int, connected: bool) -> Result<Numbers, Unproven> {
    // A handler could use the socket itself, or leave it under repair by siglongjmp.
    let _blocked = sys::block_signals();
    let mut reuse: c_int = 0;
    kernel::getsockopt(fd, SOL_SOCKET, libc::SO_REUSEADDR, &mut reuse)
        .map_err(|_| Unproven::Never)?;
    kernel::setsockopt(fd, IPPROTO_TCP, libc::TCP_REPAIR, &ON).map_err(|_| Unproven::Never)?;
    let repaired = Repaired { fd, reuse };
    let read = (0..TRIES).find_map(|_| repaired.read(connected));
    drop(repaired);
    read.ok_or(Unproven::Later)
}

/// A socket under repair, until this is dropped.
struct Repaired {
    fd: c_int,
    reuse: c_int,
}

impl Drop for Repaired {
    fn drop(&mut self) {
        let _ = kernel::setsockopt(self.fd, IPPROTO_TCP, libc::TCP_REPAIR, &OFF);
        if self.reuse != 0 {
            let _ = kernel::setsockopt(self.fd, SOL_SOCKET, libc::SO_REUSEADDR, &1i32);
        }
    }
}

impl Repaired {
    /// The number after the last byte of a queue.
    fn end_of(&self, queue: c_int) -> Option<u32> {
        let mut number = 0u32;
        kernel::setsockopt(self.fd, IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, &queue).ok()?;
        let read = kernel::getsockopt(self.fd, IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &mut number);
        // While a queue is named, what somebody sends goes into it; else the kernel refuses.
        kernel::setsockopt(self.fd, IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, &NO_QUEUE).ok()?;
        read.ok().map(|_| number)
    }

    /// Both numbers, unless bytes or acknowledgements came in between.
    fn read(&self, connected: bool) -> Option<Numbers> {
        let sent = self.end_of(SEND_QUEUE)?;
        let received = self.end_of(RECEIVE_QUEUE)?;
        let (acknowledged, waiting, arrived) = kernel::totals(self.fd)?;
        // Only the low halves count: sequence numbers are taken modulo 2^32.
        let low = |count: u64| count as u32;
        (self.end_of(RECEIVE_QUEUE)? == received).then(|| Numbers {
            sent: sent.wrapping_sub(low(acknowledged + waiting)).wrapping_add(u32::from(connected)),
            received: received.wrapping_sub(low(arrived)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, can_prove_by_itself};
    use super::*;
    use crate::tuple::Tuple;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        (client, listener.accept().expect("accepted").0)
    }

    fn reuse(stream: &TcpStream) -> c_int {
        let mut value = -1;
        kernel::getsockopt(stream.as_raw_fd(), SOL_SOCKET, libc::SO_REUSEADDR, &mut value)
            .expect("a socket");
        value
    }

    /// Bytes of all lengths go both ways while both ends' numbers are read between the calls, by
    /// the threads that send and receive; nothing is lost, the numbers stay, and mirror.
    #[test]
    fn numbers_mirror_and_nothing_is_lost_under_load() {
        if !can_prove_by_itself() {
            return println!("skipped: needs CAP_NET_ADMIN");
        }
        const ROUNDS: usize = 2000;
        let (client, server) = pair();
        let before = reuse(&server);
        let run = |mut stream: TcpStream, connected: bool| {
            std::thread::spawn(move || {
                let fd = stream.as_raw_fd();
                let mut seen = None;
                let mut buffer = vec![0u8; 30_000];
                for round in 0..ROUNDS {
                    let len = 1 + round * 7919 % buffer.len();
                    let mark = (round % 251) as u8;
                    if connected {
                        stream.write_all(&vec![mark; len]).expect("sent");
                    }
                    let numbers = numbers(fd, connected);
                    if let Ok(numbers) = numbers {
                        assert_eq!(*seen.get_or_insert(numbers), numbers, "round {round}");
                    } else {
                        assert_eq!(numbers, Err(Unproven::Later));
                    }
                    stream.read_exact(&mut buffer[..len]).expect("received");
                    assert!(buffer[..len].iter().all(|byte| *byte == mark), "round {round}");
                    if !connected {
                        stream.write_all(&buffer[..len]).expect("sent");
                    }
                }
                seen.expect("read once at least")
            })
        };
        let kept = server.try_clone().expect("a duplicate");
        let (theirs, ours) = (run(client, true), run(server, false));
        let (client, server) = (theirs.join().expect("client"), ours.join().expect("server"));
        assert_eq!((client.sent, client.received), (server.received, server.sent));
        assert_eq!(reuse(&kept), before, "SO_REUSEADDR is what it was");
    }

    /// A server that starts anew binds its port while an old connection lives: the read leaves
    /// SO_REUSEADDR alone.
    #[test]
    fn a_restarted_server_binds_its_port() {
        if !can_prove_by_itself() {
            return println!("skipped: needs CAP_NET_ADMIN");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let _client = TcpStream::connect(address).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        assert_ne!(reuse(&server), 0, "Rust's listeners set it, and sockets inherit it");
        numbers(server.as_raw_fd(), false).expect("read");
        drop(listener);
        TcpListener::bind(address).expect("the port is to be had again");
    }

    /// Without a capability TCP_QUEUE_SEQ can be read of a queue that was named.
    #[test]
    fn no_number_is_left_to_be_read() {
        if !can_prove_by_itself() {
            return println!("skipped: needs CAP_NET_ADMIN");
        }
        let (client, _server) = pair();
        numbers(client.as_raw_fd(), true).expect("read");
        let mut number = 0u32;
        let read =
            kernel::getsockopt(client.as_raw_fd(), IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &mut number);
        assert_eq!(read, Err(libc::EINVAL));
    }

    #[test]
    fn both_ends_have_the_secret_and_another_connection_does_not() {
        if !can_prove_by_itself() {
            return println!("skipped: needs CAP_NET_ADMIN");
        }
        let (client, server) = pair();
        let (_other_client, other) = pair();
        let tuple = |swap: bool| {
            let (a, b) = (([1; 16], 1), ([2; 16], 2));
            let (local, remote) = if swap { (b, a) } else { (a, b) };
            Tuple {
                label: 0,
                local: local.0,
                local_port: local.1,
                remote: remote.0,
                remote_port: remote.1,
            }
        };
        let claim = |side: u8, connected| Claim {
            side,
            connected,
            nonces: [5, 6],
            tuple: tuple(side == 1),
        };
        let secret = |stream: &TcpStream, side, connected| {
            claim(side, connected).secret(numbers(stream.as_raw_fd(), connected).expect("read"))
        };
        assert_eq!(secret(&client, 0, true), secret(&server, 1, false));
        assert_ne!(secret(&client, 0, true), secret(&other, 1, false));
    }
}
