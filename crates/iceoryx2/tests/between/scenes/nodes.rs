//! Nodes, and services that come and go.

use super::{Stand, name};
use ginnel_iceoryx2::Service;
use iceoryx2::config::Config;
use iceoryx2::node::NodeView;
use iceoryx2::prelude::*;
use iceoryx2::service::Service as _;

/// The names of the nodes that live.
fn alive() -> Vec<String> {
    let mut names = Vec::new();
    Node::<Service>::list(Config::global_config(), |state| {
        if let NodeState::Alive(view) = &state {
            names.extend(view.details().as_ref().map(|of| of.name().as_str().to_owned()));
        }
        CallbackProgression::Continue
    })
    .expect("a list");
    names
}

/// Each sees the other's node.
pub mod seen {
    use super::*;

    pub fn first(stand: &mut Stand) {
        let name = NodeName::new("the first one's").expect("a name");
        let node = NodeBuilder::new().name(&name).create::<Service>().expect("a node");
        stand.meet();
        stand.meet();
        drop(node);
        stand.meet();
        stand.meet();
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let names = alive();
        assert!(names.iter().any(|name| name == "the first one's"), "{names:?}");
        assert_eq!(names.len(), 3, "{names:?}");
        stand.meet();
        stand.meet();
        assert_eq!(alive().len(), 2, "it is gone");
        stand.meet();
    }
}

/// A service is there for as long as anybody has it, and then no longer.
pub mod services_end {
    use super::*;

    fn is_there() -> bool {
        let pattern = MessagingPattern::PublishSubscribe;
        Service::does_exist(&name("ends"), Config::global_config(), pattern).expect("asked")
    }

    pub fn first(stand: &mut Stand) {
        assert!(!is_there());
        let service = stand.node.service_builder(&name("ends")).publish_subscribe::<u64>();
        let service = service.create().expect("a service");
        stand.meet();
        stand.meet();
        drop(service);
        assert!(is_there(), "the other has it");
        stand.meet();
        stand.meet();
        assert!(!is_there());
    }

    pub fn second(stand: &mut Stand) {
        stand.meet();
        let service = stand.node.service_builder(&name("ends")).publish_subscribe::<u64>();
        let service = service.open().expect("there");
        stand.meet();
        stand.meet();
        drop(service);
        assert!(!is_there());
        stand.meet();
    }
}
