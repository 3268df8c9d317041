//! Scenes of two programs that have a segment in common: each has a part for the first and one for
//! the second, which find each other by names alone. So two processes of one kernel play them
//! (`tests/patterns.rs`), and programs of two virtual machines (`guest/tests/iceoryx2.rs`).
//!
//! What a scene asks is what iceoryx2's own conformance tests ask of one process with both ends.

use ginnel_iceoryx2::Service;
use iceoryx2::prelude::*;
use std::time::{Duration, Instant};

mod boards;
mod calls;
mod events;
mod nodes;
mod topics;

/// Beyond this nobody comes any more.
pub const LONG: Duration = Duration::from_secs(60);

/// What both parts of a scene are.
pub struct Scene {
    pub name: &'static str,
    pub first: fn(&mut Stand),
    pub second: fn(&mut Stand),
}

macro_rules! scenes {
    ($($module:ident: $($scene:ident)*;)*) => {
        /// All of them, in the order in which they are played.
        pub const SCENES: &[Scene] = &[$($(Scene {
            name: stringify!($scene),
            first: $module::$scene::first,
            second: $module::$scene::second,
        },)*)*];
    };
}

scenes! {
    topics: samples flat_map slices history no_overflow held headers refused shared_by_threads;
    events: woken wait_sets kept_together told_of_notifiers;
    calls: answers streams given_up largest_answers;
    boards: values whole_values;
    nodes: seen services_end;
}

/// One of the two, in a scene.
pub struct Stand {
    pub node: Node<Service>,
    barrier: ginnel::Barrier,
}

impl Stand {
    /// Takes its place. Both must do so with the same name.
    pub fn take(name: &str) -> Self {
        let segment = ginnel::Segment::own().expect("a segment");
        let barrier = ginnel::Barrier::open_or_create(&segment, name, 2).expect("a place");
        let name = NodeName::new(&format!("of {}", std::process::id())).expect("a name");
        let node = NodeBuilder::new().name(&name).create::<Service>().expect("a node");
        Self { node, barrier }
    }

    /// Goes on when the other has come to the same place.
    pub fn meet(&mut self) {
        self.barrier.wait_timeout(LONG).expect("the other comes, too");
    }

    /// Plays one part of a scene.
    pub fn play(&mut self, scene: &Scene, is_first: bool) {
        self.meet();
        if is_first {
            (scene.first)(self)
        } else {
            (scene.second)(self)
        }
        self.meet();
    }
}

pub fn name(of: &str) -> ServiceName {
    of.try_into().expect("a name")
}

/// Waits until something is so, with a limit that only a hang meets.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}: never");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many ports a list of iceoryx2's shows. Its numbers (`number_of_subscribers`, say) count
/// those that are still being entered, too, to which nothing is sent.
pub fn seen(list: impl FnOnce(&mut dyn FnMut() -> CallbackProgression)) -> usize {
    let mut count = 0;
    list(&mut || {
        count += 1;
        CallbackProgression::Continue
    });
    count
}

/// Asks until something comes.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = ask();
        found.is_some()
    });
    found.expect("asked until it came")
}
