//! Why nothing is measured.

use daemon::StartError;

/// What keeps a benchmark from being carried out, each with its remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A URL, a secret or a device is not what it must be.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A benchmark cannot be carried out; the message of the source names place and remedy.
    #[error(transparent)]
    Load(#[from] ::bench::BenchError),
    /// A process without a target.
    #[error("--pid is given {pids} times for {urls} targets; give it once for each, 0 for none")]
    Pids {
        /// How many processes.
        pids: usize,
        /// How many targets.
        urls: usize,
    },
    /// Verification with another load.
    #[error("--verify writes and reads at random; leave --rw out or give --rw mixed")]
    VerifiesMixed,
    /// A user and nothing to prove it with.
    #[error("--user has no secret; give --secret-file, or put it into TARN_BENCH_SECRET")]
    NoSecret,
}
