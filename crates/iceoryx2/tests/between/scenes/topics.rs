//! Publish and subscribe.

use super::{Stand, name, seen, until, wait_for};
use ginnel_iceoryx2::{Service, Threadsafe};
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::port::{ReceiveError, publisher::PublisherCreateError};
use iceoryx2::prelude::*;
use iceoryx2::service::builder::publish_subscribe::{
    PublishSubscribeCreateError, PublishSubscribeOpenError,
};
use iceoryx2::service::port_factory::publish_subscribe::PortFactory as Topic;

type Numbers = Topic<Service, u64, ()>;
type Reader = Subscriber<Service, u64, ()>;

fn until_heard(topic: &Numbers) {
    until("a subscriber", || seen(|see| topic.dynamic_config().list_subscribers(|_| see())) == 1);
}

fn next(reader: &Reader) -> Option<u64> {
    reader.receive().expect("received").map(|sample| *sample)
}

/// All that there is to be had.
fn all(reader: &Reader) -> Vec<u64> {
    std::iter::from_fn(|| next(reader)).collect()
}

/// A sample there and another back, a hundred times.
pub mod samples {
    use super::*;

    #[derive(Debug, Clone, Copy, ZeroCopySend)]
    #[repr(C)]
    struct Picture {
        number: u64,
        pixels: [u8; 1000],
    }

    fn open(stand: &Stand, way: &str) -> Topic<Service, Picture, ()> {
        let service = stand.node.service_builder(&name(way)).publish_subscribe::<Picture>();
        service.subscriber_max_buffer_size(4).open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let (there, back) = (open(stand, "there"), open(stand, "back"));
        let publisher = there.publisher_builder().create().expect("a publisher");
        let subscriber = back.subscriber_builder().create().expect("a subscriber");
        until("a subscriber", || {
            seen(|see| there.dynamic_config().list_subscribers(|_| see())) == 1
        });
        for number in 0..100 {
            let sample = publisher.loan_uninit().expect("a loan");
            let picture = Picture { number, pixels: [number as u8; 1000] };
            sample.write_payload(picture).send().expect("sent");
            let answer = wait_for("an answer", || subscriber.receive().expect("received"));
            assert_eq!((answer.number, answer.pixels), (number + 1000, [number as u8 ^ 1; 1000]));
        }
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let (there, back) = (open(stand, "there"), open(stand, "back"));
        let publisher = back.publisher_builder().create().expect("a publisher");
        let subscriber = there.subscriber_builder().create().expect("a subscriber");
        for number in 0..100 {
            let sample = wait_for("a picture", || subscriber.receive().expect("received"));
            assert_eq!((sample.number, sample.pixels), (number, [number as u8; 1000]));
            let picture = Picture { number: number + 1000, pixels: [number as u8 ^ 1; 1000] };
            publisher.send_copy(picture).expect("sent");
        }
        stand.meet();
    }
}

/// A map that one fills where it lies, and another looks things up in: a container of iceoryx2's
/// that may lie at any address.
pub mod flat_map {
    use super::*;
    use iceoryx2_bb_container::flatmap::FixedSizeFlatMap;

    const ENTRIES: usize = 100;

    #[derive(Debug, ZeroCopySend)]
    #[repr(C)]
    struct Prices(FixedSizeFlatMap<u64, [u32; 4], ENTRIES>);

    fn open(stand: &Stand) -> Topic<Service, Prices, ()> {
        let service = stand.node.service_builder(&name("prices")).publish_subscribe::<Prices>();
        service.open_or_create().expect("a service")
    }

    fn price(of: u64) -> [u32; 4] {
        [of as u32, of as u32 + 1, of as u32 * 2, u32::MAX - of as u32]
    }

    pub fn first(stand: &mut Stand) {
        let topic = open(stand);
        let publisher = topic.publisher_builder().create().expect("a publisher");
        until("a subscriber", || {
            seen(|see| topic.dynamic_config().list_subscribers(|_| see())) == 1
        });
        let sample = publisher.loan_uninit().expect("a loan");
        let mut sample = sample.write_payload(Prices(FixedSizeFlatMap::new()));
        let Prices(map) = sample.payload_mut();
        for of in 0..ENTRIES as u64 {
            map.insert(of * 31, price(of)).expect("room");
        }
        assert!(map.insert(7, price(7)).is_err(), "it is full");
        assert_eq!(map.remove(&31), Some(price(1)));
        sample.send().expect("sent");
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let topic = open(stand);
        let subscriber = topic.subscriber_builder().create().expect("a subscriber");
        let sample = wait_for("the map", || subscriber.receive().expect("received"));
        let Prices(map) = sample.payload();
        assert_eq!(map.len(), ENTRIES - 1);
        assert_eq!((map.get(&31), map.get(&1)), (None, None), "removed, and never there");
        for of in (0..ENTRIES as u64).filter(|of| *of != 1) {
            assert_eq!(map.get_ref(&(of * 31)), Some(&price(of)), "{of}");
        }
        stand.meet();
    }
}

