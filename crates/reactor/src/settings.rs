//! What a reactor is made with, and why making one may fail.

use std::io;
use std::time::Duration;

use crate::datagram;

/// Limits and sizes of one reactor.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory for data in flight, receive chunks included, in bytes. Address space is reserved at
    /// once, memory is taken when it is first used.
    pub pool_bytes: usize,
    /// Room in the submission queue: how many operations one system call can hand over.
    pub ring_entries: u32,
    /// Size of one receive chunk in bytes, at most [`memory::BUFFER_BYTES_MAX`].
    pub receive_chunk_bytes: usize,
    /// How many receive chunks are kept ready, 1 to 32768.
    pub receive_chunks: usize,
    /// Size of the frames that datagrams are received into, beside the address of the sender, in bytes.
    pub frame_bytes: usize,
    /// How many of them are kept ready, 0 to 32768. Without any no datagrams are received.
    pub frames: usize,
    /// How long to look for new work without sleeping after there was some. Zero sleeps at once.
    pub busy_poll: Duration,
    /// The sum of all operations the owner will have under way. Room for them is made at the
    /// start, so that none of them allocates; more still work, only slower.
    pub in_flight_max: usize,
    /// How many threads at most run helper work; they start when first needed.
    pub helper_threads_max: usize,
    /// How often lanes are looked after while they have work: what is overdue is noticed, what a worker left that was
    /// killed is given to another.
    pub look_after_lanes: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool_bytes: 256 * 1024 * 1024,
            ring_entries: 256,
            receive_chunk_bytes: 64 * 1024,
            receive_chunks: 64,
            frame_bytes: 2048 - datagram::HEAD_BYTES,
            frames: 0,
            busy_poll: Duration::ZERO,
            in_flight_max: 4096,
            helper_threads_max: 4,
            look_after_lanes: Duration::from_millis(500),
        }
    }
}

/// Why there is no reactor. Each message ends with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// An administrator switched io_uring off.
    #[error(
        "io_uring is switched off on this host (kernel.io_uring_disabled = {value}): \
         run `sysctl kernel.io_uring_disabled=0` or, for the value 1, add the user to the group \
         of kernel.io_uring_group"
    )]
    Disabled {
        /// The value of the switch.
        value: u8,
    },
    /// A seccomp filter refuses the system call, as container runtimes do by default.
    #[error(
        "io_uring is refused by a security policy of the container or service: allow the system \
         calls io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile \
         (for a trial: `docker run --security-opt seccomp=unconfined`)"
    )]
    Forbidden,
    /// The kernel lacks something that Linux 6.1 has.
    #[error("this kernel has no {missing}: Linux 6.1 or newer is needed")]
    KernelTooOld {
        /// What was looked for.
        missing: &'static str,
    },
    /// The limit on locked memory does not let the ring be made.
    #[error(
        "no memory for the ring, most likely because of the limit on locked memory: raise it \
         (`ulimit -l`, LimitMEMLOCK= in a service file)"
    )]
    LockedMemory,
    /// No descriptor is left.
    #[error("too many open files: raise the limit (`ulimit -n`, LimitNOFILE= in a service file)")]
    OpenFiles,
    /// The pool has no room for the receive chunks.
    #[error(
        "{chunks} receive chunks of {chunk_bytes} bytes do not fit in a pool of {pool_bytes} \
         bytes: make the pool larger"
    )]
    PoolTooSmall {
        /// How many chunks were asked for.
        chunks: usize,
        /// Their size.
        chunk_bytes: usize,
        /// The size of the pool.
        pool_bytes: usize,
    },
    /// Something else that the system refused.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The ring itself failed; the reactor is of no more use.
#[derive(Debug, thiserror::Error)]
#[error("the ring of this core failed")]
pub struct TurnError(#[source] pub(crate) io::Error);
