//! What keeps a unit from being served with what is at the place of its store.

use std::io;

use config::Place;

/// The medium of a unit is not what was served, or cannot become what is configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediumError {
    /// What is at the place of a store is not what was served there.
    #[error(
        "{place}: {store} is not what was served: {why}; put back what was served, or accept what is there: tarn lun \
         adopt"
    )]
    Changed {
        /// Where it is named.
        place: Place,
        /// The store.
        store: String,
        /// What was expected and what was found.
        why: String,
    },
    /// Nothing is at the place of a store that was served.
    #[error(
        "{place}: {store} is not there: mount its file system, or put back what was served; for a new, empty disk \
         remove the lun and add it again"
    )]
    Missing {
        /// Where it is named.
        place: Place,
        /// The store.
        store: String,
    },
    /// The record of the media of a unit cannot be read.
    #[error(
        "{place}: what its store was when it was served last is not known; accept what is there: tarn lun adopt"
    )]
    Unknown {
        /// Where the unit is configured.
        place: Place,
        /// Why.
        source: io::Error,
    },
    /// The system does not say what a store is.
    #[error("{place}: what it is cannot be found out; it is not served before that")]
    Unseen {
        /// Where it is named.
        place: Place,
        /// Why.
        source: io::Error,
    },
    /// The state directory does not say how a unit stands to its log.
    #[error(
        "{place}: whether its log may have what its store has not cannot be read in the state directory; it is not \
         served before that"
    )]
    LogUnread {
        /// Where the unit is configured.
        place: Place,
        /// Why.
        source: io::Error,
    },
    /// A store cannot have the size that it is to have at least.
    #[error("{place}: it has {now} bytes and cannot grow to {size}")]
    NotGrown {
        /// Where it is named.
        place: Place,
        /// The size that is configured.
        size: u64,
        /// The size that it has.
        now: u64,
        /// Why.
        source: io::Error,
    },
}
