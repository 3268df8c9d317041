//! The same exchanges over one TCP connection, as a program without iceoryx2 has them. Both ends
//! poll as iceoryx2's do, or sleep in their reads as its listeners do.

use crate::{Done, PATIENCE, SIZE};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PORT: u16 = 7732;

fn connect(address: SocketAddr) -> Done<TcpStream> {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(address) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected => return Ok(connected?),
        }
    }
}

/// Fills `message` from what has come, and polls meanwhile where the socket does not block.
fn receive(mut connection: &TcpStream, message: &mut [u8]) -> Done {
    let mut filled = 0;
    while filled < message.len() {
        match connection.read(&mut message[filled..]) {
            Ok(0) => return Err("the other end has ended".into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sends there and waits for what comes back: the whole of a round, seconds.
pub fn round(pattern: &str, peer: Option<Ipv4Addr>, exchanges: u32, sleeps: bool) -> Done<f64> {
    let connection = match peer {
        Some(peer) => connect((peer, PORT).into())?,
        None => TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?.accept()?.0,
    };
    connection.set_nodelay(true)?;
    connection.set_nonblocking(!sleeps)?;
    let size = match pattern {
        "samples" => SIZE,
        "events" => 1,
        _ => size_of::<u64>(),
    };
    let mut message = vec![0; size];
    let begin = Instant::now();
    for i in 0..exchanges {
        if peer.is_none() {
            receive(&connection, &mut message)?;
        } else {
            message.fill(i as u8);
        }
        // A message is far smaller than the buffers that it meets empty.
        (&connection).write_all(&message)?;
        if peer.is_some() {
            receive(&connection, &mut message)?;
        }
    }
    let time = begin.elapsed().as_secs_f64();
    // Who answers closes last.
    connection.set_nonblocking(false)?;
    if peer.is_none() {
        while (&connection).read(&mut message)? > 0 {}
    }
    Ok(time)
}
