//! The four patterns, each between two processes that have the segment at different addresses.

use crate::stage::{self, Part};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;

fn name(of: &str) -> ServiceName {
    of.try_into().expect("a name")
}

fn node() -> Node<Service> {
    NodeBuilder::new().create::<Service>().expect("a node")
}

/// Asks until something comes, with a limit that only a hang meets.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    stage::until(what, || {
        found = ask();
        found.is_some()
    });
    found.expect("asked until it came")
}

#[derive(Debug, Clone, Copy, ZeroCopySend)]
#[repr(C)]
struct Picture {
    number: u64,
    at: u64,
    pixels: [u8; 1000],
}

#[test]
fn samples_go_from_one_process_to_another_and_back() {
    stage::play("patterns::samples_go_from_one_process_to_another_and_back", |part| {
        let node = node();
        let open = |way| {
            let service = node.service_builder(&name(way)).publish_subscribe::<Picture>();
            service.subscriber_max_buffer_size(4).open_or_create().expect("a service")
        };
        let (there, back) = (open("there"), open("back"));
        if let Part::Role(..) = part {
            let publisher = back.publisher_builder().create().expect("a publisher");
            let subscriber = there.subscriber_builder().create().expect("a subscriber");
            for number in 0..100 {
                let sample = until("a picture", || subscriber.receive().expect("received"));
                assert_eq!((sample.number, sample.pixels), (number, [number as u8; 1000]));
                let at = std::ptr::from_ref(sample.payload()) as u64;
                assert_ne!(at, sample.at, "a process has the segment at its own address");
                publisher.send_copy(Picture { at, ..*sample }).expect("sent");
            }
            // Stays until the last one was received.
            until("the end", || subscriber.receive().expect("received"));
            return;
        }
        let publisher = there.publisher_builder().create().expect("a publisher");
        let subscriber = back.subscriber_builder().create().expect("a subscriber");
        let role = stage::role("other", "");
        stage::until("a subscriber", || there.dynamic_config().number_of_subscribers() == 1);
        for number in 0..101 {
            let sample = publisher.loan_uninit().expect("a loan");
            let at = std::ptr::from_ref(sample.payload()) as u64;
            let picture = Picture { number, at, pixels: [number as u8; 1000] };
            sample.write_payload(picture).send().expect("sent");
            if number < 100 {
                let answer = until("an answer", || subscriber.receive().expect("received"));
                assert_eq!((answer.number, answer.pixels[999]), (number, number as u8));
            }
        }
        role.ends();
    });
}

#[test]
fn slices_that_grow_reach_another_process() {
    stage::play("patterns::slices_that_grow_reach_another_process", |part| {
        let node = node();
        let service = node.service_builder(&name("slices")).publish_subscribe::<[u8]>();
        let service = service.subscriber_max_buffer_size(15).open_or_create().expect("a service");
        if let Part::Role(..) = part {
            let subscriber = service.subscriber_builder().create().expect("a subscriber");
            for power in 0..15 {
                let sample = until("a slice", || subscriber.receive().expect("received"));
                assert_eq!(sample.payload(), vec![power as u8; 1 << power]);
            }
            return;
        }
        let publisher = service.publisher_builder();
        let publisher = publisher.allocation_strategy(AllocationStrategy::PowerOfTwo);
        let publisher = publisher.initial_max_slice_len(1).create().expect("a publisher");
        let role = stage::role("other", "");
        stage::until("a subscriber", || service.dynamic_config().number_of_subscribers() == 1);
        for power in 0..15 {
            let sample = publisher.loan_slice_uninit(1 << power).expect("a loan");
            let sent = sample.write_from_fn(|_| power as u8).send().expect("sent");
            assert_eq!(sent, 1);
        }
        role.ends();
    });
}

