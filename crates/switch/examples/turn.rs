//! What moving a frame costs the switch alone: nanoseconds of its turn for each frame, from one
//! guest of this process to another, with everything in the caches. The best of many rounds, so
//! that a busy machine disturbs little. `make bench-switch` measures whole paths.

use ginnel_switch::config::{Config, PortConfig};
use ginnel_switch::front_end::{FrontEnd, Options};
use ginnel_switch::server::Server;
use std::time::{Duration, Instant};

fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let socket = |name: &str| directory.path().join(name);
    let port = |name: &str| PortConfig::new(name, socket(name), 0);
    let mut config = Config::new(directory.path().to_owned(), vec![port("a"), port("b")]);
    config.busy = true;
    let mut server = Server::new(&config)?;
    let (a, b) = (socket("a"), socket("b"));
    let options = Options { size: 1024, ..Options::default() };
    let guests = std::thread::spawn(move || {
        Ok::<_, std::io::Error>((FrontEnd::connect(&a, options)?, FrontEnd::connect(&b, options)?))
    });
    while !guests.is_finished() {
        server.look(Some(Duration::from_millis(1)))?;
        server.turn();
    }
    let (mut a, mut b) = guests.join().map_err(|_| anyhow::anyhow!("panicked"))??;
    let frame = |to: u8, from: u8, len: usize| {
        let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
        frame.resize(len, 7);
        frame
    };
    // Each is learned.
    b.send(1, &frame(1, 2, 64));
    a.send(1, &frame(2, 1, 64));
    server.turn();
    for len in [64, 128, 256, 512, 1024, 1500, 9000, 60000] {
        let (mut best, frame) = (f64::MAX, frame(2, 1, len));
        let count = if len > 2000 { 4 } else { 64 };
        for _ in 0..3000 {
            while b.receive_with(0).is_some() {}
            for _ in 0..count {
                anyhow::ensure!(a.send(1, &frame), "no room");
            }
            let began = Instant::now();
            server.turn();
            server.turn();
            best = best.min(began.elapsed().as_nanos() as f64 / f64::from(count));
        }
        println!("{len:6} bytes: {best:7.1} ns");
    }
    Ok(())
}
