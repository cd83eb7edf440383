//! What can be wrong with a STORE.

use crate::{Place, Rule, SizeRule};

/// A rule of the STORE grammar that was broken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreRule {
    /// A size that leaves part of a block over.
    #[error(
        "size {size_bytes} is not a multiple of blocksize {block_size_bytes}; the next that fits is {next_bytes}"
    )]
    NotWholeBlocks {
        /// The size that was asked for.
        size_bytes: u64,
        /// The block size that was asked for.
        block_size_bytes: u64,
        /// The next larger size that fits.
        next_bytes: u64,
    },
    /// A word before the colon that names no kind of store.
    #[error("store kind {kind:?} is not known; use {known} (a file of that very name: {remedy:?})")]
    KindUnknown {
        /// What stands before the colon.
        kind: String,
        /// How to name a file with a colon.
        remedy: String,
        /// The words that are known.
        known: String,
    },
    /// A store without a path.
    #[error("store {text:?} names no path; write {usages}")]
    PathMissing {
        /// The store as written.
        text: String,
        /// How stores are written.
        usages: String,
    },
    /// A path with a NUL, which no file can have.
    #[error("store {text:?} has a NUL character in its path; remove it")]
    PathHasNul {
        /// The store as written.
        text: String,
    },
    /// A store behind a server, whose place does not say which export it is.
    #[error("store {text:?} {problem}; write {usage} after the colon")]
    Server {
        /// The store as written.
        text: String,
        /// What is wrong.
        problem: &'static str,
        /// What stands after the colon.
        usage: &'static str,
    },
    /// An option that no store has.
    #[error(
        "store option {option:?} is not known; the options are {known} (a question mark in a file name is written %3F)"
    )]
    OptionUnknown {
        /// The option as written.
        option: String,
        /// The options that there are.
        known: String,
    },
    /// An option that was given more than once.
    #[error("store option {option:?} is given twice; keep one")]
    OptionTwice {
        /// The option.
        option: &'static str,
    },
    /// An option with a value it does not take.
    #[error("store option {option} has the wrong value {value:?}; use {wanted}")]
    OptionValue {
        /// The option.
        option: &'static str,
        /// Its value as written.
        value: String,
        /// The values it takes.
        wanted: String,
    },
    /// An option that makes no sense for this kind of store.
    #[error("store option {option:?} is not for {kind} stores; {remedy}")]
    OptionNotForKind {
        /// The option.
        option: &'static str,
        /// The kind of store.
        kind: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A composition whose members cannot be these.
    #[error(
        "store {text:?} {problem}; write the ids of [[store]] sections after the colon, with commas, each once"
    )]
    Members {
        /// The store as written.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// Members whose blocks differ.
    #[error(
        "store {id:?} has blocks of {bytes} bytes and store {other:?} has {other_bytes}; give all members one \
         blocksize="
    )]
    MembersUnlike {
        /// A member.
        id: String,
        /// Its block size.
        bytes: u32,
        /// Another member.
        other: String,
        /// Its block size.
        other_bytes: u32,
    },
    /// A member of which nobody can say where the next one begins.
    #[error(
        "store {id:?} is not the last member and has no size of its own in the configuration, so what is behind it \
         could move; {}",
        if *.takes_size { "give it size=" } else { "make it the last member" }
    )]
    MemberWithoutSize {
        /// The member.
        id: String,
        /// Whether its kind takes the option.
        takes_size: bool,
    },
    /// Something of a disk at a member of one.
    #[error("store {id:?} has {found}, which only a disk has; write it at the [[lun]]")]
    OfDisk {
        /// The section.
        id: String,
        /// What it has.
        found: &'static str,
    },
    /// A member that is no disk.
    #[error(
        "store {id:?} is no disk, so it has no part in one; write it as the store of a [[lun]]"
    )]
    NoDisk {
        /// The section.
        id: String,
    },
    /// A snapshot of what has none.
    #[error("a lun with store {store:?} has no snapshot that snap: can name; {remedy}")]
    SnapshotOfOther {
        /// The store of the lun as written.
        store: String,
        /// What to do instead.
        remedy: String,
    },
    /// Two units on one file or device, which would give one medium two states.
    #[error(
        "store {path:?} is already used at {first}; keep one, and show its unit under several LUN numbers or targets \
         instead"
    )]
    Twice {
        /// The path both units name.
        path: String,
        /// Where it was used first.
        first: Place,
    },
    /// A size that is none.
    #[error(transparent)]
    Size(#[from] SizeRule),
    /// A serial number that is none.
    #[error(transparent)]
    Serial(#[from] Rule),
}
