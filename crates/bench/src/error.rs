//! Why there is no measurement. One variant per rule; each message names the place and the
//! remedy, and none has a secret in it.

use std::io;

/// What keeps a benchmark from starting, or ends it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The address of a target is none.
    #[error("target {url}: {problem}")]
    Url {
        /// As given, without the password.
        url: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
    /// Data would be overwritten and nobody said that this is wanted.
    #[error(
        "{what} overwrites data on {targets}: add --overwrite if nothing there is worth keeping"
    )]
    OverwriteNotAllowed {
        /// The access that writes.
        what: &'static str,
        /// The labels of the targets.
        targets: String,
    },
    /// A point asks for more than the generator holds in memory.
    #[error(
        "{point}: {bytes} bytes under way, the limit is {limit}; take a smaller --bs, --iodepth or \
         --sessions"
    )]
    TooMuchInFlight {
        /// The point.
        point: String,
        /// What it asks for.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The block size does not fit the target's.
    #[error(
        "{target}: --bs {block_bytes} is no multiple of its blocks of {target_block_bytes} bytes"
    )]
    BlockSize {
        /// Label.
        target: String,
        /// As asked for.
        block_bytes: u32,
        /// The target's logical block length.
        target_block_bytes: u32,
    },
    /// No command of the target moves as much.
    #[error(
        "{target}: --bs {block_bytes} is more than a command moves there; take {limit} at most"
    )]
    IoTooLong {
        /// Label.
        target: String,
        /// As asked for.
        block_bytes: u32,
        /// What one command moves.
        limit: u32,
    },
    /// The span is larger than the target.
    #[error("{target}: --span {span_bytes} is larger than its {size_bytes} bytes")]
    SpanTooLarge {
        /// Label.
        target: String,
        /// As asked for.
        span_bytes: u64,
        /// The target's size.
        size_bytes: u64,
    },
    /// There is less than one block for each session, or fewer blocks than I/Os under way.
    #[error(
        "{target}: {span_bytes} bytes hold fewer than {needed} blocks of {block_bytes}; take a \
         larger --span or a smaller --bs"
    )]
    SpanTooSmall {
        /// Label.
        target: String,
        /// What there is.
        span_bytes: u64,
        /// How many blocks there have to be.
        needed: u64,
        /// Bytes of one block.
        block_bytes: u32,
    },
    /// Nobody answers.
    #[error("{target}: cannot connect to {address}; is it running, and is that where it listens?")]
    Connect {
        /// Label.
        target: String,
        /// Host and port, or the socket's path.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The login did not succeed.
    #[error("{target}: {problem}")]
    Login {
        /// Label.
        target: String,
        /// What the target said, in words, and the remedy.
        problem: String,
    },
    /// The target does not say what it is, or is nothing to measure.
    #[error("{target}: {problem}")]
    Unfit {
        /// Label.
        target: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The connection ended.
    #[error("{target}: connection lost {when}: {problem}")]
    Lost {
        /// Label.
        target: String,
        /// At which stage.
        when: &'static str,
        /// What happened.
        problem: String,
    },
    /// Nothing has come for too long.
    #[error(
        "{target}: no answer for {seconds} s with {in_flight} I/Os under way; look at the target's \
         log"
    )]
    Stalled {
        /// Label.
        target: String,
        /// The limit.
        seconds: u64,
        /// I/Os without an answer.
        in_flight: u32,
    },
    /// A local file or device cannot be opened.
    #[error("cannot open target {target}")]
    Open {
        /// Label.
        target: String,
        /// Which rule, with the remedy.
        #[source]
        source: store::OpenError,
    },
    /// The ring of a generator thread could not be made.
    #[error("cannot make a ring")]
    Ring(#[from] reactor::SetupError),
    /// The ring of a generator thread failed.
    #[error(transparent)]
    Turn(#[from] reactor::TurnError),
    /// A process whose CPU time is wanted cannot be looked at.
    #[error("--pid {pid}: cannot read its CPU time; is it the process of the target?")]
    Process {
        /// As given.
        pid: u32,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Something of this machine that should just work.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl BenchError {
    /// For `map_err`: the system refused `action`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
