//! What the kernel has completed: taken from the ring, carried on, or made an event of.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::cqueue;
use memory::Buffer;
use rustix::io::Errno;
use store::Route;

use super::Reactor;
use crate::chunks::Chunks;
use crate::event::{Event, Received};
use crate::in_flight::{Key, NO_KEY};
use crate::operation::{Operation, Step, check};
use crate::ring::Completion;
use crate::sent::sent_event;
use crate::{Datagram, Socket, net};

impl Reactor {
    pub(super) fn reap(&mut self) -> std::io::Result<()> {
        let mut completions = mem::take(&mut self.completions);
        let reaped = self.ring.reap(&mut completions);
        if !self.at_once.is_empty() {
            self.settle_at_once(&completions);
        }
        for completion in completions.drain(..) {
            if completion.user_data != NO_KEY {
                self.handle_completion(completion);
            }
        }
        self.completions = completions;
        reaped
    }

    fn handle_completion(&mut self, completion: Completion) {
        let Completion {
            user_data: key,
            result,
            flags,
        } = completion;
        let Some(slot) = self.in_flight.find(key) else {
            debug_assert!(false, "a completion for {key:#x}, which is not under way");
            return;
        };
        if let Operation::Receive { token, socket, .. } = &slot.operation
            && result >= 0
            && !cqueue::more(flags)
        {
            // The plain end of most operations: nothing is moved.
            let token = *token;
            let chunk = cqueue::buffer_select(flags).and_then(|number| {
                self.chunks
                    .take(number, usize::try_from(result).unwrap_or(0))
            });
            let result = received(&self.chunks, socket, result, flags, chunk);
            self.in_flight.end(key);
            self.with_kernel -= 1;
            self.ready.push(Event::Received { token, result });
            return;
        }
        self.handle_other(completion);
    }

    /// The completion of an operation that is under way.
    #[inline(never)]
    fn handle_other(&mut self, completion: Completion) {
        let Completion {
            user_data: key,
            result,
            flags,
        } = completion;
        let Some(slot) = self.in_flight.find(key) else {
            return;
        };
        let is_of_frames = matches!(slot.operation, Operation::ReceiveDatagrams { .. });
        let chunks = match &mut self.frames {
            Some(frames) if is_of_frames => frames,
            Some(_) | None => &mut self.chunks,
        };
        // A chunk may have been used up even when the receive failed.
        let chunk = cqueue::buffer_select(flags)
            .and_then(|number| chunks.take(number, usize::try_from(result).unwrap_or(0)));
        if !cqueue::more(flags) {
            self.with_kernel -= 1;
        }
        if let Operation::ReceiveDatagrams { token, header, .. } = &slot.operation
            && let Some(datagram) = chunk
                .clone()
                .and_then(|it| Datagram::parse(it, header.get()))
        {
            let (token, result) = (*token, Ok(datagram));
            self.ready.push(Event::Datagram { token, result });
        }
        if let Operation::Store { route, .. } = &mut slot.operation
            && let Route::Try(class) = *route
            && matches!(result.wrapping_neg(), libc::EAGAIN | libc::EOPNOTSUPP)
            && !slot.cancelled
            && !self.closing
        {
            // It would have to wait, or nobody knows whether.
            *route = Route::Lane(class);
            self.submit(key);
            return;
        }
        let step = slot.operation.advance(result, flags, slot.cancelled);
        self.take_step(key, step, flags, chunk);
    }

    pub(super) fn take_step(
        &mut self,
        key: Key,
        step: Step,
        flags: u32,
        chunk: Option<Rc<Buffer>>,
    ) {
        match step {
            Step::Again | Step::Starve | Step::Pause(_) if self.closing => {
                self.in_flight.remove(key);
            }
            Step::Again => self.submit(key),
            Step::Pause(pause) => self.paused.push((self.start.elapsed() + pause, key)),
            Step::Starve => self.starve(key),
            Step::GoOn => {}
            Step::Finish(result) => self.finish(key, result, flags, chunk),
        }
    }

    /// Empties a slot and makes its event.
    pub(super) fn finish(&mut self, key: Key, result: i32, flags: u32, chunk: Option<Rc<Buffer>>) {
        let Some(slot) = self.in_flight.remove(key) else {
            return;
        };
        let event = match slot.operation {
            Operation::Accept { token, .. } => Event::Accepted {
                token,
                result: check(result).and_then(|_| accepted(result)),
            },
            Operation::Receive { token, socket, .. } => {
                let result = received(&self.chunks, &socket, result, flags, chunk);
                Event::Received { token, result }
            }
            Operation::ReceiveDatagrams { token, .. } => {
                let result = Err(check(result).err().unwrap_or(Errno::CANCELED));
                Event::Datagram { token, result }
            }
            Operation::ReceiveExact {
                token,
                buffer,
                done,
                ..
            } => Event::ReceivedExact {
                token,
                buffer,
                result: check(result).map(|_| done),
            },
            Operation::Send {
                token,
                message,
                header,
                ..
            } => {
                self.spare_headers.extend(header);
                sent_event(token, message, result)
            }
            Operation::SendDatagram { token, room, .. } => {
                self.finish_datagram(token, room, result >= 0);
                return;
            }
            Operation::Store {
                token, operation, ..
            } => Event::Store {
                token,
                operation,
                result,
            },
            Operation::Helper { .. } => {
                debug_assert!(false, "helper work has no completion");
                return;
            }
            Operation::Alarm { deadline, .. } => {
                self.alarms.retain(|&alarm| alarm != deadline);
                return;
            }
            Operation::Mail { index, fd, count } => {
                if !self.closing {
                    self.start(Operation::Mail { index, fd, count });
                }
                return;
            }
        };
        self.ready.push(event);
    }
}

/// What a receive from a stream brought.
#[inline]
fn received(
    chunks: &Chunks,
    socket: &Socket,
    result: i32,
    flags: u32,
    chunk: Option<Rc<Buffer>>,
) -> Result<Received, Errno> {
    // At the end of the stream the kernel counts that end as something left.
    let more = result > 0 && cqueue::sock_nonempty(flags);
    socket.note_drained(result > 0 && !more);
    check(result).map(|len| Received {
        // The end of the stream may come without a chunk.
        chunk: chunk.unwrap_or_else(|| chunks.empty()),
        len,
        more,
    })
}

/// Takes over what an accept brought.
fn accepted(result: i32) -> Result<(OwnedFd, SocketAddr), Errno> {
    // SAFETY: a successful accept gives a new descriptor, which nobody else knows of.
    let fd = unsafe { OwnedFd::from_raw_fd(result) };
    crate::lane::note(result);
    // Fails when the peer has left again.
    let address = net::peer_address(&fd)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOTCONN))?;
    Ok((fd, address))
}
