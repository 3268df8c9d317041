//! Two users in one segment: they publish to each other and wake each other, and who dies of one is
//! cleared up after by the other, also while others of that user live.

use crate::scenes::seen;
use crate::stage::{Part, Shared, become_nobody, play, until};
use ginnel::Options;
use ginnel_iceoryx2::{Service, use_segment};
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn name(of: &str) -> ServiceName {
    of.try_into().expect("a name")
}

/// Ports of one of the two.
struct Ports {
    publisher: Publisher<Service, u64, ()>,
    subscriber: Subscriber<Service, u64, ()>,
    notifier: Notifier<Service>,
    listener: Listener<Service>,
    node: Node<Service>,
}

impl Ports {
    fn new(there: &str, back: &str) -> Self {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let topic = |way: &str| {
            let service = node.service_builder(&name(way)).publish_subscribe::<u64>();
            service.open_or_create().expect("a service")
        };
        let events = |way: &str| {
            node.service_builder(&name(way)).event().open_or_create().expect("a service")
        };
        let publisher = topic(there).publisher_builder().create().expect("a publisher");
        let subscriber = topic(back).subscriber_builder().create().expect("a subscriber");
        let notifier = events(there).notifier_builder().create().expect("a notifier");
        let listener = events(back).listener_builder().create().expect("a listener");
        Self { publisher, subscriber, notifier, listener, node }
    }

    /// Sleeps until it is woken, then takes what was sent.
    fn hear(&self) -> u64 {
        loop {
            let mut woken = 0;
            self.listener.timed_wait(|_| woken += 1, LONG).expect("waited");
            assert!(woken > 0, "nobody woke it");
            if let Some(sample) = self.subscriber.receive().expect("received") {
                return *sample;
            }
        }
    }

    fn say(&self, value: u64) {
        assert_eq!(self.publisher.send_copy(value), Ok(1));
        assert_eq!(self.notifier.notify(), Ok(1));
    }
}

/// Answers, until it is killed; and so that others of its user live, one that does nothing.
fn theirs(role: &str, path: &str) {
    become_nobody();
    use_segment(&Options::new().open(path).expect("a segment")).expect("the first");
    if role == "idle" {
        let _node = NodeBuilder::new().create::<Service>().expect("a node");
        std::thread::sleep(3 * LONG);
        return;
    }
    let ports = Ports::new("back", "there");
    loop {
        let value = ports.hear();
        ports.say(value + 1);
    }
}

#[test]
fn publish_wake_and_clear_up_after_each_other() {
    play("users::publish_wake_and_clear_up_after_each_other", |part| match part {
        Part::Role(role, path) if role == "makes" => {
            let _ = Options::new().size(64 << 20).open(path).expect("a segment");
        }
        Part::Role(role, path) => theirs(&role, &path),
        Part::Test => {
            let Some(shared) = Shared::new() else { return };
            let segment = Options::new().open(shared.segment()).expect("a segment");
            use_segment(&segment).expect("the first");
            let ports = Ports::new("there", "back");
            let nodes = || {
                let mut count = 0;
                Node::<Service>::list(Config::global_config(), |_| {
                    count += 1;
                    CallbackProgression::Continue
                })
                .expect("a list");
                count
            };
            let idle = shared.theirs_plays("idle");
            until("another's node", || nodes() == 2);
            for round in 0..3 {
                let other = shared.theirs_plays("answers");
                let topic = ports.node.service_builder(&name("there")).publish_subscribe::<u64>();
                let topic = topic.open().expect("there");
                until("another's subscriber", || {
                    seen(|see| topic.dynamic_config().list_subscribers(|_| see())) == 1
                });
                let events = ports.node.service_builder(&name("there")).event();
                let events = events.open().expect("there");
                until("another's listener", || {
                    seen(|see| events.dynamic_config().list_listeners(|_| see())) == 1
                });
                for value in 0..20 {
                    ports.say(value);
                    assert_eq!(ports.hear(), value + 1, "round {round}");
                }
                other.kill();
                until("it is cleared up after", || {
                    let _ = ports.node.try_cleanup_dead_nodes();
                    nodes() == 2 && topic.dynamic_config().number_of_subscribers() == 0
                });
                assert_eq!(ports.publisher.send_copy(9), Ok(0));
            }
            idle.kill();
            until("it is cleared up after", || {
                let _ = ports.node.try_cleanup_dead_nodes();
                nodes() == 1
            });
        }
    });
}