#[test]
fn events_wake_a_listener_and_a_wait_set_in_another_process() {
    stage::play("patterns::events_wake_a_listener_and_a_wait_set_in_another_process", |part| {
        let node = node();
        let open = |way| node.service_builder(&name(way)).event().open_or_create().expect("one");
        let (there, back) = (open("there"), open("back"));
        if let Part::Role(..) = part {
            let notifier = back.notifier_builder().create().expect("a notifier");
            let listener = there.listener_builder().create().expect("a listener");
            for id in 0..50 {
                let mut woken = None;
                while woken.is_none() {
                    listener.blocking_wait(|event| woken = Some(event)).expect("waited");
                }
                let woken = format!("{woken:?}");
                assert!(woken.contains(&id.to_string()), "{woken}");
                notifier.notify_with_custom_event_id(EventId::new(id)).expect("notified");
            }
            return;
        }
        let notifier = there.notifier_builder().create().expect("a notifier");
        let listener = back.listener_builder().create().expect("a listener");
        let set = WaitSetBuilder::new().create::<Service>().expect("a wait set");
        let guard = set.attach_notification(&listener).expect("attached");
        let role = stage::role("other", "");
        stage::until("a listener", || there.dynamic_config().number_of_listeners() == 1);
        for id in 0..50 {
            notifier.notify_with_custom_event_id(EventId::new(id)).expect("notified");
            let mut answered = false;
            while !answered {
                let look = |attachment: WaitSetAttachmentId<Service>| {
                    if attachment.has_event_from(&guard) {
                        listener.try_wait(|_| answered = true).expect("looked");
                    }
                    if answered { CallbackProgression::Stop } else { CallbackProgression::Continue }
                };
                set.wait_and_process_once(look).expect("waited");
            }
        }
        role.ends();
    });
}

#[test]
fn requests_are_answered_by_another_process() {
    stage::play("patterns::requests_are_answered_by_another_process", |part| {
        let node = node();
        let service = node.service_builder(&name("sum")).request_response::<[u64; 2], u64>();
        let service = service.open_or_create().expect("a service");
        if let Part::Role(..) = part {
            let server = service.server_builder().create().expect("a server");
            for _ in 0..100 {
                let request = until("a request", || server.receive().expect("received"));
                let [one, other] = *request.payload();
                request.send_copy(one + other).expect("answered");
            }
            stage::until("the client's end", || service.dynamic_config().number_of_clients() == 0);
            return;
        }
        let client = service.client_builder().create().expect("a client");
        let role = stage::role("other", "");
        stage::until("a server", || service.dynamic_config().number_of_servers() == 1);
        for number in 0..100 {
            let pending = client.send_copy([number, 1000]).expect("asked");
            let answer = until("an answer", || pending.receive().expect("received"));
            assert_eq!(*answer.payload(), number + 1000);
        }
        drop(client);
        role.ends();
    });
}

#[test]
fn a_blackboard_is_read_by_another_process() {
    stage::play("patterns::a_blackboard_is_read_by_another_process", |part| {
        let node = node();
        if let Part::Role(..) = part {
            let board = node.service_builder(&name("board")).blackboard_opener::<u64>();
            let board = board.open().expect("a board");
            let reader = board.reader_builder().create().expect("a reader");
            let (speed, ratio) = (reader.entry::<u64>(&1), reader.entry::<[f64; 3]>(&2));
            let (speed, ratio) = (speed.expect("an entry"), ratio.expect("an entry"));
            stage::until("the last value", || *speed.get() == 999);
            assert_eq!(*ratio.get(), [0.5, 1.5, 2.5]);
            return;
        }
        let board = node.service_builder(&name("board")).blackboard_creator::<u64>();
        let board = board.add::<u64>(1, 0).add::<[f64; 3]>(2, [0.5, 1.5, 2.5]);
        let board = board.create().expect("a board");
        let writer = board.writer_builder().create().expect("a writer");
        let speed = writer.entry::<u64>(&1).expect("an entry");
        let role = stage::role("other", "");
        for value in 0..1000 {
            speed.update_with_copy(value);
        }
        role.ends();
    });
}
