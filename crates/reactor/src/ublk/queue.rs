//! The thread that takes requests of a block device from the kernel and gives answers back. The kernel lets only the
//! thread that took a request answer it, so answers of others come by a channel, and a counter wakes the thread.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use super::wire::{self, Descriptor};
use super::{BlockOperation, QUEUE_DEPTH};

/// The completion that says that there are answers.
const WAKE: u64 = u64::MAX;

/// A request of a block device.
#[derive(Debug)]
pub struct BlockRequest {
    /// Its first byte.
    pub offset: u64,
    /// What to do.
    pub operation: BlockOperation,
    /// Takes how it ended.
    pub answer: BlockAnswer,
}

type Answered = (u16, Result<Vec<u8>, Errno>);

/// Answers a request. Dropped, the request ends with EIO.
#[derive(Debug)]
pub struct BlockAnswer {
    tag: u16,
    way: Option<(Sender<Answered>, Arc<OwnedFd>)>,
}

impl BlockAnswer {
    /// Ends the request: with the data of a read, with nothing otherwise.
    pub fn give(mut self, result: Result<Vec<u8>, Errno>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<Vec<u8>, Errno>) {
        if let Some((sender, wake)) = self.way.take() {
            // Nobody listens where the device has gone.
            drop(sender.send((self.tag, result)));
            // A counter that is full has woken the thread already.
            let _full = rustix::io::write(&*wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Drop for BlockAnswer {
    fn drop(&mut self) {
        self.send(Err(Errno::IO));
    }
}

/// The descriptions of requests, one for each tag, which the kernel writes.
struct Descriptors {
    start: NonNull<Descriptor>,
    bytes: usize,
}

// SAFETY: it owns the mapping, which belongs to no thread.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(file: &File) -> io::Result<Self> {
        let bytes =
            (usize::from(QUEUE_DEPTH) * size_of::<Descriptor>()).next_multiple_of(page_size());
        let (flags, protection) = (MapFlags::SHARED | MapFlags::POPULATE, ProtFlags::READ);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file.as_fd(), 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { start, bytes })
    }

    fn get(&self, tag: u16) -> Option<Descriptor> {
        if tag >= QUEUE_DEPTH {
            return None;
        }
        // SAFETY: the mapping has a descriptor for each tag below the depth.
        let place = unsafe { self.start.as_ptr().add(usize::from(tag)) };
        // SAFETY: it is mapped, aligned, and any bytes are a descriptor; the kernel has written it before it completed
        // the command of this tag, and writes it next after the answer.
        Some(unsafe { place.read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing points into it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// What a request waits for: the length of a read or write.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Read(u32),
    Written(u32),
    Done,
}

struct Queue {
    /// Before what it works on, so that it ends first.
    ring: IoUring,
    file: File,
    wake: Arc<OwnedFd>,
    descriptors: Descriptors,
    answers: Receiver<Answered>,
    sender: Sender<Answered>,
    /// By tag.
    awaited: Vec<Option<Awaited>>,
    /// Tags that the kernel has, or the code that answers.
    live: usize,
}

/// Serves the device of this file until it is stopped. `ready` gets it when all is as the start wants it, or why not.
pub(super) fn run(
    file: File,
    mut handle: impl FnMut(BlockRequest),
    ready: &Sender<io::Result<()>>,
    ended: impl FnOnce(io::Result<()>),
) {
    let mut end = End(Some(ended));
    let mut queue = match Queue::new(file) {
        Ok(queue) => queue,
        Err(error) => return drop(ready.send(Err(error))),
    };
    drop(ready.send(Ok(())));
    let outcome = queue.serve(&mut handle);
    // The file is closed before the end is reported, as after a panic.
    drop(queue);
    end.report(outcome);
}

/// Reports the end once, also one by a panic.
struct End<F: FnOnce(io::Result<()>)>(Option<F>);

impl<F: FnOnce(io::Result<()>)> End<F> {
    fn report(&mut self, outcome: io::Result<()>) {
        if let Some(ended) = self.0.take() {
            ended(outcome);
        }
    }
}

impl<F: FnOnce(io::Result<()>)> Drop for End<F> {
    fn drop(&mut self) {
        self.report(Err(io::Error::other("its thread has failed")));
    }
}

impl Queue {
    fn new(file: File) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, answers) = channel();
        let mut queue = Self {
            // A command of each tag, and the wait for answers.
            ring: IoUring::new(u32::from(QUEUE_DEPTH) * 2)?,
            descriptors: Descriptors::map(&file)?,
            file,
            wake: Arc::new(wake),
            answers,
            sender,
            awaited: vec![None; usize::from(QUEUE_DEPTH)],
            live: usize::from(QUEUE_DEPTH),
        };
        for tag in 0..QUEUE_DEPTH {
            queue.push_command(wire::FETCH, tag, -1)?;
        }
        queue.push_wait()?;
        // The start waits until the kernel has them all.
        queue.ring.submit()?;
        Ok(queue)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: entries name descriptors alone, which live as long as the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // There is room for what can be under way, so a full queue is an error of the kernel.
        pushed.map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    fn push_command(&mut self, code: u32, tag: u16, result: i32) -> io::Result<()> {
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), code)
            .cmd(wire::io(tag, result))
            .build();
        self.push(&entry.user_data(tag.into()))
    }

    fn push_wait(&mut self) -> io::Result<()> {
        // As poll(2) has it.
        let readable = u32::from(libc::POLLIN.unsigned_abs());
        let entry = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), readable).build();
        self.push(&entry.user_data(WAKE))
    }

    fn serve(&mut self, handle: &mut impl FnMut(BlockRequest)) -> io::Result<()> {
        let mut done = Vec::new();
        while self.live > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error)
                    if !matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) =>
                {
                    return Err(error);
                }
                Ok(_) | Err(_) => {}
            }
            done.extend(
                self.ring
                    .completion()
                    .map(|entry| (entry.user_data(), entry.result())),
            );
            for (which, result) in done.drain(..) {
                match (u16::try_from(which), result) {
                    (Ok(tag), 0) => self.begin(tag, handle)?,
                    // The device is stopped.
                    (Ok(_), _) => self.live = self.live.saturating_sub(1),
                    (Err(_), _) => {
                        // What was counted since is read, too.
                        let _empty = rustix::io::read(&*self.wake, &mut [0; 8]);
                        self.push_wait()?;
                    }
                }
            }
            while let Ok((tag, result)) = self.answers.try_recv() {
                self.finish(tag, result)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, tag: u16, handle: &mut impl FnMut(BlockRequest)) -> io::Result<()> {
        let request = self.descriptors.get(tag).and_then(|found| found.request());
        let Some((offset, mut operation)) = request else {
            return self.answer(tag, Err(Errno::OPNOTSUPP));
        };
        let awaited = match &mut operation {
            BlockOperation::Read(length) => Awaited::Read(*length),
            BlockOperation::Write { data, .. } => {
                if self
                    .file
                    .read_exact_at(data, wire::data_place(tag))
                    .is_err()
                {
                    return self.answer(tag, Err(Errno::IO));
                }
                Awaited::Written(u32::try_from(data.len()).unwrap_or_default())
            }
            BlockOperation::Flush | BlockOperation::Discard(_) | BlockOperation::Zero { .. } => {
                Awaited::Done
            }
        };
        if let Some(place) = self.awaited.get_mut(usize::from(tag)) {
            *place = Some(awaited);
        }
        let answer = BlockAnswer {
            tag,
            way: Some((self.sender.clone(), Arc::clone(&self.wake))),
        };
        handle(BlockRequest {
            offset,
            operation,
            answer,
        });
        Ok(())
    }

    fn finish(&mut self, tag: u16, result: Result<Vec<u8>, Errno>) -> io::Result<()> {
        let awaited = self
            .awaited
            .get_mut(usize::from(tag))
            .and_then(Option::take);
        let outcome = match (awaited, result) {
            (Some(Awaited::Read(length)), Ok(data)) => {
                let is_whole = u32::try_from(data.len()) == Ok(length);
                let place = wire::data_place(tag);
                match is_whole && self.file.write_all_at(&data, place).is_ok() {
                    true => Ok(length),
                    false => Err(Errno::IO),
                }
            }
            (Some(Awaited::Written(length)), Ok(_)) => Ok(length),
            (Some(Awaited::Done), Ok(_)) => Ok(0),
            (Some(_), Err(error)) => Err(error),
            // A request has one answer.
            (None, _) => return Ok(()),
        };
        self.answer(tag, outcome)
    }

    /// Gives the kernel the result of a request, and takes the next one of the tag.
    fn answer(&mut self, tag: u16, outcome: Result<u32, Errno>) -> io::Result<()> {
        let result = match outcome {
            Ok(length) => i32::try_from(length).unwrap_or(i32::MAX),
            Err(error) => -error.raw_os_error(),
        };
        self.push_command(wire::COMMIT_AND_FETCH, tag, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(tag: u16) -> (BlockAnswer, Receiver<Answered>, Arc<OwnedFd>) {
        let (sender, answers) = channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let way = Some((sender, Arc::clone(&wake)));
        (BlockAnswer { tag, way }, answers, wake)
    }

    #[test]
    fn a_request_is_answered_once_and_the_thread_is_woken() {
        let (given, answers, wake) = answer(3);
        given.give(Ok(vec![1]));
        assert_eq!(answers.recv(), Ok((3, Ok(vec![1]))));
        assert!(answers.recv().is_err());
        assert_eq!(rustix::io::read(&*wake, &mut [0; 8]), Ok(8));
    }

    #[test]
    fn a_request_whose_answer_is_dropped_fails() {
        let (dropped, answers, wake) = answer(4);
        drop(dropped);
        assert_eq!(answers.recv(), Ok((4, Err(Errno::IO))));
        assert_eq!(rustix::io::read(&*wake, &mut [0; 8]), Ok(8));
    }
}
