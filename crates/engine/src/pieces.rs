//! The tasks that wait for a turn to begin a piece of them, and what this turn has begun.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::keys::{SessionKey, TaskKey};

/// What a piece costs at least, in bytes: its way through the engine and its store takes as long as copying that.
const PIECE_BYTES_MIN: usize = 4096;

/// The pieces of one core.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// What this turn has begun, in bytes.
    begun_bytes: usize,
    /// The same, without the last piece.
    before_last_bytes: usize,
    /// The sessions of tasks that wait, in the order of their turns.
    sessions: VecDeque<Option<SessionKey>>,
    /// The tasks that wait, by session; no queue is empty.
    waiting: BTreeMap<Option<SessionKey>, VecDeque<TaskKey>>,
}

impl Pieces {
    /// A turn begins.
    pub(crate) const fn begin_turn(&mut self) {
        (self.begun_bytes, self.before_last_bytes) = (0, 0);
    }

    /// Tasks wait for the next turn.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// What this turn has begun, in bytes.
    pub(crate) const fn begun_bytes(&self) -> usize {
        self.begun_bytes
    }

    /// What this turn had begun when its last piece began.
    pub(crate) const fn before_last_bytes(&self) -> usize {
        self.before_last_bytes
    }

    /// The tasks that wait.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &TaskKey> {
        self.waiting.values().flatten()
    }

    /// These tasks wait no longer.
    pub(crate) fn remove(&mut self, gone: &HashSet<TaskKey>) {
        self.waiting.retain(|_, tasks| {
            tasks.retain(|key| !gone.contains(key));
            !tasks.is_empty()
        });
        let waiting = &self.waiting;
        self.sessions.retain(|whose| waiting.contains_key(whose));
    }

    /// A task waits, of this session.
    pub(crate) fn push(&mut self, whose: Option<SessionKey>, key: TaskKey) {
        let tasks = self.waiting.entry(whose).or_default();
        if tasks.is_empty() {
            self.sessions.push_back(whose);
        }
        tasks.push_back(key);
    }

    /// The task whose turn is next.
    pub(crate) fn pop(&mut self) -> Option<TaskKey> {
        let whose = self.sessions.pop_front()?;
        let tasks = self.waiting.get_mut(&whose)?;
        let key = tasks.pop_front();
        if tasks.is_empty() {
            self.waiting.remove(&whose);
        } else {
            self.sessions.push_back(whose);
        }
        key
    }

    /// A piece begins that costs so much.
    pub(crate) const fn note_begun(&mut self, bytes: u32) {
        let bytes = bytes as usize;
        self.before_last_bytes = self.begun_bytes;
        self.begun_bytes += if bytes > PIECE_BYTES_MIN {
            bytes
        } else {
            PIECE_BYTES_MIN
        };
    }
}
