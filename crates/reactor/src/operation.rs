//! One operation: what it owns, how it is given to the kernel, and what its results mean.

use std::fmt;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags, Timespec};
use io_uring::{cqueue, opcode};
use memory::{Buffer, Message};
use rustix::io::Errno;
use store::{AllocateMode, FileHandle, RingOperation, Route, UnderWay};

use crate::again::Tries;
use crate::chunks;
use crate::datagram::{DatagramRoom, NAME_BYTES};
use crate::{DatagramSocket, Listener, Socket, Token};

/// The kernel takes no more parts in one call (`UIO_MAXIOV`).
pub(crate) const PARTS_MAX: usize = 1024;
/// The kernel moves no more in one call (`MAX_RW_COUNT` is a little more).
pub(crate) const CALL_BYTES_MAX: usize = 1 << 30;
/// `IORING_RECVSEND_POLL_FIRST`: do not try first, there is nothing yet.
const POLL_FIRST: u16 = 1 << 0;

/// An operation under way. It owns all that the kernel works on.
#[derive(Debug)]
pub(crate) enum Operation {
    Accept {
        token: Token,
        listener: Listener,
    },
    Receive {
        token: Token,
        socket: Socket,
        /// At most one chunk.
        limit_bytes: usize,
    },
    ReceiveExact {
        token: Token,
        socket: Socket,
        buffer: Buffer,
        range: Range<usize>,
        done: usize,
    },
    Send {
        token: Token,
        socket: Socket,
        message: Message,
        /// There until the send is over.
        header: Option<Box<SendHeader>>,
        done: usize,
        /// The kernel is to take all of it at once, without a completion, or to give it back.
        at_once: bool,
    },
    /// Stays with the kernel from datagram to datagram.
    ReceiveDatagrams {
        token: Token,
        socket: DatagramSocket,
        header: Box<ReceiveHeader>,
    },
    SendDatagram {
        token: Token,
        socket: DatagramSocket,
        room: Box<DatagramRoom>,
        /// The kernel is to take it at once, without a completion, or to give it back.
        at_once: bool,
    },
    Store {
        token: Token,
        operation: RingOperation,
        route: Route,
        /// Counts it for its device.
        _under_way: Option<UnderWay>,
        tries: Tries,
    },
    /// Runs on a helper thread, not on the ring.
    Helper {
        token: Token,
    },
    /// Wakes the reactor from a long sleep.
    Alarm {
        deadline: Duration,
        time: Box<Timespec>,
    },
    /// Waits for the wake-up of a mailbox.
    Mail {
        index: usize,
        fd: i32,
        count: Box<u64>,
    },
}

/// What is to be done after a completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Go on with the rest, or try once more.
    Again,
    /// Try once more after this time.
    Pause(Duration),
    /// Wait until there are chunks, or frames.
    Starve,
    /// The kernel goes on with it.
    GoOn,
    /// Over, with this result for the event.
    Finish(i32),
}

/// The kernel's description of a send, at an address of its own.
pub(crate) struct SendHeader {
    header: libc::msghdr,
    parts: Vec<libc::iovec>,
}

/// The kernel's description of a receive of datagrams, at an address of its own: how much room there
/// is for the address of the sender.
pub(crate) struct ReceiveHeader(libc::msghdr);

impl ReceiveHeader {
    pub(crate) fn new() -> Box<Self> {
        // SAFETY: all zeros is a valid `msghdr`: no address, no control data, no parts.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_namelen = libc::socklen_t::try_from(NAME_BYTES).unwrap_or(0);
        Box::new(Self(header))
    }

    pub(crate) const fn get(&self) -> &libc::msghdr {
        &self.0
    }
}

impl fmt::Debug for ReceiveHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveHeader").finish_non_exhaustive()
    }
}

impl SendHeader {
    pub(crate) fn new() -> Box<Self> {
        // SAFETY: all zeros is a valid `msghdr`: no address, no control data, no parts.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Self {
            header,
            parts: Vec::new(),
        })
    }

    /// Describes the message from byte `done` on and gives the address of the description.
    fn describe(&mut self, message: &Message, done: usize) -> *const libc::msghdr {
        self.parts.clear();
        let parts = message.parts(done).take(PARTS_MAX);
        self.parts.extend(parts.map(|(start, len)| libc::iovec {
            iov_base: start.as_ptr().cast(),
            iov_len: len,
        }));
        self.header.msg_iov = self.parts.as_mut_ptr();
        // An int with padding in musl, a size_t elsewhere; no more than PARTS_MAX in any case.
        self.header.msg_iovlen = self.parts.len() as _;
        &raw const self.header
    }
}

