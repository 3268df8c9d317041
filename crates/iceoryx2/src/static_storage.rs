//! Bytes by name that are written once: what a service is, what a node is called.
//!
//! iceoryx2 makes a service in steps: its name, what it is, then the rest, and only then it gives
//! the ownership away; and it takes that again to remove them in the other order. Where a process
//! dies in between, its service is one that others find and can never open. So what was made in
//! steps goes with the process that owns it.

use crate::name::{self, Concept, Configuration};
use crate::segment::{failed, segment};
use crate::storage::open_made;
use ginnel::Error;
use ginnel::adapter::{Part, Plan, Stage};
use iceoryx2_bb_elementary::package_version::PackageVersion;
use iceoryx2_bb_elementary_traits::testing::abandonable::Abandonable;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_bb_system_types::path::Path;
use iceoryx2_cal::named_concept::{
    NamedConcept, NamedConceptBuilder, NamedConceptDoesExistError, NamedConceptListError,
    NamedConceptMgmt, NamedConceptPathHintRemoveError, NamedConceptRemoveError,
};
use iceoryx2_cal::static_storage::{
    StaticStorage, StaticStorageBuilder, StaticStorageConfiguration, StaticStorageCreateError,
    StaticStorageLocked, StaticStorageOpenError, StaticStorageReadError, StaticStorageUnlockError,
    StaticStorageView,
};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the segment, by name.
#[derive(Debug)]
pub struct Storage {
    name: FileName,
    view: View,
    is_owner: AtomicBool,
    /// It was made in steps, or opened.
    in_steps: bool,
}

/// The bytes themselves.
pub struct View(Part);

impl Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.load_len())
    }
}

/// A name whose bytes are still to come.
#[derive(Debug)]
pub struct Locked(Storage);

impl Concept for Storage {
    fn defaults() -> (Path, FileName, FileName) {
        (Self::default_path_hint(), Self::default_prefix(), Self::default_suffix())
    }
}

impl StaticStorageConfiguration for Configuration<Storage> {}

impl Drop for Storage {
    fn drop(&mut self) {
        if self.is_owner.load(Ordering::Relaxed) {
            self.view.0.remove();
        }
    }
}

impl Abandonable for View {
    unsafe fn abandon_in_place(this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        unsafe { this.drop_in_place() };
    }
}

impl Abandonable for Storage {
    unsafe fn abandon_in_place(mut this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        let this = unsafe { this.as_mut() };
        this.release_ownership();
        // SAFETY: as above.
        unsafe { std::ptr::drop_in_place(this) };
    }
}

impl Abandonable for Locked {
    unsafe fn abandon_in_place(mut this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        unsafe { Storage::abandon_in_place(NonNull::from_mut(&mut this.as_mut().0)) };
    }
}

impl NamedConcept for Storage {
    fn name(&self) -> &FileName {
        &self.name
    }
}

impl NamedConcept for Locked {
    fn name(&self) -> &FileName {
        &self.0.name
    }
}

impl NamedConceptMgmt for Storage {
    type Configuration = Configuration<Self>;

