//! To which open files a failed flush was reported.
//!
//! A flush fails once, and what it was to make durable is then in doubt for all who wrote. So it is reported to each
//! open file, by its own next fsync, once, as the kernel does with files of its own; not to one that is opened later.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
struct Book {
    failed: u64,
    opened: u64,
    /// By open file: how many failures were reported to it.
    reported: HashMap<u64, u64>,
}

/// One for each mounted disk; its threads share it for the time of a look. Open files are as many as the kernel allows.
#[derive(Debug, Default)]
pub(crate) struct FailedFlushes(Mutex<Book>);

impl FailedFlushes {
    fn with<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file is opened; gives its number.
    pub(crate) fn open(&self) -> u64 {
        self.with(|book| {
            book.opened += 1;
            book.reported.insert(book.opened, book.failed);
            book.opened
        })
    }

    pub(crate) fn close(&self, file: u64) {
        self.with(|book| book.reported.remove(&file));
    }

    /// A flush for this file has ended. What the file gets: `failure` for a failed flush of another one.
    pub(crate) fn settle<E>(&self, file: u64, result: Result<(), E>, failure: E) -> Result<(), E> {
        self.with(|book| {
            book.failed += u64::from(result.is_err());
            let reported = book.reported.get_mut(&file);
            let is_reported = reported
                .is_none_or(|reported| std::mem::replace(reported, book.failed) == book.failed);
            match result {
                Ok(()) if !is_reported => Err(failure),
                result => result,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_that_is_open_is_told_of_a_failure_once() {
        let flushes = FailedFlushes::default();
        let (a, b, c) = (flushes.open(), flushes.open(), flushes.open());
        assert_eq!(flushes.settle(a, Ok(()), "I/O"), Ok(()));
        assert_eq!(flushes.settle(b, Err("space"), "I/O"), Err("space"));
        let late = flushes.open();
        flushes.close(c);
        for (file, expected) in [(a, Err("I/O")), (b, Ok(())), (late, Ok(()))] {
            assert_eq!(flushes.settle(file, Ok(()), "I/O"), expected);
            assert_eq!(flushes.settle(file, Ok(()), "I/O"), Ok(()));
        }
        assert_eq!(flushes.with(|book| book.reported.len()), 3);
    }
}
