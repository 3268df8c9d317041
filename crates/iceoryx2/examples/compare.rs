//! iceoryx2 over a segment beside iceoryx2's own shared memory, in rounds that take turns, each
//! pattern between two processes that poll: `cargo run --release --example compare [ROUNDS]`.
//!
//! Prints the median time one way of each, and the median of the ratios within rounds.

use iceoryx2::prelude::*;
use iceoryx2::service::Service;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

extern crate iceoryx2_bb_loggers;

const EXCHANGES: u32 = 20_000;
const SIZE: usize = 64;

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Message = [u8; SIZE];

/// Sends there and waits for what comes back: the whole of a round, seconds.
fn samples<S: Service>(node: &Node<S>, answers: bool) -> Done<f64> {
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
    for i in 0..EXCHANGES {
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

fn requests<S: Service>(node: &Node<S>, answers: bool) -> Done<f64> {
    let service = node.service_builder(&"sum".try_into()?).request_response::<u64, u64>();
    let service = service.open_or_create()?;
    if answers {
        let server = service.server_builder().create()?;
        for _ in 0..EXCHANGES {
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
    for i in 0..u64::from(EXCHANGES) {
        let pending = client.send_copy(i)?;
        while pending.receive()?.is_none() {
            std::hint::spin_loop();
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

fn events<S: Service>(node: &Node<S>, answers: bool) -> Done<f64> {
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
            listener.blocking_wait(|_| woken = true)?;
        }
        Ok(())
    };
    let begin = Instant::now();
    for _ in 0..EXCHANGES / 10 {
        if answers {
            wait()?;
        }
        notifier.notify()?;
        if !answers {
            wait()?;
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 10.0)
}

/// One end of a round.
fn round<S: Service>(pattern: &str, answers: bool) -> Done<f64> {
    let node = NodeBuilder::new().create::<S>()?;
    let time = match pattern {
        "samples" => samples(&node, answers),
        "requests" => requests(&node, answers),
        _ => events(&node, answers),
    }?;
    Ok(time * 1e9 / f64::from(2 * EXCHANGES))
}

fn run(way: &str, pattern: &str, answers: bool) -> Done<f64> {
    match way {
        "segment" => round::<ginnel_iceoryx2::Service>(pattern, answers),
        _ => round::<ipc::Service>(pattern, answers),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn start(way: &str, pattern: &str) -> Done<Child> {
    Ok(Command::new(std::env::current_exe()?).args(["answer", way, pattern]).spawn()?)
}

fn main() -> Done {
    set_log_level(LogLevel::Error);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [answer, way, pattern] = arguments.as_slice()
        && answer == "answer"
    {
        run(way, pattern, true)?;
        return Ok(());
    }
    let rounds: usize = arguments.first().map_or(Ok(9), |text| text.parse())?;
    println!("pattern    segment ns    own ipc ns    ratio");
    for pattern in ["samples", "requests", "events"] {
        let (mut segment, mut ipc, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..rounds.max(1) {
            let mut times = [0.0; 2];
            let turn = if i % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in turn {
                let way = ["segment", "ipc"][at];
                let mut other = start(way, pattern)?;
                times[at] = run(way, pattern, false)?;
                other.wait()?;
            }
            segment.push(times[0]);
            ipc.push(times[1]);
            ratios.push(times[0] / times[1]);
        }
        let (segment, ipc, ratio) = (median(segment), median(ipc), median(ratios));
        println!("{pattern:<9} {segment:>11.0} {ipc:>13.0} {ratio:>8.3}");
    }
    Ok(())
}
