//! What is known of something that commands and others change.

/// A value, unless somebody may be changing it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<T> {
    value: Option<T>,
    /// Grows with each beginning and each end of a change.
    stamp: u64,
    under_way: usize,
}

/// A change that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<T> {
    pub(super) before: Option<T>,
    stamp: u64,
}

impl<T: Copy> Known<T> {
    pub(super) const fn new(value: T) -> Self {
        Self {
            value: Some(value),
            stamp: 0,
            under_way: 0,
        }
    }

    /// From now on the value may be another one.
    pub(super) fn begin(&mut self) -> Change<T> {
        let before = self.value.take();
        self.under_way += 1;
        self.stamp += 1;
        Change {
            before,
            stamp: self.stamp,
        }
    }

    /// A change is over. If no other one was under way beside it, the value is this.
    pub(super) fn end(&mut self, change: Change<T>, value: Option<T>) {
        self.under_way = self.under_way.saturating_sub(1);
        let is_sole = self.stamp == change.stamp && self.under_way == 0;
        self.stamp += 1;
        if is_sole {
            self.value = value;
        }
    }

    /// Nobody knows, and nothing is under way: the machine has stopped.
    pub(super) const fn forget(&mut self) {
        self.value = None;
        self.stamp += 1;
        self.under_way = 0;
    }

    /// For [`Self::since`].
    pub(super) const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The value, if it was this since then.
    pub(super) fn since(&self, stamp: u64) -> Option<T> {
        self.value.filter(|_| self.stamp == stamp)
    }

    pub(super) const fn now(&self) -> Option<T> {
        self.value
    }
}
