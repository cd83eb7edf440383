//! What the cores share of a log, and what is kept outside of it.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::books::{Bias, Books, Limits};
use super::format::Header;
use super::replay::Binding;
use crate::{Capabilities, Waker};

/// How a unit stands to its log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// It is served with it: the log may have what the store has not.
    Serving,
    /// The log failed, and the store has everything: nothing of the log is to be replayed.
    Left,
    /// It was closed, and the store has everything.
    Closed,
    /// An administrator has decided that the unit does without what the log may have.
    Discarded,
}

/// Why the store serves alone from the start, with a log that is not used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Alone {
    /// That the unit is served with the log could not be saved.
    NotNoted,
    /// The log has nothing that the store has not, and cannot be read or written.
    Unreadable,
}

/// Keeps how a unit stands to its log, outside of the log.
pub trait Noted: Send + Sync + fmt::Debug {
    /// Saves it. May block.
    ///
    /// # Errors
    ///
    /// It may not be saved.
    fn note(&self, log: Binding, how: Use) -> io::Result<()>;
}

/// What all cores share.
#[derive(Debug)]
pub(super) struct Shared {
    books: Mutex<Books>,
    wakers: Mutex<Vec<Option<Waker>>>,
    pub(super) noted: Arc<dyn Noted>,
    pub(super) alone: Option<Alone>,
    /// What is to be done when nobody uses the log any more.
    #[cfg(target_os = "linux")]
    pub(super) closing: Mutex<Option<OnClose>>,
}

/// Closes a log, of which this is the last header.
#[cfg(target_os = "linux")]
pub(super) struct OnClose(pub(super) Box<dyn FnOnce(Header) + Send>);

#[cfg(target_os = "linux")]
impl fmt::Debug for OnClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnClose").finish_non_exhaustive()
    }
}

#[cfg(target_os = "linux")]
impl Drop for Shared {
    /// A sync may take long, and the last use of a store may end on a core.
    fn drop(&mut self) {
        if let Some((closing, header)) = self.take_closing() {
            let close = move || (closing.0)(header);
            drop(
                std::thread::Builder::new()
                    .name("close-log".to_owned())
                    .spawn(close),
            );
        }
    }
}

impl Shared {
    /// Of a log with this header.
    pub(super) fn new(
        header: Header,
        bias: Bias,
        limits: Limits,
        noted: Arc<dyn Noted>,
        alone: Option<Alone>,
    ) -> Self {
        let mut books = Books::new(header, bias, limits);
        if alone.is_some() {
            books.leave_unused();
        }
        Self {
            books: Mutex::new(books),
            wakers: Mutex::default(),
            noted,
            alone,
            #[cfg(target_os = "linux")]
            closing: Mutex::default(),
        }
    }

    /// How the log is closed, and its last header, if the store can have everything.
    #[cfg(target_os = "linux")]
    pub(super) fn take_closing(&self) -> Option<(OnClose, Header)> {
        let closing = self
            .closing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        Some((closing, self.books().last_header()?))
    }

    /// Held for as long as it takes to note a change.
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The header of a checkpoint is durable, or may not be.
    pub(super) fn header_written(&self, is_good: bool) {
        self.books().header_written(is_good);
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A core takes part. Its number.
    pub(super) fn enter(&self, waker: Waker) -> usize {
        let mut wakers = self.wakers();
        wakers.push(Some(waker));
        wakers.len() - 1
    }

    pub(super) fn forget(&self, core: usize) {
        if let Some(waker) = self.wakers().get_mut(core) {
            *waker = None;
        }
    }

    /// Has all cores but one look at the books.
    pub(super) fn wake_others(&self, but: Option<usize>) {
        let wakers = self.wakers();
        let others = wakers
            .iter()
            .enumerate()
            .filter(|(core, _)| Some(*core) != but);
        others
            .filter_map(|(_, waker)| waker.as_ref())
            .for_each(Waker::wake);
    }

    /// What the store is with the log, which is asked to compare and write in no case: the engine does that by a fence.
    pub(super) fn capabilities(&self, store: &Capabilities) -> Capabilities {
        Capabilities {
            compare_and_write_bytes: 0,
            ..store.clone()
        }
    }
}
