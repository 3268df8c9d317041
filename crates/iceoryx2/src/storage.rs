//! A value by name, with memory behind it: what all of iceoryx2's shared structures lie in.

use crate::name::{self, Concept, Typed};
use crate::segment::{failed, segment};
use ginnel::Error;
use ginnel::adapter::{Part, Plan, Stage};
use iceoryx2_bb_elementary::package_version::PackageVersion;
use iceoryx2_bb_elementary_traits::testing::abandonable::Abandonable;
use iceoryx2_bb_elementary_traits::zero_copy_send::ZeroCopySend;
use iceoryx2_bb_memory::bump_allocator::BumpAllocator;
use iceoryx2_bb_posix::access_mode::AccessMode;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_bb_system_types::path::Path;
use iceoryx2_cal::dynamic_storage::{
    DynamicStorage, DynamicStorageBuilder, DynamicStorageCreateError, DynamicStorageOpenError,
    DynamicStorageOpenOrCreateError, Initializer,
};
use iceoryx2_cal::named_concept::{
    NamedConcept, NamedConceptBuilder, NamedConceptDoesExistError, NamedConceptListError,
    NamedConceptMgmt, NamedConceptPathHintRemoveError, NamedConceptRemoveError,
};
use iceoryx2_log::error;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The largest alignment: objects of the segment begin at pages.
const MOST_ALIGNMENT: usize = 4096;

/// What a storage's value may be.
pub trait Value: Send + Sync + Debug + ZeroCopySend + 'static {}
impl<T: Send + Sync + Debug + ZeroCopySend + 'static> Value for T {}

/// A value of type `T` in the segment, by name. One that is a part of what is made in steps goes
/// with the process that made it until that gives its ownership away: then all of it is there.
#[derive(Debug)]
pub struct Storage<T: Value, const IN_STEPS: bool = false> {
    name: FileName,
    part: Shared,
    is_owner: AtomicBool,
    of: PhantomData<T>,
}

/// The object, which has nothing to show.
struct Shared(Part);

impl Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Part")
    }
}

impl<T: Value, const IN_STEPS: bool> Storage<T, IN_STEPS> {
    fn value(&self) -> NonNull<T> {
        // A body begins at a page of the map, which is nowhere near 0.
        NonNull::new(self.part.0.as_ptr().cast()).unwrap_or(NonNull::dangling())
    }
}

impl<T: Value, const IN_STEPS: bool> Concept for Storage<T, IN_STEPS> {
    fn defaults() -> (Path, FileName, FileName) {
        (Self::default_path_hint(), Self::default_prefix(), Self::default_suffix())
    }

    fn type_name() -> &'static str {
        std::any::type_name::<T>()
    }
}

impl<T: Value, const IN_STEPS: bool> Abandonable for Storage<T, IN_STEPS> {
    unsafe fn abandon_in_place(mut this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        let this = unsafe { this.as_mut() };
        this.release_ownership();
        // SAFETY: as above.
        unsafe { std::ptr::drop_in_place(this) };
    }
}

impl<T: Value, const IN_STEPS: bool> Drop for Storage<T, IN_STEPS> {
    fn drop(&mut self) {
        // A child of fork has its parent's value in common with it.
        if self.has_ownership() && self.part.0.check().is_ok() {
            // SAFETY: it was initialised, and its owner alone drops it, as in iceoryx2's own
            // storage.
            unsafe { self.value().drop_in_place() };
            self.part.0.remove();
        }
    }
}

impl<T: Value, const IN_STEPS: bool> NamedConcept for Storage<T, IN_STEPS> {
    fn name(&self) -> &FileName {
        &self.name
    }
}

impl<T: Value, const IN_STEPS: bool> NamedConceptMgmt for Storage<T, IN_STEPS> {
    type Configuration = Typed<Storage<T, IN_STEPS>>;

    fn does_exist_cfg(
        name: &FileName,
        cfg: &Self::Configuration,
    ) -> Result<bool, NamedConceptDoesExistError> {
        Ok(name::look(name, cfg)?.is_some())
    }

    fn list_cfg(cfg: &Self::Configuration) -> Result<Vec<FileName>, NamedConceptListError> {
        name::list(cfg)
    }

    unsafe fn remove_cfg(
        name: &FileName,
        cfg: &Self::Configuration,
    ) -> Result<bool, NamedConceptRemoveError> {
        name::remove(name, cfg)
    }

    fn remove_path_hint(_value: &Path) -> Result<(), NamedConceptPathHintRemoveError> {
        Ok(())
    }
}

