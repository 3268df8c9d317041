//! `ginnel_queue_…`, `ginnel_sender_…`, `ginnel_receiver_…`, `ginnel_loan_…`, `ginnel_message_…`

use crate::error::Fail;
use crate::memory::{bytes_mut, bytes_of};
use crate::single::Single;
use crate::{Wait, answer, as_number, hand_out, handle, number, options, text};
use ginnel::{Loan, Message, Queue, Segment, WhenFull};
use std::ffi::{c_char, c_int, c_void};

/// Handles.
pub type Sender = Single<ginnel::Sender>;
pub type Receiver = Single<ginnel::Receiver>;

/// `ginnel_queue_options`: plain numbers.
#[repr(C)]
#[derive(Default)]
pub struct QueueOptions {
    size: usize,
    capacity: u32,
    senders: u32,
    message_size: u64,
    loans: u32,
}

/// `ginnel_loan`. The private words: the sender, the buffer.
#[repr(C)]
pub struct CLoan {
    data: *mut c_void,
    len: usize,
    sender: *const Sender,
    buffer: u64,
}

/// `ginnel_message`. The private words: the receiver, lane and buffer, the buffer's state.
#[repr(C)]
pub struct CMessage {
    data: *const c_void,
    len: usize,
    receiver: *const Receiver,
    place: u64,
    state: u64,
}

const _: () = assert!(size_of::<CLoan>() == 32 && size_of::<CMessage>() == 40);

