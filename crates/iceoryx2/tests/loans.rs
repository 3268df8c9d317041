//! Deaths over a loan: what one held or lent who is killed comes back, and what others hold of it
//! stays as it was.

use crate::stage::{self, Part};
use ginnel::{Event, Kind, Memory, Options, Reset, Segment};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as Topic;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);
const SLICE: usize = 1 << 16;

fn topic(node: &Node<Service>, way: &str) -> Topic<Service, [u8], ()> {
    let service = node.service_builder(&way.try_into().expect("a name"));
    let service = service.publish_subscribe::<[u8]>().max_publishers(2).max_subscribers(2);
    let service = service.subscriber_max_buffer_size(2).subscriber_max_borrowed_samples(2);
    service.open_or_create().expect("a service")
}

/// A small one, all of which is soon tried.
fn segment() -> Segment {
    let segment = Options::new().size(32 << 20).open("loans").expect("a segment");
    ginnel_iceoryx2::use_segment(&segment).expect("the first");
    segment
}

fn node() -> Node<Service> {
    let _ = segment();
    NodeBuilder::new().create::<Service>().expect("a node")
}

fn ready() -> Event {
    let segment = segment();
    Event::open_or_create(&segment, "ready", Reset::Auto).expect("an event")
}

/// Claims pages in the largest piece that there is, under this name. None: there are not even two.
fn claim(segment: &Segment, name: &str) -> Option<u64> {
    let (mut fits, mut not) = (0, 8192);
    while fits + 1 < not {
        let pages = (fits + not) / 2;
        match Memory::create(segment, name, pages * 4096) {
            Ok(_) => fits = pages,
            Err(_) => not = pages,
        }
        let _ = segment.remove(name);
    }
    let is_claimed = fits > 0 && Memory::create(segment, name, fits * 4096).is_ok();
    // Its own first page beside those.
    is_claimed.then_some(fits + 1)
}

/// How many pages are free, but for those that stand alone.
fn free() -> u64 {
    let segment = segment();
    // Pages of the dead are free after a look.
    ginnel::adapter::sweep(&segment);
    let names = (0..).map(|number| format!("claimed {number}"));
    let claimed: Vec<_> = names.map_while(|name| Some((claim(&segment, &name)?, name))).collect();
    claimed.iter().for_each(|(_, name)| segment.remove(name).expect("there"));
    claimed.iter().map(|(pages, _)| pages).sum()
}

/// Waits until the dead are cleared up after.
fn clear(node: &Node<Service>, is_clear: impl Fn() -> bool) {
    stage::until("clear", || {
        let _ = node.try_cleanup_dead_nodes();
        is_clear()
    });
}