/// Slices that grow: the publisher makes more memory while the subscriber reads the old.
pub mod slices {
    use super::*;

    fn open(stand: &Stand) -> Topic<Service, [u8], ()> {
        let service = stand.node.service_builder(&name("slices")).publish_subscribe::<[u8]>();
        service.subscriber_max_buffer_size(15).open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let service = open(stand);
        let publisher = service.publisher_builder();
        let publisher = publisher.allocation_strategy(AllocationStrategy::PowerOfTwo);
        let publisher = publisher.initial_max_slice_len(1).create().expect("a publisher");
        until("a subscriber", || {
            seen(|see| service.dynamic_config().list_subscribers(|_| see())) == 1
        });
        for power in 0..15 {
            let sample = publisher.loan_slice_uninit(1 << power).expect("a loan");
            assert_eq!(sample.write_from_fn(|_| power as u8).send(), Ok(1));
        }
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let service = open(stand);
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        for power in 0..15 {
            let sample = wait_for("a slice", || subscriber.receive().expect("received"));
            assert_eq!(sample.payload(), vec![power as u8; 1 << power]);
        }
        stand.meet();
    }
}

/// Who comes late gets the newest; who is slow has the newest.
pub mod history {
    use super::*;

    fn open(stand: &Stand) -> Numbers {
        let service = stand.node.service_builder(&name("history")).publish_subscribe::<u64>();
        let service = service.history_size(3).subscriber_max_buffer_size(4);
        service.open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let topic = open(stand);
        let publisher = topic.publisher_builder().create().expect("a publisher");
        (0..10).for_each(|number| assert_eq!(publisher.send_copy(number), Ok(0), "nobody hears"));
        stand.meet();
        until_heard(&topic);
        publisher.update_connections().expect("connected");
        stand.meet();
        stand.meet();
        (100..120).for_each(|number| assert_eq!(publisher.send_copy(number), Ok(1)));
        stand.meet();
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let reader = open(stand).subscriber_builder().create().expect("a subscriber");
        stand.meet();
        assert_eq!(all(&reader), [7, 8, 9]);
        stand.meet();
        stand.meet();
        assert_eq!(all(&reader), [116, 117, 118, 119]);
        stand.meet();
    }
}

/// Without overflow the oldest stay, and the publisher is told that nobody got the others.
pub mod no_overflow {
    use super::*;

    fn open(stand: &Stand) -> Numbers {
        let service = stand.node.service_builder(&name("no overflow")).publish_subscribe::<u64>();
        let service = service.enable_safe_overflow(false).subscriber_max_buffer_size(2);
        service.open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let topic = open(stand);
        let publisher = topic.publisher_builder();
        let publisher = publisher.backpressure_strategy(BackpressureStrategy::DiscardData);
        let publisher = publisher.create().expect("a publisher");
        until_heard(&topic);
        let sent: Vec<_> = (0..5).map(|number| publisher.send_copy(number)).collect();
        assert_eq!(sent, [Ok(1), Ok(1), Ok(0), Ok(0), Ok(0)]);
        stand.meet();
        stand.meet();
        assert_eq!(publisher.send_copy(5), Ok(1), "there is room again");
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let reader = open(stand).subscriber_builder().create().expect("a subscriber");
        stand.meet();
        assert_eq!(all(&reader), [0, 1]);
        stand.meet();
        stand.meet();
        assert_eq!(all(&reader), [5]);
    }
}

/// What a subscriber holds stays as it is, however much is published, and after its publisher.
pub mod held {
    use super::*;

