//! Fork: what a child does to what its parent has, and what it has itself.

use crate::stage::{self, Part};
use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;

/// Calls `child` in a child of fork, and gives what it says.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: no other thread is needed by what the child does.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(99);
        // SAFETY: ends the child, without what its parent registered.
        unsafe { libc::_exit(said) };
    }
    let mut status = 0;
    // SAFETY: room for a status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status), "{status:x}");
    libc::WEXITSTATUS(status)
}

fn objects() -> Vec<(String, bool)> {
    let objects = ginnel::Segment::own().and_then(|own| own.objects()).expect("a list");
    objects.into_iter().map(|object| (object.name, object.removed)).collect()
}

/// A child sends and receives by what it has inherited, drops it, and asks for more: what its
/// parent has stays as it was.
#[test]
fn a_child_leaves_its_parents_ports_as_they_are() {
    stage::play("forks::a_child_leaves_its_parents_ports_as_they_are", |_: Part| {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = node.service_builder(&"one".try_into().expect("a name"));
        let service = service.publish_subscribe::<u64>().open_or_create().expect("a service");
        let events = node.service_builder(&"one".try_into().expect("a name"));
        let events = events.event().open_or_create().expect("a service");
        let publisher = service.publisher_builder().create().expect("a publisher");
        let subscriber = service.subscriber_builder().create().expect("a subscriber");
        let listener = events.listener_builder().create().expect("a listener");
        let notifier = events.notifier_builder().create().expect("a notifier");
        publisher.send_copy(1).expect("sent");
        let before = objects();
        let mut parts = Some((subscriber, publisher, listener, notifier, service, events, node));
        let said = forked(|| {
            let (subscriber, publisher, _, notifier, ..) = parts.as_ref().expect("there");
            let (_, _) = (publisher.send_copy(2), publisher.send_copy(2));
            let _ = (subscriber.receive().map(|_| ()), notifier.notify());
            drop(parts.take());
            let more = NodeBuilder::new().create::<Service>();
            let forked = matches!(ginnel_iceoryx2::last_error(), Some(ginnel::Error::Forked));
            i32::from(more.is_ok() || !forked)
        });
        assert_eq!(said, 0, "no node in a child of fork");
        let (subscriber, publisher, listener, notifier, service, ..) = parts.expect("there");
        assert_eq!(objects(), before);
        let dynamic = service.dynamic_config();
        assert_eq!((dynamic.number_of_publishers(), dynamic.number_of_subscribers()), (1, 1));
        let receive = || subscriber.receive().expect("received").map(|sample| *sample);
        assert_eq!((receive(), receive()), (Some(1), None));
        for value in 3..30 {
            assert_eq!(publisher.send_copy(value), Ok(1));
            assert_eq!(receive(), Some(value));
        }
        assert_eq!(notifier.notify(), Ok(1));
        let mut woken = 0;
        listener.try_wait(|_| woken += 1).expect("looked");
        assert_eq!(woken, 1);
    });
}
