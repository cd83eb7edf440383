//! The lines of the log on their way to the reader.
//!
//! A pipe that nobody empties, and a terminal after Ctrl-S, hold up every thread that writes to them. No core
//! may wait for such a reader, so a thread of their own writes the lines.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Lines that wait for a reader; those beyond are lost, and counted.
const WAITING_MAX: usize = 4096;

/// How long the end of the process waits for a reader.
const LAST_LINES_LIMIT: Duration = Duration::from_secs(1);

/// Where lines go: at first to the reader at once, then to the thread.
#[derive(Debug, Default)]
pub(super) struct Lines {
    to_thread: OnceLock<SyncSender<Vec<u8>>>,
    lost: AtomicU64,
    /// Lines that the thread was given.
    given: AtomicU64,
    /// Lines that it has written.
    written: Mutex<u64>,
    is_written: Condvar,
}

impl Lines {
    /// Takes the text of a line, as a whole.
    fn take(&self, text: &[u8]) {
        let Some(to_thread) = self.to_thread.get() else {
            // Without a reader it cannot be reported.
            drop(io::stderr().write_all(text));
            return;
        };
        let count = match to_thread.try_send(text.to_vec()) {
            Ok(()) => &self.given,
            Err(_) => &self.lost,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on a thread writes the lines to `reader`, until the returned value goes.
    pub(super) fn begin(
        self: &Arc<Self>,
        reader: impl Write + Send + 'static,
    ) -> io::Result<LastLines> {
        let (to_thread, lines) = sync_channel(WAITING_MAX);
        let all = Arc::clone(self);
        let thread = thread::Builder::new().name("log".to_owned());
        let _detached = thread.spawn(move || all.write_all(&lines, reader))?;
        self.to_thread.get_or_init(|| to_thread);
        Ok(LastLines(Arc::clone(self)))
    }

    fn write_all(&self, lines: &Receiver<Vec<u8>>, mut reader: impl Write) {
        for text in lines {
            drop(reader.write_all(&text));
            *self.written() += 1;
            self.is_written.notify_all();
            // This goes the same way, and is counted when it finds no place, too.
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                tracing::error!(lost, "lines of the log are lost: the reader was too slow");
            }
        }
    }

    /// Nobody panics who holds this.
    fn written(&self) -> MutexGuard<'_, u64> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the last lines to be written, for a moment.
#[derive(Debug)]
pub(crate) struct LastLines(Arc<Lines>);

impl Drop for LastLines {
    fn drop(&mut self) {
        let given = self.0.given.load(Ordering::Relaxed);
        let is_behind = |written: &mut u64| *written < given;
        let wait = &self.0.is_written;
        // Late or not, the end goes on.
        drop(wait.wait_timeout_while(self.0.written(), LAST_LINES_LIMIT, is_behind));
    }
}

/// One place to write to, as `tracing` wants it: it writes a line by one call.
#[derive(Debug)]
pub(super) struct Writer(pub(super) Arc<Lines>);

impl Write for Writer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.take(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A reader that takes a line on demand.
    struct Slow {
        may_read: Receiver<()>,
        read: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _told = self.may_read.recv();
            drop(self.read.send(text.to_vec()));
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_writes_never_waits_for_who_reads() {
        let (let_read, may_read) = channel();
        let (read, was_read) = channel();
        let lines = Arc::new(Lines::default());
        let last = lines.begin(Slow { may_read, read }).unwrap();
        let mut writer = Writer(Arc::clone(&lines));
        let many = WAITING_MAX + 100;
        for number in 0..many {
            writer
                .write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
        // One may be in the hands of the thread.
        let lost = lines.lost.load(Ordering::Relaxed);
        assert!((99..=100).contains(&lost), "{lost} lines are lost");
        for _ in 0..many {
            let_read.send(()).unwrap();
        }
        drop(last);
        for number in 0..many as u64 - lost {
            let text = was_read.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(text, format!("line {number}\n").as_bytes());
        }
        assert_eq!(lines.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_reader_that_is_stuck_holds_the_end_up_for_a_moment_only() {
        let (let_read, may_read) = channel();
        let (read, was_read) = channel();
        let lines = Arc::new(Lines::default());
        let last = lines.begin(Slow { may_read, read }).unwrap();
        Writer(lines).write_all(b"line\n").unwrap();
        drop(last);
        assert!(was_read.try_recv().is_err());
        drop(let_read);
    }
}
