//! Deaths: processes that are killed at any moment leave nothing that others trip over.

use crate::stage::{self, Part};
use ginnel_iceoryx2::Service;
use iceoryx2::config::Config;
use iceoryx2::prelude::*;
use std::error::Error;
use std::time::Duration;

/// How many processes are killed, in the fast round and in the long one.
const FEW: u32 = 10;
const MANY: u32 = 150;

fn name(of: &str) -> ServiceName {
    of.try_into().expect("a name")
}

fn node() -> Node<Service> {
    NodeBuilder::new().create::<Service>().expect("a node")
}

/// Opens ports of every kind and uses them, again and again, until it is killed.
fn live() {
    let mut round = 0_u64;
    loop {
        round += 1;
        let Ok(node) = NodeBuilder::new().create::<Service>() else { continue };
        let own = format!("own/{}/{round}", std::process::id());
        for way in ["shared", own.as_str()] {
            let service = node.service_builder(&name(way)).publish_subscribe::<u64>();
            let Ok(service) = service.open_or_create() else { continue };
            let (one, other) =
                (service.publisher_builder().create(), service.subscriber_builder().create());
            let (Ok(publisher), Ok(subscriber)) = (one, other) else { continue };
            let _ = publisher.send_copy(round);
            let _ = subscriber.receive();
            let Ok(events) = node.service_builder(&name(way)).event().open_or_create() else {
                continue;
            };
            let (Ok(listener), Ok(notifier)) =
                (events.listener_builder().create(), events.notifier_builder().create())
            else {
                continue;
            };
            let _ = notifier.notify();
            let _ = listener.try_wait(|_| {});
            let _ = calls(&node, way, round);
            let _ = slices(&node, way);
            let _ = board(&node, way, round);
        }
    }
}

fn calls(node: &Node<Service>, way: &str, value: u64) -> Result<(), Box<dyn Error>> {
    let service = node.service_builder(&name(way)).request_response::<u64, u64>();
    let service = service.open_or_create()?;
    let (server, client) = (service.server_builder().create()?, service.client_builder().create()?);
    let pending = client.send_copy(value)?;
    while let Some(request) = server.receive()? {
        request.send_copy(value + 1)?;
    }
    pending.receive()?;
    Ok(())
}

fn slices(node: &Node<Service>, way: &str) -> Result<(), Box<dyn Error>> {
    let service = node.service_builder(&name(&format!("{way}/slices"))).publish_subscribe::<[u8]>();
    let service = service.open_or_create()?;
    let publisher = service.publisher_builder().allocation_strategy(AllocationStrategy::PowerOfTwo);
    let publisher = publisher.initial_max_slice_len(1).create()?;
    let subscriber = service.subscriber_builder().create()?;
    for power in [3, 8, 13] {
        publisher.loan_slice_uninit(1 << power)?.write_from_fn(|at| at as u8).send()?;
        subscriber.receive()?;
    }
    Ok(())
}

fn board(node: &Node<Service>, way: &str, value: u64) -> Result<(), Box<dyn Error>> {
    let creator = node.service_builder(&name(way)).blackboard_creator::<u64>();
    let board = match creator.add::<u64>(1, value).create() {
        Ok(board) => board,
        Err(_) => node.service_builder(&name(way)).blackboard_opener::<u64>().open()?,
    };
    let (reader, writer) = (board.reader_builder().create()?, board.writer_builder().create()?);
    writer.entry::<u64>(&1)?.update_with_copy(value + 1);
    let _ = *reader.entry::<u64>(&1)?.get();
    Ok(())
}

