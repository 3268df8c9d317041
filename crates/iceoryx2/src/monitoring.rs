//! Who lives: a node's token is held by the process that made it, and dead as soon as that is.
//!
//! The segment knows who lives by a lock that the kernel takes from a process that ends, and of
//! other machines by what the host says of them. So nobody who lives counts as dead, however long
//! it stands still.

use crate::name::{self, Concept, Configuration};
use crate::segment::{failed, segment};
use ginnel::adapter::{Part, Plan, Seen, Stage};
use ginnel::{Error, Result as Done};
use iceoryx2_bb_container::semantic_string::SemanticString;
use iceoryx2_bb_elementary::package_version::PackageVersion;
use iceoryx2_bb_elementary_traits::testing::abandonable::Abandonable;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_bb_system_types::path::Path;
use iceoryx2_cal::monitoring::{
    Monitoring, MonitoringBuilder, MonitoringCleaner, MonitoringCreateCleanerError,
    MonitoringCreateMonitorError, MonitoringCreateTokenError, MonitoringMonitor,
    MonitoringStateError, MonitoringToken, State,
};
use iceoryx2_cal::named_concept::{
    NamedConcept, NamedConceptBuilder, NamedConceptDoesExistError, NamedConceptListError,
    NamedConceptMgmt, NamedConceptPathHintRemoveError, NamedConceptRemoveError,
};
use std::fmt::Debug;
use std::ptr::NonNull;

/// Monitoring by the segment.
#[derive(Debug)]
pub struct Life;

impl Concept for Life {
    fn defaults() -> (Path, FileName, FileName) {
        (Self::default_path_hint(), Self::default_prefix(), Self::default_suffix())
    }
}

impl NamedConceptMgmt for Life {
    type Configuration = Configuration<Self>;

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

impl Monitoring for Life {
    type Token = Token;
    type Monitor = Monitor;
    type Cleaner = Cleaner;
    type Builder = Builder;
}

/// An object with a name that is this process's to take away.
struct Own {
    name: FileName,
    part: Part,
}

impl Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// Says that whoever holds it lives.
#[derive(Debug)]
pub struct Token(Own);

/// The right to clear up after a dead one.
#[derive(Debug)]
pub struct Cleaner(Own);

/// Asks whether one lives.
#[derive(Debug)]
pub struct Monitor {
    name: FileName,
    path: Vec<u8>,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.part.remove();
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.0.part.remove();
    }
}

impl Abandonable for Token {
    unsafe fn abandon_in_place(mut this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        let own = unsafe { &raw mut this.as_mut().0 };
        // SAFETY: as above.
        unsafe { leave(own) };
    }
}

impl Abandonable for Cleaner {
    unsafe fn abandon_in_place(mut this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        let own = unsafe { &raw mut this.as_mut().0 };
        // SAFETY: as above.
        unsafe { leave(own) };
    }
}

/// Leaves what a dead one left, for the next who clears up.
///
/// # Safety
/// It is valid, and not used afterwards.
unsafe fn leave(own: *mut Own) {
    // SAFETY: the caller's promise.
    unsafe { &*own }.part.put(Stage::Left);
    // SAFETY: as above.
    unsafe { own.drop_in_place() };
}

impl NamedConcept for Token {
    fn name(&self) -> &FileName {
        &self.0.name
    }
}

impl NamedConcept for Cleaner {
    fn name(&self) -> &FileName {
        &self.0.name
    }
}

impl NamedConcept for Monitor {
    fn name(&self) -> &FileName {
        &self.name
    }
}

impl MonitoringToken for Token {}

impl MonitoringCleaner for Cleaner {
    fn relinquish(self) {
        self.abandon();
    }
}

fn lives(seen: Seen) -> bool {
    seen.stage == Some(Stage::Held) && seen.lives
}

impl MonitoringMonitor for Monitor {
    fn state(&self) -> Result<State, MonitoringStateError> {
        let seen = segment().and_then(|segment| ginnel::adapter::look(segment, &self.path));
        let seen = seen.map_err(failed("look at a token in the segment"));
        Ok(match seen.map_err(|_| MonitoringStateError::InternalError)? {
            None => State::DoesNotExist,
            Some(seen) if lives(seen) => State::Alive,
            Some(_) => State::Dead,
        })
    }
}

/// Makes tokens, and what looks at them.
#[derive(Debug)]
pub struct Builder {
    name: FileName,
    config: Configuration<Life>,
}

impl NamedConceptBuilder<Life> for Builder {
    fn new(name: &FileName) -> Self {
        Self { name: *name, config: Configuration::default() }
    }

    fn config(mut self, config: &Configuration<Life>) -> Self {
        self.config = config.clone();
        self
    }
}

impl Builder {
    fn path(&self) -> Vec<u8> {
        name::path(&self.name, &self.config)
    }

    fn open(&self) -> Done<Part> {
        Part::open(segment()?, &self.path())
    }

    /// Takes away what there is of a node that gets no token. iceoryx2 has put down the node's
    /// details before, in a directory of the token's name, and leaves them there: whoever tries
    /// again and again where there is no room would have less with each try.
    fn clear(&self) {
        let Ok(segment) = segment() else { return };
        let name = self.name.as_bytes();
        let is_its = |path: &[u8]| path.rsplit(|&byte| byte == b'/').nth(1) == Some(name);
        for (path, _) in ginnel::adapter::list(segment).unwrap_or_default() {
            if is_its(&path) {
                let _ = ginnel::adapter::remove(segment, &path);
            }
        }
    }
}

impl MonitoringBuilder<Life> for Builder {
    fn token(self) -> Result<Token, MonitoringCreateTokenError> {
        let numbers = [PackageVersion::get().to_u64(), 0, 0];
        let plan = Plan { size: 0, numbers, stage: Stage::Held };
        let made = segment().and_then(|segment| Part::create(segment, &self.path(), &plan));
        match made {
            Ok(part) => Ok(Token(Own { name: self.name, part })),
            Err(Error::Taken { .. }) => Err(MonitoringCreateTokenError::AlreadyExists),
            Err(why) => {
                failed("create a token in the segment")(why);
                self.clear();
                Err(MonitoringCreateTokenError::InternalError)
            }
        }
    }

    fn monitor(self) -> Result<Monitor, MonitoringCreateMonitorError> {
        Ok(Monitor { name: self.name, path: self.path() })
    }

    fn cleaner(self) -> Result<Cleaner, MonitoringCreateCleanerError> {
        let part = self.open().map_err(|why| match why {
            Error::NotFound { .. } => MonitoringCreateCleanerError::DoesNotExist,
            why => {
                failed("open a token in the segment")(why);
                MonitoringCreateCleanerError::InternalError
            }
        })?;
        let seen = part.seen();
        if lives(seen) {
            return Err(MonitoringCreateCleanerError::InstanceStillAlive);
        }
        // One that died while it cleared up is followed by the next.
        let is_cleared = seen.stage == Some(Stage::Clearing) && seen.lives;
        if is_cleared || !part.change(seen, Stage::Clearing) {
            return Err(MonitoringCreateCleanerError::AlreadyOwnedByAnotherInstance);
        }
        Ok(Cleaner(Own { name: self.name, part }))
    }
}
