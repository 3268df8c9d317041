//! A process that does one call of iceoryx2's after another, as it is told, and says what each
//! answered, in words that do not depend on ids, addresses or clocks.
//!
//! All that it has stands in slots. A call on an empty slot says `none`; one that would fill a full
//! slot empties it first.

use iceoryx2::active_request::ActiveRequest;
use iceoryx2::config::Config;
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::reader::Reader;
use iceoryx2::port::server::Server;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::port::writer::Writer;
use iceoryx2::prelude::*;
use iceoryx2::response::Response;
use iceoryx2::sample::Sample;
use iceoryx2::sample_mut::SampleMut;
use iceoryx2::service::Service as Kind;
use iceoryx2::service::port_factory::{blackboard, event, publish_subscribe, request_response};
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

mod patterns;

type Topic<S, T> = publish_subscribe::PortFactory<S, T, ()>;
type Calls<S> = request_response::PortFactory<S, u64, (), u64, ()>;

/// Slots of a kind of thing.
struct Slots<T>([Option<T>; 4]);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self([const { None }; 4])
    }
}

impl<T> Slots<T> {
    fn at(&mut self, at: usize) -> &mut Option<T> {
        &mut self.0[at % 4]
    }

    /// Puts what a call gave into a slot, whose old thing goes first.
    fn put<E: Debug>(&mut self, at: usize, make: impl FnOnce() -> Result<T, E>) -> String {
        *self.at(at) = None;
        match make() {
            Ok(thing) => {
                *self.at(at) = Some(thing);
                "made".to_owned()
            }
            Err(why) => format!("{why:?}"),
        }
    }

    fn drop_at(&mut self, at: usize) -> String {
        self.at(at).take().map_or_else(|| "none".to_owned(), |_| "dropped".to_owned())
    }

    /// Asks something of what is in a slot.
    fn ask(&mut self, at: usize, ask: impl FnOnce(&mut T) -> String) -> String {
        self.at(at).as_mut().map_or_else(|| "none".to_owned(), ask)
    }
}

fn said<T: Debug, E: Debug>(result: Result<T, E>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(why) => format!("{why:?}"),
    }
}

fn done<T, E: Debug>(result: Result<T, E>) -> String {
    said(result.map(|_| "done"))
}

/// What is to be told wrongly, or not done, now and then: the comparison must find it.
#[derive(Default)]
struct Fault {
    which: String,
    count: u32,
}

impl Fault {
    fn strikes(&mut self, which: &str, every: u32) -> bool {
        self.count += u32::from(self.which == which);
        self.which == which && self.count.is_multiple_of(every)
    }
}

pub struct Worker<S: Kind> {
    config: Config,
    fault: Fault,
    nodes: Slots<Node<S>>,
    topics: Slots<Topic<S, u64>>,
    publishers: Slots<Publisher<S, u64, ()>>,
    subscribers: Slots<Subscriber<S, u64, ()>>,
    loans: Slots<SampleMut<S, u64, ()>>,
    samples: Slots<Sample<S, u64, ()>>,
    slices: Slots<Topic<S, [u8]>>,
    slice_publishers: Slots<Publisher<S, [u8], ()>>,
    slice_subscribers: Slots<Subscriber<S, [u8], ()>>,
    slice_samples: Slots<Sample<S, [u8], ()>>,
    events: Slots<event::PortFactory<S>>,
    notifiers: Slots<Notifier<S>>,
    listeners: Slots<Listener<S>>,
    calls: Slots<Calls<S>>,
    clients: Slots<Client<S, u64, (), u64, ()>>,
    servers: Slots<Server<S, u64, (), u64, ()>>,
    pending: Slots<PendingResponse<S, u64, (), u64, ()>>,
    requests: Slots<ActiveRequest<S, u64, (), u64, ()>>,
    responses: Slots<Response<S, u64, ()>>,
    boards: Slots<blackboard::PortFactory<S, u64>>,
    writers: Slots<Writer<S, u64>>,
    readers: Slots<Reader<S, u64>>,
}

fn name(kind: &str, which: usize) -> ServiceName {
    format!("{kind}/{}", which % 2).as_str().try_into().expect("a name")
}

/// A slot, another slot, a choice, a value.
type Arguments = [usize; 4];

