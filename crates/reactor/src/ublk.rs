//! A block device of this machine whose requests a process answers: ublk of the kernel.
//!
//! [`BlockControl`] is `/dev/ublk-control`, [`BlockDevice`] a device `/dev/ublkbN` with one queue of
//! [`QUEUE_DEPTH`] requests, which a thread of its own takes from `/dev/ublkcN` and hands to a function. With the code
//! that answers, it shares nothing but a channel and a counter that wakes it; the data of a request is a vector of its
//! own, [`TRANSFER_BYTES_MAX`] at most. Requests are answered in any order, from any thread; an answer that is dropped
//! is EIO.
//!
//! The kernel waits for answers without a deadline, so the function sees to it that each request is answered within a
//! bounded time.
//! When the process ends in any way, the kernel fails all requests and takes the block device away. What is left of it
//! then is a number and a file that nobody opens; the next start deletes those that are marked as ours. A start holds
//! a shared lock on `/dev/ublk-control` as long as its own device looks like one that was left.
//!
//! The owner of the queue has two ways to block itself: memory that is freed by writing to the device, against which
//! is `PR_SET_IO_FLUSHER`, which the process has to set, and a function that waits for an answer; it must not.

mod queue;
mod wire;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

pub use queue::{BlockAnswer, BlockRequest};
pub use wire::BlockOperation;
use wire::{Command, Information, ROOM_BYTES};

/// Requests that are under way at once.
pub const QUEUE_DEPTH: u16 = 64;

/// Longest read or write, in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 512 << 10;

/// Longest range that one request discards or makes zero, in bytes.
pub const ZERO_BYTES_MAX: u32 = 1 << 30;

const CONTROL: &str = "/dev/ublk-control";

/// Where the kernel lists devices.
const LIST: &str = "/sys/class/ublk-char";

/// How long a device that is still open may keep its number from being given back.
const DELETE_MAX: Duration = Duration::from_secs(5);

/// What a block device is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockShape {
    /// In bytes; a whole number of blocks.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of it: a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// Nothing may write to it.
    pub is_read_only: bool,
    /// Space can be given back.
    pub can_discard: bool,
    /// Ranges can be made zero without sending zeros.
    pub can_zero: bool,
}

/// Why there is no block device. One variant per rule, each with its remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The kernel has no ublk, or the container is not given it.
    #[error(
        "there is no {CONTROL}; run modprobe ublk_drv on Linux 6.5 or later, or give the container that device"
    )]
    NoDriver,
    /// Only root may make block devices.
    #[error("{CONTROL} may not be used, run it as root (CAP_SYS_ADMIN)")]
    NoRight,
    /// The kernel cannot copy the data of requests as it is done here.
    #[error("ublk of this kernel is too old, use Linux 6.5 or later")]
    TooOld,
    /// The file of a device is not there.
    #[error("cannot open {}, give the container the /dev of the host", path.display())]
    NoFile {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The kernel does not do a step.
    #[error("the kernel did not {step} a block device, its log may say why")]
    Refused {
        /// What was to be done.
        step: &'static str,
        /// What it says.
        source: io::Error,
    },
}

fn refused(step: &'static str) -> impl Fn(io::Error) -> BlockError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => BlockError::NoRight,
        Some(_) | None => BlockError::Refused { step, source },
    }
}

/// `/dev/ublk-control`.
pub struct BlockControl {
    /// Before what its commands name, so that it ends first.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    /// What a command gives and gets.
    room: Box<[u8]>,
}

impl std::fmt::Debug for BlockControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockControl").finish_non_exhaustive()
    }
}

impl BlockControl {
    /// Opens it, and sees whether the kernel can do what is needed.
    ///
    /// # Errors
    ///
    /// There is no ublk, no right, or it is too old.
    pub fn open() -> Result<Self, BlockError> {
        let file = File::options().read(true).write(true).open(CONTROL);
        let file = file.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => BlockError::NoDriver,
            Some(_) | None => refused("open the control of")(source),
        })?;
        let ring = IoUring::builder()
            .build(4)
            .map_err(refused("make a ring for"))?;
        let mut control = Self {
            ring,
            file,
            room: vec![0; ROOM_BYTES].into_boxed_slice(),
        };
        let given = control.command(Command::Features, u32::MAX, wire::FEATURES_BYTES, 0);
        match given {
            Ok(()) if wire::has_features(&control.room) => Ok(control),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                Err(BlockError::NoRight)
            }
            Ok(()) | Err(_) => Err(BlockError::TooOld),
        }
    }

    /// Has the kernel do a command on a device with so many bytes of the room, and waits for it.
    fn command(&mut self, command: Command, device: u32, bytes: u16, data: u64) -> io::Result<()> {
        let address = if bytes > 0 {
            self.room.as_mut_ptr() as u64
        } else {
            0
        };
        let argument = wire::control(device, bytes, address, data);
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command.code())
            .cmd(argument)
            .build();
        // SAFETY: the room and the file live as long as the ring and nobody touches them before the completion.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        let limit = Timespec::from(DELETE_MAX);
        let arguments = SubmitArgs::new();
        let arguments = match command == Command::Delete {
            true => arguments.timespec(&limit),
            false => arguments,
        };
        loop {
            let entered = self.ring.submitter().submit_with_args(1, &arguments);
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    result @ ..0 => Err(io::Error::from_raw_os_error(-result)),
                    _ => Ok(()),
                };
            }
            match entered.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) | Err((Some(libc::EINTR | libc::EAGAIN | libc::EBUSY), _)) => {}
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Deletes what processes that were killed have left.
    fn delete_left(&mut self) {
        // Another one deletes, or has a device that looks like one that was left.
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let list = std::fs::read_dir(LIST).into_iter().flatten().flatten();
        for entry in list {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
            let Some(number) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let known = self.command(Command::Information, number, wire::INFORMATION_BYTES, 0);
            if known.is_ok() && Information::decode(&self.room).is_left() {
                // It stays where somebody has it open, and the next one tries again.
                let _kept = self.delete(number);
            }
        }
    }

    fn delete(&mut self, number: u32) -> io::Result<()> {
        match self.command(Command::DeleteLater, number, 0, 0) {
            // Before Linux 6.9.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY)
                ) =>
            {
                self.command(Command::Delete, number, 0, 0)
            }
            outcome => outcome,
        }
    }
}

