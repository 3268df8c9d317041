//! Ids that nobody else in the segment has: a number that is counted there. (iceoryx2's own are
//! made of a process number and a clock, both of which two machines may have in common.)

use crate::storage::{Builder, Storage};
use iceoryx2::config::Config;
use iceoryx2::unique_id_generator::{
    Entity, UniqueId, UniqueIdGenerator, UniqueIdGeneratorDetailsError,
    UniqueIdGeneratorGenerateError,
};
use iceoryx2_bb_concurrency::atomic::{AtomicU64, Ordering};
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_derive_macros::ZeroCopySend;
use iceoryx2_bb_elementary_traits::zero_copy_send::ZeroCopySend;
use iceoryx2_bb_posix::clock::Time;
use iceoryx2_bb_posix::process::ProcessId;
use iceoryx2_bb_posix::unique_system_id::UniqueSystemId;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_cal::dynamic_storage::DynamicStorageBuilder;
use iceoryx2_cal::named_concept::{NamedConceptBuilder, NamedConceptConfiguration};
use std::sync::OnceLock;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Counts in the segment.
#[derive(Debug)]
pub struct Counted;

/// The count. One that is made anew begins beyond all that were: nobody makes a million a second.
#[derive(Debug, ZeroCopySend)]
#[repr(C)]
struct Count {
    next: AtomicU64,
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn count() -> Option<&'static Count> {
    static COUNT: OnceLock<Storage<Count>> = OnceLock::new();
    if COUNT.get().is_none() {
        let (name, suffix) = (FileName::new(b"ginnel").ok()?, FileName::new(b".ids").ok()?);
        let made = Builder::new(&name)
            .config(&NamedConceptConfiguration::suffix(Default::default(), &suffix))
            .has_ownership(false)
            .timeout(Duration::from_secs(1))
            .initializer(|count, _| {
                let next = AtomicU64::new(u64::try_from(now().as_micros()).unwrap_or(1));
                count.write(Count { next });
                true
            })
            .open_or_create();
        let _ = COUNT.set(made.ok()?);
    }
    COUNT.get().map(iceoryx2_cal::dynamic_storage::DynamicStorage::get)
}

impl UniqueIdGenerator for Counted {
    fn generate<Service: iceoryx2::service::Service>(
        _entity: Entity,
        _config: &Config,
    ) -> Result<UniqueId, UniqueIdGeneratorGenerateError> {
        let count = count().ok_or(UniqueIdGeneratorGenerateError::GenerationError)?;
        let id = u128::from(count.next.fetch_add(1, Ordering::Relaxed));
        let seconds = Time::now().map_or(0, |now| now.seconds());
        let process = u64::from(std::process::id()) | seconds << 32;
        // SAFETY: its upper half, which must be unique, was counted.
        Ok(unsafe { UniqueId::from_raw_id(id << 64 | u128::from(process)) })
    }

    /// In its own machine's and container's words.
    fn pid(id: UniqueId) -> Result<ProcessId, UniqueIdGeneratorDetailsError> {
        let pid = id.payload_value() & u64::from(u32::MAX);
        Ok(ProcessId::new(i32::try_from(pid).unwrap_or(0)))
    }

    /// By the clock of its machine, whole seconds.
    fn creation_time(id: UniqueId) -> Result<Time, UniqueIdGeneratorDetailsError> {
        // As iceoryx2 has it in its own ids, of which nothing else is taken.
        Ok(UniqueSystemId::from(u128::from(id.payload_value() >> 32)).creation_time())
    }
}
