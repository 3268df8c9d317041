//! iceoryx2 over a segment beside iceoryx2's own shared memory, in rounds that take turns, each
//! pattern between two processes that poll: `cargo run --release --example compare [ROUNDS]`.
//!
//! Prints the median time one way of each, and the median of the ratios within rounds.
//!
//! `compare answer WAY PATTERN EXCHANGES` and `compare ask WAY PATTERN EXCHANGES [PEER]` are the two
//! ends of one round; the second prints nanoseconds one way. So two machines play it, with the way
//! `tcp` or `tcp-asleep` beside `segment` (`crates/bench/examples/iceoryx2.rs`).

mod tcp;

use iceoryx2::prelude::*;
use iceoryx2::service::Service;
use iceoryx2::service::builder::blackboard::BlackboardOpenError;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

extern crate iceoryx2_bb_loggers;

const EXCHANGES: u32 = 20_000;
const SIZE: usize = 64;
/// How long the other end may take to come.
const PATIENCE: Duration = Duration::from_secs(60);
/// `events` sleep until they come; `events-polled` are looked for again and again, as the rest is.
const PATTERNS: [&str; 5] = ["samples", "requests", "boards", "events", "events-polled"];

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Message = [u8; SIZE];

/// Sends there and waits for what comes back: the whole of a round, seconds.
fn samples<S: Service>(node: &Node<S>, answers: bool, exchanges: u32) -> Done<f64> {
    let open = |way: &str| -> Done<_> {
        let service = node.service_builder(&way.try_into()?).publish_subscribe::<Message>();
        Ok(service.subscriber_max_buffer_size(1).open_or_create()?)
    };
    let (there, back) = (open("there")?, open("back")?);
    let (out, into) = if answers { (back, there) } else { (there, back) };
    let publisher = out.publisher_builder().create()?;
    let subscriber = into.subscriber_builder().create()?;
    let other = || out.dynamic_config().number_of_subscribers();
    while other() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let receive = || loop {
        if let Some(sample) = subscriber.receive()? {
            return Done::Ok(sample.payload()[0]);
        }
        std::hint::spin_loop();
    };
    let begin = Instant::now();
    for i in 0..exchanges {
        let message = [i as u8; SIZE];
        if answers {
            receive()?;
        }
        publisher.loan_uninit()?.write_payload(message).send()?;
        if !answers {
            receive()?;
        }
    }
    let time = begin.elapsed().as_secs_f64();
    // The last message is not to go with its publisher before it was received.
    while answers && other() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(time)
}

