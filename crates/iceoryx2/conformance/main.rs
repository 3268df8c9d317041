//! iceoryx2's published conformance tests, with the types of this crate: one after another, as its
//! authors run them. First one process runs them in a segment of its own, then two processes at
//! once in a segment that both have. Two virtual machines run some of them
//! (`guest/tests/iceoryx2.rs`).

mod runs;

extern crate alloc;
extern crate iceoryx2_bb_loggers;

mod concepts {
    use ginnel_iceoryx2::storage::Storage;
    use ginnel_iceoryx2::{
        Growing, Link, Payload, monitoring, serializer, static_storage, trigger,
    };
    use iceoryx2_bb_testing::instantiate_conformance_tests_with_module as conform;
    use iceoryx2_cal::event::event_state::bit_set::RelocatableBitSet;
    use iceoryx2_cal::event::event_state::counting_bit_set::RelocatableCountingBitSet;
    use iceoryx2_cal::shm_allocator::pool_allocator::PoolAllocator;
    use iceoryx2_cal_conformance_tests::dynamic_storage_trait::TestData;
    use iceoryx2_cal_conformance_tests::named_concept_trait::*;

    type Pool = Payload<PoolAllocator>;

    conform!(
        dynamic_storage,
        iceoryx2_cal_conformance_tests::dynamic_storage_trait,
        super::Storage<super::TestData>,
        super::Storage<u64>
    );
    conform!(
        static_storage_is,
        iceoryx2_cal_conformance_tests::static_storage_trait,
        super::static_storage::Storage
    );
    conform!(
        monitoring_is,
        iceoryx2_cal_conformance_tests::monitoring_trait,
        super::monitoring::Life
    );
    conform!(
        event_bits,
        iceoryx2_cal_conformance_tests::event_trait,
        super::RelocatableBitSet,
        super::trigger::Event<super::RelocatableBitSet>
    );
    conform!(
        event_counts,
        iceoryx2_cal_conformance_tests::event_trait,
        super::RelocatableCountingBitSet,
        super::trigger::Event<super::RelocatableCountingBitSet>
    );
    conform!(shared_memory, iceoryx2_cal_conformance_tests::shared_memory_trait, super::Pool);
    conform!(
        resizable_shared_memory,
        iceoryx2_cal_conformance_tests::resizable_shared_memory_trait,
        super::Pool,
        super::Growing
    );
    conform!(
        zero_copy_connection,
        iceoryx2_cal_conformance_tests::zero_copy_connection_trait,
        super::Link
    );
    conform!(
        serialize,
        iceoryx2_cal_conformance_tests::serialize_trait,
        super::serializer::Serializer
    );

    conform!(
        named_dynamic_storage,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        DynamicStorageTest<super::Storage<u64>>
    );
    conform!(
        named_static_storage,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        StaticStorageTest<super::static_storage::Storage>
    );
    conform!(
        named_event,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        EventTest<super::trigger::Event<super::RelocatableCountingBitSet>>
    );
    conform!(
        named_monitoring,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        MonitoringTest<super::monitoring::Life>
    );
    conform!(
        named_shared_memory,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        SharedMemoryTest<super::Pool>
    );
    conform!(
        named_resizable_shared_memory,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        ResizableSharedMemoryTest<super::Pool, super::Growing>
    );
    conform!(
        named_zero_copy_connection,
        iceoryx2_cal_conformance_tests::named_concept_trait,
        ZeroCopyConnectionTest<super::Link>
    );
}

macro_rules! services {
    ($variant:ident, $service:ty, $($module:ident)*) => {
        mod $variant {
            use iceoryx2_conformance_tests::service::service::*;

            iceoryx2_bb_testing::instantiate_conformance_tests_with_module!(
                any_events,
                iceoryx2_conformance_tests::service,
                $service,
                super::EventTests<$service>
            );
            iceoryx2_bb_testing::instantiate_conformance_tests_with_module!(
                any_publish_subscribe,
                iceoryx2_conformance_tests::service,
                $service,
                super::PubSubTests<$service>
            );
            iceoryx2_bb_testing::instantiate_conformance_tests_with_module!(
                any_request_response,
                iceoryx2_conformance_tests::service,
                $service,
                super::RequestResponseTests<$service>
            );
            iceoryx2_bb_testing::instantiate_conformance_tests_with_module!(
                any_blackboard,
                iceoryx2_conformance_tests::service,
                $service,
                super::BlackboardTests<$service>
            );
            $(iceoryx2_bb_testing::instantiate_conformance_tests_with_module!(
                $module,
                iceoryx2_conformance_tests::$module,
                $service
            );)*
        }
    };
}

services!(
    services,
    ginnel_iceoryx2::Service,
    active_request client listener node node_death notifier pending_response publisher reader sample
    sample_mut server service_blackboard service_event service_publish_subscribe
    service_publish_subscribe_flatbuffer service_request_response service_request_response_builder
    service_request_response_flatbuffer subscriber waitset writer
);
mod ids {
    iceoryx2_bb_testing::instantiate_conformance_tests_with_module!(
        counted,
        iceoryx2_conformance_tests::unique_id_generator_trait,
        ginnel_iceoryx2::unique::Counted
    );
}

/// What the tests' authors run them with.
mod harness {
    iceoryx2_bb_testing::test_harness!();
}

fn main() {
    if !runs::starts_others() {
        harness::main();
    }
}
