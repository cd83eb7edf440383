//! A few threads for work that the ring cannot do and that may block. They start when there is
//! work for them, sleep without it, and hand results back as mail.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use store::{HelperOperation, HelperResult, IoFailure};

use crate::cores;
use crate::in_flight::Key;
use crate::mail::{self, Mailbox, Post, Waker};

/// The result of the job with this key.
pub(crate) type Answer = (Key, HelperResult);

#[derive(Debug)]
pub(crate) struct Helpers {
    shared: Arc<Shared>,
    threads_max: usize,
    post: Post<Answer>,
    pub(crate) answers: Mailbox<Answer>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<(Key, HelperOperation)>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Shared {
    /// Jobs run outside the lock, so a panic in one leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Helpers {
    /// Answers wake with `waker`.
    pub(crate) fn new(threads_max: usize, waker: &Arc<Waker>) -> Self {
        let (post, answers) = mail::channel_with(waker);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
        });
        Self {
            shared,
            threads_max: threads_max.max(1),
            post,
            answers,
        }
    }

    /// Queues a job. The error means that there is no thread to run it.
    pub(crate) fn submit(&self, key: Key, operation: HelperOperation) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.jobs.push_back((key, operation));
        if state.jobs.len() <= state.idle || state.threads >= self.threads_max {
            drop(state);
            self.shared.work.notify_one();
            return Ok(());
        }
        let (shared, post) = (Arc::clone(&self.shared), self.post.clone());
        let spawned = thread::Builder::new()
            .name("tarn-helper".to_owned())
            .spawn(move || run(&shared, &post));
        match spawned {
            Ok(_detached) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                state.jobs.pop_back();
                return Err(error);
            }
            // Those that run will come to it.
            Err(_) => {}
        }
        Ok(())
    }

    /// Takes a job back that no thread has begun.
    pub(crate) fn cancel(&self, key: Key) -> bool {
        let mut state = self.shared.lock();
        let position = state.jobs.iter().position(|(queued, _)| *queued == key);
        position.is_some_and(|n| state.jobs.remove(n).is_some())
    }
}

impl Drop for Helpers {
    /// Detaches the threads: one may hang in a dead file system for ever.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.shared.work.notify_all();
    }
}

fn run(shared: &Shared, post: &Post<Answer>) {
    // The core that started this thread has better things to do; where it cannot leave that core
    // it still works.
    if let Err(error) = cores::unpin() {
        tracing::debug!(%error, "a helper thread stays on the core of its reactor");
    }
    while let Some((key, operation)) = next(shared) {
        let name = operation.name;
        let result = catch_unwind(AssertUnwindSafe(operation.work)).unwrap_or_else(|_| {
            tracing::error!(name, "helper work panicked");
            Err(IoFailure::Hardware { errno: 0 })
        });
        post.push((key, result));
    }
}

fn next(shared: &Shared) -> Option<(Key, HelperOperation)> {
    let mut state = shared.lock();
    loop {
        if state.closed {
            return None;
        }
        if let Some(job) = state.jobs.pop_front() {
            return Some(job);
        }
        state.idle += 1;
        state = shared
            .work
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}