impl<T: Value, const IN_STEPS: bool> DynamicStorage<T> for Storage<T, IN_STEPS> {
    type Builder<'builder> = Builder<'builder, T, IN_STEPS>;

    fn does_support_persistency() -> bool {
        true
    }

    fn has_ownership(&self) -> bool {
        self.is_owner.load(Ordering::Relaxed)
    }

    fn release_ownership(&self) {
        self.is_owner.store(false, Ordering::Relaxed);
        self.part.0.keep();
    }

    /// Whoever does is about to remove it: where it dies before, others do.
    fn acquire_ownership(&self) {
        self.is_owner.store(true, Ordering::Relaxed);
        self.part.0.put(Stage::Owned);
    }

    fn get(&self) -> &T {
        // SAFETY: initialised before it was made, which was seen before this value came to be; of
        // the type that was asked for, as far as its size tells; in place as long as the object is
        // used. What others in the segment write there is what iceoryx2 trusts them with.
        unsafe { self.value().as_ref() }
    }

    unsafe fn __internal_set_type_name_in_config(config: &mut Self::Configuration, name: &str) {
        config.set_type_name(name);
    }
}

/// Makes and opens a [`Storage`].
#[derive(Debug)]
pub struct Builder<'builder, T: Value, const IN_STEPS: bool = false> {
    name: FileName,
    config: Typed<Storage<T, IN_STEPS>>,
    supplementary_size: usize,
    is_owner: bool,
    timeout: Duration,
    initializer: Initializer<'builder, T>,
}

impl<T: Value, const IN_STEPS: bool> NamedConceptBuilder<Storage<T, IN_STEPS>>
    for Builder<'_, T, IN_STEPS>
{
    fn new(name: &FileName) -> Self {
        Self {
            name: *name,
            config: Typed::default(),
            supplementary_size: 0,
            is_owner: true,
            timeout: Duration::ZERO,
            initializer: Initializer::new(|_, _| false),
        }
    }

    fn config(mut self, config: &Typed<Storage<T, IN_STEPS>>) -> Self {
        self.config = config.clone();
        self
    }
}

/// What must be the same for all who use a value of `T`.
fn numbers<T>() -> [u64; 3] {
    [PackageVersion::get().to_u64(), size_of::<T>() as u64, align_of::<T>() as u64]
}

