//! The order of commands of one I_T nexus (TST 001b: each nexus has its own task set).
//!
//! Spec: SAM-6, Task set management, Task state transitions.

use std::collections::VecDeque;

/// How a command wants to stand to the others.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TaskAttribute {
    /// In any order with other SIMPLE ones.
    Simple,
    /// After everything older, before everything newer.
    Ordered,
    /// At once, before everything that waits.
    HeadOfQueue,
}

/// Names a task within its set; the caller chooses.
pub type TaskKey = u32;

/// The enabled and the dormant tasks of one I_T nexus. How many there are is bounded by the
/// caller's command window.
///
/// As long as all are SIMPLE it is a counter.
#[derive(Debug, Default)]
pub struct TaskSet {
    simple_enabled: usize,
    ordered_enabled: Option<TaskKey>,
    heads_enabled: Vec<TaskKey>,
    dormant: VecDeque<(TaskAttribute, TaskKey)>,
}

impl TaskSet {
    /// Adds a task. True: it may start now; false: [`TaskSet::leave`] of another will name it.
    pub fn enter(&mut self, attribute: TaskAttribute, key: TaskKey) -> bool {
        let may_start = self.dormant.is_empty() && self.admits(attribute)
            || attribute == TaskAttribute::HeadOfQueue;
        if may_start {
            self.enable(attribute, key);
        } else {
            self.dormant.push_back((attribute, key));
        }
        may_start
    }

    /// Whether a SIMPLE task that is over before anything else happens need not enter at all: it
    /// would neither wait nor keep others waiting.
    pub fn lets_simple_pass(&self) -> bool {
        self.dormant.is_empty() && self.admits(TaskAttribute::Simple)
    }

    /// Takes a task out, whether it ran or still waited, and appends to `started` those that may
    /// start now, in this order.
    pub fn leave(&mut self, key: TaskKey, started: &mut Vec<TaskKey>) {
        if self.dormant.is_empty() && self.heads_enabled.is_empty() {
            // Nothing waits: the task is the ORDERED one or one of the SIMPLE ones.
            self.end_enabled(key);
            return;
        }
        if let Some(at) = self.heads_enabled.iter().position(|&head| head == key) {
            self.heads_enabled.swap_remove(at);
        } else if let Some(at) = self.dormant.iter().position(|&(_, waits)| waits == key) {
            self.dormant.remove(at);
        } else {
            self.end_enabled(key);
        }
        while let Some(&(attribute, next)) = self.dormant.front() {
            if !self.admits(attribute) {
                break;
            }
            self.dormant.pop_front();
            self.enable(attribute, next);
            started.push(next);
        }
    }

    /// True when the set holds no task.
    pub fn is_empty(&self) -> bool {
        self.simple_enabled == 0
            && self.ordered_enabled.is_none()
            && self.heads_enabled.is_empty()
            && self.dormant.is_empty()
    }

    /// Whether the oldest dormant task may start beside those that are enabled.
    fn admits(&self, attribute: TaskAttribute) -> bool {
        let nothing_strict = self.ordered_enabled.is_none() && self.heads_enabled.is_empty();
        match attribute {
            TaskAttribute::Simple => nothing_strict,
            TaskAttribute::Ordered => nothing_strict && self.simple_enabled == 0,
            TaskAttribute::HeadOfQueue => true,
        }
    }

    fn enable(&mut self, attribute: TaskAttribute, key: TaskKey) {
        match attribute {
            TaskAttribute::Simple => self.simple_enabled += 1,
            TaskAttribute::Ordered => self.ordered_enabled = Some(key),
            TaskAttribute::HeadOfQueue => self.heads_enabled.push(key),
        }
    }

    fn end_enabled(&mut self, key: TaskKey) {
        if self.ordered_enabled == Some(key) {
            self.ordered_enabled = None;
        } else {
            debug_assert!(self.simple_enabled > 0, "task {key} left and never entered");
            self.simple_enabled = self.simple_enabled.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TaskAttribute::{HeadOfQueue, Ordered, Simple};
    use super::*;

    fn leave(set: &mut TaskSet, key: TaskKey) -> Vec<TaskKey> {
        let mut started = Vec::new();
        set.leave(key, &mut started);
        started
    }

    #[test]
    fn simple_tasks_do_not_wait_for_each_other() {
        let mut set = TaskSet::default();
        assert!((0..100).all(|key| set.enter(Simple, key)));
        assert!((0..100).all(|key| leave(&mut set, key).is_empty()));
        assert!(set.is_empty());
    }

    #[test]
    fn an_ordered_task_waits_for_the_older_and_holds_the_newer() {
        let mut set = TaskSet::default();
        assert!(set.enter(Simple, 1));
        assert!(set.enter(Simple, 2));
        assert!(!set.enter(Ordered, 3));
        assert!(!set.enter(Simple, 4));
        assert!(!set.enter(Simple, 5));
        assert_eq!(leave(&mut set, 2), []);
        assert_eq!(leave(&mut set, 1), [3]);
        assert_eq!(leave(&mut set, 3), [4, 5]);
    }

    #[test]
    fn a_head_of_queue_task_starts_at_once_and_holds_what_is_dormant() {
        let mut set = TaskSet::default();
        assert!(set.enter(Ordered, 1));
        assert!(!set.enter(Simple, 2));
        assert!(set.enter(HeadOfQueue, 3));
        assert_eq!(leave(&mut set, 1), []);
        assert_eq!(leave(&mut set, 3), [2]);
        assert!(set.enter(HeadOfQueue, 4));
        assert!(!set.enter(Simple, 5));
        assert_eq!(leave(&mut set, 4), [5]);
    }

    #[test]
    fn an_aborted_dormant_task_lets_the_next_pass() {
        let mut set = TaskSet::default();
        assert!(set.enter(Simple, 1));
        assert!(!set.enter(Ordered, 2));
        assert!(!set.enter(Simple, 3));
        assert_eq!(leave(&mut set, 2), [3]);
        assert_eq!(leave(&mut set, 3), []);
        assert_eq!(leave(&mut set, 1), []);
        assert!(set.is_empty());
    }

    #[test]
    fn two_ordered_tasks_run_one_after_the_other() {
        let mut set = TaskSet::default();
        assert!(set.enter(Ordered, 1));
        assert!(!set.enter(Ordered, 2));
        assert_eq!(leave(&mut set, 1), [2]);
        assert_eq!(leave(&mut set, 2), []);
        assert!(set.is_empty());
    }
}
