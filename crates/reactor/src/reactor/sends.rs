//! Sends to streams, with a completion or without one.

use std::mem;

use io_uring::cqueue;
use memory::Message;

use super::Reactor;
use crate::Socket;
use crate::event::{Event, OperationId, SendEnd, Token};
use crate::in_flight::Key;
use crate::operation::{CALL_BYTES_MAX, Operation, PARTS_MAX, SendHeader};
use crate::ring::Completion;

impl Reactor {
    /// Sends the whole message ([`Event::Sent`]). Have one send under way per socket: the parts
    /// of two would mix.
    pub fn send(
        &mut self,
        socket: &Socket,
        token: Token,
        message: Message,
        end: SendEnd,
    ) -> OperationId {
        if message.is_empty() {
            let result = Ok(());
            return self.finished(Event::Sent {
                token,
                message,
                result,
                at_once: false,
            });
        }
        // Receives that have no chunk wait for what messages hold.
        let at_once = end == SendEnd::Waits
            && self.starved.is_empty()
            && message.part_count() <= PARTS_MAX
            && message.len() <= CALL_BYTES_MAX;
        let header = self.spare_headers.pop();
        let header = Some(header.unwrap_or_else(SendHeader::new));
        self.start(Operation::Send {
            token,
            socket: socket.clone(),
            message,
            header,
            done: 0,
            at_once,
        })
    }

    /// Finds out which sends are over that the kernel was to take at once. A completion says that it did not: also
    /// where the kernel has not taken all that was queued yet, for what was given back is sent again under the same
    /// key.
    pub(super) fn settle_at_once(&mut self, completions: &[Completion]) {
        for completion in completions {
            // What came in a chunk is a receive.
            if cqueue::buffer_select(completion.flags).is_none()
                && let Some(slot) = self.in_flight.find(completion.user_data)
            {
                slot.operation.note_given_back();
            }
        }
        if !self.ring.is_submitted() {
            return;
        }
        let mut keys = mem::take(&mut self.at_once);
        for key in keys.drain(..) {
            self.finish_at_once(key);
        }
        debug_assert!(self.at_once.is_empty(), "an end of a send sends");
        self.at_once = keys;
    }

    /// The end of a send, unless it was given back. What it had is taken out of it: it is not moved as a whole.
    fn finish_at_once(&mut self, key: Key) {
        let Some(slot) = self.in_flight.find(key) else {
            return;
        };
        if let Operation::Send {
            token,
            message,
            header,
            at_once: true,
            ..
        } = &mut slot.operation
        {
            self.spare_headers.extend(header.take());
            self.ready.push(Event::Sent {
                token: *token,
                message: mem::take(message),
                result: Ok(()),
                at_once: true,
            });
            self.in_flight.end(key);
            self.with_kernel -= 1;
        } else if slot.operation.is_at_once()
            && let Some(slot) = self.in_flight.remove(key)
            && let Operation::SendDatagram { token, room, .. } = slot.operation
        {
            self.with_kernel -= 1;
            self.finish_datagram(token, room, true);
        }
    }

    /// Whether there are sends whose ends come with the next event only.
    pub const fn has_unwatched(&self) -> bool {
        !self.at_once.is_empty()
    }
}