/// How a service is come by.
macro_rules! by {
    ($how:expr, $builder:expr) => {
        match $how % 4 {
            0 => $builder.create().map_err(|why| format!("{why:?}")),
            1 => $builder.open().map_err(|why| format!("{why:?}")),
            _ => $builder.open_or_create().map_err(|why| format!("{why:?}")),
        }
    };
}

use by;

/// What there is to do: a number each, as the commands have them.
pub const CALLS: usize = 62;
/// Those of each pattern: topics, slices, events, calls and boards.
pub const PARTS: [std::ops::Range<usize>; 5] = [8..24, 24..34, 34..42, 42..54, 54..62];

impl<S: Kind> Worker<S> {
    fn new(config: Config, fault: &str) -> Self {
        let fault = Fault { which: fault.to_owned(), count: 0 };
        Self {
            config,
            fault,
            nodes: Slots::default(),
            topics: Slots::default(),
            publishers: Slots::default(),
            subscribers: Slots::default(),
            loans: Slots::default(),
            samples: Slots::default(),
            slices: Slots::default(),
            slice_publishers: Slots::default(),
            slice_subscribers: Slots::default(),
            slice_samples: Slots::default(),
            events: Slots::default(),
            notifiers: Slots::default(),
            listeners: Slots::default(),
            calls: Slots::default(),
            clients: Slots::default(),
            servers: Slots::default(),
            pending: Slots::default(),
            requests: Slots::default(),
            responses: Slots::default(),
            boards: Slots::default(),
            writers: Slots::default(),
            readers: Slots::default(),
        }
    }

    /// Does what a command says: a call, a slot, another slot, a choice, a value.
    fn does(&mut self, [call, a, b, choice, value]: [usize; 5]) -> String {
        match call {
            0..8 => self.of_nodes(call, a, choice),
            8..13 | 23 => self.of_topics(call - 8, [a, b, choice, value]),
            13..24 => self.of_topics_ports(call - 8, [a, b, choice, value]),
            24..34 => self.of_slices(call - 24, [a, b, choice, value]),
            34..42 => self.of_events(call - 34, [a, b, choice, value]),
            42..54 => self.of_calls(call - 42, [a, b, choice, value]),
            _ => self.of_boards(call - 54, [a, b, choice, value]),
        }
    }

    fn of_nodes(&mut self, call: usize, a: usize, choice: usize) -> String {
        let config = self.config.clone();
        match call {
            0 => self.nodes.put(a % 2, || NodeBuilder::new().config(&config).create::<S>()),
            1 if choice < 2 => self.nodes.drop_at(a % 2),
            1 | 2 => {
                let forgets = self.fault.strikes("dead", 1);
                let clean = |node: &mut Node<S>| {
                    if forgets {
                        return String::from("CleanupState { cleanups: 0, failed_cleanups: 0 }");
                    }
                    format!("{:?}", node.try_cleanup_dead_nodes())
                };
                self.nodes.ask(a % 2, clean)
            }
            3 => {
                let mut seen = Vec::new();
                let listed = Node::<S>::list(&config, |state| {
                    seen.push(match state {
                        NodeState::Alive(_) => "alive",
                        NodeState::Dead(_) => "dead",
                        NodeState::Inaccessible(_) => "inaccessible",
                        NodeState::Undefined(_) => "undefined",
                    });
                    CallbackProgression::Continue
                });
                seen.sort_unstable();
                format!("{} {seen:?}", done(listed))
            }
            4 => {
                let mut seen = Vec::new();
                let listed = S::list(&config, |details| {
                    let nodes = details.dynamic_details.map(|dynamic| dynamic.nodes.len());
                    seen.push(format!("{} {nodes:?}", details.static_details.name()));
                    CallbackProgression::Continue
                });
                seen.sort_unstable();
                format!("{} {seen:?}", done(listed))
            }
            _ => {
                let (kind, pattern) = [
                    ("topic", MessagingPattern::PublishSubscribe),
                    ("event", MessagingPattern::Event),
                    ("calls", MessagingPattern::RequestResponse),
                    ("board", MessagingPattern::Blackboard),
                ][choice % 4];
                said(S::does_exist(&name(kind, a), &config, pattern))
            }
        }
    }