/// Has the dead cleared up after, and waits until `most` of iceoryx2's objects are there at most,
/// and nobody uses any.
fn nothing_is_left(most: usize) {
    let segment = ginnel::Segment::own().expect("a segment");
    let mut left = Vec::new();
    let mut is_clear = || {
        let node = node();
        let _ = node.try_cleanup_dead_nodes();
        let mut dead = 0;
        Node::<Service>::list(Config::global_config(), |state| {
            dead += u32::from(matches!(state, NodeState::Dead(_)));
            CallbackProgression::Continue
        })
        .expect("a list");
        drop(node);
        let objects = segment.objects().expect("a list").into_iter();
        left = objects.filter(|object| object.kind == ginnel::Kind::Iceoryx2).collect();
        assert!(left.len() < 100, "{left:#?}");
        // The counter of ids is kept. And who dies between two steps of iceoryx2's leaves now and
        // then an object that nothing names any more, and nobody uses.
        left.retain(|object| !object.name.ends_with(".ids"));
        let used = left.iter().any(|object| !object.users.is_empty());
        dead == 0 && !used && left.len() <= most
    };
    for _ in 0..200 {
        if is_clear() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("left: {left:#?}");
}

fn kills(count: u32) {
    let seed = std::env::var("GINNEL_SEED").ok().and_then(|text| text.parse().ok());
    let mut random: u64 = seed.unwrap_or_else(|| std::process::id().into());
    println!("GINNEL_SEED={random}");
    for _ in 0..count {
        let (one, other) = (stage::role("live", ""), stage::role("live", ""));
        for role in [one, other] {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_millis(20 + (random >> 33) % 150));
            role.kill();
        }
        // Whoever comes next can do all of it: no name is stuck.
        let node = node();
        let _ = node.try_cleanup_dead_nodes();
        let service = node.service_builder(&name("shared")).publish_subscribe::<u64>();
        let service = service.open_or_create().expect("the next process opens it");
        let publisher = service.publisher_builder().create().expect("a publisher");
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        publisher.send_copy(7).expect("sent");
        assert_eq!(subscriber.receive().expect("received").map(|sample| *sample), Some(7));
        let events = node.service_builder(&name("shared")).event();
        let events = events.open_or_create().expect("the next process opens it");
        events.listener_builder().create().expect("a listener");
        calls(&node, "shared", 7).expect("the next process calls");
        slices(&node, "shared").expect("the next process sends slices");
        board(&node, "shared", 7).expect("the next process writes");
    }
    nothing_is_left(5 + count as usize / 20);
}

#[test]
fn whoever_is_killed_leaves_nothing() {
    stage::play("deaths::whoever_is_killed_leaves_nothing", |part| match part {
        Part::Role(..) => live(),
        Part::Test => kills(FEW),
    });
}

/// As long as it takes, two processes a round.
#[test]
#[ignore = "minutes"]
fn whoever_is_killed_leaves_nothing_by_the_hundred() {
    stage::play("deaths::whoever_is_killed_leaves_nothing_by_the_hundred", |part| match part {
        Part::Role(..) => live(),
        Part::Test => kills(MANY),
    });
}

/// A subscriber that dies with a sample in its hands: the publisher's loans come back.
#[test]
fn loans_of_the_dead_come_back() {
    stage::play("deaths::loans_of_the_dead_come_back", |part| {
        let node = node();
        let service = node.service_builder(&name("loans")).publish_subscribe::<u64>();
        let service = service.max_subscribers(1).open_or_create().expect("a service");
        if let Part::Role(..) = part {
            let subscriber = service.subscriber_builder().create().expect("a subscriber");
            let mut held = Vec::new();
            loop {
                held.extend(subscriber.receive().ok().flatten());
            }
        }
        let publisher = service.publisher_builder().create().expect("a publisher");
        for _ in 0..5 {
            let role = stage::role("holder", "");
            stage::until("a subscriber", || {
                let _ = node.try_cleanup_dead_nodes();
                service.dynamic_config().number_of_subscribers() == 1
            });
            for value in 0..20 {
                publisher.send_copy(value).expect("there is a loan left");
            }
            role.kill();
        }
    });
}

/// Who notifies is told how many it reached: nobody, where the listener died, though its node was
/// not cleared up after. So says a notifier that was connected before, and one that comes after.
#[test]
fn a_listener_that_died_is_not_reached() {
    stage::play("deaths::a_listener_that_died_is_not_reached", |part| {
        let mut config = Config::default();
        config.global.service.cleanup_dead_nodes_on_open = false;
        config.global.node.cleanup_dead_nodes_on_creation = false;
        let node = NodeBuilder::new().config(&config).create::<Service>().expect("a node");
        let service = node.service_builder(&name("events")).event();
        let service = service.open_or_create().expect("a service");
        if let Part::Role(..) = part {
            let _listener = service.listener_builder().create().expect("a listener");
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        let role = stage::role("listener", "");
        stage::until("a listener", || service.dynamic_config().number_of_listeners() == 1);
        let connected = service.notifier_builder().create().expect("a notifier");
        role.kill();
        assert_eq!(connected.notify(), Ok(0), "it was connected");
        let notifier = service.notifier_builder().create().expect("a notifier");
        assert_eq!(notifier.notify(), Ok(0), "it comes after");
        assert_eq!(service.dynamic_config().number_of_listeners(), 1, "nobody cleared up");
    });
}
