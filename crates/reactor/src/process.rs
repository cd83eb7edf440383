//! The end of the whole process, for when one of its threads cannot go on.

use std::io::Write;

/// Ends the process at once with this exit status: no destructor runs, no other thread is waited
/// for. A thread that serves holds promises to others (mail, letters, locks); without it they would
/// wait for ever, while a service manager restarts a process that has ended.
///
/// `line` goes to the standard error output first, past a log that may have a queue.
pub fn end_at_once(status: u8, line: &str) -> ! {
    // Nobody may be there to read it.
    drop(writeln!(std::io::stderr(), "{line}"));
    // SAFETY: `_exit` has no precondition, and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}
