//! How another thread reaches the core of a store's handle.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Wakes the core of one handle, which then calls [`Backstore::handle_wake`](crate::Backstore::handle_wake).
///
/// Any thread may use it at any time. When the handle, its unit or its core is gone, it does nothing.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// Calls this function on every wake. It must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Wakes the core.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// A queue from any thread to a handle. A push into the empty queue wakes the handle's core.
pub fn channel<T: Send>(waker: Waker) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Mutex::new(Vec::new()));
    let sender = Sender {
        queue: Arc::clone(&queue),
        waker,
    };
    (sender, Receiver(queue))
}

/// The end for the other threads.
#[derive(Debug)]
pub struct Sender<T> {
    queue: Arc<Mutex<Vec<T>>>,
    waker: Waker,
}

/// The end for the handle.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Mutex<Vec<T>>>);

/// A thread that panicked with the lock held left a whole queue behind: the lock covers one push or one take.
fn lock<T>(queue: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            waker: self.waker.clone(),
        }
    }
}

impl<T: Send> Sender<T> {
    /// Appends an item. Never waits for the handle.
    pub fn push(&self, item: T) {
        let was_empty = {
            let mut queue = lock(&self.queue);
            queue.push(item);
            queue.len() == 1
        };
        if was_empty {
            self.waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// Takes everything that was pushed since the last call, oldest first.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_push_into_an_empty_queue_wakes_and_no_other_does() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&wakes);
        let waker = Waker::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let (sender, receiver) = channel(waker);
        sender.push(1);
        sender.clone().push(2);
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        assert_eq!(receiver.take(), [1, 2]);
        assert!(receiver.take().is_empty());
        std::thread::spawn(move || sender.push(3)).join().unwrap();
        assert_eq!(wakes.load(Ordering::SeqCst), 2);
        assert_eq!(receiver.take(), [3]);
    }
}
