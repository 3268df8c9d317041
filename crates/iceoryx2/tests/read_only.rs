//! On one kernel a subscriber has payload in pages that it cannot write.

use crate::stage::{self, Part};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;

/// What the kernel lets this process do with the page at an address, as /proc/self/maps says.
fn rights(at: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|line| {
        let (from, to) =
            line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
        let end = |text| usize::from_str_radix(text, 16).expect("an address");
        (end(from)..end(to)).contains(&at)
    });
    line.and_then(|line| line.split(' ').nth(1)).expect("mapped").to_owned()
}

#[test]
fn payload_is_read_only_for_a_subscriber() {
    stage::play("read_only::payload_is_read_only_for_a_subscriber", |_: Part| {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = node.service_builder(&"one".try_into().expect("a name"));
        let service = service.publish_subscribe::<u64>().open_or_create().expect("a service");
        let publisher = service.publisher_builder().create().expect("a publisher");
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        let sample = publisher.loan().expect("a loan");
        assert_eq!(rights(std::ptr::from_ref(sample.payload()) as usize), "rw-s");
        sample.send().expect("sent");
        let sample = subscriber.receive().expect("received").expect("one");
        assert_eq!(rights(std::ptr::from_ref(sample.payload()) as usize), "r--s");
    });
}

/// Also what grows, and memory that a publisher claimed later.
#[test]
fn slices_that_grow_are_read_only_for_a_subscriber() {
    stage::play("read_only::slices_that_grow_are_read_only_for_a_subscriber", |_: Part| {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = node.service_builder(&"slices".try_into().expect("a name"));
        let service = service.publish_subscribe::<[u8]>().open_or_create().expect("a service");
        let publisher = service.publisher_builder().initial_max_slice_len(1);
        let publisher = publisher.allocation_strategy(AllocationStrategy::PowerOfTwo);
        let publisher = publisher.create().expect("a publisher");
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        for power in [0, 4, 13, 17] {
            let sample = publisher.loan_slice_uninit(1 << power).expect("a loan");
            let sample = sample.write_from_fn(|_| 7);
            assert_eq!(rights(sample.payload().as_ptr() as usize), "rw-s");
            sample.send().expect("sent");
            let sample = subscriber.receive().expect("received").expect("one");
            assert_eq!(rights(sample.payload().as_ptr() as usize), "r--s", "2 to the {power}");
        }
    });
}

#[test]
fn requests_and_responses_are_read_only_for_who_receives_them() {
    stage::play(
        "read_only::requests_and_responses_are_read_only_for_who_receives_them",
        |_: Part| {
            let node = NodeBuilder::new().create::<Service>().expect("a node");
            let service = node.service_builder(&"calls".try_into().expect("a name"));
            let service =
                service.request_response::<u64, u64>().open_or_create().expect("a service");
            let client = service.client_builder().create().expect("a client");
            let server = service.server_builder().create().expect("a server");
            let pending = client.send_copy(7).expect("sent");
            let request = server.receive().expect("received").expect("one");
            assert_eq!(rights(std::ptr::from_ref(request.payload()) as usize), "r--s");
            request.send_copy(8).expect("answered");
            let response = pending.receive().expect("received").expect("one");
            assert_eq!(rights(std::ptr::from_ref(response.payload()) as usize), "r--s");
        },
    );
}