/// Nothing of iceoryx2's is there but the counter of ids.
fn assert_empty() {
    let objects = segment().objects().expect("a list");
    let mut left = objects.into_iter().filter(|object| object.kind == Kind::Iceoryx2);
    let left: Vec<_> = left.by_ref().filter(|object| !object.name.ends_with(".ids")).collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// A publisher dies with a loan, and with a sample that it sent and another reads.
#[test]
fn a_sample_of_a_dead_publisher_stays_as_long_as_it_is_read() {
    const NAME: &str = "loans::a_sample_of_a_dead_publisher_stays_as_long_as_it_is_read";
    stage::play(NAME, |part| {
        if let Part::Role(..) = part {
            let node = node();
            let topic = topic(&node, "lent");
            let publisher = topic.publisher_builder().initial_max_slice_len(SLICE);
            let publisher = publisher.max_loaned_samples(2).create().expect("a publisher");
            let sent = publisher.loan_slice_uninit(SLICE).expect("a loan");
            assert_eq!(sent.write_from_fn(|at| at as u8).send(), Ok(1));
            let _held = publisher.loan_slice_uninit(SLICE).expect("a loan");
            ready().set().expect("told");
            std::thread::sleep(3 * LONG);
            return;
        }
        // What this process keeps for itself is there after the first time.
        for is_first in [true, false] {
            let before = free();
            let own = node();
            let lent = topic(&own, "lent");
            let subscriber = lent.subscriber_builder().create().expect("a subscriber");
            let other = stage::role("publishes", "");
            ready().wait_timeout(LONG).expect("it has sent");
            let sample = subscriber.receive().expect("received").expect("one");
            other.kill();
            clear(&own, || lent.dynamic_config().number_of_publishers() == 0);
            // Whoever comes next writes wherever there is room.
            let next = lent.publisher_builder().initial_max_slice_len(SLICE).create();
            let next = next.expect("a publisher");
            for _ in 0..10 {
                next.loan_slice_uninit(SLICE)
                    .expect("a loan")
                    .write_from_fn(|_| 0xee)
                    .send()
                    .expect("sent");
            }
            assert!(sample.payload().iter().zip(0_u32..).all(|(&is, at)| is == at as u8));
            drop(sample);
            let after = subscriber.receive().expect("received").expect("the next one's");
            assert!(after.payload().iter().all(|&is| is == 0xee));
            drop((after, subscriber, next, lent, own));
            assert_empty();
            assert!(is_first || free() == before, "{} pages of {before} are free", free());
        }
    });
}

/// A subscriber dies with samples in its hands and in its queue, again and again.
#[test]
fn samples_of_a_dead_subscriber_are_lent_again() {
    const NAME: &str = "loans::samples_of_a_dead_subscriber_are_lent_again";
    stage::play(NAME, |part| {
        if let Part::Role(..) = part {
            let node = node();
            let topic = topic(&node, "held");
            let subscriber = topic.subscriber_builder().create().expect("a subscriber");
            ready().set().expect("told");
            let mut held = Vec::new();
            while held.len() < 2 {
                held.extend(subscriber.receive().expect("received"));
            }
            ready().set().expect("told");
            std::thread::sleep(3 * LONG);
            return;
        }
        for is_first in [true, false] {
            let before = free();
            let own = node();
            let held = topic(&own, "held");
            let publisher = held.publisher_builder().initial_max_slice_len(SLICE);
            let publisher = publisher.create().expect("a publisher");
            let send = |value: u8| {
                let loan = publisher.loan_slice_uninit(SLICE).expect("a loan is left");
                loan.write_from_fn(|_| value).send().expect("sent")
            };
            for round in 0..10 {
                let other = stage::role("subscribes", "");
                ready().wait_timeout(LONG).expect("it is there");
                let mut sent = 0;
                stage::until("it holds two", || {
                    sent += send(round);
                    ready().try_wait().is_ok()
                });
                // Its queue is full, too.
                (0..5).for_each(|_| _ = send(round));
                assert!(sent >= 2);
                other.kill();
                clear(&own, || held.dynamic_config().number_of_subscribers() == 0);
                assert_eq!(send(round), 0, "nobody hears");
            }
            drop((publisher, held, own));
            assert_empty();
            assert!(is_first || free() == before, "{} pages of {before} are free", free());
        }
    });
}

/// Images by loan from a producer to two consumers, one of which is killed with images in its
/// hands: the other has each of them, whole, and the producer finds a loan for each.
#[test]
fn images_for_two_of_whom_one_is_killed() {
    const IMAGES: u64 = 60;
    const PIXELS: usize = 100 * 100 * 3;
    stage::play("loans::images_for_two_of_whom_one_is_killed", |part| {
        let open = |node: &Node<Service>| {
            let service = node.service_builder(&"images".try_into().expect("a name"));
            let service =
                service.publish_subscribe::<[u8]>().user_header::<u64>().max_subscribers(2);
            let service = service.subscriber_max_borrowed_samples(3);
            // All of them wait for who is slow.
            service.subscriber_max_buffer_size(IMAGES as usize).open_or_create().expect("a service")
        };
        let is_whole = |image: &[u8], number: u64| {
            image.len() == PIXELS && image.iter().all(|pixel| *pixel == number as u8)
        };
        if let Part::Role(role, _) = part {
            let (own, mut held) = (node(), Vec::new());
            let images = open(&own);
            let consumer = images.subscriber_builder().create().expect("a subscriber");
            let mut next = 0;
            while next < IMAGES {
                let Some(image) = consumer.receive().expect("received") else {
                    std::thread::yield_now();
                    continue;
                };
                if role == "keeps" {
                    held.push(image);
                    if held.len() == 2 {
                        ready().set().expect("told");
                        std::thread::sleep(3 * LONG);
                    }
                    continue;
                }
                assert_eq!(*image.user_header(), next, "each of them, in order");
                assert!(is_whole(image.payload(), next));
                next += 1;
            }
            return;
        }
        let own = node();
        let images = open(&own);
        let producer = images.publisher_builder().initial_max_slice_len(PIXELS);
        let producer = producer.create().expect("a publisher");
        let mut consumers = vec![stage::role("shows", ""), stage::role("keeps", "")];
        stage::until("both", || images.dynamic_config().number_of_subscribers() == 2);
        for number in 0..IMAGES {
            let mut image = producer.loan_slice_uninit(PIXELS).expect("a loan is left");
            *image.user_header_mut() = number;
            image.write_from_fn(|_| number as u8).send().expect("sent");
            if number == IMAGES / 2 {
                ready().wait_timeout(LONG).expect("it has images in its hands");
                consumers.pop().expect("the one that keeps").kill();
                clear(&own, || images.dynamic_config().number_of_subscribers() == 1);
            }
        }
        consumers.remove(0).ends();
    });
}
