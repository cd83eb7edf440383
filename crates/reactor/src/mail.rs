//! Mail to a core, from other cores and from any thread.
//!
//! Never on the path of I/O: a mutex guards the queue. Posting never fails, never waits for the
//! reader, and makes a system call only when the reader sleeps.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Makes a mailbox and the right to post to it.
pub fn channel<T: Send>() -> io::Result<(Post<T>, Mailbox<T>)> {
    Ok(channel_with(&Arc::new(Waker::new()?)))
}

/// One of several mailboxes of a reader that wakes for all of them.
pub(crate) fn channel_with<T: Send>(waker: &Arc<Waker>) -> (Post<T>, Mailbox<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(VecDeque::new()),
        waker: Arc::clone(waker),
    });
    let post = Post(Arc::clone(&shared));
    (post, Mailbox(shared))
}

/// The right to post to one mailbox.
pub struct Post<T>(Arc<Shared<T>>);

/// The reader's end. It wakes the reactor it was given to with [`crate::Reactor::watch`].
pub struct Mailbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    queue: Mutex<VecDeque<T>>,
    waker: Arc<Waker>,
}

impl<T> Shared<T> {
    /// A thread that panicked while it held the lock left a whole queue behind: one push or one
    /// take is all that happens under it.
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Post<T> {
    /// Puts a letter into the mailbox and wakes its core if that sleeps.
    pub fn push(&self, letter: T) {
        self.0.lock().push_back(letter);
        self.0.waker.wake();
    }
}

impl<T> Mailbox<T> {
    /// Everything that came since the last call, oldest first.
    pub fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.0.waker
    }
}

impl<T> Clone for Post<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Post<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// Something was posted of which the reader has not been notified.
const POSTED: u32 = 0b01;
/// The reader sleeps or is about to, and needs the descriptor to wake.
const SLEEPING: u32 = 0b10;

/// Both sides change one word, so the second side sees what the first did: either the reader
/// finds `POSTED` and does not sleep, or the writer finds `SLEEPING` and wakes it.
#[derive(Debug)]
pub(crate) struct Waker {
    state: AtomicU32,
    fd: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            state: AtomicU32::new(0),
            fd: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    pub(crate) fn wake(&self) {
        let before = self.state.fetch_or(POSTED, Ordering::AcqRel);
        if before == SLEEPING {
            // The counter would have to stand at its 64-bit limit for this to fail or to wait.
            let written = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "eventfd: {written:?}");
        }
    }

    /// Whether something was posted that `take_posted` has not reported.
    pub(crate) fn is_posted(&self) -> bool {
        self.state.load(Ordering::Relaxed) & POSTED != 0
    }

    /// Whether something was posted since the last call.
    pub(crate) fn take_posted(&self) -> bool {
        self.is_posted() && self.state.fetch_and(!POSTED, Ordering::AcqRel) & POSTED != 0
    }

    /// Announces that the reader will sleep. False when it must not, because mail is there.
    pub(crate) fn may_sleep(&self) -> bool {
        let before = self.state.fetch_or(SLEEPING, Ordering::AcqRel);
        before & POSTED == 0
    }

    /// The reader is up again.
    pub(crate) fn awake(&self) {
        self.state.fetch_and(!SLEEPING, Ordering::AcqRel);
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_out_in_order_and_once() {
        let (post, mailbox) = channel().unwrap();
        post.push(1);
        post.clone().push(2);
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(mailbox.take().is_empty());
    }

    #[test]
    fn a_reader_with_mail_does_not_sleep_and_a_sleeping_one_is_woken_once() {
        let (post, mailbox) = channel().unwrap();
        let waker = mailbox.waker();
        post.push(());
        assert!(!waker.may_sleep());
        waker.awake();
        assert!(waker.take_posted() && !waker.take_posted());

        assert!(waker.may_sleep());
        post.push(());
        post.push(());
        let mut count = [0; 8];
        rustix::io::read(&waker.fd, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
