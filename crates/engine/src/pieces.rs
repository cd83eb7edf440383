//! What waits for a turn to begin a piece of it, tasks, resets and changes of what sessions see; and what this turn
//! has begun.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::keys::{RequestKey, SessionKey, TaskKey, ViewChangeKey};

/// What a piece costs at least, in bytes: its way through the engine and its store takes as long as copying that.
const PIECE_BYTES_MIN: usize = 4096;

/// What waits for a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Piece {
    /// The next part of a command.
    Task(TaskKey),
    /// The next unit of a reset.
    Reset(RequestKey),
    /// The next numbers of a change of what a session sees.
    ViewChange(ViewChangeKey),
}

/// The pieces of one core.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// What this turn has begun, in bytes.
    begun_bytes: usize,
    /// The same, without the last piece.
    before_last_bytes: usize,
    /// The sessions of what waits, in the order of their turns.
    sessions: VecDeque<Option<SessionKey>>,
    /// What waits, by session; no queue is empty.
    waiting: BTreeMap<Option<SessionKey>, VecDeque<Piece>>,
}

impl Pieces {
    /// Panics where something does not hold that must.
    pub(crate) fn check(&self) {
        let (turns, queues) = (self.sessions.len(), self.waiting.len());
        assert_eq!(turns, queues, "queues and turns differ");
        let is_left = self.waiting.values().any(VecDeque::is_empty);
        assert!(!is_left, "an empty queue was left");
    }

    /// A turn begins.
    pub(crate) const fn begin_turn(&mut self) {
        (self.begun_bytes, self.before_last_bytes) = (0, 0);
    }

    /// Something waits for the next turn.
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
        let all = self.waiting.values().flatten();
        all.filter_map(|piece| match piece {
            Piece::Task(key) => Some(key),
            Piece::Reset(_) | Piece::ViewChange(_) => None,
        })
    }

    /// These tasks wait no longer.
    pub(crate) fn remove(&mut self, gone: &HashSet<TaskKey>) {
        self.waiting.retain(|_, pieces| {
            pieces.retain(|piece| !matches!(piece, Piece::Task(key) if gone.contains(key)));
            !pieces.is_empty()
        });
        let waiting = &self.waiting;
        self.sessions.retain(|whose| waiting.contains_key(whose));
    }

    /// A task waits, of this session.
    pub(crate) fn push(&mut self, whose: Option<SessionKey>, key: TaskKey) {
        self.queue_of(whose).push_back(Piece::Task(key));
    }

    /// A reset waits that this session has asked for.
    pub(crate) fn push_reset(&mut self, whose: SessionKey, key: RequestKey) {
        self.queue_of(Some(whose)).push_back(Piece::Reset(key));
    }

    /// A reset waits for its next unit. Others of its session begin after its last.
    pub(crate) fn put_back_reset(&mut self, whose: SessionKey, key: RequestKey) {
        self.queue_of(Some(whose)).push_front(Piece::Reset(key));
    }

    /// A change waits of what this session sees.
    pub(crate) fn push_view_change(&mut self, whose: SessionKey, key: ViewChangeKey) {
        self.queue_of(Some(whose)).push_back(Piece::ViewChange(key));
    }

    /// A change waits for its next numbers. Others of its session begin after its last.
    pub(crate) fn put_back_view_change(&mut self, whose: SessionKey, key: ViewChangeKey) {
        self.queue_of(Some(whose))
            .push_front(Piece::ViewChange(key));
    }

    /// The queue of a session, which gets an entry.
    fn queue_of(&mut self, whose: Option<SessionKey>) -> &mut VecDeque<Piece> {
        let queue = self.waiting.entry(whose).or_default();
        if queue.is_empty() {
            self.sessions.push_back(whose);
        }
        queue
    }

    /// What has the next turn.
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        let whose = self.sessions.pop_front()?;
        let queue = self.waiting.get_mut(&whose)?;
        let piece = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&whose);
        } else {
            self.sessions.push_back(whose);
        }
        piece
    }

    /// A piece begins that costs so much.
    pub(crate) const fn note_begun(&mut self, bytes: usize) {
        self.before_last_bytes = self.begun_bytes;
        self.note_beside(bytes);
    }

    /// So much was done beside the pieces, in whatever turn.
    pub(crate) const fn note_beside(&mut self, bytes: usize) {
        self.begun_bytes += if bytes > PIECE_BYTES_MIN {
            bytes
        } else {
            PIECE_BYTES_MIN
        };
    }
}