impl fmt::Debug for SendHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendHeader")
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

impl Operation {
    /// The entry for the submission queue; `None` for what does not run on the ring. What it
    /// points to belongs to `self` and stays put while `self` is in its slot.
    ///
    /// What waits for a peer goes back to us with each part (no MSG_WAITALL): the kernel waits 128 times for the
    /// rest of one entry, and then has a thread of its own wait (`APOLL_MAX_RETRY`), so that peers who are slow
    /// would have as many threads as they have connections.
    pub(crate) fn entry(&mut self) -> Option<Entry> {
        Some(match self {
            Self::Accept { listener, .. } => {
                // The peer's address is asked for later, which needs no memory here.
                opcode::Accept::new(Fd(listener.raw()), ptr::null_mut(), ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Self::Receive {
                socket,
                limit_bytes,
                ..
            } => {
                let len = call_len(*limit_bytes);
                opcode::Recv::new(Fd(socket.raw()), ptr::null_mut(), len)
                    .ioprio(poll_first(socket))
                    .buf_group(chunks::GROUP)
                    .build()
                    .flags(Flags::BUFFER_SELECT)
            }
            Self::ReceiveExact {
                socket,
                buffer,
                range,
                done,
                ..
            } => {
                let start = buffer.address().as_ptr().wrapping_add(range.start + *done);
                let len = call_len(range.len() - *done);
                opcode::Recv::new(Fd(socket.raw()), start, len)
                    .ioprio(poll_first(socket))
                    .build()
            }
            Self::Send {
                socket,
                message,
                header,
                done,
                at_once,
                ..
            } => {
                let header = header.as_mut()?.describe(message, *done);
                let has_room = *done == 0;
                stream_entry(socket.raw(), header, (*at_once, has_room))
            }
            Self::ReceiveDatagrams { socket, header, .. } => {
                let header = &raw const *header.get();
                opcode::RecvMsgMulti::new(Fd(socket.raw()), header, chunks::FRAME_GROUP).build()
            }
            Self::SendDatagram {
                socket,
                room,
                at_once,
                ..
            } => room.entry(socket, *at_once),
            Self::Store {
                operation, route, ..
            } => return store_entry(operation, flags_of(*route)?),
            Self::Helper { .. } => return None,
            Self::Alarm { time, .. } => opcode::Timeout::new(&raw const **time).build(),
            Self::Mail { fd, count, .. } => {
                opcode::Read::new(Fd(*fd), (&raw mut **count).cast(), 8).build()
            }
        })
    }

    /// A send that the kernel is to take at once, without a completion.
    pub(crate) const fn is_at_once(&self) -> bool {
        matches!(
            self,
            Self::Send { at_once: true, .. } | Self::SendDatagram { at_once: true, .. }
        )
    }

    /// It has a completion: if it was to be taken at once, it was not.
    pub(crate) const fn note_given_back(&mut self) {
        if let Self::Send { at_once, .. } | Self::SendDatagram { at_once, .. } = self {
            *at_once = false;
        }
    }

    /// It goes to the lane of its file, not to the ring.
    pub(crate) const fn is_for_lane(&self) -> bool {
        matches!(
            self,
            Self::Store {
                route: Route::Lane(_),
                ..
            }
        )
    }

    /// Takes note of a completion and says what comes next. `cancelled` operations do not go on
    /// with a rest.
    pub(crate) fn advance(&mut self, result: i32, flags: u32, cancelled: bool) -> Step {
        if cqueue::more(flags) {
            return Step::GoOn;
        }
        self.note_given_back();
        let errno = result.min(0).wrapping_neg();
        if matches!(errno, libc::EINTR | libc::EAGAIN) {
            if cancelled {
                return Step::Finish(-libc::ECANCELED);
            }
            if let Self::Receive { socket, .. } | Self::ReceiveExact { socket, .. } = self {
                // Whatever there was is gone, so the next attempt waits first.
                socket.note_drained(true);
            }
            if let Self::Store { tries, .. } = self {
                return tries.pause().map_or(Step::Finish(result), Step::Pause);
            }
            return Step::Again;
        }
        let moved = usize::try_from(result).unwrap_or(0);
        let (done, whole) = match self {
            Self::Receive { socket, .. } if errno == libc::ENOBUFS && !cancelled => {
                // There is something to receive, only nowhere to put it.
                socket.note_drained(false);
                return Step::Starve;
            }
            Self::ReceiveDatagrams { .. } if errno == libc::ENOBUFS && !cancelled => {
                return Step::Starve;
            }
            Self::ReceiveDatagrams { .. } if errno == 0 && !cancelled => return Step::Again,
            Self::ReceiveDatagrams { .. } if errno == 0 => return Step::Finish(-libc::ECANCELED),
            Self::ReceiveExact {
                socket,
                range,
                done,
                ..
            } => {
                socket.note_drained(result > 0 && !cqueue::sock_nonempty(flags));
                (done, range.len())
            }
            Self::Send { message, done, .. } => (done, message.len()),
            Self::Receive { .. }
            | Self::Accept { .. }
            | Self::ReceiveDatagrams { .. }
            | Self::SendDatagram { .. }
            | Self::Store { .. }
            | Self::Helper { .. }
            | Self::Alarm { .. }
            | Self::Mail { .. } => return Step::Finish(result),
        };
        *done += moved;
        debug_assert!(*done <= whole, "{done} bytes of {whole}");
        if result <= 0 || *done >= whole {
            Step::Finish(result)
        } else if cancelled {
            Step::Finish(-libc::ECANCELED)
        } else {
            Step::Again
        }
    }
}

/// Turns the kernel's result into ours.
pub(crate) fn check(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()))
}

