//! The ring itself: setting it up, handing operations over, taking completions back.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::chunks::Chunks;
use crate::settings::{Settings, SetupError};

/// `IORING_ENTER_GETEVENTS`: run the work that completes operations.
const ENTER_GETEVENTS: u32 = 1 << 0;
/// `IORING_ENTER_EXT_ARG`: the argument is a [`SubmitArgs`].
const ENTER_EXT_ARG: u32 = 1 << 3;
/// `IORING_ENTER_NO_IOWAIT` (Linux 6.15): an idle target must not look like a busy disk.
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// The operations the reactor cannot do without, and their names for the error.
const NEEDED: [(u8, &str); 9] = [
    (opcode::Accept::CODE, "IORING_OP_ACCEPT"),
    (opcode::AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL"),
    (opcode::Fallocate::CODE, "IORING_OP_FALLOCATE"),
    (opcode::Fsync::CODE, "IORING_OP_FSYNC"),
    (opcode::Read::CODE, "IORING_OP_READ"),
    (opcode::Recv::CODE, "IORING_OP_RECV"),
    (opcode::SendMsg::CODE, "IORING_OP_SENDMSG"),
    (opcode::Write::CODE, "IORING_OP_WRITE"),
    // Not used; it came with 6.1 and stands for all that is not an operation of its own.
    (opcode::SendMsgZc::CODE, "IORING_OP_SENDMSG_ZC"),
];

/// All that a ring may ever be asked for: data of what is open, time, and the end of either. No filter of
/// system calls sees an operation of a ring, so the kernel is instructed that none opens a file, makes a
/// socket, connects one or controls a device. Each came with 6.1 at the latest.
const ALLOWED: [u8; 26] = [
    opcode::Accept::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
    opcode::Fadvise::CODE,
    opcode::Fallocate::CODE,
    opcode::Fsync::CODE,
    opcode::LinkTimeout::CODE,
    opcode::Nop::CODE,
    opcode::PollAdd::CODE,
    opcode::PollRemove::CODE,
    opcode::Read::CODE,
    opcode::ReadFixed::CODE,
    opcode::Readv::CODE,
    opcode::Recv::CODE,
    opcode::RecvMsg::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
    opcode::SendMsgZc::CODE,
    opcode::SendZc::CODE,
    opcode::Shutdown::CODE,
    opcode::SyncFileRange::CODE,
    opcode::Timeout::CODE,
    opcode::TimeoutRemove::CODE,
    opcode::Write::CODE,
    opcode::WriteFixed::CODE,
    opcode::Writev::CODE,
];

/// What may be registered once the ring runs: `IORING_REGISTER_PBUF_RING` and its end.
const REGISTERED_LATER: [u8; 2] = [22, 23];

/// Every flag of an entry that there is: they only say how an operation is done.
const ENTRY_FLAGS: u8 = 0x7f;

/// How long [`Ring::enter`] may sleep when nothing has completed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sleep {
    No,
    AtMost(Duration),
    Forever,
}

/// What the kernel says about an operation that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) user_data: u64,
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