    fn open(stand: &Stand) -> Numbers {
        let service = stand.node.service_builder(&name("held")).publish_subscribe::<u64>();
        let service = service.subscriber_max_borrowed_samples(2).subscriber_max_buffer_size(2);
        service.open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let topic = open(stand);
        let publisher = topic.publisher_builder().create().expect("a publisher");
        until_heard(&topic);
        assert_eq!([1, 2].map(|number| publisher.send_copy(number)), [Ok(1), Ok(1)]);
        stand.meet();
        stand.meet();
        (100..1000).for_each(|number| assert_eq!(publisher.send_copy(number), Ok(1)));
        drop(publisher);
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let reader = open(stand).subscriber_builder().create().expect("a subscriber");
        stand.meet();
        let held = [1, 2].map(|_| reader.receive().expect("received").expect("sent before"));
        stand.meet();
        stand.meet();
        assert_eq!(reader.receive().err(), Some(ReceiveError::ExceedsMaxBorrows));
        assert_eq!(held.each_ref().map(|sample| **sample), [1, 2]);
        drop(held);
        assert_eq!(all(&reader), [998, 999]);
    }
}

/// A header of the user's beside the payload.
pub mod headers {
    use super::*;

    #[derive(Debug, Clone, Copy, Default, ZeroCopySend)]
    #[repr(C)]
    struct Header {
        stamp: u64,
        words: [u32; 5],
    }

    fn open(stand: &Stand) -> Topic<Service, u64, Header> {
        let service = stand.node.service_builder(&name("headers")).publish_subscribe::<u64>();
        service.user_header::<Header>().open_or_create().expect("a service")
    }

    pub fn first(stand: &mut Stand) {
        let topic = open(stand);
        let publisher = topic.publisher_builder().create().expect("a publisher");
        until("a subscriber", || {
            seen(|see| topic.dynamic_config().list_subscribers(|_| see())) == 1
        });
        let mut sample = publisher.loan().expect("a loan");
        *sample.user_header_mut() = Header { stamp: 77, words: [1, 2, 3, 4, 5] };
        *sample.payload_mut() = 78;
        sample.send().expect("sent");
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let reader = open(stand).subscriber_builder().create().expect("a subscriber");
        let sample = wait_for("a sample", || reader.receive().expect("received"));
        let header = *sample.user_header();
        assert_eq!((header.stamp, header.words, *sample), (77, [1, 2, 3, 4, 5], 78));
        stand.meet();
    }
}

/// What the other has made otherwise is refused with iceoryx2's own words.
pub mod refused {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let service = stand.node.service_builder(&name("refused")).publish_subscribe::<u64>();
        let service = service.max_publishers(1).max_subscribers(1).create().expect("a service");
        let _publisher = service.publisher_builder().create().expect("a publisher");
        stand.meet();
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let builder = || stand.node.service_builder(&name("refused"));
        let taken = builder().publish_subscribe::<u64>().create().err();
        assert_eq!(taken, Some(PublishSubscribeCreateError::AlreadyExists));
        let type_is = builder().publish_subscribe::<u32>().open().err();
        assert_eq!(type_is, Some(PublishSubscribeOpenError::IncompatibleTypes));
        let more = builder().publish_subscribe::<u64>().max_publishers(2).open().err();
        let wanted = PublishSubscribeOpenError::DoesNotSupportRequestedAmountOfPublishers;
        assert_eq!(more, Some(wanted));
        let service = builder().publish_subscribe::<u64>().open().expect("there");
        let one_more = service.publisher_builder().create().err();
        assert_eq!(one_more, Some(PublisherCreateError::ExceedsMaxSupportedPublishers));
        stand.meet();
    }
}

/// One of the two lets its threads share a port.
pub mod shared_by_threads {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let service = stand.node.service_builder(&name("threads")).publish_subscribe::<u64>();
        let service = service.subscriber_max_buffer_size(400).open_or_create().expect("a service");
        let reader = service.subscriber_builder().create().expect("a subscriber");
        stand.meet();
        let mut seen: Vec<_> = (0..400).map(|_| wait_for("a number", || next(&reader))).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..400).collect::<Vec<_>>());
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let node = NodeBuilder::new().create::<Threadsafe>().expect("a node");
        let service = node.service_builder(&name("threads")).publish_subscribe::<u64>();
        let service = service.open().expect("there");
        // One for each thread.
        let publisher = service.publisher_builder().max_loaned_samples(4);
        let publisher = publisher.create().expect("a publisher");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let publisher = &publisher;
                scope.spawn(move || {
                    for number in 0..100 {
                        assert_eq!(publisher.send_copy(thread * 100 + number), Ok(1));
                    }
                });
            }
        });
        stand.meet();
    }
}
