//! Events and wait sets.

use super::{Stand, name, seen, until};
use ginnel_iceoryx2::Service;
use iceoryx2::port::listener::Listener;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::event::PortFactory as Events;
use std::time::Duration;

fn open(stand: &Stand, of: &str) -> Events<Service> {
    stand.node.service_builder(&name(of)).event().open_or_create().expect("a service")
}

fn until_heard(events: &Events<Service>) {
    until("a listener", || seen(|see| events.dynamic_config().list_listeners(|_| see())) == 1);
}

/// The ids that have come, in any order.
fn all(listener: &Listener<Service>) -> Vec<String> {
    let mut seen = Vec::new();
    listener.try_wait(|event| seen.push(format!("{event:?}"))).expect("looked");
    seen
}

/// Waits in a wait set until its listener was told something.
fn told(listener: &Listener<Service>) {
    let set = WaitSetBuilder::new().create::<Service>().expect("a wait set");
    let guard = set.attach_notification(listener).expect("attached");
    let mut told = false;
    while !told {
        let look = |attachment: WaitSetAttachmentId<Service>| {
            if attachment.has_event_from(&guard) {
                listener.try_wait(|_| told = true).expect("looked");
            }
            if told { CallbackProgression::Stop } else { CallbackProgression::Continue }
        };
        set.wait_and_process_once(look).expect("waited");
    }
}

/// Each wakes the other, fifty times: one sleeps in a listener, one in a wait set.
pub mod woken {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let (there, back) = (open(stand, "there"), open(stand, "back"));
        let notifier = there.notifier_builder().create().expect("a notifier");
        let listener = back.listener_builder().create().expect("a listener");
        until_heard(&there);
        for id in 0..50 {
            assert_eq!(notifier.notify_with_custom_event_id(EventId::new(id)), Ok(1));
            told(&listener);
        }
    }

    pub fn second(stand: &mut Stand) {
        let (there, back) = (open(stand, "there"), open(stand, "back"));
        let notifier = back.notifier_builder().create().expect("a notifier");
        let listener = there.listener_builder().create().expect("a listener");
        until_heard(&back);
        for id in 0..50 {
            let mut woken = None;
            while woken.is_none() {
                listener.blocking_wait(|event| woken = Some(format!("{event:?}"))).expect("waited");
            }
            assert!(woken.iter().all(|event| event.contains(&id.to_string())), "{woken:?}");
            assert_eq!(notifier.notify_with_custom_event_id(EventId::new(id)), Ok(1));
        }
    }
}

/// A wait set of several listeners tells which was woken, and that a deadline has passed.
pub mod wait_sets {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let events = ["one", "other", "silent"].map(|of| open(stand, of));
        let listeners = events.each_ref().map(|it| it.listener_builder().create().expect("made"));
        let set = WaitSetBuilder::new().create::<Service>().expect("a wait set");
        let [one, other, silent] = &listeners;
        let guards = [one, other].map(|it| set.attach_notification(it).expect("attached"));
        let missed = set.attach_deadline(silent, Duration::from_millis(20)).expect("attached");
        let (mut counts, mut deadlines) = ([0, 0], 0);
        stand.meet();
        while counts != [10, 5] || deadlines == 0 {
            let look = |attachment: WaitSetAttachmentId<Service>| {
                for (at, guard) in guards.iter().enumerate() {
                    if attachment.has_event_from(guard) {
                        listeners[at].try_wait(|_| counts[at] += 1).expect("looked");
                    }
                }
                deadlines += usize::from(attachment.has_missed_deadline(&missed));
                assert!(!attachment.has_event_from(&missed), "nobody told it anything");
                CallbackProgression::Continue
            };
            set.wait_and_process_once(look).expect("waited");
        }
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        let events = ["one", "other"].map(|of| open(stand, of));
        let notifiers = events.each_ref().map(|it| it.notifier_builder().create().expect("made"));
        stand.meet();
        for id in 0..10 {
            assert_eq!(notifiers[0].notify_with_custom_event_id(EventId::new(id)), Ok(1));
            if id % 2 == 0 {
                assert_eq!(notifiers[1].notify_with_custom_event_id(EventId::new(id)), Ok(1));
            }
        }
        stand.meet();
    }
}

/// Of one id that comes several times before anybody looks, how often is told; other ids are apart.
pub mod kept_together {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let events = open(stand, "together");
        let listener = events.listener_builder().create().expect("a listener");
        stand.meet();
        stand.meet();
        let mut ids = all(&listener);
        ids.sort_unstable();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert!(ids[0].contains('3') && ids[1].contains('4'), "{ids:?}");
        assert_eq!(all(&listener), [""; 0]);
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let events = open(stand, "together");
        let notifier = events.notifier_builder().create().expect("a notifier");
        for id in [3, 3, 4, 3] {
            assert_eq!(notifier.notify_with_custom_event_id(EventId::new(id)), Ok(1));
        }
        stand.meet();
    }
}

/// A listener is told by itself when a notifier comes and when it goes.
pub mod told_of_notifiers {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let service = stand.node.service_builder(&name("come and go")).event();
        let service = service.notifier_created_event(EventId::new(8));
        let service = service.notifier_dropped_event(EventId::new(9));
        let listener = service.create().expect("a service").listener_builder().create();
        let listener = listener.expect("a listener");
        stand.meet();
        stand.meet();
        let come = all(&listener);
        assert!(come.len() == 1 && come[0].contains('8'), "{come:?}");
        stand.meet();
        stand.meet();
        let gone = all(&listener);
        assert!(gone.len() == 1 && gone[0].contains('9'), "{gone:?}");
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let notifier = open(stand, "come and go").notifier_builder().create().expect("a notifier");
        stand.meet();
        stand.meet();
        drop(notifier);
        stand.meet();
    }
}