fn poll_first(socket: &Socket) -> u16 {
    if socket.is_drained() { POLL_FIRST } else { 0 }
}

fn call_len(len: usize) -> u32 {
    u32::try_from(len.min(CALL_BYTES_MAX)).unwrap_or(0)
}

/// With which flags an operation of a store goes to the ring; `None` for the lane.
const fn flags_of(route: Route) -> Option<i32> {
    match route {
        Route::Ring => Some(0),
        Route::Try(_) => Some(libc::RWF_NOWAIT),
        Route::Lane(_) => None,
    }
}

/// A send to a stream. One that is to be over at once may not wait, so it ends while it is submitted. A part is no
/// success with MSG_WAITALL, so it has a completion, as every error has. One that may wait must not have that flag
/// ([`Operation::entry`]); where a part of it was sent before, there is no room for the next one yet.
fn stream_entry(
    fd: RawFd,
    header: *const libc::msghdr,
    (at_once, has_room): (bool, bool),
) -> Entry {
    if at_once {
        let flags = libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        send_entry(fd, header, (flags, 0)).flags(Flags::SKIP_SUCCESS)
    } else {
        send_entry(fd, header, (0, if has_room { 0 } else { POLL_FIRST }))
    }
}

fn send_entry(fd: RawFd, header: *const libc::msghdr, (flags, how): (i32, u16)) -> Entry {
    opcode::SendMsg::new(Fd(fd), header)
        .flags((libc::MSG_NOSIGNAL | flags).cast_unsigned())
        .ioprio(how)
        .build()
}

/// The entry for an operation of a store; `None` for what only a lane can do. With `nowait` transfers are refused
/// that would have to wait (`RWF_NOWAIT`).
fn store_entry(operation: &RingOperation, nowait: i32) -> Option<Entry> {
    Some(match operation {
        RingOperation::Read {
            file,
            offset,
            buffer,
            done,
        } => {
            let start = buffer.address().as_ptr().wrapping_add(*done);
            let len = call_len(buffer.len().saturating_sub(*done));
            opcode::Read::new(fd(file), start, len)
                .offset(offset + *done as u64)
                .rw_flags(nowait)
                .build()
        }
        RingOperation::Write {
            file,
            offset,
            data,
            done,
            durable,
        } => {
            let start = data.address().as_ptr().wrapping_add(*done);
            let len = call_len(data.len().saturating_sub(*done));
            opcode::Write::new(fd(file), start, len)
                .offset(offset + *done as u64)
                .rw_flags(nowait | if *durable { libc::RWF_DSYNC } else { 0 })
                .build()
        }
        RingOperation::Sync { file } => opcode::Fsync::new(fd(file))
            .flags(FsyncFlags::DATASYNC)
            .build(),
        RingOperation::Allocate { file, mode, range } => {
            let mode = match mode {
                AllocateMode::PunchHole => libc::FALLOC_FL_PUNCH_HOLE,
                AllocateMode::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
            };
            opcode::Fallocate::new(fd(file), range.end - range.start)
                .offset(range.start)
                .mode(mode | libc::FALLOC_FL_KEEP_SIZE)
                .build()
        }
        RingOperation::Extents { .. } | RingOperation::Size { .. } => return None,
    })
}