/// A block device. Dropped, it is taken away.
#[derive(Debug)]
pub struct BlockDevice {
    control: BlockControl,
    number: u32,
    queue: Option<JoinHandle<()>>,
    is_there: bool,
}

impl BlockDevice {
    /// Makes a block device. `handle` gets its requests, and must not wait; `ended` is called when no more will come:
    /// it was stopped, by this process or another one, or its queue broke, with the reason.
    ///
    /// # Errors
    ///
    /// The kernel does not do it.
    pub fn start(
        mut control: BlockControl,
        shape: BlockShape,
        handle: impl FnMut(BlockRequest) + Send + 'static,
        ended: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> Result<Self, BlockError> {
        control.delete_left();
        let lock = flock(&control.file, FlockOperation::LockShared);
        lock.map_err(|error| refused("lock the control of")(error.into()))?;
        Information::wanted().encode(&mut control.room);
        let added = control.command(Command::Add, u32::MAX, wire::INFORMATION_BYTES, 0);
        added.map_err(refused("add"))?;
        let number = Information::decode(&control.room).number;
        let mut device = Self {
            control,
            number,
            queue: None,
            is_there: true,
        };
        wire::parameters(&shape, &mut device.control.room);
        device
            .command(Command::SetParameters, wire::PARAMETERS_BYTES, 0)
            .map_err(refused("take the parameters of"))?;
        let path = PathBuf::from(format!("/dev/ublkc{number}"));
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|source| BlockError::NoFile { path, source })?;
        let (sender, ready) = channel();
        let thread = thread::Builder::new().name("block-device".to_owned());
        let running = thread.spawn(move || queue::run(file, handle, &sender, ended));
        device.queue = Some(running.map_err(refused("start a thread for"))?);
        let is_ready = ready
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        is_ready.map_err(refused("give requests of"))?;
        // It looks for partitions, so requests come before this ends.
        device
            .command(Command::Start, 0, u64::from(std::process::id()))
            .map_err(refused("start"))?;
        let unlocked = flock(&device.control.file, FlockOperation::Unlock);
        unlocked.map_err(|error| refused("unlock the control of")(error.into()))?;
        Ok(device)
    }

    /// The device of programs.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.number))
    }

    /// Has what was written to it come as requests, with a flush behind, and takes it away. Requests under way are
    /// answered first. Programs that have it open get EIO.
    ///
    /// # Errors
    ///
    /// The flush failed, or the kernel does not take the device away.
    pub fn stop(mut self) -> io::Result<()> {
        let flushed = File::open(self.path()).and_then(|file| file.sync_all());
        let ended = self.end();
        match flushed {
            // Somebody else has stopped it.
            Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => {
                Err(error)
            }
            _ => ended,
        }
    }

    fn command(&mut self, command: Command, bytes: u16, data: u64) -> io::Result<()> {
        self.control.command(command, self.number, bytes, data)
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_there = false;
        let stopped = self.command(Command::Stop, 0, 0);
        if let Some(queue) = self.queue.take().filter(|_| stopped.is_ok()) {
            // Its panic has been reported.
            let _panicked = queue.join();
        }
        let deleted = self.control.delete(self.number);
        match stopped.and(deleted) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(()),
            outcome => outcome,
        }
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        if self.is_there {
            // The next start deletes what is left.
            let _left = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn without_ublk_the_error_says_what_to_do() {
        // A machine with ublk has the stage `kernel` only.
        if !Path::new(CONTROL).exists() {
            let error = BlockControl::open().unwrap_err();
            assert!(matches!(error, BlockError::NoDriver), "{error}");
            assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
        }
    }

    #[test]
    fn a_right_that_is_missing_is_not_a_kernel_that_refuses() {
        let of = |errno| refused("add")(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::EPERM), BlockError::NoRight));
        assert!(matches!(of(libc::EACCES), BlockError::NoRight));
        assert!(matches!(of(libc::ENOMEM), BlockError::Refused { .. }));
    }
}
