//! A store with a log device: what has to be durable goes to the log in sequence, and to the store lazily.
//!
//! A write goes to the store at once, without a sync, so reads look only there; and to the log, with one. The log is
//! read after a crash only: then its records are written to the store again, in order.
//! docs/internals/log-format.md has the format.
//!
//! # What shares the log, and what happens then
//!
//! * All cores: one record is written at a time, by whichever core finds that it is due. It has what all of them have
//!   to say by then. Each core writes by a handle of its own; the books ([`books`]) are behind a lock that is held for
//!   as long as it takes to note a change.
//! * A log that hangs holds up what has to be durable, and no reads. One that fails is left: the store is synced, and
//!   it is noted outside of the log that nothing of it is to be replayed; from then on the store serves alone.
//! * A store that hangs holds up checkpoints. When the log is full, what has to be durable waits for one.
//! * A store of which a sync failed fails all later flushes and durable writes, as without a log. The log keeps what
//!   it has, and the next start writes that again; so other writes of those bytes fail, too.
//! * The log of one unit is of no use to another: it has the name of its unit, and the unit's state has the name and
//!   the generation of its log ([`Noted`]).

mod books;
mod format;
mod handle;
mod held;
#[cfg(target_os = "linux")]
mod open;
mod plan;
mod ranges;
mod replay;
mod shared;
mod start;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::books::Condition;
pub use self::books::{Bias, Limits};
pub use self::format::{Header, LOG_BYTES_MIN, LogId, MEDIUM_BYTES_MAX, UnitName};
use self::handle::Handle;
pub use self::held::Held;
#[cfg(target_os = "linux")]
pub use self::open::{Logged, NotLogged, read_log_head};
pub use self::replay::{Binding, LogHead, Medium, Misfit, Replayed};
pub(crate) use self::shared::Alone;
use self::shared::Shared;
pub use self::shared::{Noted, Use};
pub use self::start::{Known, LogOptions, Shape};
use crate::Backstore;

/// A log in use, for all cores.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Shared>);

impl Journal {
    /// A handle for the calling core, of its handles of the store and of the log device. The store must write lazily,
    /// and carry out each request of the log device by operations on files.
    pub fn handle(&self, store: Box<dyn Backstore>, log: Box<dyn Backstore>) -> Box<dyn Backstore> {
        Box::new(Handle::new(Arc::clone(&self.0), store, log))
    }

    /// Why the log is not in use any more, in words.
    pub fn trouble(&self) -> Option<&'static str> {
        match self.0.books().condition() {
            Condition::Working | Condition::Broken | Condition::Leaving => None,
            Condition::Left => Some(match self.0.alone {
                Some(Alone::NotNoted) => {
                    "that it is served with its log could not be saved in the state directory, so its log is not in \
                     use; make room there, or make it writable, and restart Tarn"
                }
                Some(Alone::Unreadable) => {
                    "its log device cannot be read or written and is not in use; its store has everything: repair the \
                     log device and restart Tarn"
                }
                None => {
                    "its log device failed and is not in use any more; restart Tarn to use it again"
                }
            }),
            Condition::Stuck => Some(
                "its log device failed, and that could not be saved in the state directory; nothing is durable, and \
                 writes fail where the log has data: make room in the state directory, and restart Tarn",
            ),
            Condition::Frozen => Some(
                "a sync of its store failed; its log keeps what was answered as durable, and the next start writes \
                 that again; until then nothing is durable, and writes fail where the log has data: look at the \
                 store, and restart Tarn",
            ),
        }
    }
}
