//! Waking a listener: its bell stands in the event's memory by its number.

use crate::segment::{failed, segment};
use ginnel::Error;
use ginnel::adapter::{self, Bell};
use iceoryx2_bb_derive_macros::ZeroCopySend;
use iceoryx2_bb_elementary_traits::testing::abandonable::Abandonable;
use iceoryx2_bb_elementary_traits::zero_copy_send::ZeroCopySend;
use iceoryx2_bb_posix::file_descriptor::{FileDescriptor, FileDescriptorBased};
use iceoryx2_bb_posix::file_descriptor_set::SynchronousMultiplexing;
use iceoryx2_bb_system_types::file_name::FileName;
use iceoryx2_bb_system_types::path::Path;
use iceoryx2_cal::dynamic_storage::DynamicStorage;
use iceoryx2_cal::event::common::EventImpl;
use iceoryx2_cal::event::event_state::EventState;
use iceoryx2_cal::event::trigger::{Configuration, HandlerInterface, State, WaiterInterface};
use iceoryx2_cal::event::{
    ListenerCreateError, ListenerWaitError, NotifierNotifyError, NotifierOpenError,
};
use iceoryx2_cal::named_concept::{NamedConceptPathHintRemoveError, NamedConceptRemoveError};
use std::fmt::{self, Debug};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::time::Duration;

/// The number of a bell, in shared memory.
#[derive(Debug, Clone, Copy, ZeroCopySend)]
#[repr(C)]
pub struct Number([u64; 2]);

/// Events over a segment.
pub type Event<E> = EventImpl<E, Number, crate::storage::Storage<State<E, Number>>, Handle, Waiter>;

/// What rings a listener's bell.
#[derive(Debug)]
pub struct Handle(Number);

/// A listener's bell.
pub struct Waiter {
    bell: Bell,
    descriptor: FileDescriptor,
}

impl Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter({:x?})", self.bell.number())
    }
}

impl Abandonable for Handle {
    unsafe fn abandon_in_place(_this: NonNull<Self>) {}
}

impl Abandonable for Waiter {
    unsafe fn abandon_in_place(this: NonNull<Self>) {
        // SAFETY: the caller's promise: it is valid, and not used afterwards.
        unsafe { this.drop_in_place() };
    }
}

impl FileDescriptorBased for Waiter {
    fn file_descriptor(&self) -> &FileDescriptor {
        &self.descriptor
    }
}

impl SynchronousMultiplexing for Waiter {}

impl<E: EventState, S: DynamicStorage<State<E, Number>>> HandlerInterface<E, Number, S> for Handle {
    fn open(
        _name: &FileName,
        _config: &Configuration,
        mgmt: &Number,
    ) -> Result<Self, NotifierOpenError> {
        let hangs = segment().and_then(|segment| adapter::hangs(segment, mgmt.0));
        match hangs.map_err(failed("look for a listener")) {
            Ok(true) => Ok(Self(*mgmt)),
            // As where nobody has iceoryx2's own socket open.
            Ok(false) => Err(NotifierOpenError::DoesNotExist),
            Err(_) => Err(NotifierOpenError::InternalFailure),
        }
    }

    fn notify(&self) -> Result<(), NotifierNotifyError> {
        let rung = segment().and_then(|segment| adapter::ring(segment, self.0.0));
        match rung.map_err(failed("wake a listener")) {
            Ok(true) => Ok(()),
            Ok(false) => Err(NotifierNotifyError::Disconnected),
            Err(_) => Err(NotifierNotifyError::InternalFailure),
        }
    }
}

impl Waiter {
    fn wait(&self, time: Option<Duration>) -> Result<(), ListenerWaitError> {
        self.bell.wait(time).map(|_| ()).map_err(|why| match why {
            Error::System { errno: libc::EINTR, .. } => ListenerWaitError::InterruptSignal,
            why => {
                failed("wait for a ring")(why);
                ListenerWaitError::InternalFailure
            }
        })
    }
}

impl<E: EventState, S: DynamicStorage<State<E, Number>>> WaiterInterface<E, Number, S> for Waiter {
    const IS_FILE_DESCRIPTOR_BASED: bool = true;

    /// The bell goes with the process, or with its listener: nothing else has its name.
    unsafe fn remove(
        _name: &FileName,
        _config: &Configuration,
    ) -> Result<bool, NamedConceptRemoveError> {
        Ok(true)
    }

    fn remove_path_hint(_value: &Path) -> Result<(), NamedConceptPathHintRemoveError> {
        Ok(())
    }

    fn create(
        _name: &FileName,
        _config: &Configuration,
        mgmt: &mut MaybeUninit<Number>,
    ) -> Result<Self, ListenerCreateError> {
        let bell = segment().and_then(Bell::new).map_err(failed("make a listener's bell"));
        let bell = bell.map_err(|_| ListenerCreateError::InternalFailure)?;
        let descriptor = FileDescriptor::non_owning_new(bell.as_fd().as_raw_fd());
        let descriptor = descriptor.ok_or(ListenerCreateError::InternalFailure)?;
        mgmt.write(Number(bell.number()));
        Ok(Self { bell, descriptor })
    }

    fn try_wait(&self) -> Result<(), ListenerWaitError> {
        self.bell.clear();
        Ok(())
    }

    fn timed_wait(&self, timeout: Duration) -> Result<(), ListenerWaitError> {
        self.wait(Some(timeout))
    }

    fn blocking_wait(&self) -> Result<(), ListenerWaitError> {
        self.wait(None)
    }

    fn empty_buffer(&self) -> Result<(), ListenerWaitError> {
        self.bell.clear();
        Ok(())
    }
}