/// # Safety
/// As [`options`].
unsafe fn queue(given: *const QueueOptions) -> Result<Queue, Fail> {
    // SAFETY: the caller's promise.
    let given = unsafe { options(given) }?;
    let mut queue = Queue::new();
    if given.capacity != 0 {
        queue = queue.capacity(given.capacity);
    }
    if given.senders != 0 {
        queue = queue.senders(given.senders);
    }
    if given.message_size != 0 {
        queue = queue.message_size(given.message_size);
    }
    if given.loans != 0 {
        queue = queue.loans(given.loans);
    }
    Ok(queue)
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_queue_create(
    segment: *const Segment,
    name: *const c_char,
    given: *const QueueOptions,
) -> c_int {
    // SAFETY: the header's promise.
    answer((|| unsafe { Ok(queue(given)?.create(handle(segment)?, text(name)?)?) })())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_queue_open_or_create(
    segment: *const Segment,
    name: *const c_char,
    given: *const QueueOptions,
) -> c_int {
    // SAFETY: the header's promise.
    answer((|| unsafe { Ok(queue(given)?.open_or_create(handle(segment)?, text(name)?)?) })())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_sender_open(
    segment: *const Segment,
    name: *const c_char,
    full: c_int,
    out: *mut *mut Sender,
) -> c_int {
    let open = || {
        let full = match full {
            0 => WhenFull::Wait,
            1 => WhenFull::Refuse,
            2 => WhenFull::DropOldest,
            _ => return Err(Fail::invalid("no such way to do where a queue is full")),
        };
        // SAFETY: the header's promise.
        let sender = unsafe { ginnel::Sender::open(handle(segment)?, text(name)?) };
        // SAFETY: the header's promise.
        unsafe { hand_out(out, || Ok(Single::new(sender?.when_full(full)))) }
    };
    answer(open())
}

fn lend(sender: &ginnel::Sender, len: usize, time: i64) -> ginnel::Result<Loan<'_>> {
    match Wait::of(time) {
        Wait::Not => sender.try_loan(len),
        Wait::ForEver => sender.loan(len),
        Wait::For(time) => sender.loan_timeout(len, time),
    }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_sender_send(
    sender: *const Sender,
    bytes: *const c_void,
    len: usize,
    time: i64,
) -> c_int {
    let send = || {
        // SAFETY: the header's promise: `bytes` is readable for `len` bytes.
        let (sender, bytes) = unsafe { (handle(sender)?, bytes_of(bytes, len)?) };
        let mut turn = sender.turn()?;
        let mut loan = lend(turn.get(), len, time)?;
        loan.write(0, bytes);
        Ok(loan.send()?)
    };
    answer(send())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_sender_loan(
    sender: *const Sender,
    len: usize,
    time: i64,
    out: *mut CLoan,
) -> c_int {
    let borrow = || {
        if out.is_null() {
            return Err(Fail::null("where the loan is to be put"));
        }
        // SAFETY: the header's promise.
        let mut turn = unsafe { handle(sender) }?.turn()?;
        let mut loan = lend(turn.get(), len, time)?;
        let data = loan.as_mut_ptr().cast();
        let loan = CLoan { data, len, sender, buffer: loan.into_parts().into() };
        // SAFETY: the header's promise: `out` is writable.
        unsafe { out.write(loan) };
        Ok(())
    };
    answer(borrow())
}

/// Does something with a loan, which the caller's structure then has no longer.
///
/// # Safety
/// NULL, or what `ginnel_sender_loan` filled, whose sender is open.
unsafe fn with_loan(
    loan: *mut CLoan,
    end: impl FnOnce(Loan<'_>) -> Result<(), Fail>,
) -> Result<(), Fail> {
    // SAFETY: the caller's promise.
    let given = unsafe { loan.as_mut() }.ok_or_else(|| Fail::null("a loan"))?;
    // SAFETY: the caller's promise; NULL where it was given back.
    let sender = unsafe { handle(given.sender) }
        .map_err(|_| Fail::invalid("the loan was sent or given back before"))?;
    let mut turn = sender.turn()?;
    given.sender = std::ptr::null();
    given.data = std::ptr::null_mut();
    let buffer = u32::try_from(given.buffer).unwrap_or(u32::MAX);
    let loan = Loan::from_parts(turn.get(), buffer, given.len);
    end(loan.ok_or_else(|| Fail::invalid("this is no loan"))?)
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_loan_send(loan: *mut CLoan, len: usize) -> c_int {
    let send = |mut loan: Loan<'_>| {
        loan.truncate(len);
        Ok(loan.send()?)
    };
    // SAFETY: the header's promise.
    answer(unsafe { with_loan(loan, send) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_loan_drop(loan: *mut CLoan) -> c_int {
    let give_back = |loan: Loan<'_>| {
        drop(loan);
        Ok(())
    };
    // SAFETY: the header's promise.
    answer(unsafe { with_loan(loan, give_back) })
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_sender_fd(sender: *const Sender) -> c_int {
    // SAFETY: the header's promise.
    number(unsafe { handle(sender) }.and_then(|of| Ok(as_number(of.turn()?.get().descriptor()?))))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_sender_close(sender: *mut Sender) -> c_int {
    let is_free = |sender: &Sender| match sender.turn()?.get().lent() {
        0 => Ok(()),
        _ => Err(Fail::in_use("a loan of this sender is out: send it or give it back")),
    };
    // SAFETY: the header's promise.
    if let Some(Err(why)) = unsafe { sender.as_ref() }.map(is_free) {
        return answer(Err(why));
    }
    // SAFETY: the header's promise.
    unsafe { crate::close(sender) };
    0
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_receiver_open(
    segment: *const Segment,
    name: *const c_char,
    out: *mut *mut Receiver,
) -> c_int {
    // SAFETY: the header's promise.
    let open = || unsafe {
        let (segment, name) = (handle(segment)?, text(name)?);
        Ok(Single::new(ginnel::Receiver::open(segment, name)?))
    };
    // SAFETY: as above.
    answer(unsafe { hand_out(out, open) })
}

fn take(receiver: &ginnel::Receiver, time: i64) -> ginnel::Result<Message<'_>> {
    match Wait::of(time) {
        Wait::Not => receiver.try_recv(),
        Wait::ForEver => receiver.recv(),
        Wait::For(time) => receiver.recv_timeout(time),
    }
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_receiver_take(
    receiver: *const Receiver,
    time: i64,
    out: *mut CMessage,
) -> c_int {
    let receive = || {
        if out.is_null() {
            return Err(Fail::null("where the message is to be put"));
        }
        // SAFETY: the header's promise.
        let mut turn = unsafe { handle(receiver) }?.turn()?;
        let message = take(turn.get(), time)?;
        let (data, len) = (message.as_ptr().cast(), message.len());
        let (lane, buffer, state) = message.into_parts();
        let place = (lane as u64) << 32 | u64::from(buffer);
        // SAFETY: the header's promise: `out` is writable.
        unsafe { out.write(CMessage { data, len, receiver, place, state }) };
        Ok(())
    };
    answer(receive())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_message_drop(message: *mut CMessage) -> c_int {
    let give_back = || {
        // SAFETY: the header's promise.
        let given = unsafe { message.as_mut() }.ok_or_else(|| Fail::null("a message"))?;
        // SAFETY: the header's promise; NULL where it was given back.
        let receiver = unsafe { handle(given.receiver) }
            .map_err(|_| Fail::invalid("the message was given back before"))?;
        let mut turn = receiver.turn()?;
        given.receiver = std::ptr::null();
        given.data = std::ptr::null();
        let parts = ((given.place >> 32) as usize, given.place as u32, given.state);
        let message = Message::from_parts(turn.get(), parts);
        drop(message.ok_or_else(|| Fail::invalid("this is no message"))?);
        Ok(())
    };
    answer(give_back())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_receiver_read(
    receiver: *const Receiver,
    bytes: *mut c_void,
    room: usize,
    len: *mut usize,
    time: i64,
) -> c_int {
    let read = || {
        // SAFETY: the header's promise: `bytes` is writable for `room` bytes.
        let (receiver, bytes) = unsafe { (handle(receiver)?, bytes_mut(bytes, room)?) };
        let mut turn = receiver.turn()?;
        let message = take(turn.get(), time)?;
        message.read(0, bytes);
        if !len.is_null() {
            // SAFETY: the header's promise: `len` is writable.
            unsafe { len.write(message.len()) };
        }
        Ok(())
    };
    answer(read())
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_receiver_fd(receiver: *const Receiver) -> c_int {
    // SAFETY: the header's promise.
    number(unsafe { handle(receiver) }.and_then(|of| Ok(as_number(of.turn()?.get().descriptor()?))))
}

/// See `ginnel.h`.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ginnel_receiver_close(receiver: *mut Receiver) -> c_int {
    let is_free = |receiver: &Receiver| match receiver.turn()?.get().held() {
        0 => Ok(()),
        _ => Err(Fail::in_use("a message of this receiver is held: give it back")),
    };
    // SAFETY: the header's promise.
    if let Some(Err(why)) = unsafe { receiver.as_ref() }.map(is_free) {
        return answer(Err(why));
    }
    // SAFETY: the header's promise.
    unsafe { crate::close(receiver) };
    0
}
