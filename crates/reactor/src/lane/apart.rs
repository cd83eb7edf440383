//! Calls whose system calls are those of another process.
//!
//! A system call that never ends keeps the process of its thread from ending, whatever the thread is for. A child that
//! shares the memory does not; but a plain child has no thread-local storage, so it could not run ordinary code. Here
//! it has that of the thread that starts it, which uses none of it meanwhile: it waits for the end of the child in a
//! system call that the end of the process interrupts.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getppid, set_parent_process_death_signal, waitpid};

use super::child::Child;

/// What ordinary code needs.
const STACK_BYTES: usize = 1024 * 1024;

thread_local! {
    /// This is such a process, which may wait for a store itself.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller runs in [`apart`].
pub(super) fn is_apart() -> bool {
    IS_APART.get()
}

struct Call<F, T> {
    function: Option<F>,
    outcome: Option<Result<T, Box<dyn Any + Send>>>,
    parent: rustix::process::Pid,
    is_over: AtomicBool,
}

/// Calls a function in a process of its own and gives what it gives. The calling thread waits for as long as that
/// takes, and can end with its process nevertheless. A panic goes on here.
///
/// # Errors
///
/// There is no process to be had, or it was killed; what it had is lost then.
pub(crate) fn apart<F: FnOnce() -> T, T>(function: F) -> io::Result<T> {
    let mut call = Box::new(Call {
        function: Some(function),
        outcome: None,
        parent: rustix::process::getpid(),
        is_over: AtomicBool::new(false),
    });
    let signals = Signals::block();
    // SAFETY: the call stays until the child has ended, and this thread touches neither it nor its own thread-local
    // storage before that: system calls are made directly, and no signal is handled here.
    let started = unsafe {
        let argument = (&raw mut *call).cast();
        Child::start_on(STACK_BYTES, enter::<F, T>, argument)
    };
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            signals.restore();
            return Err(error);
        }
    };
    while matches!(
        waitpid(Some(child.pid()), WaitOptions::empty()),
        Err(Errno::INTR)
    ) {}
    child.forget();
    signals.restore();
    if !call.is_over.load(SeqCst) {
        // Half of what it did may be in there.
        let _kept = ManuallyDrop::new(call);
        return Err(io::Error::other(
            "the process of a call to a store was killed",
        ));
    }
    match call.outcome.take() {
        Some(Ok(outcome)) => Ok(outcome),
        Some(Err(panic)) => resume_unwind(panic),
        None => Err(io::Error::other("a call to a store gave nothing")),
    }
}

extern "C" fn enter<F: FnOnce() -> T, T>(argument: *mut c_void) -> c_int {
    let call: *mut Call<F, T> = argument.cast();
    // SAFETY: the thread that has started this process keeps the call and does not look at it
    // before this one has ended.
    let call = unsafe { &mut *call };
    let _left = set_parent_process_death_signal(Some(Signal::KILL));
    let _unnamed = rustix::thread::set_name(c"tarn-apart");
    if getppid() != Some(call.parent) {
        return 1;
    }
    if let Some(function) = call.function.take() {
        IS_APART.set(true);
        call.outcome = Some(catch_unwind(AssertUnwindSafe(function)));
        IS_APART.set(false);
        call.is_over.store(true, SeqCst);
    }
    0
}

/// The signals that this thread lets in.
struct Signals(MaybeUninit<libc::sigset_t>);

impl Signals {
    /// Lets none in: a handler would use the thread-local storage.
    fn block() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is there to be filled.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the first set was filled, the second is there to be written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        Self(before)
    }

    fn restore(self) {
        // SAFETY: the set was written by `block`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.0.as_ptr(), ptr::null_mut()) };
    }
}