fn fd(file: &FileHandle) -> Fd {
    use std::os::fd::AsRawFd;
    Fd(file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::Arc;

    use libc::{EAGAIN, ECANCELED, EINTR, ENOBUFS, EPIPE};
    use memory::Pool;
    use store::{DiskFile, Place, StoreFile};

    use super::*;

    /// `IORING_CQE_F_MORE` and `IORING_CQE_F_SOCK_NONEMPTY`.
    const MORE: u32 = 1 << 1;
    const NONEMPTY: u32 = 1 << 2;

    fn socket() -> Socket {
        Socket::new(UnixStream::pair().unwrap().0.into()).unwrap()
    }

    fn datagrams() -> DatagramSocket {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        DatagramSocket::new(std::os::fd::OwnedFd::from(socket)).unwrap()
    }

    fn send(at_once: bool) -> Operation {
        let mut message = Message::default();
        message.push_bytes(&[0; 100]);
        Operation::Send {
            token: 1,
            socket: socket(),
            message,
            header: None,
            done: 40,
            at_once,
        }
    }

    fn receive_exact(socket: &Socket) -> Operation {
        Operation::ReceiveExact {
            token: 1,
            socket: socket.clone(),
            buffer: Pool::new(0).unwrap().allocate(200).unwrap(),
            range: 100..200,
            done: 40,
        }
    }

    fn receive(socket: &Socket) -> Operation {
        Operation::Receive {
            token: 1,
            socket: socket.clone(),
            limit_bytes: 1,
        }
    }

    fn receive_datagrams() -> Operation {
        Operation::ReceiveDatagrams {
            token: 1,
            socket: datagrams(),
            header: ReceiveHeader::new(),
        }
    }

    fn alarm() -> Operation {
        Operation::Alarm {
            deadline: Duration::ZERO,
            time: Box::new(Timespec::new()),
        }
    }

    #[test]
    fn what_comes_after_a_completion_is_by_the_table() {
        let (over, cancelled) = (Step::Finish, Step::Finish(-ECANCELED));
        type Make = fn() -> Operation;
        let exact: Make = || receive_exact(&socket());
        let receive: Make = || receive(&socket());
        let send: Make = || send(true);
        #[rustfmt::skip]
        let rows: [(Make, i32, [Step; 2]); 20] = [
            // One of which nothing is cancelled, and one that is.
            (exact, 60, [over(60); 2]),
            (exact, 59, [Step::Again, cancelled]),
            (exact, 0, [over(0); 2]),
            (exact, -EPIPE, [over(-EPIPE); 2]),
            (exact, -EINTR, [Step::Again, cancelled]),
            (exact, -EAGAIN, [Step::Again, cancelled]),
            (exact, -ENOBUFS, [over(-ENOBUFS); 2]),
            (send, 60, [over(60); 2]),
            (send, 59, [Step::Again, cancelled]),
            (send, 0, [over(0); 2]),
            (send, -EAGAIN, [Step::Again, cancelled]),
            (receive, 7, [over(7); 2]),
            (receive, -ENOBUFS, [Step::Starve, over(-ENOBUFS)]),
            (receive, -EPIPE, [over(-EPIPE); 2]),
            (receive_datagrams, 0, [Step::Again, cancelled]),
            (receive_datagrams, -ENOBUFS, [Step::Starve, over(-ENOBUFS)]),
            (receive_datagrams, -EPIPE, [over(-EPIPE); 2]),
            (receive_datagrams, -EINTR, [Step::Again, cancelled]),
            (alarm, 0, [over(0); 2]),
            (alarm, -EINTR, [Step::Again, cancelled]),
        ];
        for (make, result, expected) in rows {
            for (is_cancelled, expected) in [false, true].into_iter().zip(expected) {
                let mut operation = make();
                let step = operation.advance(result, MORE, is_cancelled);
                assert_eq!(step, Step::GoOn, "the kernel goes on");
                let step = operation.advance(result, 0, is_cancelled);
                assert_eq!(step, expected, "{operation:?} {result} {is_cancelled}");
            }
        }
    }

    #[test]
    fn what_is_done_adds_up_and_a_send_that_came_back_may_wait() {
        let mut operation = send(true);
        assert!(operation.is_at_once() && !send(false).is_at_once());
        assert_eq!(operation.advance(30, MORE, false), Step::GoOn);
        assert!(operation.is_at_once());
        assert_eq!(operation.advance(30, 0, false), Step::Again);
        assert!(!operation.is_at_once());
        assert_eq!(operation.advance(29, 0, false), Step::Again);
        assert_eq!(operation.advance(1, 0, false), Step::Finish(1));
        let mut datagram = Operation::SendDatagram {
            token: 1,
            socket: datagrams(),
            room: DatagramRoom::new(),
            at_once: true,
        };
        assert!(datagram.is_at_once());
        assert_eq!(datagram.advance(5, 0, false), Step::Finish(5));
        assert!(!datagram.is_at_once());
    }

    #[test]
    fn a_socket_is_drained_when_a_receive_has_left_nothing() {
        let socket = socket();
        for (make, result, flags, expected) in [
            (receive_exact as fn(&Socket) -> Operation, 5, 0, true),
            (receive_exact, 5, NONEMPTY, false),
            (receive_exact, -EAGAIN, NONEMPTY, true),
            (receive_exact, 0, 0, false),
            (receive, -EINTR, 0, true),
            (receive, -ENOBUFS, 0, false),
        ] {
            // As the one before was not.
            socket.note_drained(!expected);
            make(&socket).advance(result, flags, false);
            assert_eq!(socket.is_drained(), expected, "{result} {flags}");
        }
    }

    #[test]
    fn an_operation_of_a_store_is_tried_again_with_pauses() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let disk = Arc::new(DiskFile::from(std::os::fd::OwnedFd::from(file)));
        let store = |route| Operation::Store {
            token: 1,
            operation: RingOperation::Sync {
                file: Rc::new(StoreFile::new(Arc::clone(&disk), Place::memory())),
            },
            route,
            _under_way: None,
            tries: Tries::default(),
        };
        let mut operation = store(Route::Ring);
        for milliseconds in [1, 2, 4, 8, 16, 32, 64, 128, 200, 200, 200] {
            let pause = Step::Pause(Duration::from_millis(milliseconds));
            assert_eq!(operation.advance(-EAGAIN, 0, false), pause);
        }
        assert_eq!(operation.advance(-EAGAIN, 0, false), Step::Finish(-EAGAIN));
        let mut operation = store(Route::Ring);
        assert_eq!(operation.advance(-EINTR, 0, true), Step::Finish(-ECANCELED));
        assert_eq!(operation.advance(512, 0, false), Step::Finish(512));
        // A lane does not take entries of the ring, and the ring not those of a lane.
        for (route, is_for_lane) in [
            (Route::Ring, false),
            (Route::Try(store::Class::Flush), false),
            (Route::Lane(store::Class::Flush), true),
        ] {
            let mut operation = store(route);
            assert_eq!(operation.is_for_lane(), is_for_lane);
            assert_eq!(operation.entry().is_none(), is_for_lane);
        }
    }

    #[test]
    fn what_the_kernel_answers_is_a_count_or_an_error() {
        assert_eq!((check(0), check(7)), (Ok(0), Ok(7)));
        assert_eq!(check(-EPIPE), Err(Errno::PIPE));
        assert_eq!(
            [0, CALL_BYTES_MAX, CALL_BYTES_MAX + 1].map(call_len),
            [0, 1 << 30, 1 << 30]
        );
        assert_eq!(
            flags_of(Route::Try(store::Class::Read)),
            Some(libc::RWF_NOWAIT)
        );
        assert_eq!(flags_of(Route::Ring), Some(0));
    }
}
