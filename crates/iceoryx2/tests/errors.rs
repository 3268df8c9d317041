//! What is said where something cannot be done.

use crate::stage::{self, Part};
use ginnel::Error;
use ginnel_iceoryx2::{Service, last_error};
use iceoryx2::prelude::*;

fn name(of: &str) -> ServiceName {
    of.try_into().expect("a name")
}

#[test]
fn a_full_segment_is_named_with_the_way_out() {
    stage::play("errors::a_full_segment_is_named_with_the_way_out", |_: Part| {
        ginnel_iceoryx2::use_segment(&stage::segment()).expect("the first");
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = node.service_builder(&name("large")).publish_subscribe::<[u8]>();
        let service = service.open_or_create().expect("a service");
        let large = service.publisher_builder().initial_max_slice_len(1 << 30);
        assert!(large.create().is_err(), "a gigabyte in 64 MiB");
        let why = last_error().expect("a reason");
        assert!(matches!(why, Error::SegmentFull { .. }), "{why:?}");
        assert!(why.to_string().contains("ginnel segment create --size"), "{why}");
        // The rest goes on.
        let small = service.publisher_builder().initial_max_slice_len(100).create();
        assert!(small.is_ok(), "{:?}", small.err());
    });
}

#[test]
fn there_is_one_segment_for_all_services() {
    stage::play("errors::there_is_one_segment_for_all_services", |_: Part| {
        let one = stage::segment();
        ginnel_iceoryx2::use_segment(&one).expect("the first");
        ginnel_iceoryx2::use_segment(&one).expect("the same");
        let other = ginnel::Options::new().size(16 << 20).open("other").expect("a segment");
        let no = ginnel_iceoryx2::use_segment(&other).expect_err("another");
        assert!(no.to_string().contains("stage") && no.to_string().contains("other"), "{no}");
    });
}

/// What an iceoryx2 of another version made is refused, and both versions are said.
#[test]
fn another_version_is_refused_with_both_numbers() {
    stage::play("errors::another_version_is_refused_with_both_numbers", |_: Part| {
        use iceoryx2_bb_elementary::package_version::PackageVersion;
        use iceoryx2_cal::dynamic_storage::*;
        use iceoryx2_cal::named_concept::*;
        let of = |text: &[u8]| FileName::new(text).expect("a name");
        let segment = ginnel::Segment::own().expect("a segment");
        type Storage = ginnel_iceoryx2::storage::Storage<u64>;
        let config = <Storage as NamedConceptMgmt>::Configuration::default();
        let path = config.path_for(&of(b"theirs"));
        let [theirs, ours] = [PackageVersion::from_u64(0x0001_0002_0003), PackageVersion::get()];
        let numbers = [theirs.to_u64(), 8, 8];
        let stage = ginnel::adapter::Stage::Made;
        let plan = ginnel::adapter::Plan { size: 8, numbers, stage };
        let made = ginnel::adapter::Part::create(&segment, path.as_bytes(), &plan);
        let _made = made.expect("made as another would");
        let opened = <Storage as DynamicStorage<u64>>::Builder::new(&of(b"theirs"))
            .config(&config)
            .open(iceoryx2_bb_posix::access_mode::AccessMode::ReadWrite);
        assert_eq!(opened.err(), Some(DynamicStorageOpenError::VersionMismatch));
        let why = last_error().expect("a reason").to_string();
        assert!(why.contains(&theirs.to_string()) && why.contains(&ours.to_string()), "{why}");
    });
}

/// `ginnel ls` and `ginnel top` go by this list.
#[test]
fn the_list_of_objects_shows_iceoryx2s() {
    stage::play("errors::the_list_of_objects_shows_iceoryx2s", |_: Part| {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let service = node.service_builder(&name("shown")).publish_subscribe::<u64>();
        let service = service.open_or_create().expect("a service");
        let _publisher = service.publisher_builder().create().expect("a publisher");
        let objects = ginnel::Segment::own().and_then(|own| own.objects()).expect("a list");
        let shown = |end: &str| {
            let found = objects.iter().find(|object| object.name.ends_with(end));
            let found = found.unwrap_or_else(|| panic!("{end}: {objects:#?}"));
            assert_eq!(found.kind.name(), "iceoryx2");
            assert!(found.users.iter().any(|user| user.pid == std::process::id()));
        };
        shown(".service");
        shown(".dynamic");
        shown(".data");
    });
}

/// On one kernel there is one clock. Between machines it is refused (`guest/tests/iceoryx2.rs`).
#[test]
fn a_deadline_is_kept_on_one_kernel() {
    stage::play("errors::a_deadline_is_kept_on_one_kernel", |_: Part| {
        let node = NodeBuilder::new().create::<Service>().expect("a node");
        let second = std::time::Duration::from_secs(1);
        let service = node.service_builder(&name("late")).event().deadline(second).create();
        assert_eq!(service.expect("a service").static_config().deadline(), Some(second));
    });
}
