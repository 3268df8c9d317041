//! iceoryx2's service variants over a segment: which type stands for each of its concepts.

use crate::storage::Storage;
use crate::{monitoring, serializer, static_storage, trigger, unique};
use iceoryx2_bb_elementary_traits::testing::abandonable::Abandonable;
use iceoryx2_bb_elementary_traits::zero_copy_send::ZeroCopySend;
use iceoryx2_cal::arc_sync_policy::mutex_protected::MutexProtected;
use iceoryx2_cal::arc_sync_policy::single_threaded::SingleThreaded;
use iceoryx2_cal::event::event_state::counting_bit_set::RelocatableCountingBitSet;
use iceoryx2_cal::shared_memory::common::details::{AllocatorDetails, Memory};
use iceoryx2_cal::shm_allocator::bump_allocator::BumpAllocator;
use iceoryx2_cal::shm_allocator::pool_allocator::PoolAllocator;
use iceoryx2_cal::zero_copy_connection::common::details::{Connection, SharedManagementData};
use iceoryx2_cal::{bag, hash, reactor, resizable_shared_memory};
use std::fmt::Debug;

/// Payload of publishers, servers and clients.
pub type Payload<A> = Memory<A, Storage<AllocatorDetails<A>>>;
/// Payload that grows.
pub type Growing =
    resizable_shared_memory::dynamic::DynamicMemory<PoolAllocator, Payload<PoolAllocator>>;
/// Payload of a blackboard, which is made with its service.
pub type Board = Memory<BumpAllocator, Storage<AllocatorDetails<BumpAllocator>, true>>;
/// What one port hands to another: offsets into payload.
pub type Link = Connection<Storage<SharedManagementData>>;

/// iceoryx2 over a segment, in place of `ipc::Service`. A port and its samples stay in the thread
/// that made them.
#[derive(Debug, Clone)]
pub struct Service {}

/// The same, in place of `ipc_threadsafe::Service`: threads may share a port.
#[derive(Debug, Clone)]
pub struct Threadsafe {}

macro_rules! over_a_segment {
    ($service:ty, $policy:ident) => {
        impl iceoryx2::service::Service for $service {
            type StaticStorage = static_storage::Storage;
            type ConfigSerializer = serializer::Serializer;
            type PersistentDynamicStorage<T: Debug + Send + Sync + ZeroCopySend + 'static> =
                Storage<T>;
            type DynamicStorage<T: Debug + Send + Sync + ZeroCopySend + 'static> = Storage<T, true>;
            type ServiceNameHasher = hash::recommended::Recommended;
            type SharedMemory = Payload<PoolAllocator>;
            type ResizableSharedMemory = Growing;
            type Connection = Link;
            type Event = trigger::Event<RelocatableCountingBitSet>;
            type Monitoring = monitoring::Life;
            type Reactor = reactor::recommended::Ipc;
            type ArcThreadSafetyPolicy<T: Send + Debug + Abandonable> = $policy<T>;
            type BlackboardMgmt<T: Send + Sync + Debug + ZeroCopySend + 'static> = Storage<T, true>;
            type BlackboardPayload = Board;
            type Bag = bag::recommended::Recommended;
            type UniqueId = unique::Counted;
        }

        impl iceoryx2::service::internal::ServiceInternal<Self> for $service {}
    };
}

over_a_segment!(Service, SingleThreaded);
over_a_segment!(Threadsafe, MutexProtected);
