//! The keys of the tables of one core. What they name is in the tables, and nothing here knows it.

use store::IoTag;

use crate::table::Key;

/// What a [`SessionKey`] names.
#[derive(Debug)]
pub enum OfSession {}

/// Names a session of a core.
pub type SessionKey = Key<OfSession>;

/// What a [`TaskKey`] names.
#[derive(Debug)]
pub enum OfTask {}

/// Names a task of a core.
pub type TaskKey = Key<OfTask>;

/// What a [`WaitKey`] names.
#[derive(Debug)]
pub(crate) enum OfWait {}

/// Names something that waits for tasks.
pub(crate) type WaitKey = Key<OfWait>;

/// What a [`RequestKey`] names.
#[derive(Debug)]
pub(crate) enum OfRequest {}

/// Names a question to the owner of a unit.
pub(crate) type RequestKey = Key<OfRequest>;

/// What a [`LeavingKey`] names.
#[derive(Debug)]
pub(crate) enum OfLeaving {}

/// Names a nexus on its way out of a unit.
pub(crate) type LeavingKey = Key<OfLeaving>;

/// What a [`NarrowingKey`] names.
#[derive(Debug)]
pub(crate) enum OfNarrowing {}

/// Names a change that takes from a nexus the right to write.
pub(crate) type NarrowingKey = Key<OfNarrowing>;

/// What a [`ViewChangeKey`] names.
#[derive(Debug)]
pub(crate) enum OfViewChange {}

/// Names a change of what a session sees.
pub(crate) type ViewChangeKey = Key<OfViewChange>;

/// What a [`PartKey`] names.
#[derive(Debug)]
pub enum OfPart {}

/// Names an operation that a [`Carrier`](crate::Carrier) does for a store.
pub type PartKey = Key<OfPart>;

/// What an [`ErrandKey`] names.
#[derive(Debug)]
pub(crate) enum OfErrand {}

/// Names a request that a store has taken. Its bits are the tag of the request.
pub(crate) type ErrandKey = Key<OfErrand>;

/// The tag of the request.
pub(crate) const fn tag_of(key: ErrandKey) -> IoTag {
    IoTag(key.to_bits())
}

/// The request of a tag.
pub(crate) const fn errand_of(tag: IoTag) -> ErrandKey {
    Key::from_bits(tag.0)
}
