//! A segment without room, in every place where a port can meet that: what fails says why, leaves
//! nothing half made, and harms none that are there.

use crate::stage::{self, Part};
use ginnel::{Error, Kind, Memory, Segment};
use ginnel_iceoryx2::{Service, last_error};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

type Done = Result<(), Box<dyn std::error::Error>>;

fn name(of: &str) -> ServiceName {
    of.try_into().expect("a name")
}

fn topic(node: &Node<Service>) -> Done {
    let service = node.service_builder(&name("limits")).publish_subscribe::<u64>();
    let service = service.max_publishers(2).max_subscribers(2).open_or_create()?;
    let (publisher, subscriber) =
        (service.publisher_builder().create()?, service.subscriber_builder().create()?);
    publisher.send_copy(7)?;
    let sample = subscriber.receive()?.ok_or("no sample came")?;
    assert_eq!(*sample, 7);
    Ok(())
}

fn slices(node: &Node<Service>) -> Done {
    let service = node.service_builder(&name("limits/slices")).publish_subscribe::<[u8]>();
    let service = service.max_publishers(1).max_subscribers(1).open_or_create()?;
    let publisher = service.publisher_builder().allocation_strategy(AllocationStrategy::PowerOfTwo);
    let publisher = publisher.initial_max_slice_len(1).create()?;
    let subscriber = service.subscriber_builder().create()?;
    for power in [3, 12] {
        publisher.loan_slice_uninit(1 << power)?.write_from_fn(|at| at as u8).send()?;
        let sample = subscriber.receive()?.ok_or("no slice came")?;
        assert!(sample.payload().iter().zip(0_u32..).all(|(&is, at)| is == at as u8));
    }
    Ok(())
}

fn events(node: &Node<Service>) -> Done {
    let service = node.service_builder(&name("limits")).event().event_id_max_value(9);
    let service = service.open_or_create()?;
    let listener = service.listener_builder().create()?;
    let notifier = service.notifier_builder().create()?;
    let mut heard = 0;
    notifier.notify()?;
    listener.try_wait(|_| heard += 1)?;
    if heard == 1 { Ok(()) } else { Err("no event came".into()) }
}

fn calls(node: &Node<Service>) -> Done {
    let service = node.service_builder(&name("limits")).request_response::<u64, u64>();
    let service = service.max_clients(1).max_servers(1).max_active_requests_per_client(1);
    let service = service.open_or_create()?;
    let (server, client) = (service.server_builder().create()?, service.client_builder().create()?);
    let pending = client.send_copy(7)?;
    let request = server.receive()?.ok_or("no request came")?;
    request.send_copy(*request + 1)?;
    let response = pending.receive()?.ok_or("no response came")?;
    assert_eq!(*response, 8);
    Ok(())
}

fn board(node: &Node<Service>) -> Done {
    let service = node.service_builder(&name("limits")).blackboard_creator::<u64>();
    let service = service.max_readers(1).add::<u64>(1, 0).create()?;
    let (reader, writer) = (service.reader_builder().create()?, service.writer_builder().create()?);
    writer.entry::<u64>(&1)?.update_with_copy(7);
    assert_eq!(*reader.entry::<u64>(&1)?.get(), 7);
    Ok(())
}

/// A node, and each pattern once. What it made is gone when it returns, whatever that says.
fn everything() -> Done {
    let node = NodeBuilder::new().create::<Service>()?;
    topic(&node)?;
    slices(&node)?;
    events(&node)?;
    calls(&node)?;
    board(&node)
}

/// Objects of iceoryx2's, but for the counter of ids, which is kept.
fn left(segment: &Segment) -> Vec<String> {
    let objects = segment.objects().expect("a list").into_iter();
    let theirs = objects.filter(|object| object.kind == Kind::Iceoryx2).map(|object| object.name);
    let mut left: Vec<_> = theirs.filter(|name| !name.ends_with(".ids")).collect();
    left.sort_unstable();
    left
}

/// Ports that were there before, and go on.
struct Before {
    publisher: Publisher<Service, u64, ()>,
    subscriber: Subscriber<Service, u64, ()>,
    count: u64,
    _node: Node<Service>,
}

impl Before {
    fn new() -> Self {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = node.service_builder(&name("before")).publish_subscribe::<u64>();
        let service = service.open_or_create().expect("a service");
        let publisher = service.publisher_builder().create().expect("a publisher");
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        let mut before = Self { publisher, subscriber, count: 0, _node: node };
        before.goes_on();
        before
    }

    fn goes_on(&mut self) {
        self.count += 1;
        assert_eq!(self.publisher.send_copy(self.count), Ok(1));
        let sample = self.subscriber.receive().expect("received").map(|sample| *sample);
        assert_eq!(sample, Some(self.count));
    }
}

/// Memory of these sizes under names of its own, until there is no room for any.
fn fill(segment: &Segment, sizes: &[u64]) -> Vec<String> {
    let mut names = Vec::new();
    for &size in sizes {
        loop {
            let name = format!("fill {}", names.len());
            match Memory::create(segment, &name, size) {
                Ok(_) => names.push(name),
                Err(Error::SegmentFull { .. } | Error::NamesFull) => break,
                Err(why) => panic!("{why}"),
            }
        }
    }
    names
}

/// Tries everything in a full segment, and again with a little more room each time, until it
/// succeeds. What fails before that says `full`.
fn makes_room(segment: &Segment, sizes: &[u64], full: fn(&Error) -> bool) {
    ginnel_iceoryx2::use_segment(segment).expect("the first");
    everything().expect("with room");
    let mut before = Before::new();
    let there = left(segment);
    let mut names = fill(segment, sizes);
    let mut failures: Vec<String> = Vec::new();
    while let Err(why) = everything() {
        let reason = last_error().expect("a reason");
        assert!(full(&reason), "{why}: {reason:?}");
        assert_eq!(left(segment), there, "after {why}: {reason}");
        before.goes_on();
        let said = why.to_string();
        if failures.last() != Some(&said) {
            failures.push(said);
        }
        segment.remove(&names.pop().expect("room for everything, at last")).expect("there");
    }
    println!("{failures:#?}");
    assert!(failures.len() > 5, "{failures:#?}");
    before.goes_on();
    drop(before);
    assert_eq!(left(segment), Vec::<String>::new());
}

#[test]
fn without_pages_nothing_half_made_stays() {
    stage::play("limits::without_pages_nothing_half_made_stays", |_: Part| {
        let segment = ginnel::Options::new().size(16 << 20).open("stage").expect("a segment");
        let sizes = [1 << 20, 1 << 16, 1 << 12];
        makes_room(&segment, &sizes, |why| matches!(why, Error::SegmentFull { .. }));
    });
}

#[test]
fn without_names_nothing_half_made_stays() {
    stage::play("limits::without_names_nothing_half_made_stays", |_: Part| {
        makes_room(&stage::segment(), &[1], |why| matches!(why, Error::NamesFull));
    });
}