pub(crate) struct Ring {
    ring: IoUring,
    /// What the submission queue had no room for, in order.
    backlog: VecDeque<squeue::Entry>,
    enter_flags: u32,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("backlog", &self.backlog.len())
            .finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new(settings: &Settings) -> Result<Self, SetupError> {
        let ring = match builder(settings, Flavour::Best).build(settings.ring_entries.max(1)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                builder(settings, Flavour::Plain).build(settings.ring_entries.max(1))
            }
            result => result,
        };
        Self::checked(ring.map_err(|error| explain(&error))?)
    }

    /// Makes sure that the kernel has all that is needed.
    fn checked(ring: IoUring) -> Result<Self, SetupError> {
        let params = ring.params();
        let features = [
            (params.is_feature_ext_arg(), "IORING_FEAT_EXT_ARG"),
            (params.is_feature_nodrop(), "IORING_FEAT_NODROP"),
            (params.is_feature_fast_poll(), "IORING_FEAT_FAST_POLL"),
            (
                params.is_feature_submit_stable(),
                "IORING_FEAT_SUBMIT_STABLE",
            ),
        ];
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe);
        probed.map_err(|error| explain(&error))?;
        let operations = NEEDED.map(|(code, name)| (probe.is_supported(code), name));
        for (present, missing) in features.into_iter().chain(operations) {
            if !present {
                return Err(SetupError::KernelTooOld { missing });
            }
        }
        restrict(&ring)?;
        let enter_flags = if params.is_feature_no_iowait() {
            ENTER_NO_IOWAIT
        } else {
            0
        };
        Ok(Self {
            ring,
            backlog: VecDeque::new(),
            enter_flags,
        })
    }

    /// Lets the kernel pick from `chunks`, which must live as long as the ring.
    pub(crate) fn register_chunks(&self, chunks: &Chunks, group: u16) -> Result<(), SetupError> {
        let (address, entries) = (chunks.ring_address(), chunks.ring_entries());
        let submitter = self.ring.submitter();
        // SAFETY: the address is that of a pool buffer with room for `entries` entries, aligned
        // to a page; the reactor drops the ring, which ends the registration, before the chunks.
        let registered =
            unsafe { submitter.register_buf_ring_with_flags(address, entries, group, 0) };
        registered.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => SetupError::KernelTooOld {
                missing: "IORING_REGISTER_PBUF_RING",
            },
            _ => explain(&error),
        })
    }

    /// Queues an operation. When the queue is full, what it holds goes to the kernel first.
    ///
    /// # Safety
    ///
    /// All memory and descriptors that the entry names stay valid and untouched until the
    /// completion with its `user_data` has been reaped.
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) -> Result<(), io::Error> {
        if self.backlog.is_empty() {
            // SAFETY: the caller promises.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                return Ok(());
            }
        }
        self.backlog.push_back(entry);
        self.fill();
        if !self.backlog.is_empty() {
            self.enter_once(Sleep::No)?;
            self.fill();
        }
        Ok(())
    }

    /// Submits everything queued, and sleeps until something completed or the time is over. May
    /// come back early.
    pub(crate) fn enter(&mut self, sleep: Sleep) -> io::Result<()> {
        self.fill();
        while !self.backlog.is_empty() {
            let before = self.backlog.len();
            self.enter_once(Sleep::No)?;
            self.fill();
            if self.backlog.len() == before {
                // The kernel takes nothing now; completions must be reaped first.
                return Ok(());
            }
        }
        self.enter_once(sleep)
    }

    fn enter_once(&mut self, sleep: Sleep) -> io::Result<()> {
        let queue = self.ring.submission();
        let count = queue.len();
        let is_idle = sleep == Sleep::No && count == 0;
        let is_idle = is_idle && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        let (want, time) = match sleep {
            Sleep::No if is_idle => return Ok(()),
            Sleep::No => (0, None),
            Sleep::AtMost(time) => (1, Some(Timespec::from(time))),
            Sleep::Forever => (1, None),
        };
        let mut args = SubmitArgs::new();
        if let Some(time) = &time {
            args = args.timespec(time);
        }
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG | self.enter_flags;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let submitter = self.ring.submitter();
        // SAFETY: the flags say that the argument is a `SubmitArgs`, which it is, and it lives
        // through the call; what the entries point to is promised by the callers of `push`.
        let entered = unsafe { submitter.enter(count, want, flags, Some(&args)) };
        match entered.map_err(|error| error.raw_os_error().map_or(0, |errno| errno)) {
            Ok(_count) => Ok(()),
            // Woken by a signal, out of time, or completions to be reaped before more can be
            // taken: the caller goes on in each case, and nothing is lost.
            Err(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Moves what waits outside into the submission queue.
    #[inline]
    fn fill(&mut self) {
        if !self.backlog.is_empty() {
            self.fill_from_backlog();
        }
    }

    #[inline(never)]
    fn fill_from_backlog(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the promise about the entry was made to `push`.
            let pushed = unsafe { queue.push(entry) };
            if pushed.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Whether the kernel has all that was queued.
    pub(crate) fn is_submitted(&mut self) -> bool {
        self.backlog.is_empty() && self.ring.submission().is_empty()
    }

    /// Whether completions can be reaped.
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Moves all completions to `done`, also those the kernel had no room for in the queue.
    pub(crate) fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        loop {
            for entry in self.ring.completion() {
                let entry: cqueue::Entry = entry;
                done.push(Completion {
                    user_data: entry.user_data(),
                    result: entry.result(),
                    flags: entry.flags(),
                });
            }
            if !self.ring.submission().cq_overflow() {
                return Ok(());
            }
            self.enter_once(Sleep::No)?;
        }
    }
}

/// Holds the ring to the operations of [`ALLOWED`], for good, and starts it.
fn restrict(ring: &IoUring) -> Result<(), SetupError> {
    let system = |source| SetupError::System {
        action: "restrict an io_uring",
        source,
    };
    let operations = ALLOWED.map(Restriction::sqe_op);
    let registrations = REGISTERED_LATER.map(Restriction::register_op);
    let flags = [Restriction::sqe_flags_allowed(ENTRY_FLAGS)];
    let mut all: Vec<Restriction> = operations
        .into_iter()
        .chain(registrations)
        .chain(flags)
        .collect();
    let submitter = ring.submitter();
    submitter.register_restrictions(&mut all).map_err(system)?;
    submitter.register_enable_rings().map_err(system)
}

/// What is asked of the kernel beyond the necessary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flavour {
    /// Completions run when this thread asks for them, on this thread only.
    Best,
    Plain,
}

fn builder(settings: &Settings, flavour: Flavour) -> io_uring::Builder {
    // Completions may come in bursts; twice the number of operations leaves room for cancels.
    let completions = settings.in_flight_max.saturating_mul(2);
    let completions = u32::try_from(completions).unwrap_or(u32::MAX);
    let least = settings.ring_entries.clamp(2, 1 << 16);
    let mut builder = IoUring::builder();
    builder
        .setup_clamp()
        .setup_cqsize(completions.clamp(least, 1 << 16))
        .setup_submit_all()
        // Until it is restricted.
        .setup_r_disabled();
    if flavour == Flavour::Best {
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag();
    }
    builder
}

/// Turns a refusal of the system into its likely reason and the remedy.
fn explain(error: &io::Error) -> SetupError {
    let errno = error.raw_os_error().unwrap_or(0);
    match Errno::from_raw_os_error(errno) {
        Errno::PERM => match disabled_switch() {
            Some(value @ 1..) => SetupError::Disabled { value },
            Some(0) | None => SetupError::Forbidden,
        },
        Errno::ACCESS => SetupError::Forbidden,
        // A kernel that old is rarer than a filter that pretends to be one; the switch exists
        // since 6.6, and the release in `/proc` shows whether io_uring exists.
        Errno::NOSYS if is_kernel_recent() => SetupError::Forbidden,
        Errno::NOSYS => SetupError::KernelTooOld {
            missing: "io_uring",
        },
        Errno::INVAL => SetupError::KernelTooOld {
            missing: "io_uring with completion queues of a chosen size",
        },
        Errno::NOMEM => SetupError::LockedMemory,
        Errno::MFILE | Errno::NFILE => SetupError::OpenFiles,
        _ => SetupError::System {
            action: "set up an io_uring",
            source: io::Error::from_raw_os_error(errno),
        },
    }
}

fn disabled_switch() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

fn is_kernel_recent() -> bool {
    is_recent(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
}

fn is_recent(release: &str) -> bool {
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let mut number = || -> u32 { numbers.next().unwrap_or_default() };
    (number(), number()) >= (6, 1)
}

#[cfg(test)]
mod tests {
    use io_uring::types::Fd;

    use super::*;

    #[test]
    fn refusals_name_their_remedy() {
        let message = |errno| explain(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(message(libc::ENOMEM).contains("LimitMEMLOCK"));
        assert!(message(libc::EMFILE).contains("ulimit -n"));
        assert!(message(libc::EACCES).contains("seccomp"));
        assert!(message(libc::ENFILE).contains("ulimit -n"));
        assert!(message(libc::EINVAL).contains("queues of a chosen size"));
        assert_eq!(message(libc::EIO), "cannot set up an io_uring");
        for (release, expected) in [
            ("6.1.0-25-amd64\n", true),
            ("6.0.19", false),
            ("5.15-rc1", false),
            ("6.1-rc1", true),
            ("7-x", true),
            ("6", false),
            ("", false),
        ] {
            assert_eq!(is_recent(release), expected, "{release}");
        }
        let old = SetupError::KernelTooOld { missing: "x" }.to_string();
        assert!(old.contains("6.1"), "{old}");
        let disabled = SetupError::Disabled { value: 2 }.to_string();
        assert!(disabled.contains("sysctl kernel.io_uring_disabled=0"));
    }

    #[test]
    fn more_operations_than_the_queues_hold_all_complete() {
        let settings = Settings {
            ring_entries: 2,
            in_flight_max: 1,
            ..Settings::default()
        };
        for flavour in [Flavour::Best, Flavour::Plain] {
            let ring = builder(&settings, flavour).build(2).unwrap();
            let mut ring = Ring::checked(ring).unwrap();
            for n in 0..100 {
                let entry = opcode::Nop::new().build().user_data(n);
                // SAFETY: a NOP names no memory.
                unsafe { ring.push(entry) }.unwrap();
            }
            let mut done = Vec::new();
            while done.len() < 100 {
                ring.enter(Sleep::Forever).unwrap();
                ring.reap(&mut done).unwrap();
            }
            let mut numbers: Vec<_> = done.iter().map(|completion| completion.user_data).collect();
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..100));
        }
    }

    #[test]
    fn a_ring_makes_no_sockets_and_opens_no_files() {
        let settings = Settings::default();
        let mut ring = Ring::new(&settings).unwrap();
        let entries = [
            opcode::Nop::new().build(),
            opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
            opcode::Connect::new(Fd(-1), std::ptr::null(), 0).build(),
            opcode::OpenAt::new(Fd(libc::AT_FDCWD), c"/".as_ptr()).build(),
        ];
        for (n, entry) in (0..).zip(entries) {
            // SAFETY: the name is static, and the others name no memory.
            unsafe { ring.push(entry.user_data(n)) }.unwrap();
        }
        let mut done = Vec::new();
        while done.len() < 4 {
            ring.enter(Sleep::Forever).unwrap();
            ring.reap(&mut done).unwrap();
        }
        done.sort_by_key(|completion| completion.user_data);
        let results: Vec<i32> = done.iter().map(|completion| completion.result).collect();
        let refused = -libc::EACCES;
        assert_eq!(results, [0, refused, refused, refused]);
    }
}
