//! One that is killed with ports of every kind, and one that has the other ends and outlives it.

use crate::scenes::{LONG, name, until, wait_for};
use ginnel::{Event, Reset};
use ginnel_iceoryx2::Service;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::reader::Reader;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::*;
use iceoryx2::service::builder::blackboard::BlackboardOpenError;
use iceoryx2::service::port_factory::{blackboard, event, publish_subscribe, request_response};

struct Services {
    topic: publish_subscribe::PortFactory<Service, u64, ()>,
    events: event::PortFactory<Service>,
    calls: request_response::PortFactory<Service, u64, (), u64, ()>,
    board: Result<blackboard::PortFactory<Service, u64>, BlackboardOpenError>,
}

impl Services {
    /// There is room for one of each port: that of a dead one has to be cleared for the next.
    fn open(node: &Node<Service>) -> Self {
        let topic = node.service_builder(&name("fate")).publish_subscribe::<u64>();
        let topic = topic.max_subscribers(1).max_publishers(1).subscriber_max_borrowed_samples(2);
        let topic = topic.open_or_create().expect("a service");
        let events = node.service_builder(&name("fate")).event().max_notifiers(1);
        let events = events.notifier_dead_event(EventId::new(9)).open_or_create();
        let calls = node.service_builder(&name("fate")).request_response::<u64, u64>();
        let calls = calls.max_clients(1).max_servers(1).open_or_create().expect("a service");
        let board = node.service_builder(&name("fate")).blackboard_opener::<u64>().open();
        Self { topic, events: events.expect("a service"), calls, board }
    }

    /// Ports of the one that dies.
    fn counts(&self) -> [usize; 3] {
        let clients = self.calls.dynamic_config().number_of_clients();
        let notifiers = self.events.dynamic_config().number_of_notifiers();
        [self.topic.dynamic_config().number_of_subscribers(), notifiers, clients]
    }
}

/// An event by which these processes and their test tell each other how far they are.
pub fn told(name: &str) -> Event {
    let segment = ginnel::Segment::own().expect("a segment");
    let reset = if name == "met" { Reset::Auto } else { Reset::Manual };
    Event::open_or_create(&segment, name, reset).expect("an event")
}

/// Has ports and things in its hands until it is killed.
pub fn dies() {
    told("ready").wait_timeout(LONG).expect("the other is there");
    let node = NodeBuilder::new().create::<Service>().expect("a node");
    let services = Services::open(&node);
    let board = services.board.as_ref().expect("the other's board");
    // The other may be clearing up after the one before.
    let writer = wait_for("a writer", || board.writer_builder().create().ok());
    // iceoryx2 gives an entry to one writer, also after its death, and has no way to take it back.
    let entry = writer.entry::<u64>(&1).ok();
    let subscriber = wait_for("a subscriber", || services.topic.subscriber_builder().create().ok());
    let notifier = wait_for("a notifier", || services.events.notifier_builder().create().ok());
    let client = wait_for("a client", || services.calls.client_builder().create().ok());
    let mut held = Vec::new();
    let pending = client.send_copy(1).expect("asked");
    let mut value = 0;
    loop {
        value += 1;
        entry.iter().for_each(|entry| entry.update_with_copy(value));
        let _ = notifier.notify();
        held.extend(subscriber.receive().ok().flatten());
        let _ = (pending.receive(), client.send_copy(value).map(drop));
    }
}

/// The other ends, in which nothing may stay of one that died.
pub struct Survivor {
    node: Node<Service>,
    services: Services,
    publisher: Publisher<Service, u64, ()>,
    listener: Listener<Service>,
    server: Server<Service, u64, (), u64, ()>,
    reader: Reader<Service, u64>,
}

impl Survivor {
    fn new() -> Self {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let board = node.service_builder(&name("fate")).blackboard_creator::<u64>();
        let board = board.add::<u64>(1, 0).create().expect("a board");
        let mut services = Services::open(&node);
        let publisher = services.topic.publisher_builder().create().expect("a publisher");
        let listener = services.events.listener_builder().create().expect("a listener");
        let server = services.calls.server_builder().create().expect("a server");
        let reader = board.reader_builder().create().expect("a reader");
        services.board = Ok(board);
        Self { node, services, publisher, listener, server, reader }
    }

    /// What it does all the time: every loan comes back, and nothing fails.
    fn serve(&self) {
        for value in 0..20 {
            self.publisher.send_copy(value).expect("a loan is left");
        }
        while let Some(request) = self.server.receive().expect("received") {
            request.send_copy(7).expect("answered");
        }
        self.listener.try_wait(|_| {}).expect("looked");
    }

    /// Sees one come, use all there is, and die.
    fn outlive(&self, round: u32) {
        let entry = self.reader.entry::<u64>(&1).expect("an entry");
        until("another with its ports", || {
            self.serve();
            self.services.counts() == [1, 1, 1] && *entry.get() > 0
        });
        println!("met {round}");
        told("met").set().expect("told");
        until("its end", || {
            self.serve();
            let _ = self.node.try_cleanup_dead_nodes();
            self.services.counts() == [0, 0, 0]
        });
        println!("gone {round}");
    }
}

/// Outlives so many, one after the other, and says when it has met each and when that was gone. It
/// has its ends for as long as the caller has them.
#[must_use = "others count on its ends"]
pub fn outlives(rounds: u32) -> Survivor {
    let survivor = Survivor::new();
    told("ready").set().expect("told");
    (1..=rounds).for_each(|round| survivor.outlive(round));
    survivor
}
