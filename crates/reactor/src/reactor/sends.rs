//! Sends to streams, with a completion or without one.

use std::mem;

use memory::Message;

use super::Reactor;
use crate::Socket;
use crate::event::{Event, OperationId, SendEnd, Token};
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
        let mut header = self.spare_headers.pop().unwrap_or_else(SendHeader::new);
        header.address(None);
        self.start(Operation::Send {
            token,
            socket: socket.clone(),
            message,
            header,
            done: 0,
            at_once,
        })
    }

    /// Sends that the kernel was to take at once and has no completion for are over.
    pub(super) fn finish_at_once(&mut self, completions: &[Completion]) {
        for key in mem::take(&mut self.at_once) {
            let is_back = completions.iter().any(|one| one.user_data == key);
            if !is_back && let Some(slot) = self.in_flight.remove(key) {
                self.with_kernel -= 1;
                if let Operation::Send {
                    token,
                    message,
                    header,
                    ..
                } = slot.operation
                {
                    self.spare_headers.push(header);
                    self.ready.push(Event::Sent {
                        token,
                        message,
                        result: Ok(()),
                        at_once: true,
                    });
                }
            }
        }
    }
}
