//! What happens on a refused call: the kernel sends SIGSYS instead of doing it, and the handler logs which it
//! was, and lets it fail.
#![expect(
    unsafe_code,
    reason = "a signal handler that changes the interrupted context"
)]

use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::table;

/// The number of lines that are logged, so that a loop does not fill the log.
static LINES_LEFT: AtomicU32 = AtomicU32::new(64);

/// Longest line in bytes; names of calls are short.
const LINE_BYTES_MAX: usize = 128;

/// From now on a refused call fails and is logged.
pub(super) fn install() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_refused;
    // SAFETY: all zeros is a valid sigaction: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the action is valid, and its handler does only what handlers may: it writes to a
    // descriptor and changes its own context.
    let result = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Runs in place of the call, on the thread that made it. Allocates nothing and takes no lock.
extern "C" fn on_refused(
    _signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes the context of the interrupted thread, which is ours
    // until the handler returns.
    let Some(context) = (unsafe { context.cast::<libc::ucontext_t>().as_mut() }) else {
        return;
    };
    let number = registers::number(context);
    registers::set_result(context, -i64::from(libc::EPERM));
    let is_told = LINES_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    if is_told.is_ok() {
        tell(number);
    }
}

fn tell(number: i64) {
    let mut line = [0; LINE_BYTES_MAX];
    let mut rest = &mut line[..];
    let name = table::name(number).unwrap_or("no name known");
    // A truncated line is written as far as it goes.
    let _cut = writeln!(rest, "confinement: system call {number} ({name}) refused");
    let left = rest.len();
    let text = &line[..LINE_BYTES_MAX - left];
    // SAFETY: the standard error output is never closed.
    let output = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    // A failure to log cannot be reported.
    let _unread = rustix::io::write(output, text);
}

/// Spec: seccomp(2), SECCOMP_RET_TRAP: the context is that before the call; the result goes where calls
/// of the architecture return theirs.
#[cfg(target_arch = "x86_64")]
mod registers {
    const RAX: usize = libc::REG_RAX as usize;

    pub(super) fn number(context: &libc::ucontext_t) -> i64 {
        context.uc_mcontext.gregs[RAX]
    }

    pub(super) fn set_result(context: &mut libc::ucontext_t, result: i64) {
        context.uc_mcontext.gregs[RAX] = result;
    }
}

#[cfg(target_arch = "aarch64")]
mod registers {
    pub(super) fn number(context: &libc::ucontext_t) -> i64 {
        context.uc_mcontext.regs[8].cast_signed()
    }

    pub(super) fn set_result(context: &mut libc::ucontext_t, result: i64) {
        context.uc_mcontext.regs[0] = result.cast_unsigned();
    }
}
