//! The end of a request, and the memory that it had.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use memory::{Lendable, Loan};

use crate::calls::{Calls, Handle};
use crate::{CallError, check};

/// How a request ended. There is one for each request that the library took.
#[derive(Debug)]
pub struct Completion {
    number: u64,
    /// What the library answers: bytes that were read, zero, or the error number.
    pub result: Result<u64, i32>,
    /// Of a compare-and-write that found other data: where, from the start of its range.
    pub mismatch: u64,
}

impl Completion {
    /// Names the request, among all of the process.
    pub const fn number(&self) -> u64 {
        self.number
    }
}

/// Memory that a request has until it ends. Dropping it leaks the memory: the library may still use it.
pub struct Lent<T: Lendable> {
    pub(crate) number: u64,
    pub(crate) loan: Loan<T>,
}

impl<T: Lendable> Lent<T> {
    /// The number of its request.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Gives the memory back, if this is the end of its request; else it is leaked.
    pub fn end(self, completion: &Completion) -> Option<T> {
        let is_its = self.number == completion.number;
        debug_assert!(is_its, "the completion of another request");
        is_its.then(|| self.loan.end())
    }
}

impl<T: Lendable> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// What the library carries for a request.
struct Ticket<F> {
    calls: &'static Calls,
    number: u64,
    mismatch: u64,
    done: F,
}

/// A request that is about to begin.
pub(crate) struct Begun {
    pub(crate) number: u64,
    pub(crate) handle: Handle,
    /// Where a compare-and-write says what differs; valid until the request ends.
    pub(crate) mismatch: *mut u64,
    ticket: *mut c_void,
    forget: unsafe fn(*mut c_void),
}

/// Prepares a request that ends with a call of `done`, on a thread of the library.
pub(crate) fn begin<F>(calls: &'static Calls, done: F) -> Result<Begun, CallError>
where
    F: FnOnce(Completion) + Send + 'static,
{
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let ticket = Box::into_raw(Box::new(Ticket {
        calls,
        number,
        mismatch: 0,
        done,
    }));
    // SAFETY: the ticket was made just now and nobody else has it.
    let mismatch = unsafe { &raw mut (*ticket).mismatch };
    let mut begun = Begun {
        number,
        handle: ptr::null_mut(),
        mismatch,
        ticket: ticket.cast(),
        forget: forget::<F>,
    };
    // SAFETY: the ticket is what the callback expects and lives until it is called or taken back.
    let answer = unsafe {
        (calls.rbd_aio_create_completion)(begun.ticket, complete::<F>, &raw mut begun.handle)
    };
    match check("rbd_aio_create_completion", answer) {
        Ok(_) => Ok(begun),
        Err(error) => {
            begun.take_back();
            Err(error)
        }
    }
}

impl Begun {
    /// The library did not take the request: there is no callback.
    fn take_back(self) {
        // SAFETY: it is the ticket of `begin`, of this type, and the library does not have it.
        unsafe { (self.forget)(self.ticket) };
    }

    /// The library answered that it took the request, or did not.
    pub(crate) fn taken(
        self,
        calls: &'static Calls,
        call: &'static str,
        answer: i32,
    ) -> Result<u64, CallError> {
        let number = self.number;
        match check(call, answer) {
            Ok(_) => Ok(number),
            Err(error) => {
                // SAFETY: the library did not take it, so it is ours to give back, once.
                unsafe { (calls.rbd_aio_release)(self.handle) };
                self.take_back();
                Err(error)
            }
        }
    }
}

/// Frees a ticket that the library does not have.
///
/// # Safety
///
/// It is one of this type, and nobody else has it.
unsafe fn forget<F>(ticket: *mut c_void) {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(ticket.cast::<Ticket<F>>()) });
}

/// The library's callback: once for each request that it took.
unsafe extern "C" fn complete<F>(handle: Handle, ticket: *mut c_void)
where
    F: FnOnce(Completion) + Send + 'static,
{
    // SAFETY: it is the ticket of `begin` with this type, and the library gives it back here, once.
    let ticket = unsafe { Box::from_raw(ticket.cast::<Ticket<F>>()) };
    // SAFETY: the completion is over, and ours until it is released.
    let answer = unsafe { (ticket.calls.rbd_aio_get_return_value)(handle) };
    // SAFETY: nobody uses it after this.
    unsafe { (ticket.calls.rbd_aio_release)(handle) };
    let errno = || i32::try_from(answer.saturating_neg()).unwrap_or(libc::EIO);
    let completion = Completion {
        number: ticket.number,
        result: u64::try_from(answer).map_err(|_| errno()),
        mismatch: ticket.mismatch,
    };
    (ticket.done)(completion);
}
