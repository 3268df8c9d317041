//! Who may connect at all, where messages go by TCP: hosts of the fabric.
//!
//! libfabric accepts everybody who connects, and keeps them until they say something: a stranger
//! could use up all descriptors of the switch. So the socket that it listens at is given a filter
//! (socket(7), SO_ATTACH_FILTER): the kernel drops what comes from elsewhere before there is a
//! connection.

use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

// linux/filter.h, linux/bpf_common.h.
const LOAD_WORD: u16 = 0x20;
const IS: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Places from here on are in the packet's IP header (SKF_NET_OFF).
const IP: u32 = 0xfff0_0000;
/// Where the source's address is in it.
const SOURCE: [u32; 2] = [12, 8];
/// Instructions at most (BPF_MAXINSNS).
const LONGEST: usize = 4096;

fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The filter: packets from these addresses, all of one family, and no others.
fn program(from: &[IpAddr]) -> Vec<libc::sock_filter> {
    let mut steps = Vec::new();
    for ip in from {
        let (words, place): (Vec<u32>, u32) = match ip {
            IpAddr::V4(ip) => (vec![ip.to_bits()], SOURCE[0]),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                ([96, 64, 32, 0].map(|shift| (bits >> shift) as u32).into(), SOURCE[1])
            }
        };
        let count = words.len();
        for (n, word) in words.into_iter().enumerate() {
            steps.push(step(LOAD_WORD, IP + place + 4 * n as u32, 0, 0));
            // Another word: on to the next address, behind this one's last step.
            let left = 2 * (count - n - 1) + 1;
            steps.push(step(IS, word, 0, left as u8));
        }
        steps.push(step(RETURN, u32::MAX, 0, 0));
    }
    steps.push(step(RETURN, 0, 0, 0));
    steps
}

/// Has the socket of this process that listens at `listen` take connections from these hosts alone.
/// False where there is none: messages do not go by TCP.
///
/// # Errors
/// The `errno` of setsockopt(2).
pub fn guard(listen: SocketAddr, hosts: &[SocketAddr]) -> Result<bool, Errno> {
    let family = |ip: &IpAddr| ip.is_ipv4() == listen.is_ipv4();
    let ips: Vec<IpAddr> = hosts.iter().map(SocketAddr::ip).filter(family).collect();
    let steps = program(&ips);
    if steps.len() > LONGEST {
        return Err(Errno::TOOBIG);
    }
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return Ok(false) };
    let mut found = false;
    for number in all.flatten().filter_map(|one| one.file_name().to_str()?.parse::<c_int>().ok()) {
        // SAFETY: it is looked at whether it is open at each use, and it is not closed here.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        if listens_at(socket, listen) {
            attach(socket, &steps)?;
            found = true;
        }
    }
    Ok(found)
}

fn listens_at(socket: BorrowedFd<'_>, listen: SocketAddr) -> bool {
    let is_socket = rustix::fs::fstat(socket)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    let own = || rustix::net::getsockname(socket).ok().and_then(|own| own.try_into().ok());
    is_socket
        && rustix::net::sockopt::socket_acceptconn(socket) == Ok(true)
        && own() == Some(listen)
}

fn attach(socket: impl AsFd, steps: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        // The kernel copies it.
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: the option takes a program of so many steps, and only reads it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as u32,
        )
    };
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error());
    if done == 0 { Ok(()) } else { Err(errno().unwrap_or(Errno::IO)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn who_is_no_host_does_not_get_as_far_as_a_connection() {
        for (listens, host, stranger) in
            [("127.5.5.1", "127.5.5.2", "127.5.5.3"), ("::1", "::1", "")]
        {
            let listens: IpAddr = listens.parse().expect("an address");
            let Ok(listener) = TcpListener::bind((listens, 0)) else { continue };
            let at = listener.local_addr().expect("an address");
            let many = (0..60).map(|n| SocketAddr::from(([10, 0, 0, n], 1)));
            let hosts: Vec<SocketAddr> =
                many.chain([SocketAddr::new(host.parse().expect("an address"), 1)]).collect();
            assert_eq!(guard(at, &hosts), Ok(true));
            let connect = |from: &str| {
                use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
                let from = SocketAddr::new(from.parse().expect("an address"), 0);
                let family =
                    if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = socket(family, SocketType::STREAM, None).expect("a socket");
                bind(&socket, &from).expect("bound");
                let stream = TcpStream::from(socket);
                stream.set_write_timeout(Some(Duration::from_millis(300))).expect("set");
                connect(&stream, &at).is_ok()
            };
            assert!(connect(host), "{host}");
            assert!(stranger.is_empty() || !connect(stranger), "{stranger}");
            assert_eq!(guard(at, &[]), Ok(true));
            assert!(!connect(host), "nobody may");
        }
        assert_eq!(guard("127.5.5.1:1".parse().expect("an address"), &[]), Ok(false));
    }
}