fn requests<S: Service>(node: &Node<S>, answers: bool, exchanges: u32) -> Done<f64> {
    let service = node.service_builder(&"sum".try_into()?).request_response::<u64, u64>();
    let service = service.open_or_create()?;
    if answers {
        let server = service.server_builder().create()?;
        for _ in 0..exchanges {
            loop {
                if let Some(request) = server.receive()? {
                    request.send_copy(*request + 1)?;
                    break;
                }
            }
        }
        while service.dynamic_config().number_of_clients() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        return Ok(0.0);
    }
    let client = service.client_builder().create()?;
    while service.dynamic_config().number_of_servers() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let begin = Instant::now();
    for i in 0..u64::from(exchanges) {
        let pending = client.send_copy(i)?;
        while pending.receive()?.is_none() {
            std::hint::spin_loop();
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// The answering end writes one entry, the other the next: each waits for the other's last value.
fn boards<S: Service>(node: &Node<S>, answers: bool, exchanges: u32) -> Done<f64> {
    let names: [ServiceName; 2] = ["asked".try_into()?, "answered".try_into()?];
    let own = node.service_builder(&names[usize::from(answers)]).blackboard_creator::<u64>();
    let own = own.add::<u64>(0, 0).create()?;
    let until = Instant::now() + PATIENCE;
    let other = loop {
        let opener = node.service_builder(&names[usize::from(!answers)]);
        match opener.blackboard_opener::<u64>().open() {
            // One that is half made looks broken to iceoryx2's own way.
            Err(
                BlackboardOpenError::DoesNotExist
                | BlackboardOpenError::HangsInCreation
                | BlackboardOpenError::ServiceInCorruptedState,
            ) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            opened => break opened?,
        }
    };
    let (writer, reader) = (own.writer_builder().create()?, other.reader_builder().create()?);
    let (put, seen) = (writer.entry::<u64>(&0)?, reader.entry::<u64>(&0)?);
    let wait = |value| {
        while *seen.get() != value {
            std::hint::spin_loop();
        }
    };
    while own.dynamic_config().number_of_readers() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let begin = Instant::now();
    for i in 1..=u64::from(exchanges) {
        if answers {
            wait(i);
        }
        put.update_with_copy(i);
        if !answers {
            wait(i);
        }
    }
    let time = begin.elapsed().as_secs_f64();
    while answers && own.dynamic_config().number_of_readers() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(time)
}

fn events<S: Service>(node: &Node<S>, answers: bool, exchanges: u32, sleeps: bool) -> Done<f64> {
    let open = |way: &str| -> Done<_> {
        Ok(node.service_builder(&way.try_into()?).event().open_or_create()?)
    };
    let (there, back) = (open("ring")?, open("rung")?);
    let (out, into) = if answers { (back, there) } else { (there, back) };
    let (notifier, listener) =
        (out.notifier_builder().create()?, into.listener_builder().create()?);
    while out.dynamic_config().number_of_listeners() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let wait = || -> Done {
        let mut woken = false;
        while !woken {
            if sleeps {
                listener.blocking_wait(|_| woken = true)?;
            } else {
                listener.try_wait(|_| woken = true)?;
            }
        }
        Ok(())
    };
    let begin = Instant::now();
    for _ in 0..exchanges {
        if answers {
            wait()?;
        }
        notifier.notify()?;
        if !answers {
            wait()?;
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// One end of a round: seconds.
fn round<S: Service>(pattern: &str, answers: bool, exchanges: u32) -> Done<f64> {
    let node = NodeBuilder::new().create::<S>()?;
    match pattern {
        "samples" => samples(&node, answers, exchanges),
        "requests" => requests(&node, answers, exchanges),
        "boards" => boards(&node, answers, exchanges),
        "events" => events(&node, answers, exchanges, true),
        "events-polled" => events(&node, answers, exchanges, false),
        other => Err(format!("{other} is none of {PATTERNS:?}").into()),
    }
}

/// The same, in nanoseconds one way. `peer`: who answers, for who asks by TCP.
fn run(way: &str, pattern: &str, end: &str, exchanges: u32, peer: Option<&str>) -> Done<f64> {
    let answers = end == "answer";
    let seconds = match (way, peer) {
        ("segment", _) => round::<ginnel_iceoryx2::Service>(pattern, answers, exchanges),
        ("ipc", _) => round::<ipc::Service>(pattern, answers, exchanges),
        ("tcp" | "tcp-asleep", peer) => {
            let peer = if answers { None } else { Some(peer.ok_or("who answers?")?.parse()?) };
            tcp::round(pattern, peer, exchanges, way == "tcp-asleep")
        }
        _ => Err(format!("{way} is no way").into()),
    };
    Ok(seconds? * 1e9 / f64::from(2 * exchanges))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of an event, each of which sleeps, there are fewer.
fn exchanges(pattern: &str) -> u32 {
    if pattern == "events" { EXCHANGES / 10 } else { EXCHANGES }
}

fn start(way: &str, pattern: &str) -> Done<Child> {
    let exchanges = exchanges(pattern).to_string();
    let arguments = ["answer", way, pattern, &exchanges];
    Ok(Command::new(std::env::current_exe()?).args(arguments).spawn()?)
}

fn main() -> Done {
    set_log_level(LogLevel::Error);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [end, way, pattern, exchanges, peer @ ..] = arguments.as_slice() {
        let peer = peer.first().map(String::as_str);
        let time = run(way, pattern, end, exchanges.parse()?, peer)?;
        if end == "ask" {
            println!("{time:.0}");
        }
        return Ok(());
    }
    let rounds: usize = arguments.first().map_or(Ok(9), |text| text.parse())?;
    println!("pattern        segment ns    own ipc ns    ratio");
    for pattern in PATTERNS {
        compare(pattern, rounds.max(1))?;
    }
    Ok(())
}

/// Both ways in turn, and a line of the table.
fn compare(pattern: &str, rounds: usize) -> Done {
    let (mut segment, mut ipc, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..rounds {
        let mut times = [0.0; 2];
        let turn = if i % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in turn {
            let way = ["segment", "ipc"][at];
            let mut other = start(way, pattern)?;
            times[at] = run(way, pattern, "ask", exchanges(pattern), None)?;
            other.wait()?;
        }
        segment.push(times[0]);
        ipc.push(times[1]);
        ratios.push(times[0] / times[1]);
    }
    let (segment, ipc, ratio) = (median(segment), median(ipc), median(ratios));
    println!("{pattern:<13} {segment:>11.0} {ipc:>13.0} {ratio:>8.3}");
    Ok(())
}