/// Opens what has this path, once it is made. `Ok(None)`: it was not in this time.
pub(crate) fn open_made(path: &[u8], timeout: Duration) -> ginnel::Result<Option<Part>> {
    let until = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
    for round in 0.. {
        let part = Part::open(segment()?, path)?;
        if part.seen().stage != Some(Stage::Making) {
            return Ok(Some(part));
        }
        if Instant::now() >= until {
            break;
        }
        drop(part);
        match round {
            0..20 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Ok(None)
}

impl<'builder, T: Value, const IN_STEPS: bool> Builder<'builder, T, IN_STEPS> {
    fn make(&mut self) -> Result<Storage<T, IN_STEPS>, DynamicStorageCreateError> {
        let Some(size) = size_of::<T>().checked_add(self.supplementary_size) else {
            return Err(DynamicStorageCreateError::InternalError);
        };
        if align_of::<T>() > MOST_ALIGNMENT {
            error!(from self, "Unable to create storage: an alignment of {} is more than a page's.", align_of::<T>());
            return Err(DynamicStorageCreateError::InternalError);
        }
        let plan = Plan { size: size as u64, numbers: numbers::<T>(), stage: Stage::Making };
        let path = name::path(&self.name, &self.config);
        let made = segment().and_then(|segment| Part::create(segment, &path, &plan));
        let part = made.map_err(|why| match why {
            Error::Taken { .. } => DynamicStorageCreateError::AlreadyExists,
            why => {
                failed("create storage in the segment")(why);
                DynamicStorageCreateError::InternalError
            }
        })?;
        let half = HalfMade(Some(part));
        if !self.initialise(half.at()) {
            return Err(DynamicStorageCreateError::InitializationFailed);
        }
        let part = half.made(if IN_STEPS { Stage::Owned } else { Stage::Made });
        let (name, is_owner) = (self.name, AtomicBool::new(self.is_owner));
        Ok(Storage { name, part: Shared(part), is_owner, of: PhantomData })
    }

    fn initialise(&mut self, at: *mut u8) -> bool {
        // SAFETY: the body has so many bytes, begins at a page, and is not opened by anybody before
        // it is made.
        let value = unsafe { &mut *at.cast::<MaybeUninit<T>>() };
        // SAFETY: as above; the end of the value at most, which is inside or just behind.
        let behind = unsafe { at.add(size_of::<T>()) };
        let Some(behind) = NonNull::new(behind) else { return false };
        let mut allocator = BumpAllocator::new(behind, self.supplementary_size);
        self.initializer.call(value, &mut allocator)
    }

    fn look(&self, access: AccessMode) -> Result<Storage<T, IN_STEPS>, DynamicStorageOpenError> {
        let opened = open_made(&name::path(&self.name, &self.config), self.timeout);
        let opened = opened.map_err(|why| match why {
            Error::NotFound { .. } => DynamicStorageOpenError::DoesNotExist,
            why => refused(why),
        })?;
        let mut part = opened.ok_or(DynamicStorageOpenError::InitializationNotYetFinalized)?;
        self.check(&part)?;
        if access == AccessMode::Read {
            part.look_only();
        }
        let (name, is_owner) = (self.name, AtomicBool::new(false));
        Ok(Storage { name, part: Shared(part), is_owner, of: PhantomData })
    }

    /// Is it what this program takes it for?
    fn check(&self, part: &Part) -> Result<(), DynamicStorageOpenError> {
        let [version, size, alignment] = part.numbers();
        let [ours, wanted, aligned] = numbers::<T>();
        if version != ours {
            let (theirs, ours) = (PackageVersion::from_u64(version), PackageVersion::get());
            let what =
                format!("{} was made by iceoryx2 {theirs}, this program has {ours}", self.name);
            return Err(other_version(what));
        }
        if (size, alignment) != (wanted, aligned) || part.size() < size {
            let what = format!(
                "{} has values of {size} bytes aligned to {alignment}, not {wanted} and {aligned}",
                self.name
            );
            return Err(other_version(what));
        }
        Ok(())
    }
}

fn other_version(what: String) -> DynamicStorageOpenError {
    failed("open storage in the segment")(Error::Invalid { what });
    DynamicStorageOpenError::VersionMismatch
}

fn refused(why: Error) -> DynamicStorageOpenError {
    match failed("open storage in the segment")(why) {
        Error::Version { .. } => DynamicStorageOpenError::VersionMismatch,
        _ => DynamicStorageOpenError::InternalError,
    }
}

/// An object whose value is not there yet: it goes where that does not come.
struct HalfMade(Option<Part>);

impl HalfMade {
    fn at(&self) -> *mut u8 {
        self.0.as_ref().map_or(std::ptr::null_mut(), Part::as_ptr)
    }

    fn made(mut self, stage: Stage) -> Part {
        let part = self.0.take().expect("taken once");
        part.put(stage);
        part
    }
}

impl Drop for HalfMade {
    fn drop(&mut self) {
        if let Some(part) = &self.0 {
            part.remove();
        }
    }
}

impl<'builder, T: Value, const IN_STEPS: bool>
    DynamicStorageBuilder<'builder, T, Storage<T, IN_STEPS>> for Builder<'builder, T, IN_STEPS>
{
    fn has_ownership(mut self, value: bool) -> Self {
        self.is_owner = value;
        self
    }

    // Who may use the segment may use what is in it.
    fn enable_global_access(self, _value: bool) -> Self {
        self
    }

    fn supplementary_size(mut self, value: usize) -> Self {
        self.supplementary_size = value;
        self
    }

    fn timeout(mut self, value: Duration) -> Self {
        self.timeout = value;
        self
    }

    fn initializer<F: FnMut(&mut MaybeUninit<T>, &mut BumpAllocator) -> bool + 'builder>(
        mut self,
        value: F,
    ) -> Self {
        self.initializer = Initializer::new(value);
        self
    }

    fn create(mut self) -> Result<Storage<T, IN_STEPS>, DynamicStorageCreateError> {
        self.make()
    }

    fn open(self, access: AccessMode) -> Result<Storage<T, IN_STEPS>, DynamicStorageOpenError> {
        self.look(access)
    }

    fn open_or_create(mut self) -> Result<Storage<T, IN_STEPS>, DynamicStorageOpenOrCreateError> {
        loop {
            match self.look(AccessMode::ReadWrite) {
                Err(DynamicStorageOpenError::DoesNotExist) => {}
                other => return Ok(other?),
            }
            match self.make() {
                Err(DynamicStorageCreateError::AlreadyExists) => {}
                other => return Ok(other?),
            }
        }
    }
}
