//! A machine in one process at a port of `ginnel-switch`, for guests that are hosts: it has memory
//! and a card as QEMU's guests do, sends frames to another such machine, and looks at what arrives.
//!
//! ```text
//! ginnel-guest-frames SOCKET answer OWN OTHER COUNT LENGTH
//! ginnel-guest-frames SOCKET send OWN OTHER COUNT LENGTH
//! ```

use anyhow::{Context, Result, bail, ensure};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::wire::HEADER;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an answer is waited for before the frame is sent again.
const AGAIN: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(120);

fn frame(to: u8, from: u8, number: u32, len: usize) -> Vec<u8> {
    let mut frame =
        [&[0x52, 0x54, 0, 0, 0, to][..], &[0x52, 0x54, 0, 0, 0, from], &[0x88, 0xb5]].concat();
    frame.extend(number.to_le_bytes());
    let body = frame.len()..len;
    frame.extend(body.map(|n| (n as u32).wrapping_mul(31).wrapping_add(number) as u8));
    frame
}

/// The number of a frame of these; others come too.
fn number(frame: &[u8]) -> Option<u32> {
    (frame.get(12..14)? == [0x88, 0xb5]).then_some(())?;
    Some(u32::from_le_bytes(*frame.get(14..)?.first_chunk()?))
}

/// Sends a frame in one piece.
fn send(guest: &mut FrontEnd, frame: &[u8]) {
    let at = guest.queues[1].base + (64 << 10);
    guest.write(at, &[&[0; HEADER][..], frame].concat());
    guest.describe(1, 0, at, (HEADER + frame.len()) as u32, 0, 0);
    guest.offer(1, 0);
}

/// Waits until the one frame is the guest's again, and writes over it.
fn done(guest: &mut FrontEnd, len: usize) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while guest.used(1).is_none() {
        ensure!(Instant::now() < until, "what was sent does not come back");
        std::thread::sleep(Duration::from_micros(50));
    }
    guest.write(guest.queues[1].base + (64 << 10), &vec![0xdd; HEADER + len]);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, role, numbers @ ..] = arguments.as_slice() else { bail!("SOCKET ROLE …") };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [own, other, count, len] = numbers[..] else { bail!("OWN OTHER COUNT LENGTH") };
    let (own, other, count) = (u8::try_from(own)?, u8::try_from(other)?, u32::try_from(count)?);
    let mut guest =
        FrontEnd::connect(Path::new(socket), Options::default()).context("the switch")?;
    let (began, mut again) = (Instant::now(), 0);
    if role == "send" {
        for n in 1..=count {
            let sent = frame(other, own, n, len);
            loop {
                ensure!(began.elapsed() < LIMIT, "frame {n} is not answered");
                send(&mut guest, &sent);
                done(&mut guest, len)?;
                let until = Instant::now() + AGAIN;
                let answers = std::iter::from_fn(|| {
                    guest.wait(0, until.saturating_duration_since(Instant::now()))
                });
                if answers.into_iter().any(|got| number(&got) == Some(n)) {
                    break;
                }
                again += 1;
            }
        }
        println!("{count} good, {again} again");
        return Ok(());
    }
    let mut next = 1;
    while next <= count {
        ensure!(began.elapsed() < LIMIT, "frame {next} does not come");
        let Some(got) = guest.wait(0, Duration::from_millis(100)) else {
            // So that the other switch knows where it is.
            send(&mut guest, &frame(other, own, 0, 60));
            done(&mut guest, 60)?;
            continue;
        };
        let Some(n) = number(&got).filter(|&n| n > 0) else { continue };
        ensure!(n <= next && got == frame(own, other, n, len), "frame {n} is not what it was");
        next = next.max(n + 1);
        send(&mut guest, &frame(other, own, n, 60));
        done(&mut guest, 60)?;
    }
    println!("{count} good");
    Ok(())
}