    fn does_exist_cfg(
        name: &FileName,
        cfg: &Self::Configuration,
    ) -> Result<bool, NamedConceptDoesExistError> {
        let seen = name::look(name, cfg)?;
        match seen.map(|seen| seen.stage) {
            Some(Some(Stage::Making)) => {
                Err(NamedConceptDoesExistError::UnderlyingResourcesBeingSetUp)
            }
            other => Ok(other.is_some()),
        }
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

impl StaticStorageView for View {
    fn len(&self) -> u64 {
        self.0.load_len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self, content: &mut [u8]) -> Result<(), StaticStorageReadError> {
        let bytes = self.0.carried().map_err(failed("read from the segment"));
        let bytes = bytes.map_err(|_| StaticStorageReadError::InternalError)?;
        let room = content.get_mut(..bytes.len()).ok_or(StaticStorageReadError::BufferTooSmall)?;
        room.copy_from_slice(&bytes);
        Ok(())
    }
}

impl StaticStorageView for Storage {
    fn len(&self) -> u64 {
        self.view.len()
    }

    fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    fn read(&self, content: &mut [u8]) -> Result<(), StaticStorageReadError> {
        self.view.read(content)
    }
}

impl StaticStorage for Storage {
    type Builder = Builder;
    type Locked = Locked;
    type View = View;

    fn view(&self) -> &View {
        &self.view
    }

    fn release_ownership(&self) {
        self.is_owner.store(false, Ordering::Relaxed);
        self.view.0.keep();
    }

    fn acquire_ownership(&self) {
        self.is_owner.store(true, Ordering::Relaxed);
        if self.in_steps {
            self.view.0.put(Stage::Owned);
        }
    }
}

impl StaticStorageLocked<Storage> for Locked {
    fn unlock(self, contents: &[u8]) -> Result<Storage, StaticStorageUnlockError> {
        let part = &self.0.view.0;
        part.load(contents).map_err(|why| match failed("write to the segment")(why) {
            Error::SegmentFull { .. } | Error::NoMemory => StaticStorageUnlockError::NoSpaceLeft,
            _ => StaticStorageUnlockError::InternalError,
        })?;
        let goes_along = self.0.in_steps && self.0.is_owner.load(Ordering::Relaxed);
        part.put(if goes_along { Stage::Owned } else { Stage::Made });
        Ok(self.0)
    }
}

/// Makes and opens a [`Storage`].
#[derive(Debug)]
pub struct Builder {
    name: FileName,
    config: Configuration<Storage>,
    is_owner: bool,
}

impl NamedConceptBuilder<Storage> for Builder {
    fn new(name: &FileName) -> Self {
        Self { name: *name, config: Configuration::default(), is_owner: true }
    }

    fn config(mut self, config: &Configuration<Storage>) -> Self {
        self.config = config.clone();
        self
    }
}

impl Builder {
    fn storage(self, part: Part, is_owner: bool) -> Storage {
        let is_owner = AtomicBool::new(is_owner);
        Storage { name: self.name, view: View(part), is_owner, in_steps: true }
    }
}

impl StaticStorageBuilder<Storage> for Builder {
    fn has_ownership(mut self, value: bool) -> Self {
        self.is_owner = value;
        self
    }

    /// In one step: it stays where its owner dies, as in iceoryx2's own storage. What clears up
    /// after the dead needs it.
    fn create(self, contents: &[u8]) -> Result<Storage, StaticStorageCreateError> {
        let mut locked = self.create_locked()?;
        locked.0.in_steps = false;
        locked.unlock(contents).map_err(|_| StaticStorageCreateError::Write)
    }

    fn create_locked(self) -> Result<Locked, StaticStorageCreateError> {
        let numbers = [PackageVersion::get().to_u64(), 0, 0];
        let plan = Plan { size: 0, numbers, stage: Stage::Making };
        let path = name::path(&self.name, &self.config);
        let made = segment().and_then(|segment| Part::create(segment, &path, &plan));
        let part = made.map_err(|why| match why {
            Error::Taken { .. } => StaticStorageCreateError::AlreadyExists,
            why => {
                failed("create static storage in the segment")(why);
                StaticStorageCreateError::InternalError
            }
        })?;
        let is_owner = self.is_owner;
        Ok(Locked(self.storage(part, is_owner)))
    }

    fn open(self, timeout: Duration) -> Result<Storage, StaticStorageOpenError> {
        let opened = open_made(&name::path(&self.name, &self.config), timeout);
        let opened = opened.map_err(|why| match why {
            Error::NotFound { .. } => StaticStorageOpenError::DoesNotExist,
            why => {
                failed("open static storage in the segment")(why);
                StaticStorageOpenError::InternalError
            }
        })?;
        let part = opened.ok_or(StaticStorageOpenError::InitializationNotYetFinalized)?;
        Ok(self.storage(part, false))
    }
}
