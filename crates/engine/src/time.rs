//! When a core has something to do because time has come, and in which order it does that.

use std::time::Duration;

use crate::carrier::Carrier;
use crate::deadlines::Moment;
use crate::engine::Engine;

impl<C: Carrier> Engine<C> {
    /// Before this moment [`Engine::poll_timeout`] is not: found without a look at any task.
    #[inline]
    pub fn soonest(&self) -> Moment {
        let waits = self.wait_deadlines.soonest(self.waits.len());
        let tasks = self.task_deadlines.soonest(self.tasks.len());
        let requests = self.request_deadlines.soonest(self.requests.len());
        let owners = Moment::of(self.owner_deadlines.first().map(|(at, _)| *at));
        let flushes = Moment::of(self.flushes.deadline());
        let timers = Moment::of(self.stores.next_timer());
        let of_stores = owners.min(flushes).min(timers);
        waits.min(tasks).min(requests).min(of_stores)
    }

    /// When [`Engine::handle_timeout`] is to be called, if ever.
    pub fn poll_timeout(&mut self) -> Option<Duration> {
        let bound = self.soonest();
        let (fence, questions) = (self.settings.fence_timeout, self.question_patience());
        let waits = &self.waits;
        let waits = self
            .wait_deadlines
            .next(waits.len(), |key| Some(waits.get(key)?.deadline));
        let tasks = &self.tasks;
        let tasks = self
            .task_deadlines
            .next(tasks.len(), |key| Some(tasks.get(key)?.deadline(fence)?.0));
        let requests = &self.requests;
        let requests = self
            .request_deadlines
            .next(requests.len(), |key| requests.get(key)?.deadline(questions));
        let owners = self.owner_deadlines.first().map(|(at, _)| *at);
        let flushes = self.flushes.deadline();
        let timers = self.stores.next_timer();
        let all = [waits, tasks, requests, owners, flushes, timers];
        let next = all.into_iter().flatten().min();
        debug_assert!(
            bound <= Moment::of(next),
            "{bound:?} is later than {next:?}"
        );
        debug_assert_eq!(
            self.soonest(),
            Moment::of(next),
            "the bound stays below what is due"
        );
        debug_assert_eq!(
            waits.is_none(),
            self.waits.is_empty(),
            "a wait has no deadline"
        );
        next
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Duration) {
        debug_assert!(
            now >= self.now,
            "time goes back from {:?} to {now:?}",
            self.now
        );
        self.now = now;
        self.end_waits();
        self.end_overdue_tasks();
        self.end_overdue_requests();
        self.end_overdue_changes();
        self.retry_flushes();
        self.end_timers();
    }
}