    fn of_topics(&mut self, call: usize, [a, b, choice, value]: Arguments) -> String {
        let value = value as u64;
        match call {
            0 | 1 => {
                let Some(node) = self.nodes.at(b % 2) else { return "none".to_owned() };
                let builder = || {
                    let builder =
                        node.service_builder(&name("topic", a)).publish_subscribe::<u64>();
                    // Now and then other settings than the name's.
                    match if value.is_multiple_of(8) { 1 - a % 2 } else { a % 2 } {
                        0 => builder.history_size(2).subscriber_max_buffer_size(3),
                        _ => builder.enable_safe_overflow(false).max_publishers(3),
                    }
                };
                self.topics.put(a % 2, || by!(choice, builder()))
            }
            2 if choice > 0 => "none".to_owned(),
            2 => {
                if self.fault.strikes("name", 1) {
                    let kept = self.topics.at(a % 2).take();
                    let said = if kept.is_some() { "dropped" } else { "none" };
                    std::mem::forget(kept);
                    return said.to_owned();
                }
                self.topics.drop_at(a % 2)
            }
            3 => {
                let Some(topic) = self.topics.at(a % 2) else { return "none".to_owned() };
                let builder = topic.publisher_builder().max_loaned_samples(2);
                let builder = builder.backpressure_strategy(BackpressureStrategy::DiscardData);
                self.publishers.put(b, || builder.create())
            }
            4 => {
                let Some(topic) = self.topics.at(a % 2) else { return "none".to_owned() };
                let builder = topic.subscriber_builder();
                let builder = if choice == 0 { builder.buffer_size(1) } else { builder };
                self.subscribers.put(b, || builder.create())
            }
            _ => {
                let counts = |topic: &mut Topic<S, u64>| {
                    let dynamic = topic.dynamic_config();
                    let (one, other) =
                        (dynamic.number_of_publishers(), dynamic.number_of_subscribers());
                    format!("{one} {other} {:?}", topic.static_config().history_size())
                };
                let has = self.subscribers.ask(b, |subscriber| said(subscriber.has_samples()));
                let updated = self.publishers.ask(b, |it| done(it.update_connections()));
                format!("{} {has} {updated}", self.topics.ask(a % 2, counts))
            }
        }
    }

    fn of_topics_ports(&mut self, call: usize, [a, b, choice, value]: Arguments) -> String {
        let value = value as u64;
        match call {
            5 if choice == 0 => self.publishers.drop_at(a),
            6 if choice == 0 => self.subscribers.drop_at(a),
            5 | 7 | 8 => self.publishers.ask(a, |publisher| said(publisher.send_copy(value))),
            9 => {
                let Some(publisher) = self.publishers.at(a) else { return "none".to_owned() };
                self.loans.put(b, || publisher.loan())
            }
            10 => match self.loans.at(a).take() {
                Some(mut loan) if choice > 0 => {
                    *loan.payload_mut() = value;
                    said(loan.send())
                }
                Some(_) => "dropped".to_owned(),
                None => "none".to_owned(),
            },
            6 | 11 | 12 => {
                let loses = self.fault.strikes("sample", 5);
                let Some(subscriber) = self.subscribers.at(a) else { return "none".to_owned() };
                if loses {
                    let _ = subscriber.receive();
                }
                match subscriber.receive() {
                    Ok(Some(sample)) if choice == 0 => {
                        let said = format!("{} kept", sample.payload());
                        *self.samples.at(b) = Some(sample);
                        said
                    }
                    received => said(received.map(|sample| sample.map(|sample| *sample))),
                }
            }
            13 => self.samples.drop_at(a),
            _ => self.samples.ask(a, |sample| sample.payload().to_string()),
        }
    }
}

/// Does what comes by a socket, until that ends.
pub fn work<S: Kind>(config: Config, fault: &str, socket: &str) {
    let mut stream = UnixStream::connect(socket).expect("the coordinator's socket");
    let mut worker = Worker::<S>::new(config, fault);
    let lines = BufReader::new(stream.try_clone().expect("a descriptor"));
    for line in lines.lines() {
        let line = line.expect("a line");
        let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
        let command = [(); 5].map(|()| numbers.next().expect("five of them"));
        let answer = worker.does(command);
        stream.write_all(format!("{answer}\n").as_bytes()).expect("told");
    }
}
